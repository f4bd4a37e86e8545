package session

import (
	"sync"
	"time"
)

// complainEvery is the least time between two lines of one kind: many calls fail when a server is gone.
const complainEvery = 10 * time.Second

// complaints remembers when a line of each kind was logged last.
type complaints struct {
	mu   sync.Mutex
	last map[string]complaint
}

type complaint struct {
	at      time.Time
	skipped int // since then
}

// Complain logs something in the background that failed for good, with the meaning of the failure in what. It logs at
// most one line of a kind in 10 s, and keeps the error for RecentErrors.
func (s *Session) Complain(what, name string, err error) {
	s.recent.Add("background", name, err)
	c := &s.complaints
	c.mu.Lock()
	last := c.last[what]
	due := time.Since(last.at) >= complainEvery
	if due {
		c.last[what] = complaint{at: time.Now()}
	} else {
		c.last[what] = complaint{last.at, last.skipped + 1}
	}
	c.mu.Unlock()
	if due {
		s.Logger.Warn("redlatch: "+what, "name", name, "error", err, "more", last.skipped)
	}
}
