package rlock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// rechecks gathers the questions of waiters for whom most probably nothing has changed (wait.Rechecker), and asks them in one call. It is
// full with mostRechecks, which take the server some 100 us, or goes when the first has waited for recheckWindow.
type rechecks struct {
	mu    sync.Mutex
	open  []recheck
	timer *time.Timer // nil: open is empty
}

type recheck struct {
	lock, queue, entry string
	ticket             int64
	told               func(same bool)
}

const (
	mostRechecks  = 64
	recheckWindow = 50 * time.Millisecond
)

var recheckScript = load("recheck", "recheck")

// Recheck implements wait.Rechecker. Not in a Cluster, where the keys of a call are of one slot; nor with Liveness, which wants to know
// since when an owner surely did not hold the lock, as of its own last question.
func (a *acquisition) Recheck(s wait.Standing, ticket int64, told func(same bool)) bool {
	c := a.l.c
	if !a.l.kind.rechecks || c.clustered || c.monitor != nil {
		return false
	}
	r := &c.rechecks
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, recheck{a.l.key, a.l.keys[a.l.kind.queue], s.Entry, ticket, told})
	if r.timer == nil {
		r.timer = time.AfterFunc(recheckWindow, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			c.sendRechecks()
		})
	}
	if len(r.open) == mostRechecks {
		c.sendRechecks()
	}
	return true
}

// sendRechecks sends what was gathered. Called with mu held.
func (c *Client) sendRechecks() {
	r := &c.rechecks
	all := r.open
	if len(all) == 0 {
		return // it was full, and gone, when the timer went off
	}
	r.timer.Stop()
	r.open, r.timer = nil, nil
	if c.session.Context().Err() != nil { // whoever waited has left
		return
	}
	c.session.Finish(func() {
		keys, args := make([]string, 0, 2*len(all)), make([]string, 0, 2*len(all))
		for _, q := range all {
			keys, args = append(keys, q.lock, q.queue), append(args, q.entry, strconv.FormatInt(q.ticket, 10))
		}
		m, err := c.runner.Attempt(context.Background(), script.Call{Script: recheckScript, Keys: keys, Args: args})
		same, e := m.AsIntSlice()
		for i, q := range all {
			q.told(err == nil && e == nil && len(same) == len(all) && same[i] == 1)
		}
	})
}
