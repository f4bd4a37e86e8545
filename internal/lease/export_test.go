package lease

import "time"

// Entries is how many names are in the watchdog map, Due how many claims are in the heap.
func (e *Engine) Entries() (names, due int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.entries), len(e.due)
}

// SetWall replaces the wall clock. It is for an engine whose goroutine sleeps, and wakes it.
func (e *Engine) SetWall(wall func() time.Time) {
	e.mu.Lock()
	e.wall = wall
	e.mu.Unlock()
	e.kick <- struct{}{}
}

// Workers is how many goroutines work off what is owed. It is counted here, because runtime.NumGoroutine also counts those
// that have ended but are not gone yet.
func (s *Sweeper) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers
}

// Kept is how much is kept for contexts.
func (l *Life) Kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.contexts)
}

const (
	BatchSize    = batchSize
	MaxFlights   = maxFlights
	SweepWorkers = sweepWorkers
)
