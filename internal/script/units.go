package script

import (
	"strconv"
	"time"
)

// Duration returns ms as a time.Duration, at most 146 years. So it may be added to an instant.
func Duration(ms int64) time.Duration { return scaled(ms, time.Millisecond) }

// Micros returns us as a time.Duration, at most 146 years.
func Micros(us int64) time.Duration { return scaled(us, time.Microsecond) }

func scaled(number int64, unit time.Duration) time.Duration {
	const longest = 1 << 62
	most := longest / int64(unit)
	return time.Duration(max(-most, min(most, number))) * unit
}

// Millis returns d as an argument of a script: in whole milliseconds, rounded up. Durations are leases, the ends of
// keys, and times for which something is remembered or waited for. Rounded up,
//
//   - a lease lasts on the server no shorter than its holder believes, which counts in nanoseconds;
//   - a key that is to exist for d exists for d;
//   - and no bound becomes 0, which PEXPIRE takes for "now", WAIT for "forever" and scripts for "none".
//
// An instant after which a request is refused is rounded down instead (Clock.At, NotAfter).
func Millis(duration time.Duration) string { return strconv.FormatInt(millis(duration), 10) }

// AppendMillis appends Millis to text.
func AppendMillis(text []byte, d time.Duration) []byte { return strconv.AppendInt(text, millis(d), 10) }

// NotAfter returns the instant at which the wait of a caller ends that still waits for d, in the server's ms, where
// server is the time of its last reply. The server does nothing for a request with that instant later. The instant is
// rounded down, and the server's time has gone on since the reply, so the instant is never later than the end of d.
func NotAfter(server int64, duration time.Duration) string {
	return strconv.FormatInt(server+duration.Milliseconds(), 10)
}

func millis(duration time.Duration) int64 {
	ms := duration.Milliseconds()
	if duration%time.Millisecond > 0 {
		ms++
	}
	return ms
}
