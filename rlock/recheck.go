package rlock

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// recheck is the question of a waiter for which most probably nothing has changed (wait.Rechecker).
type recheck struct {
	lock, queue, entry string
	ticket             int64
	answered           func(same bool, left time.Duration)
}

var recheckScript = load("recheck", "recheck")

// Recheck implements wait.Rechecker. Not in a Cluster, where the keys of a call are of one slot; nor with Liveness, which wants to know
// since when an owner surely did not hold the lock, as of its own last question.
func (a *acquisition) Recheck(s wait.Standing, ticket int64, answered func(same bool, left time.Duration)) bool {
	c := a.l.c
	if !a.l.kind.rechecks || c.clustered || c.monitor != nil {
		return false
	}
	c.rechecks.Add(recheck{a.l.key, a.l.keys[a.l.kind.queue], s.Entry, ticket, answered}, c.sendRechecks)
	return true
}

func (c *Client) sendRechecks(all []recheck) {
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
			q.answered(err == nil && e == nil && len(same) == len(all) && same[i] == 1, -1)
		}
	})
}
