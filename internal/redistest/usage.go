package redistest

import (
	"slices"
	"sync"
	"time"
)

// Usage records how many units were in use, and when.
type Usage struct {
	mu    sync.Mutex
	edges []edge
}

// edge is a change of the number of units in use.
type edge struct {
	at time.Time
	n  int
}

// Add records that a holder could act under n units at every instant from from to before to: granted before from, and
// neither released nor past the holder's own deadline until to.
func (u *Usage) Add(from, to time.Time, n int) {
	if !from.Before(to) {
		return // over before it could be used
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.edges = append(u.edges, edge{from, n}, edge{to, -n})
}

// Most returns the largest number of units in use at one instant.
func (u *Usage) Most() (most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.SortFunc(u.edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.n - b.n // units that are released at that instant are not in use
	})
	now := 0
	for _, e := range u.edges {
		now += e.n
		most = max(most, now)
	}
	return most
}
