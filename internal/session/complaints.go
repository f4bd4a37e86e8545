package session

import (
	"log/slog"
	"sync"
	"time"
)

// complainEvery is the least time between two lines of one kind: a server that is gone has many calls fail.
const complainEvery = 10 * time.Second

// complaints are the lines that were logged last.
type complaints struct {
	to   *slog.Logger
	mu   sync.Mutex
	last map[string]*complaint
}

type complaint struct {
	at      time.Time
	skipped int // since then
}

func (c *complaints) log(what, name string, err error) {
	c.mu.Lock()
	l := c.last[what]
	if l == nil {
		l = &complaint{}
		if c.last == nil {
			c.last = map[string]*complaint{}
		}
		c.last[what] = l
	}
	if !l.at.IsZero() && time.Since(l.at) < complainEvery {
		l.skipped++
		c.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.at, l.skipped = time.Now(), 0
	c.mu.Unlock()
	c.to.Warn("redlatch: "+what, "name", name, "error", err, "more", skipped)
}
