package rsemaphore

import (
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

var recheckScript = script.Load("recheck", luaFiles, "recheck")

// Recheck implements wait.Rechecker. Not where the keys of a call are of one slot (script.Runner.Apart), and not for
// weights, whose leases stand in a hash; nor with Liveness, which wants to know since when permits surely were not out,
// as of the waiter's own last question.
func (a *acquisition) Recheck(s wait.QueueEntry, ticket int64, answered func(same bool, left time.Duration)) bool {
	c, all := a.s.c, a.s.made.all
	if a.s.weighted || c.runner.Apart() || c.live.monitor != nil {
		return false
	}
	c.rechecks.Add(session.Recheck{
		Keys: []string{all[0], all[1], all[len(all)-1]}, Args: []string{s.Entry, decimal(ticket)},
		Answered: func(reply int64) { answered(reply > 0, time.Duration(reply)*time.Millisecond) },
	})
	return true
}
