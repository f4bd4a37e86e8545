package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Acquires and releases of one permit each, of any semaphores, share calls (free.lua) while many are under way:
// batch.Coalescer says when, and what may happen.
//
//	the semaphore                                  shared                     then
//	has a free permit, empty queue                 granted                    nothing: one call
//	permit held, empty queue                       released                   nothing: one call
//	none is free, others queue, a lease is over,
//	not in use, another capacity, a new revision   0, nothing is done         a call of its own, which queues, serves, prunes
//	another type, no right                         0, nothing is done         a call of its own, which says what is wrong
//
// A shared release serves no waiter, because with a queue it is not shared: so there is none whom its lost reply would
// have named.
//
// Not shared: more than one permit; waiters that ask for a place in the queue, and releases
// that may have left one behind; weights; clients that ask for replicas; clients of a Cluster, where the keys of a call
// must be of one slot, and all others from when a proxy before one has refused several; an acquire before the first
// answer of the server, because it has no instant after which it is refused.

// freeRequest is one permit's part of a shared call.
type freeRequest struct {
	s     *Semaphore
	base  string
	lease string  // ms; "": it is released
	last  string  // not after, or the channel
	of    *permit // to give back if it is granted and its caller has left; nil for a release
}

var freeScript = script.Load("shared acquire or release", luaFiles, "free")

// newCoalescer returns the coalescer of a client; nil if its calls cannot be shared.
func newCoalescer(c *Client) *batch.Coalescer[freeRequest] {
	if c.clustered || c.opts.MinReplicas > 0 {
		return nil
	}
	return batch.NewCoalescer(batch.CoalescerConfig[freeRequest]{
		Runner: c.runner, Timeout: c.opts.CallTimeout, Spawn: c.session.Finish, Call: c.sharedCall,
		Late: func(r freeRequest) {
			if r.of != nil {
				r.of.Late()
			}
		},
		What: "acquire or release", Key: "several semaphores",
	})
}

// plain reports whether calls for n permits may be shared.
func (s *Semaphore) plain(n int) bool {
	return s.c.coalescer != nil && n == 1 && s.store.perPermit
}

// sharedCall is one shared call.
func (c *Client) sharedCall(requests []*batch.Request[freeRequest, bool]) script.Call {
	keys, args := make([]string, 0, 5*len(requests)), make([]string, 0, 1+5*len(requests))
	args = append(args, c.session.Inner.PublishCommand())
	number := make(map[string]string, len(requests))
	for _, r := range requests {
		a := &r.Ask
		of, known := number[a.s.key]
		if !known {
			of = strconv.Itoa(len(number))
			number[a.s.key], keys = of, append(keys, a.s.allKeys...)
		}
		base, capacity := a.base, a.s.revised
		if a.s.interop {
			capacity = "*" + capacity
		}
		if a.lease != "" {
			base += a.s.label
		}
		args = append(args, of, base, a.lease, a.last, capacity)
	}
	return script.Call{Script: freeScript, Keys: keys, Args: args}
}

// askShared is Ask in a shared call. done: granted. Otherwise, without an error, the caller asks alone.
func (a *acquisition) askShared(ctx context.Context) (answer wait.Answer, done bool, err error) {
	s, c := a.s, a.s.c
	sent := time.Now()
	end := sent.Add(c.opts.CallTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	notAfter := c.runner.Clock.At(s.key, end)
	if notAfter == 0 {
		return answer, false, nil
	}
	done, err = c.coalescer.Do(ctx,
		freeRequest{s: s, base: a.p.base(), lease: c.millis(a.lease), last: decimal(notAfter), of: a.p})
	switch {
	case err != nil:
		err = fmt.Errorf("%w (for %q)", err, strings.Clone(s.name))
		a.p.unheard.Store(!errors.Is(err, errs.ErrUnavailable))
	case !done:
		return answer, false, nil
	}
	answer, err = a.answer(&requestReply{acquireReply: acquireReply{status: acquireDone}, sent: sent,
		received: time.Now(), lastRun: end}, 0, err)
	return answer, done, err
}

// releaseShared is runRelease of one permit in a shared call. done: it was held. Otherwise, without an error, it is
// released alone.
func (s *Semaphore) releaseShared(ctx context.Context, base string) (done bool, err error) {
	done, err = s.c.coalescer.Do(ctx, freeRequest{s: s, base: base, last: s.channel})
	switch {
	case err != nil:
		return false, fmt.Errorf("%w (for %q)", err, strings.Clone(s.name))
	case done:
		s.c.waiters.Wake(s.queueKey)
	}
	return done, nil
}
