//go:build !linux

package interop_test

import "time"

// oneClock: elsewhere nothing says what System.nanoTime counts from, so intervals of two processes are not compared.
// What remains is the number that is counted under the lock.
const oneClock = false

var begun = time.Now()

func monotonic() int64 { return int64(time.Since(begun)) }
