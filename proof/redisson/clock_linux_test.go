package interop_test

import (
	"syscall"
	"unsafe"
)

// oneClock: the instants of all processes here are of one clock, System.nanoTime of Java included.
const oneClock = true

// monotonic is CLOCK_MONOTONIC in ns. The clock of package time is the same one, but does not show it.
func monotonic() int64 {
	var ts syscall.Timespec
	const clockMonotonic = 1
	if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		panic(e)
	}
	return ts.Nano()
}
