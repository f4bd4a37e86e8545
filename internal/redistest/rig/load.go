package rig

import (
	"strconv"
	"sync"
)

// Dec is v in decimal.
func Dec(v int64) string { return strconv.FormatInt(v, 10) }

// During runs disturb over and over until everybody in work is done.
func During(disturb func(), work func()) {
	done := make(chan struct{})
	go func() { work(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
			disturb()
		}
	}
}

// Crowd runs op from so many goroutines, each so many times.
func Crowd(callers, each int, op func(caller, i int)) {
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				op(c, i)
			}
		})
	}
	wg.Wait()
}
