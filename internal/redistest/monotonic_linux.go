package redistest

import (
	"syscall"
	"unsafe"
)

// OneClock: Monotonic is one clock for all processes of the machine, System.nanoTime of Java included.
const OneClock = true

// Monotonic is CLOCK_MONOTONIC in ns. The clock of package time is the same one, but does not show it.
func Monotonic() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic(err)
	}
	return ts.Nano()
}
