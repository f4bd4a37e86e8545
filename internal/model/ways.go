package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ways are the states in which a machine can be that has done what was seen so far. Not all that it does is seen.
type Ways[S comparable] map[S]struct{}

// From are the ways of a machine of which only its first state is known.
func From[S comparable](s S) Ways[S] { return Ways[S]{s: {}} }

// Unfold adds all that can come of w while nothing is seen: hidden calls emit with what can come of a state by one
// hidden step. It reports whether those are at most so many; otherwise it ends early.
func (w Ways[S]) Unfold(most int, hidden func(s S, emit func(S))) bool {
	todo := slices.Collect(maps.Keys(w))
	for len(todo) > 0 {
		if len(w) > most {
			return false
		}
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		hidden(s, func(n S) {
			if _, ok := w[n]; !ok {
				w[n] = struct{}{}
				todo = append(todo, n)
			}
		})
	}
	return true
}

// See are the ways after something was seen: see calls emit with each state that can come of a state by it, and with
// none if it cannot. No way at all means that the machine does not do what was seen.
func (w Ways[S]) See(see func(s S, emit func(S))) Ways[S] {
	next := Ways[S]{}
	for s := range w {
		see(s, func(n S) { next[n] = struct{}{} })
	}
	return next
}

// String shows a few of the states.
func (w Ways[S]) String() string {
	var b strings.Builder
	n := 0
	for s := range w {
		if n++; n > 4 {
			fmt.Fprintf(&b, "; and %d more", len(w)-4)
			break
		}
		if n > 1 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%+v", s)
	}
	return b.String()
}
