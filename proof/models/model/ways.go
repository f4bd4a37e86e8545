package model

import (
	"fmt"
	"strings"
)

// Ways are the states in which a machine can be that has done what was seen so far. Not all that it does is seen.
type Ways[S comparable] map[S]struct{}

// From are the ways of a machine of which only its first state is known.
func From[S comparable](s S) Ways[S] { return Ways[S]{s: {}} }

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
