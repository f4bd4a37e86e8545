//go:build !linux

package main

import "time"

// now is the wall clock, the only one that processes share everywhere: it must not be set while the program runs.
func now() int64 { return time.Now().UnixNano() }
