package load

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets 1.6 % wide, so that any number of them costs the same memory and the
// histograms of several processes can be added. The zero value is empty. It is not safe for concurrent use.
type Histogram struct {
	// Counts maps a bucket to how many durations fell into it: what is sent between processes.
	Counts map[int]int64 `json:"counts"`
	Count  int64         `json:"count"`
	Max    time.Duration `json:"max"`
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	if h.Counts == nil {
		h.Counts = map[int]int64{}
	}
	d = max(d, 0)
	h.Counts[bucket(uint64(d))]++
	h.Count++
	h.Max = max(h.Max, d)
}

// Merge adds what o counted.
func (h *Histogram) Merge(o Histogram) {
	if h.Counts == nil {
		h.Counts = map[int]int64{}
	}
	for b, n := range o.Counts {
		h.Counts[b] += n
	}
	h.Count += o.Count
	h.Max = max(h.Max, o.Max)
}

// Quantile returns the duration that the share q of those counted did not exceed, 0 if there were none. It is exact
// to the width of a bucket; the last one is Max.
func (h *Histogram) Quantile(q float64) time.Duration {
	want := max(int64(math.Ceil(float64(h.Count)*q)), 1)
	if want >= h.Count {
		return h.Max
	}
	var seen int64
	for b := range lastBucket + 1 {
		if n := h.Counts[b]; n > 0 {
			if seen += n; seen >= want {
				return min(time.Duration(middle(b)), h.Max)
			}
		}
	}
	return 0
}

// bucket keeps the top 7 bits of v: values under 128 exactly, then 64 buckets to each doubling.
func bucket(v uint64) int {
	if v < 128 {
		return int(v)
	}
	shift := bits.Len64(v) - 7
	return 64*shift + int(v>>shift)
}

var lastBucket = bucket(math.MaxInt64)

// middle is the value half way through bucket b.
func middle(b int) uint64 {
	if b < 128 {
		return uint64(b)
	}
	shift := b/64 - 1
	return uint64(b-64*shift)<<shift + 1<<(shift-1)
}
