package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// fault is one thing that goes wrong.
type fault struct {
	At    time.Duration // after the doors open
	Kind  string
	Which int // of the processes
	Lasts time.Duration
}

// The kinds of faults.
const (
	killWorker  = "kill -9 of a worker"
	killMover   = "kill -9 of a mover"
	freeze      = "a worker frozen for longer than a unit is held"
	cutAll      = "all connections to Redis cut"
	loseReply   = "a reply of Redis lost"
	holdReply   = "a reply of Redis held back"
	scriptFlush = "SCRIPT FLUSH"
	restart     = "Redis restarted"
)

var faultKinds = []string{killWorker, killMover, freeze, cutAll, loseReply, holdReply, scriptFlush, restart}

// planFaults is what goes wrong in a sale: about three faults in two seconds, each kind at least once, the same for the
// same seed.
func planFaults(o options) []fault {
	rnd := rand.New(rand.NewPCG(o.seed, 1<<32))
	plan := make([]fault, max(len(faultKinds), int(o.duration/(700*time.Millisecond))))
	for i := range plan {
		f := fault{Kind: faultKinds[rnd.IntN(len(faultKinds))], Lasts: time.Duration(50+rnd.IntN(300)) * time.Millisecond}
		if i < len(faultKinds) {
			f.Kind = faultKinds[i]
		}
		f.At = o.duration/20 + time.Duration(rnd.Int64N(int64(o.duration*8/10)))
		f.Which = rnd.IntN(o.workers)
		switch f.Kind {
		case killMover:
			f.Which = rnd.IntN(o.movers)
		case freeze:
			f.Lasts += o.hold
		}
		plan[i] = f
	}
	slices.SortFunc(plan, func(x, y fault) int { return cmp.Compare(x.At, y.At) })
	return plan
}

// chaos makes the faults happen.
type chaos struct {
	server          server
	net             *redistest.Proxy // between the processes of the shop and the server
	direct          rueidis.Client
	workers, movers []*slot
	happened        func(what string) // called for each
	counts          map[string]int    // to be read when run has returned
}

// run goes through the plan, until ctx ends. What it broke is whole again when it returns.
func (c *chaos) run(ctx context.Context, plan []fault) error {
	begun := time.Now()
	for _, f := range plan {
		if !pause(ctx, f.At-time.Since(begun)) {
			break
		}
		what, err := c.inflict(ctx, f)
		if err != nil {
			return err
		}
		if what != "" {
			c.counts[f.Kind]++
			c.happened(what)
		}
	}
	c.net.Heal()
	return nil
}

// inflict returns what happened; "" if nothing did, because the victim was down already.
func (c *chaos) inflict(ctx context.Context, f fault) (string, error) {
	switch f.Kind {
	case killWorker, killMover:
		s := c.movers
		if f.Kind == killWorker {
			s = c.workers
		}
		if pid := s[f.Which].kill(); pid != 0 {
			return fmt.Sprintf("%s %d killed (pid %d)", s[f.Which].role, s[f.Which].station.Number, pid), nil
		}
		return "", nil
	case freeze:
		if !c.workers[f.Which].freeze(f.Lasts) {
			return "", nil
		}
		return fmt.Sprintf("worker %d frozen for %v", c.workers[f.Which].station.Number, f.Lasts), nil
	case cutAll:
		return fmt.Sprintf("%d connections to Redis cut", c.net.Cut()), nil
	case loseReply:
		c.net.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseReply})
		return "the reply to a script is lost", nil
	case holdReply:
		release := make(chan struct{})
		time.AfterFunc(f.Lasts, func() { close(release) })
		c.net.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.HoldReply, Release: release})
		return fmt.Sprintf("the reply to a script is held back for %v", f.Lasts), nil
	case scriptFlush:
		if c.direct.Do(ctx, c.direct.B().ScriptFlush().Build()).Error() != nil {
			return "", nil
		}
		return "SCRIPT FLUSH", nil
	case restart:
		if err := c.server.restart(context.WithoutCancel(ctx), f.Lasts); err != nil {
			return "", fmt.Errorf("the server does not come back: %w", err)
		}
		return fmt.Sprintf("Redis killed, and back after %v", f.Lasts), nil
	}
	return "", nil
}
