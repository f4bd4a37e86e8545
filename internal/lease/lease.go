package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Lease is what one owner holds of one name, until a local deadline. The exported fields are set before Add and not
// changed afterwards; the rest is guarded by Engine.mu.
type Lease struct {
	Name string // as the user knows it
	Key  string // on the server
	// More are further keys of the lease, in Key's slot, for its renewal script: as many for every lease of one script;
	// nil: none. It is a pointer because few leases have any, and a held lock must cost little.
	More  *[]string
	Owner string // never used for another lease, so a lease's identity is its generation

	// Renew extends the lease on the server; see the package comment for its form.
	Renew *script.Script
	// Untracked: others write the lease's keys all the time, so that a change there says nothing about the lease. The
	// lease is renewed, and never looked at in between.
	Untracked bool
	// Drift: the lease's deadline leaves room for what Redlock takes off for the drift of clocks, where Margin is less.
	Drift bool
	// Soon: a lease that was handed over short is raised at once (see raiseSoon), and not only when a third of it is over.
	// Guarded by Engine.mu from Add on: Engine.Retake sets it anew.
	Soon bool
	// some request about it was not answered, and may yet raise it, to Longest at most
	unanswered bool
	reported   atomic.Bool // here, where it takes no room: a held lock must cost little
	// Ended is called when the lease is over without having been removed: once with errs.ErrLost, errs.ErrOverwritten or
	// errs.ErrMaxHold; and with errs.ErrClosed by Stop, and by EndAll, which may come before. It must not block.
	Ended func(why error)

	// Ctx is that of the acquisition, for Engine.Values; nil: none. Guarded by Engine.mu from Add on: see Engine.Under.
	Ctx context.Context

	// Of is what the lease belongs to, for callers that look it up. Where an owner is not text, Of has a method Shown()
	// string, by which logs call it.
	Of any

	// Longest is the longest length that was asked for: the server may keep the lease for that long from now, whatever is
	// done. Once the lease is in use, only Engine.Longest reads and changes it.
	Longest time.Duration

	keeping
}

// keeping is what the engine has of a lease. Guarded by Engine.mu.
type keeping struct {
	trusted
	renewals
	registration
}

// trusted is for how long acting is safe, and what that was learned from.
type trusted struct {
	deadline instant // acting is safe until then, as far as the lease goes
	// the same, even if the machine was asleep; before deadline while the server has not answered since
	sure        instant
	confirmedAt instant // when the last confirmation was taken in
	looked      instant // when the last look was that found less than was confirmed
	asked       instant // before the first request was sent that may have been granted
	maxAt       instant // MaxHold, zero: none
}

// renewals are when the lease is renewed and looked at, and whether it is.
type renewals struct {
	length  time.Duration // of the renewals
	start   instant       // the renewals are due at start + n*length/3
	renewAt instant
	checkAt instant // when to look whether it is still held; zero: there is no reason to
	// the lease that the server has, if a hand-over wrote a shorter one: one renewal is due in any case
	short    time.Duration
	next     instant // next event: renewal, deadline or MaxHold
	auto     int32   // how many handles want it renewed
	retrying bool    // the last renewal failed; renewAt is the end of a pause, not a point of the schedule
	inFlight bool    // a renewal is under way; the next event is its answer, or the deadline
	state    state
	group    uint8 // see Heartbeats
}

// registration is its place in the engine.
type registration struct {
	sibling *Lease // the next lease of the same key
	index   int32  // in the heap
	// Records is how many records a renewal reads and writes besides one of each key, as of a permit that is for many. It
	// is set before Add, as the fields of Lease are.
	Records int32
}

// instant is a time on the monotonic clock, after an engine's base: a third of a time.Time in size, and a lease has
// many. The zero value is none.
type instant time.Duration

func (i instant) Before(j instant) bool       { return i < j }
func (i instant) After(j instant) bool        { return i > j }
func (i instant) Add(d time.Duration) instant { return i + instant(d) }
func (i instant) Sub(j instant) time.Duration { return time.Duration(i - j) }
func (i instant) IsZero() bool                { return i == 0 }

type state uint8

const (
	unregistered state = iota
	registered
	over     // removed, or lost
	exceeded // ended by MaxHold: the server may still have it
)

