package rig

import (
	"strconv"
	"sync"
)

// Dec is v in decimal.
func Dec(v int64) string { return strconv.FormatInt(v, 10) }

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
