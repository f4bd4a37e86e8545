package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Claim is what one owner holds of one name, until a local deadline. The exported fields are set before Add and not
// changed afterwards; the rest is guarded by Engine.mu.
type Claim struct {
	Name string // as the user knows it
	Key  string // on the server
	// More are further keys of the claim, in Key's slot, for its renewal script. As many for every claim of one script.
	More  []string
	Owner string // never used for another claim, so a claim's identity is its generation
	Shown string // what logs call the owner, if it is not text

	// Renew extends the claim's lease on the server; see the package comment for its form.
	Renew *script.Script
	// Untracked: others write the claim's keys all the time, so that a change there says nothing about the claim. It is
	// only renewed, never looked at in between.
	Untracked bool
	// Drift: the claim's deadline leaves room for what Redlock takes off for the drift of clocks, where Margin is less.
	Drift bool
	told  atomic.Bool // here, where it takes no room: a held lock is to cost little
	// Ended is called when the claim is over without having been removed: errs.ErrLost, errs.ErrOverwritten or errs.ErrMaxHold,
	// once; and with errs.ErrClosed by EndAll, which may be before that, and Stop. It must not block.
	Ended func(why error)

	// Ctx is that of the acquisition, for Values; nil: none.
	Ctx context.Context

	// Of is what the claim belongs to, for whoever looks it up.
	Of any

	// Longest is the longest lease that has been asked for: the server may keep the claim for so long from now, whatever is
	// done. Once the claim is in use it is Engine.Longest's.
	Longest time.Duration

	beside   *Claim // the next claim of the same key
	lease    time.Duration
	deadline instant // acting is safe until then, as far as the lease goes
	sure     instant // the same, even if the machine was asleep; less than deadline while the server has not answered since
	heard    instant // when the last confirmation of a lease was taken in
	looked   instant // when a look that found less was
	asked    instant // before the request was sent that was granted
	maxAt    instant // MaxHold, zero: none
	start    instant // the renewal schedule is start + n*lease/3
	renewAt  instant
	checkAt  instant       // when to look whether it is still held; zero: no reason to
	short    time.Duration // the lease that the server has, if it is shorter than ours is to be: one renewal is due in any case
	auto     int32         // how many handles want it renewed
	retrying bool          // the last renewal failed; renewAt is a pause's end, not a point of the schedule
	inFlight bool          // a renewal is under way; only its answer, or the deadline, is the next event
	state    state
	district uint8   // see Heartbeats
	next     instant // next event: renewal, deadline or MaxHold
	index    int     // in the heap
}

// instant is a time on the monotonic clock, after an engine's base: a third of a time.Time, of which a claim has many.
// The zero value is none.
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
	over // removed, or ended by the engine
)

// Margin is what is taken off a lease before it is trusted locally: half a percent, for clocks that run at different
// rates (a poor quartz is a hundred times better), and up to 10 ms for what passes between looking at the clock and
// acting on it.
func Margin(lease time.Duration) time.Duration {
	return lease/200 + min(lease/10, 10*time.Millisecond)
}

// margin is what is taken off a lease of the claim.
func (c *Claim) margin(lease time.Duration) time.Duration {
	m := Margin(lease)
	if c.Drift {
		m = max(m, lease/100+2*time.Millisecond)
	}
	return m
}

// Values is a context with the values of the acquisition and without its end, for what happens to the claim while nobody
// calls.
func (c *Claim) Values() context.Context {
	if c.Ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(c.Ctx)
}

// owner is what logs call the owner.
func (c *Claim) owner() string {
	if c.Shown != "" {
		return c.Shown
	}
	return c.Owner
}

// schedule computes the next event. Called with mu held.
func (c *Claim) schedule() {
	c.next = c.deadline
	if !c.maxAt.IsZero() && c.maxAt.Before(c.next) {
		c.next = c.maxAt
	}
	if c.inFlight {
		return
	}
	if (c.auto > 0 || c.short > 0) && c.renewAt.Before(c.next) {
		c.next = c.renewAt
	}
	if !c.checkAt.IsZero() && c.checkAt.Before(c.next) {
		c.next = c.checkAt
	}
}

// Tell reports whether this is the first time that it is asked: an observer is told of an end once, which Ended is not.
func (c *Claim) Tell() bool { return c.told.CompareAndSwap(false, true) }

// doubted reports whether the lease may end before the deadline, because the machine may have been asleep.
func (c *Claim) doubted() bool { return c.sure.Before(c.deadline) }

// term is the lease that the server has: how much time there is for trying.
func (c *Claim) term() time.Duration {
	if c.short > 0 {
		return c.short
	}
	return c.lease
}

// howLong is the lease that a look asks for. A look says how long the claim has left. It writes nothing, and so causes no
// invalidation of its own.
const howLong = -time.Millisecond

// wanted reports whether a call about c should go out at now, and the lease it should ask for: howLong for a look.
func (c *Claim) wanted(now instant) (lease time.Duration, ok bool) {
	if c.inFlight {
		return 0, false
	}
	// What is due soon goes with the rest: otherwise every claim is a batch of its own. Not so a retry, whose pause
	// may be shorter than that.
	renewBy, checkBy := now, now
	if !c.retrying {
		renewBy, checkBy = now.Add(min(c.lease/100, earliest)), now.Add(earliest/10)
	}
	switch {
	case c.auto > 0 && !renewBy.Before(c.renewAt):
		return c.lease, true
	case c.short > 0 && !renewBy.Before(c.renewAt):
		return c.start.Add(c.lease).Sub(now), true
	case !c.checkAt.IsZero() && !checkBy.Before(c.checkAt):
		return howLong, true
	}
	return 0, false
}

// plan sets the next renewal to the first point of the absolute schedule after now, and after the one that was
// planned, which may just have been done a little early. Renewals that are late do not push the later ones back:
// delays of a few milliseconds each would add up until a lease runs out.
func (c *Claim) plan(now instant) {
	after := now
	if c.renewAt.After(after) {
		after = c.renewAt
	}
	period := c.lease / 3
	c.renewAt = c.start.Add((after.Sub(c.start)/period + 1) * period)
}

// claims is a binary heap by next event.
type claims []*Claim

func (h claims) Len() int           { return len(h) }
func (h claims) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h claims) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *claims) Push(x any)        { c := x.(*Claim); c.index = len(*h); *h = append(*h, c) }
func (h *claims) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}
