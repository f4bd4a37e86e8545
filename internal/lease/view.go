package lease

import (
	"cmp"
	"slices"
	"time"
)

// The functions below are for people who look at a client. They go through all leases a few at a time, so that no lease
// has to wait for its renewal.

// viewed is how many leases are looked at before others may take the mutex.
const viewed = 1024

// View is a lease as it was at one moment.
type View struct {
	Held    bool          // registered: not removed, and not lost
	Since   time.Time     // when it was granted
	Until   time.Time     // see Engine.Until
	Renewed time.Time     // when its last confirmation was taken in, be it that of the grant
	Length  time.Duration // of the renewals
	Trust   time.Duration // how long it is trusted after a heartbeat; 0: there are none
	Auto    bool          // renewed
	Failing bool          // the last renewal, or the last look, failed
	MaxHold time.Time     // when MaxHold ends it; zero: never
}

// View looks at leases, which have been registered.
func (e *Engine) View(leases []*Lease) []View {
	views := make([]View, 0, len(leases))
	e.inParts(leases, func(l *Lease) {
		v := View{Held: l.state == registered, Since: e.time(l.start), Until: e.until(l), Renewed: e.time(l.confirmedAt),
			Length: l.length,
			Auto:   l.auto > 0, Failing: l.retrying}
		if e.heart != nil && l.group != beatless {
			v.Trust = e.heart.trust()
		}
		if !l.maxAt.IsZero() {
			v.MaxHold = e.time(l.maxAt)
		}
		views = append(views, v)
	})
	return views
}

// inParts calls f for all of the leases, with mu held.
func (e *Engine) inParts(leases []*Lease, f func(l *Lease)) {
	for part := range slices.Chunk(leases, viewed) {
		e.mu.Lock()
		for _, l := range part {
			f(l)
		}
		e.mu.Unlock()
	}
}

// Oldest sorts leases that have been registered, in the order of their grants.
func (e *Engine) Oldest(leases []*Lease) {
	slices.SortFunc(leases, func(a, b *Lease) int { // neither changes once a lease is registered
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.Owner, b.Owner))
	})
}

// State is what a watchdog was doing at one moment.
type State struct {
	Leases  int // registered
	Auto    int // of these, leases that are renewed
	Failing int // of these, leases whose last renewal or look failed
	Calls   int // renewal calls under way
	// Tracking says whether the server tells of keys that were deleted or overwritten: "on", "off", or "connecting".
	Tracking string
	// Heartbeat is the interval of heartbeats; 0: there are none. Beaten is when the last one was sent that was confirmed;
	// zero: none was. Missed: the last one was not confirmed.
	Heartbeat time.Duration
	Beaten    time.Time
	Missed    bool
	// Slept is when the machine was last seen to have slept, or its clock to have been set; zero: never.
	Slept time.Time
}

// State looks at the watchdog.
func (e *Engine) State() State {
	s := State{Calls: len(e.flight), Tracking: "off"}
	if e.tracks() {
		s.Tracking = "on"
		if t := e.tracker; t != nil {
			t.mu.Lock()
			if t.conn == nil {
				s.Tracking = "connecting"
			}
			t.mu.Unlock()
		}
	}
	e.inParts(e.All(), func(l *Lease) {
		if l.state != registered {
			return
		}
		s.Leases++
		if l.auto > 0 {
			s.Auto++
		}
		if l.retrying {
			s.Failing++
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.woke.IsZero() {
		s.Slept = e.time(e.woke)
	}
	if e.heart != nil && e.heart.Trust > 0 {
		e.heartState(&s)
	}
	return s
}

// heartState sets the fields of s on heartbeats. Called with mu held.
func (e *Engine) heartState(s *State) {
	s.Heartbeat = e.heart.Interval
	for i := range e.heart.parts {
		p := &e.heart.parts[i]
		if !p.beat.IsZero() {
			if beaten := e.time(p.beat); beaten.After(s.Beaten) {
				s.Beaten = beaten
			}
		}
		s.Missed = s.Missed || p.failed && p.leases > 0
	}
}
