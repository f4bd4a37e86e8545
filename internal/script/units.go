package script

import (
	"strconv"
	"time"
)

// Duration is ms as a time.Duration, the longest one if it does not fit.
func Duration(ms int64) time.Duration { return scaled(ms, time.Millisecond) }

// Micros is us as a time.Duration, the longest one if it does not fit.
func Micros(us int64) time.Duration { return scaled(us, time.Microsecond) }

func scaled(n int64, unit time.Duration) time.Duration {
	most := int64(1<<63-1) / int64(unit)
	return time.Duration(max(-most, min(most, n))) * unit
}

// Millis is d as an argument of a script: in whole milliseconds, rounded up. What goes to the server in whole milliseconds
// are leases, the ends of keys, and times for which something is remembered or waited for. Rounded up
//
//   - a lease lasts on the server no shorter than its holder, who counts in nanoseconds, believes;
//   - what is to be there for d is there for d;
//   - and no bound is cut to 0, which PEXPIRE takes for "now", WAIT for "for ever" and scripts for "none".
//
// Instants are none of these: one after which a request is refused is rounded down (Clock.At, NotAfter).
func Millis(d time.Duration) string { return strconv.FormatInt(millis(d), 10) }

// NotAfter is the instant d after the server said in a reply that its time is server, in ms: what a caller that still waits for
// d says that is not to be done later. It is rounded down, and the server's time has gone on since, so it is never later than
// the end of d.
func NotAfter(server int64, d time.Duration) string {
	return strconv.FormatInt(server+d.Milliseconds(), 10)
}

func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
