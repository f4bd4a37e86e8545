package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// onOneProcessor has this program, and all that it starts, run on one processor only. It runs itself again for that,
// because the threads that it has by now would keep their own.
func onOneProcessor() error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil || may.Count() == 1 {
		return err
	}
	last := 0
	for cpu := range 64 * len(may) {
		if may.IsSet(cpu) {
			last = cpu // not the first, where most interrupts are served
		}
	}
	one.Set(last)
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}
