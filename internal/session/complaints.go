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

// Complain logs something in the background that failed for good: what says what that means. Of one kind it logs at
// most one line in 10 s. It is one of the RecentErrors.
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
