package rsemaphore

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// recheck is the question of a waiter for which most probably nothing has changed (wait.Rechecker).
type recheck struct {
	s        *Semaphore
	entry    string
	ticket   int64
	answered func(same bool, left time.Duration)
}

var recheckScript = script.Load("recheck", luaFiles, "recheck")

// Recheck implements wait.Rechecker. Not in a Cluster, where the keys of a call are of one slot, and not for weights, whose leases stand
// in a hash; nor with Liveness, which wants to know since when permits surely were not out, as of the waiter's own last question.
func (a *acquisition) Recheck(s wait.Standing, ticket int64, answered func(same bool, left time.Duration)) bool {
	c := a.s.c
	if a.s.weighted || c.clustered || c.live.monitor != nil {
		return false
	}
	c.rechecks.Add(recheck{a.s, s.Entry, ticket, answered}, c.sendRechecks)
	return true
}

func (c *Client) sendRechecks(all []recheck) {
	if c.session.Context().Err() != nil { // whoever waited has left
		return
	}
	c.session.Finish(func() {
		keys, args := make([]string, 0, 3*len(all)), make([]string, 0, 1+2*len(all))
		args = append(args, c.session.ID)
		for _, q := range all {
			keys = append(keys, q.s.made.all[0], q.s.made.all[1], q.s.made.all[len(q.s.made.all)-1])
			args = append(args, q.entry, strconv.FormatInt(q.ticket, 10))
		}
		m, err := c.runner.Attempt(context.Background(), script.Call{Script: recheckScript, Keys: keys, Args: args})
		left, e := m.AsIntSlice()
		for i, q := range all {
			same := err == nil && e == nil && len(left) == len(all) && left[i] > 0
			if !same {
				q.answered(false, -1)
			} else {
				q.answered(true, time.Duration(left[i])*time.Millisecond)
			}
		}
	})
}
