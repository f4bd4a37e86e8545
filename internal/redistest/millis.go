package redistest

import (
	"cmp"
	"testing"
	"time"
)

// Last is one thing that a caller has until an instant, for LastsWholly. Kept may be nil.
type Last struct {
	// Take takes it, at once, and returns for how long after that it is promised.
	Take func(t *testing.T) time.Duration
	// Kept is called until the last microsecond of the promise: the caller that took it still has it.
	Kept func(t *testing.T)
	// Gone gives it away: it reports whether another has it now. One that could be tried again is called at several
	// instants of the promise, one that cannot (Once) at the last.
	Gone func(t *testing.T) bool
	Once bool
	// By is how long after the promise it is gone. Defaults to a millisecond.
	By time.Duration
}

// LastsWholly checks, by a clock of an embedded server that counts microseconds, that nothing is given away before the
// instant that its holder was promised. The clock stands while it is taken, so the promise counts from that very
// instant: as for a client that is infinitely near. A server that compares whole milliseconds gives it away up to one
// too soon, unless that is allowed for, and how much too soon depends on where in its millisecond it was taken.
func LastsWholly(t *testing.T, s *Server, start func(t *testing.T) Last) {
	t.Helper()
	at, once := time.Now().Truncate(time.Second), start(t).Once
	try := func(phase time.Duration, finally bool, befores ...time.Duration) {
		at = at.Add(24 * time.Hour) // nothing is left of the last one
		lastsFrom(t, s, at.Add(phase), start, finally, befores)
	}
	for _, phase := range []time.Duration{0, time.Microsecond, 400 * time.Microsecond, 999 * time.Microsecond} {
		early := []time.Duration{time.Millisecond, time.Millisecond - time.Microsecond, 500 * time.Microsecond,
			time.Microsecond}
		if !once {
			try(phase, true, early...)
			continue
		}
		for _, before := range early {
			try(phase, false, before)
		}
		try(phase, true)
	}
}

// lastsFrom checks what is taken at an instant: it is not given away so long before the end that was promised, and
// finally is.
func lastsFrom(t *testing.T, s *Server, taken time.Time, start func(t *testing.T) Last, finally bool,
	befores []time.Duration) {
	t.Helper()
	phase := taken.Sub(taken.Truncate(time.Millisecond))
	s.Embedded.SetTime(taken)
	x := start(t)
	promise := x.Take(t)
	for _, before := range befores {
		s.Embedded.SetTime(taken.Add(promise - before))
		if x.Kept != nil {
			x.Kept(t)
		}
		if x.Gone(t) {
			t.Fatalf("taken %v after a millisecond began, promised for %v, and given away %v before the end of that", phase,
				promise, before)
		}
	}
	if !finally {
		return
	}
	by := cmp.Or(x.By, time.Millisecond)
	s.Embedded.SetTime(taken.Add(promise + by))
	if !x.Gone(t) {
		t.Fatalf("taken %v after a millisecond began, promised for %v, and still not given away %v after that", phase,
			promise, by)
	}
}
