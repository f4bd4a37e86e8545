package load

import (
	"slices"
	"sync"
	"time"
)

// Windows counts what happens in each stretch of time of one length. It is safe for concurrent use.
type Windows struct {
	each  time.Duration
	start time.Time

	mu     sync.Mutex
	counts []int64
}

// NewWindows starts the first window now.
func NewWindows(each time.Duration) *Windows { return &Windows{each: each, start: time.Now()} }

// Add counts one in the window that it is now.
func (w *Windows) Add() {
	at := int(time.Since(w.start) / w.each)
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.counts) <= at {
		w.counts = append(w.counts, 0)
	}
	w.counts[at]++
}

// Slowest is that of the windows that are over, as Slowest has it; 1 if there are none.
func (w *Windows) Slowest() float64 {
	whole := int(time.Since(w.start) / w.each)
	w.mu.Lock()
	defer w.mu.Unlock()
	if whole == 0 {
		return 1
	}
	rates := make([]float64, whole)
	for i := range min(whole, len(w.counts)) {
		rates[i] = float64(w.counts[i])
	}
	return Slowest(rates)
}

// Slowest returns the lowest rate as a share of the median one, 0 if that is 0: a median alone hides a stall.
func Slowest(rates []float64) float64 {
	rates = slices.Sorted(slices.Values(rates))
	if len(rates) == 0 || rates[len(rates)/2] <= 0 {
		return 0
	}
	return rates[0] / rates[len(rates)/2]
}
