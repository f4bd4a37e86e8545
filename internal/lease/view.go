package lease

import (
	"cmp"
	"slices"
	"time"
)

// The functions below are for the debug page. They read all leases in parts, so that no lease has to wait for its
// renewal.

// viewPart is the number of leases that are read before the mutex is released.
const viewPart = 1024

// View is the state of a lease at one moment.
type View struct {
	Held    bool          // registered: not removed, and not lost
	Since   time.Time     // when it was granted
	Until   time.Time     // see Engine.Until
	Renewed time.Time     // when its last confirmation was recorded, or that of the grant
	Length  time.Duration // of the renewals
	Trust   time.Duration // how long it is trusted after a heartbeat; 0: without heartbeats
	Auto    bool          // the lease is renewed
	Failing bool          // the last renewal, or the last look, failed
	MaxHold time.Time     // when MaxHold ends it; zero: never
}

// View returns the state of leases that have been registered.
func (e *Engine) View(leases []*Lease) []View {
	views := make([]View, 0, len(leases))
	e.forEach(leases, func(lease *Lease) {
		view := View{Held: lease.state == registered, Since: e.clock.time(lease.schedule.start), Until: e.until(lease),
			Renewed: e.clock.time(lease.trust.confirmedAt), Length: lease.schedule.length,
			Auto: lease.schedule.isRenewed(), Failing: lease.schedule.retrying}
		if e.heartbeats != nil && lease.group != noGroup {
			view.Trust = e.heartbeats.trustPeriod()
		}
		if !lease.maxAt.IsZero() {
			view.MaxHold = e.clock.time(lease.maxAt)
		}
		views = append(views, view)
	})
	return views
}

// forEach calls visit for all leases, with mu held.
func (e *Engine) forEach(leases []*Lease, visit func(lease *Lease)) {
	for part := range slices.Chunk(leases, viewPart) {
		e.mu.Lock()
		for _, lease := range part {
			visit(lease)
		}
		e.mu.Unlock()
	}
}

// Oldest sorts leases that have been registered, in the order of their grants.
func (e *Engine) Oldest(leases []*Lease) {
	starts := make(map[*Lease]instant, len(leases)) // Retake changes the start of a lease
	e.forEach(leases, func(lease *Lease) { starts[lease] = lease.schedule.start })
	slices.SortFunc(leases, func(first, second *Lease) int {
		return cmp.Or(cmp.Compare(starts[first], starts[second]), cmp.Compare(first.Owner, second.Owner))
	})
}

// State is the state of a watchdog at one moment.
type State struct {
	Leases  int // registered
	Auto    int // of these, leases that are renewed
	Failing int // of these, leases whose last renewal or look failed
	Calls   int // renewal calls under way
	// Tracking is "on" if the server reports keys that were deleted or overwritten; otherwise "off", or "connecting".
	Tracking string
	// Heartbeat is the interval of heartbeats; 0: there are none. Beaten is when the last confirmed heartbeat was sent;
	// zero: none was. Missed is set if the last heartbeat was not confirmed.
	Heartbeat time.Duration
	Beaten    time.Time
	Missed    bool
	// Slept is when the machine was last seen to have slept, or its clock to have been set; zero: never.
	Slept time.Time
}

// State returns the state of the watchdog.
func (e *Engine) State() State {
	state := State{Calls: len(e.callPlaces), Tracking: e.tracker.state()}
	e.forEach(e.All(), func(lease *Lease) {
		if lease.state != registered {
			return
		}
		state.Leases++
		if lease.schedule.isRenewed() {
			state.Auto++
		}
		if lease.schedule.retrying {
			state.Failing++
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if wokeAt := e.clock.wokeAt; !wokeAt.IsZero() {
		state.Slept = e.clock.time(wokeAt)
	}
	if e.heartbeats != nil && e.heartbeats.Trust > 0 {
		e.fillHeartbeats(&state)
	}
	return state
}

// fillHeartbeats sets the fields of state on heartbeats. Called with mu held.
func (e *Engine) fillHeartbeats(state *State) {
	state.Heartbeat = e.heartbeats.Interval
	for i := range e.heartbeats.groups {
		group := &e.heartbeats.groups[i]
		if !group.lastSentAt.IsZero() {
			if beaten := e.clock.time(group.lastSentAt); beaten.After(state.Beaten) {
				state.Beaten = beaten
			}
		}
		state.Missed = state.Missed || group.lastFailed && group.leases > 0
	}
}
