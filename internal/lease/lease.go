package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Lease is the lease of one owner on one name, until a local deadline. The exported fields are set before Add and not
// changed afterwards; the rest is guarded by Engine.mu.
type Lease struct {
	Name string // the user's name for the object
	Key  string // on the server
	// More are further keys of the lease, in Key's slot, for its renewal script: as many for every lease of one script;
	// nil: none. It is a pointer because few leases have any, and a held lock must cost little.
	More  *[]string
	Owner string // never used for another lease, so a lease's identity is its generation

	// Renew extends the lease on the server; see the package comment for its form.
	Renew *script.Script
	// Untracked is set if other owners write the lease's keys all the time, so that a change of a key says nothing about
	// the lease. The lease is renewed, and never looked at in between.
	Untracked bool
	// Drift makes the deadline allow for the clock drift that Redlock subtracts, where Margin is less.
	Drift bool

	// Ctx is the context of the acquisition, for Engine.Values; nil: none. Guarded by Engine.mu from Add on, because
	// Engine.Retake sets it anew.
	Ctx context.Context

	// Of is the holder of the lease, also for callers that look the lease up.
	Of Holder

	// Longest is the longest length that was requested: the server may keep the lease for that long from now, whatever is
	// done. Once the lease is in use, only Engine.Longest reads and changes it.
	Longest time.Duration

	// The fields below are guarded by Engine.mu.
	trust    trust
	schedule schedule
	maxAt    instant // the end by MaxHold; zero: none
	state    state
	group    uint8 // the slot group of its heartbeats; or noGroup
	// A request without a reply may yet raise the lease, to Longest at most.
	raiseUnanswered bool

	// The registration.
	index   int32  // in Engine.leases
	sibling *Lease // the next lease of the same key
}

// Holder is the holder of a lease, as the engine knows it. The methods must not block.
type Holder interface {
	// Ended is called when the lease is over without having been removed: once with errs.ErrLost, errs.ErrOverwritten or
	// errs.ErrMaxHold; and with errs.ErrClosed by Stop, and by EndAll, which may come before.
	Ended(reason error)
	// Renewed is called after every renewal attempt, with nil or the reason of the failure.
	Renewed(err error)
	// InUse reports whether a call may still release the lease. A dropped lease is not in use, and stays with the engine
	// until it is over.
	InUse() bool
	// Shown returns the name of the owner for logs. An owner need not be text.
	Shown() string
	// Records returns the number of records that a renewal reads and writes besides one for each key, as for a permit of
	// several. It does not change.
	Records() int
}

type state uint8

const (
	unregistered state = iota
	registered
	ended          // removed, or lost
	endedByMaxHold // ended by MaxHold: the server may still have it
)

// Margin returns the part of a lease that is subtracted before it is trusted locally: half a percent for clocks that
// run at different rates (a poor quartz is a hundred times better), and up to 10 ms for the time between reading the
// clock and acting on it.
func Margin(length time.Duration) time.Duration {
	return length/200 + min(length/10, 10*time.Millisecond)
}

// margin is Margin, or more for a lease with Drift.
func (l *Lease) margin(length time.Duration) time.Duration {
	margin := Margin(length)
	if l.Drift {
		margin = max(margin, length/100+2*time.Millisecond)
	}
	return margin
}

// Values returns a context with the values of the acquisition and without its end, for events of the lease outside of
// any call.
func (e *Engine) Values(lease *Lease) context.Context {
	e.mu.Lock()
	ctx := lease.Ctx
	e.mu.Unlock()
	if ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// RaiseSoon makes a lease that is handed over short be raised at once (see raiseInterval), and not only when a third of
// it is over. It is called before Add.
func (l *Lease) RaiseSoon() { l.schedule.raisesSoon = true }

// Unanswered records, before Add, that a request that may raise the lease was not answered.
func (l *Lease) Unanswered() { l.raiseUnanswered = true }

// nextEvent returns when the lease needs the engine next: for a request, at the deadline, or at MaxHold.
func (l *Lease) nextEvent() instant {
	next := min(l.trust.deadline, l.schedule.nextRequest())
	if !l.maxAt.IsZero() {
		next = min(next, l.maxAt)
	}
	return next
}

// serverUntil returns the instant until which the server may have the lease, according to its replies. The server wrote
// the lease before the last confirmation came.
func (l *Lease) serverUntil() instant { return l.trust.confirmedAt.Add(l.schedule.serverLength()) }

// Before orders the leases of an engine by their next events.
func (l *Lease) Before(other *Lease) bool { return l.nextEvent().Before(other.nextEvent()) }

// SetIndex records the index in Engine.leases.
func (l *Lease) SetIndex(index int) { l.index = int32(index) }
