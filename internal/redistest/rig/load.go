package rig

import (
	"strconv"
	"sync"
	"testing"
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

// Alone and Crowded run op from one goroutine and from 256, Both one after the other.
func Alone(b *testing.B, op func() error) {
	b.Run("1", func(b *testing.B) {
		for b.Loop() {
			if err := op(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Crowded runs op from 256 goroutines.
func Crowded(b *testing.B, op func() error) {
	b.Run("256", func(b *testing.B) {
		b.SetParallelism(128) // times GOMAXPROCS
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := op(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// Both is Alone, then Crowded.
func Both(b *testing.B, op func() error) { Alone(b, op); Crowded(b, op) }

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
