// Package model searches state machines that describe the library's protocols, and follows in them what was seen of the
// library. It is for tests.
package model

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// Machine is a state machine. S has all there is, so that two equal states have the same future; E is one step.
type Machine[S comparable, E fmt.Stringer] struct {
	Start S
	// Follow calls emit with each state that can follow s, and the step to it; always in the same order.
	Follow func(s *S, emit func(next *S, by E))
	// Wrong says what does not hold in s; "": all holds. It is asked once about each state, in the order in which they
	// are found.
	Wrong func(s *S) string
	// Show describes a state in a trace; nil: traces have the steps alone.
	Show func(s *S) string
}

// Result is what a search has found.
type Result struct {
	States    int
	Depth     int    // steps of the longest of the shortest ways to a state
	Exhausted bool   // no state is left that was not looked at
	Wrong     string // what does not hold; "": nothing was found
	Trace     []string
}

// step is how a state was reached: the n-th step of that state.
type step struct {
	from uint32
	n    uint16
}

// Search looks at every state that can be reached, nearest first, so the trace to the first in which something is wrong
// is a shortest one. States are remembered by hashes of 64 bits: among ten million the chance that any two have one
// hash, and the later is not looked at, is three in a million.
func Search[S comparable, E fmt.Stringer](m Machine[S, E]) (r Result) {
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{maphash.Comparable(seed, m.Start): {}}
	steps := []step{{}}
	level, base := []S{m.Start}, 0
	for ; len(level) > 0 && r.Wrong == ""; r.Depth++ {
		var coming []S
		begins := len(steps)
		for i := range level {
			n := uint16(0)
			m.Follow(&level[i], func(s *S, _ E) {
				at := step{uint32(base + i), n}
				n++
				key := maphash.Comparable(seed, *s)
				if _, ok := seen[key]; ok || r.Wrong != "" {
					return
				}
				seen[key] = struct{}{}
				steps = append(steps, at)
				coming = append(coming, *s)
				r.Wrong = m.Wrong(s)
			})
			if r.Wrong != "" {
				r.Trace = m.trace(steps)
				break
			}
		}
		level, base = coming, begins
	}
	if r.Exhausted = len(level) == 0; r.Exhausted {
		r.Depth-- // the last round has found nothing
	}
	r.States = len(steps)
	return r
}

// trace makes the steps again that lead to the last state.
func (m Machine[S, E]) trace(steps []step) (lines []string) {
	var way []uint16
	for at := uint32(len(steps) - 1); at != 0; at = steps[at].from {
		way = append(way, steps[at].n)
	}
	slices.Reverse(way)
	s := m.Start
	for _, want := range way {
		var next S
		n := uint16(0)
		m.Follow(&s, func(other *S, e E) {
			if n == want {
				next = *other
				line := e.String()
				if m.Show != nil {
					line = fmt.Sprintf("%-58s %s", line, m.Show(other))
				}
				lines = append(lines, line)
			}
			n++
		})
		s = next
	}
	return lines
}
