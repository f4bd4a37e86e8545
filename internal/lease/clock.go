package lease

import "time"

// instant is a time on the monotonic clock, after the base of an engine's clock. It has a third of the size of a
// time.Time, and a lease has many. The zero value is no instant.
type instant time.Duration

func (i instant) Before(other instant) bool          { return i < other }
func (i instant) After(other instant) bool           { return i > other }
func (i instant) Add(duration time.Duration) instant { return i + instant(duration) }
func (i instant) Sub(other instant) time.Duration    { return time.Duration(i - other) }
func (i instant) IsZero() bool                       { return i == 0 }

// forever is later than everything.
const forever = instant(1<<63 - 1)

const (
	// clockCheckInterval is the interval at which the wall clock is read while anything is held.
	clockCheckInterval = time.Second
	// wallJump is the advance of the wall clock over the monotonic clock, between two reads, from which on the machine is
	// taken to have been suspended: its leases ran on while its monotonic clock stood still. A wallSlew-th of the time
	// between the reads is added: a clock that is corrected gently runs up to 500 ppm fast, and while nothing is held the
	// clock is not read.
	wallJump = 500 * time.Millisecond
	wallSlew = 1000
)

// clock is the monotonic clock of an engine, and its wall clock. The wall clock is never used as a time: it only shows
// that more time has passed than on the monotonic clock, because the machine slept. Guarded by Engine.mu, except base.
type clock struct {
	base     time.Time // the zero of instants; never changed
	wall     func() time.Time
	lastWall time.Time
	lastMono time.Time // the monotonic clock when lastWall was read
	wokeAt   instant   // when a sleep of the machine was last seen
	sleptFor time.Duration
}

func newClock() clock {
	return clock{base: time.Now().Add(-time.Hour), wall: time.Now} // so that no instant is zero
}

func (c *clock) at(moment time.Time) instant { return instant(moment.Sub(c.base)) }

func (c *clock) time(moment instant) time.Time { return c.base.Add(time.Duration(moment)) }

func (c *clock) now() instant { return instant(time.Since(c.base)) }

// begin begins to compare the two clocks.
func (c *clock) begin() { c.lastWall, c.lastMono = c.wall(), time.Now() }

// read compares the two clocks. slept is the time for which the machine may have slept since the last read.
func (c *clock) read() (now instant, slept time.Duration) {
	c.lastWall, c.lastMono, slept = c.compare()
	now = c.at(c.lastMono)
	if slept > 0 {
		c.wokeAt, c.sleptFor = now, slept
	}
	return now, slept
}

// compare reads both clocks, and returns the advance of the wall clock over the monotonic clock since the last read; 0
// if it is too small to mean a sleep.
func (c *clock) compare() (wall, mono time.Time, ahead time.Duration) {
	wall, mono = c.wall(), time.Now()
	passed := mono.Sub(c.lastMono)
	ahead = wall.Round(0).Sub(c.lastWall.Round(0)) - passed // Round(0) drops the monotonic reading
	if ahead <= wallJump+passed/wallSlew {
		ahead = 0
	}
	return wall, mono, ahead
}

// sleptSince returns the time for which the machine may have slept since sent, as far as it is known.
func (c *clock) sleptSince(sent instant) time.Duration {
	if sent.Before(c.wokeAt) {
		return c.sleptFor
	}
	return 0
}
