//go:build !linux

package redistest

import "time"

// OneClock: elsewhere nothing says what System.nanoTime of Java counts from.
const OneClock = false

// Monotonic is the wall clock, the only one that processes share everywhere: it must not be set meanwhile.
func Monotonic() int64 { return time.Now().UnixNano() }
