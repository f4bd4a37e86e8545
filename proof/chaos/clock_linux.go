package main

import (
	"syscall"
	"unsafe"
)

// now is the machine's monotonic clock, which all of its processes share.
func now() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic(err)
	}
	return ts.Nano()
}
