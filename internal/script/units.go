package script

import "time"

// Duration is ms as a time.Duration, the longest one if it does not fit; Micros so for us.
func Duration(ms int64) time.Duration { return scaled(ms, time.Millisecond) }
func Micros(us int64) time.Duration   { return scaled(us, time.Microsecond) }

func scaled(n int64, unit time.Duration) time.Duration {
	most := int64(1<<63-1) / int64(unit)
	return time.Duration(max(-most, min(most, n))) * unit
}

// WholeMillis is what Millis writes.
func WholeMillis(d time.Duration) int64 { return millis(d) }
