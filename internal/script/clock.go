package script

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Clock estimates each node's own time from the times that its replies carry, so that a request can say "not after" by
// the only clock that the server has. Nothing here is compared with this machine's wall clock: an estimate is a server
// time and the monotonic instant at which it was current, and only differences are added to it.
type Clock struct {
	mu      sync.Mutex
	samples map[uint16]Estimate // by hash slot, because nothing here knows the nodes of slots
	apart   func() bool         // see Runner.Apart: each slot may have a node with a clock of its own
}

// Estimate is what a Clock knows of a server.
type Estimate struct {
	Server int64         // ms, as the server said
	At     time.Time     // when its reply came
	Spread time.Duration // the server's time was read somewhere in [At-Spread, At]
}

func newClock(apart func() bool) *Clock {
	return &Clock{samples: map[uint16]Estimate{}, apart: apart}
}

func (c *Clock) slot(key string) uint16 {
	if !c.apart() {
		return 0
	}
	return keyname.Slot(key)
}

// sampleAge is how long a better sample is kept before a worse, newer one replaces it: clocks that differ by a part in
// a thousand are 30 ms further apart after that time.
const sampleAge = 30 * time.Second

// Learn records that the server of key said ms in a reply to a request sent at sent and received at received.
func (c *Clock) Learn(key string, ms int64, sent, received time.Time) {
	sample := Estimate{Server: ms, At: received, Spread: received.Sub(sent)}
	slot := c.slot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.samples[slot]
	if known && sample.Spread > 2*old.Spread+time.Millisecond && received.Sub(old.At) < sampleAge {
		return
	}
	c.samples[slot] = sample
}

// Relearn is Learn for a reply that proved the estimate wrong, and replaces whatever is known.
func (c *Clock) Relearn(key string, ms int64, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples[c.slot(key)] = Estimate{Server: ms, At: received, Spread: received.Sub(sent)}
}

// Trip returns how long one of the quickest recent requests to the server of key took, or 0 if none is known.
func (c *Clock) Trip(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.samples[c.slot(key)].Spread
}

// At returns the server's time at the monotonic instant t, in ms, or 0 if nothing is known of that server yet. The
// estimate errs to the early side, by at most the round trip of the sample (TestClock_Estimate_IsNeverLate). A request
// that names it as its not-after may run for the rest of that millisecond: see LastRun.
func (c *Clock) At(key string, moment time.Time) int64 {
	c.mu.Lock()
	sample, known := c.samples[c.slot(key)]
	c.mu.Unlock()
	if !known {
		return 0
	}
	later := moment.Sub(sample.At)
	if later < 0 { // a sample came while t was computed; division rounds towards zero, and that is the late side then
		later -= time.Millisecond - 1
	}
	return sample.Server + later.Milliseconds()
}

// near is how soon a waiter leaves that is sent to the server.
const near = time.Second

// Leaves returns the server's time at t, at which a waiter in a queue on the server gives up, for its entry there: from
// then on nothing is handed to the waiter. A grant that was handed to it before, and has yet to reach this process,
// would be released again, a round trip later. The first in a queue has waited for longest, so in a crowd with little
// patience nearly all grants would be. At errs to the early side, by about as much as the message takes.
//
// Leaves returns 0, so that no instant is sent, in three cases: t is zero, which is never; t is more than a second
// away; or nothing is known of that server yet. Few waiters with that much patience leave, and a server whose clock is
// stepped forward must not take all waiters for gone.
func (c *Clock) Leaves(key string, moment time.Time) int64 {
	if moment.IsZero() || time.Until(moment) > near {
		return 0
	}
	return c.At(key, moment)
}

// tick is the unit of the server's time where instants are compared: whole milliseconds. A hold that lasts until an
// instant has the millisecond of the instant wholly: see lua/clock.lua. So an instant that this machine has from the
// server, or has named to it, is over there up to one tick later than here. A holder that stops at its instant stops in
// time. A caller that waits until the instant is over adds the tick, by the two functions below and nowhere else.
const tick = time.Millisecond

// LastRun returns until when a request may run that the server refuses after the instant notAfter: for the rest of that
// millisecond. A request that has to come after every run of it is sent no earlier.
func LastRun(notAfter time.Time) time.Time { return notAfter.Add(tick) }

// Expiry returns how long after a reply with the time left of a lease a request finds the lease expired.
func Expiry(left time.Duration) time.Duration { return left + tick }

// Left returns how long something is left at now that ends in the server's millisecond end, for people who look: 0 if
// it has expired, and otherwise a millisecond at least. A holder trusts end-now, which may be 0 before the lease has
// expired.
func Left(end, now int64) time.Duration {
	if now > end {
		return 0
	}
	return Duration(max(1, end-now))
}

// Newest returns the newest of the estimates, and how many there are: one for each slot of a Cluster that was asked
// about, else one.
func (c *Clock) Newest() (newest Estimate, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sample := range c.samples {
		if sample.At.After(newest.At) {
			newest = sample
		}
	}
	return newest, len(c.samples)
}