// Margin returns what is taken off a lease before it is trusted locally: half a percent for clocks that run at
// different rates (a poor quartz is a hundred times better), and up to 10 ms for what passes between looking at the
// clock and acting on it.
func Margin(length time.Duration) time.Duration {
	return length/200 + min(length/10, 10*time.Millisecond)
}

// margin is Margin, or more for a lease with Drift.
func (l *Lease) margin(length time.Duration) time.Duration {
	m := Margin(length)
	if l.Drift {
		m = max(m, length/100+2*time.Millisecond)
	}
	return m
}

// Values returns a context with the values of the acquisition and without its end, for what happens to the lease
// outside of any call.
func (e *Engine) Values(l *Lease) context.Context {
	e.mu.Lock()
	ctx := l.Ctx
	e.mu.Unlock()
	if ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// Unanswered notes, before Add, that a request which may raise l was not answered.
func (l *Lease) Unanswered() { l.unanswered = true }

// Called returns the name by which logs call the owner.
func (l *Lease) Called() string {
	if of, ok := l.Of.(interface{ Shown() string }); ok {
		return of.Shown()
	}
	return l.Owner
}

// schedule computes the next event. Called with mu held.
func (l *Lease) schedule() {
	l.next = l.deadline
	if !l.maxAt.IsZero() && l.maxAt.Before(l.next) {
		l.next = l.maxAt
	}
	if l.inFlight {
		return
	}
	if (l.auto > 0 || l.short > 0) && l.renewAt.Before(l.next) {
		l.next = l.renewAt
	}
	if !l.checkAt.IsZero() && l.checkAt.Before(l.next) {
		l.next = l.checkAt
	}
}

// Tell reports whether this is the first call: Ended may be called twice, and an observer hears of it once.
func (l *Lease) Tell() bool { return l.reported.CompareAndSwap(false, true) }

// doubted reports whether the lease may end before the deadline, because the machine may have been asleep.
func (l *Lease) doubted() bool { return l.sure.Before(l.deadline) }

// latest is until when the server may have the lease, by what it has answered. It wrote term before that answer came.
func (l *Lease) latest() instant { return l.confirmedAt.Add(l.term()) }

// term returns the length of the lease that the server has: how much time there is for tries.
func (l *Lease) term() time.Duration {
	if l.short > 0 {
		return l.short
	}
	return l.length
}

// howLong is the length that a look asks for. The answer is how long the lease has left. A look writes nothing, and so
// causes no invalidation of its own.
const howLong = -time.Millisecond

// wanted reports whether a call about l should be sent at now, and the length that it should ask for: howLong for a
// look.
func (l *Lease) wanted(now instant) (length time.Duration, ok bool) {
	if l.inFlight {
		return 0, false
	}
	// What is due soon goes with the rest: otherwise every lease would be a batch of its own. Not so a retry, whose pause
	// may be shorter than that: it would be due at once, and a server that refuses quickly would be asked in a busy loop.
	renewBy, checkBy := now, now
	if !l.retrying && !(l.Soon && l.short > 0) { // a raise is due at the same instant as those that go with it
		renewBy, checkBy = now.Add(min(l.length/100, earliest)), now.Add(earliest/10)
	}
	switch {
	case l.auto > 0 && !renewBy.Before(l.renewAt):
		return l.length, true
	case l.short > 0 && !renewBy.Before(l.renewAt):
		return l.start.Add(l.length).Sub(now), true
	case !l.checkAt.IsZero() && !checkBy.Before(l.checkAt):
		return howLong, true
	}
	return 0, false
}

// retry plans the same request again for that time.
func (l *Lease) retry(at instant, length time.Duration) {
	l.retrying = true
	if length > 0 {
		l.renewAt = at
	} else {
		l.checkAt = at
	}
}

// plan sets the next renewal to the first point of the absolute schedule after now, and after the one that was planned,
// which may just have been made a little early. A late renewal does not push the later ones back: delays of a few
// milliseconds each would add up until a short lease runs out (TestRenewals_Slow_KeepToTheirSchedule).
func (l *Lease) plan(now instant) {
	after := now
	if l.renewAt.After(after) {
		after = l.renewAt
	}
	period := l.length / 3
	l.renewAt = l.start.Add((after.Sub(l.start)/period + 1) * period)
}

// Before orders the leases of an engine by their next events.
func (l *Lease) Before(other *Lease) bool { return l.next.Before(other.next) }

// SetIndex notes the lease's place among those of its engine.
func (l *Lease) SetIndex(index int) { l.index = int32(index) }
