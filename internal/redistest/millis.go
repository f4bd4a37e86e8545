package redistest

import (
	"cmp"
	"testing"
	"time"
)

// Last is a grant that lasts until an instant, for LastsWholly. Kept may be nil.
type Last struct {
	// Take acquires the grant at once, and returns how long it is promised from then on.
	Take func(t *testing.T) time.Duration
	// Kept is called until the last microsecond of the promise, and checks that the caller still has the grant.
	Kept func(t *testing.T)
	// Gone tries to give the grant to another caller, and reports whether that caller has it now. Gone is called at
	// several instants of the promise; with Once, because it cannot be repeated, only at the last instant.
	Gone func(t *testing.T) bool
	Once bool
	// By is how long after the promise the grant may last. Defaults to a millisecond.
	By time.Duration
}

// LastsWholly checks that no grant goes to another caller before the promised instant. The clock of the embedded server
// counts microseconds. It stands still during Take, so the promise counts from that instant, as for a client without
// latency. A script that compares whole milliseconds would give a grant away up to a millisecond too early. How much
// too early depends on the microseconds at which the grant was acquired, so several are tried.
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

// lastsFrom checks a grant that is acquired at the instant taken: it does not go to another caller at any of the times
// befores ahead of the promised end, and, with finally, it does after the end.
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
