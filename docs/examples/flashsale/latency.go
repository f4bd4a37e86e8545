package main

import (
	"math"
	"math/bits"
	"time"
)

// latencies is a histogram of durations in microseconds with buckets 1.6 % wide, so that the percentiles of any
// number of claims cost the same memory.
type latencies struct {
	count   int64
	buckets [64 * 59]int64
}

// bucket keeps the top 7 bits of v: values under 128 exactly, then 64 buckets to each doubling.
func bucket(v uint64) int {
	if v < 128 {
		return int(v)
	}
	shift := bits.Len64(v) - 7
	return 64*shift + int(v>>shift)
}

// value is the smallest duration of bucket i.
func value(i int) uint64 {
	if i < 128 {
		return uint64(i)
	}
	shift := i/64 - 1
	return uint64(i-64*shift) << shift
}

func (l *latencies) add(d time.Duration) {
	l.count++
	l.buckets[bucket(uint64(max(0, d.Microseconds())))]++
}

// percentile returns the duration that p percent of those added did not exceed, or 0 if there were none.
func (l *latencies) percentile(p float64) time.Duration {
	want := int64(math.Ceil(float64(l.count) * p / 100))
	var seen int64
	for i, n := range l.buckets {
		if seen += n; n > 0 && seen >= want {
			return time.Duration(value(i)) * time.Microsecond
		}
	}
	return 0
}
