package lease

import "time"

// Entries is how many names are in the watchdog map, Due how many claims are in the heap.
func (e *Engine) Entries() (names, due int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.entries), len(e.due)
}

// SetWall replaces the wall clock. It is for an engine that holds nothing yet and whose goroutine sleeps: the next Add
// wakes it.
func (e *Engine) SetWall(wall func() time.Time) { e.wall = wall }

const (
	BatchSize    = batchSize
	MaxFlights   = maxFlights
	SweepWorkers = sweepWorkers
)
