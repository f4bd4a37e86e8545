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
	samples map[uint16]Estimate // by hash slot: which node serves a slot need not be known here
	apart   func() bool         // see Runner.Apart: there are nodes, each with a clock of its own
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
	s := Estimate{Server: ms, At: received, Spread: received.Sub(sent)}
	slot := c.slot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.samples[slot]; ok && s.Spread > 2*old.Spread+time.Millisecond && received.Sub(old.At) < sampleAge {
		return
	}
	c.samples[slot] = s
}

// Relearn is Learn for a reply that proved the estimate wrong: it replaces whatever is known.
func (c *Clock) Relearn(key string, ms int64, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples[c.slot(key)] = Estimate{Server: ms, At: received, Spread: received.Sub(sent)}
}

// Trip returns how long a request to the server of key took, one of the quickest of late; 0 if none is known of.
func (c *Clock) Trip(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.samples[c.slot(key)].Spread
}

// At returns the server's time at the monotonic instant t, in ms, or 0 if nothing is known of that server yet. It errs
// to the early side, by at most the round trip of the sample (TestClock_Estimate_IsNeverLate). A request that names
// it as its not-after may run for the rest of that millisecond: see LastRun.
func (c *Clock) At(key string, t time.Time) int64 {
	c.mu.Lock()
	s, ok := c.samples[c.slot(key)]
	c.mu.Unlock()
	if !ok {
		return 0
	}
	d := t.Sub(s.At)
	if d < 0 { // a sample came while t was computed; division rounds towards zero, and that is the late side then
		d -= time.Millisecond - 1
	}
	return s.Server + d.Milliseconds()
}

// near is how soon a waiter leaves that is sent to the server.
const near = time.Second

// Leaves returns the server's time at t, at which a waiter in a queue on the server gives up, for its entry there: from
// then on nothing is handed to it. What was handed to it before, and has yet to reach this process, would be released
// again, a round trip later; and the first in a queue is the one that has waited for longest, so in a crowd with little
// patience nearly all would be. At errs to the early side, by about as much as the message takes.
//
// 0: t is zero, which is never, or more than a second away, or nothing is known of that server yet. Then none is
// sent: of those who have that much patience few leave, and a server whose clock is stepped forward must not take all
// that wait for gone.
func (c *Clock) Leaves(key string, t time.Time) int64 {
	if t.IsZero() || time.Until(t) > near {
		return 0
	}
	return c.At(key, t)
}

// tick is what the server's time is counted in where instants are compared: whole milliseconds. Whatever lasts until an
// instant has its millisecond wholly: see lua/clock.lua. So an instant that this machine has from the server, or has
// named to it, is over there up to one tick later than here. A holder that stops at its instant stops in time. Who
// waits until it is over adds the tick, by the two functions below and nowhere else.
const tick = time.Millisecond

// LastRun returns until when a request may run that the server refuses after the instant notAfter: for the rest of that
// millisecond. What is to come after every run of such a request is sent no earlier.
func LastRun(notAfter time.Time) time.Time { return notAfter.Add(tick) }

// Expiry returns how long after a reply that says that a lease is left for that long a request finds it expired.
func Expiry(left time.Duration) time.Duration { return left + tick }

// Left returns how long something is left that ends in the server's millisecond end, where now is, for those that only
// look: 0 if that has expired, and otherwise a millisecond at least. A holder trusts end-now, which may be 0 when it
// has not.
func Left(end, now int64) time.Duration {
	if now > end {
		return 0
	}
	return time.Duration(max(1, end-now)) * time.Millisecond
}

// Newest returns the newest of the estimates, and how many there are: one for each slot of a Cluster that was asked
// about, else one.
func (c *Clock) Newest() (e Estimate, of int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.samples {
		if s.At.After(e.At) {
			e = s
		}
	}
	return e, len(c.samples)
}
