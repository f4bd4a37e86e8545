package lease

import (
	"slices"
	"time"
)

// viewPart is the number of leases that are read before the mutex is released.
const viewPart = 1024

// View is the state of a registered lease at one moment, for the debug page.
type View struct {
	*Lease
	Since   time.Time     // when it was granted
	Until   time.Time     // see Engine.Until
	Renewed time.Time     // when its last confirmation was recorded, or that of the grant
	Length  time.Duration // of the renewals
	Trust   time.Duration // how long it is trusted after a heartbeat; 0: without heartbeats
	Auto    bool          // the lease is renewed
	Failing bool          // the last renewal, or the last look, failed
	MaxHold time.Time     // when MaxHold ends it; zero: never
}

// Views returns the state of all registered leases. It reads them in parts, so that no lease has to wait for its
// renewal.
func (e *Engine) Views() (views []View) {
	for part := range slices.Chunk(e.all(), viewPart) {
		e.mu.Lock()
		for _, lease := range part {
			if lease.state != registered {
				continue // released meanwhile
			}
			view := View{Lease: lease, Since: e.clock.time(lease.schedule.start), Until: e.until(lease),
				Renewed: e.clock.time(lease.trust.confirmedAt), Length: lease.schedule.length,
				Auto: lease.schedule.isRenewed(), Failing: lease.schedule.retrying}
			if lease.group != noGroup {
				view.Trust = e.heartbeats.trustPeriod()
			}
			if !lease.maxAt.IsZero() {
				view.MaxHold = e.clock.time(lease.maxAt)
			}
			views = append(views, view)
		}
		e.mu.Unlock()
	}
	return views
}

// State is the state of a watchdog at one moment, for the debug page.
type State struct {
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
	state := State{Tracking: e.tracker.state()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if wokeAt := e.clock.wokeAt; !wokeAt.IsZero() {
		state.Slept = e.clock.time(wokeAt)
	}
	if e.heartbeats.Trust == 0 {
		return state
	}
	state.Heartbeat = e.heartbeats.Interval
	var lastSentAt instant
	for i := range e.heartbeats.groups {
		group := &e.heartbeats.groups[i]
		lastSentAt = max(lastSentAt, group.lastSentAt)
		state.Missed = state.Missed || group.lastFailed && group.leases > 0
	}
	if !lastSentAt.IsZero() {
		state.Beaten = e.clock.time(lastSentAt)
	}
	return state
}
