package lease

import "time"

// Entries is how many names are in the watchdog map, Due how many leases are in the heap.
func (e *Engine) Entries() (names, due int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.entries), len(e.leases)
}

// All returns the registered leases.
func (e *Engine) All() []*Lease { return e.all() }

// SetWall replaces the wall clock, and reads it.
func (e *Engine) SetWall(wall func() time.Time) {
	e.mu.Lock()
	e.clock.wall = wall
	e.mu.Unlock()
	e.check()
}

const (
	BatchSize    = batchSize
	BatchRecords = batchRecords
	MaxFlights   = maxCalls
)
