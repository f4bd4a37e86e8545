package lease

import "time"

// Entries is how many names are in the watchdog map, Due how many leases are in the heap.
func (e *Engine) Entries() (names, due int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.entries), len(e.leases)
}

// SetWall replaces the wall clock. It is for an engine whose goroutine sleeps, and wakes it.
func (e *Engine) SetWall(wall func() time.Time) {
	e.mu.Lock()
	e.clock.wall = wall
	e.mu.Unlock()
	e.alarm.ring <- struct{}{}
}

const (
	BatchSize    = batchSize
	BatchRecords = batchRecords
	MaxFlights   = maxCalls
)
