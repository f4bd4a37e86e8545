package rlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

var recheckScript = load("recheck", "recheck")

// Recheck implements wait.Rechecker. Not where the keys of a call are of one slot (script.Runner.Apart); nor with
// Liveness, which wants to know since when an owner surely did not hold the lock, as of its own last question.
func (a *acquisition) Recheck(s wait.QueueEntry, ticket int64, answered func(same bool, left time.Duration)) bool {
	c, l := a.l.c, a.l
	if !l.kind.rechecks || c.runner.Apart() || c.monitor != nil {
		return false
	}
	c.rechecks.Add(session.Recheck{
		Keys: []string{l.key, l.keys[l.kind.queue]}, Args: []string{s.Entry, strconv.FormatInt(ticket, 10)},
		Answered: func(reply int64) { answered(reply == 1, -1) },
	})
	return true
}
