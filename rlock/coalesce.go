package rlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

// Acquires and releases of free locks share calls (free.lua) while many are under way: batch.Coalescer says when, and
// what may happen.
//
//	the lock                        shared                           then
//	free, empty queue               granted                          nothing: one call
//	held, or others queue           0, nothing is done               a call of its own, which queues, hands over, waits
//	another type, no right          0, nothing is done               a call of its own, which says what is wrong
//
// Not shared: re-entries, joins and reads, of which a first look at the lock says nothing; fenced locks, which have a
// key more; waiters that have a place in the queue, and releases that ask for the next tenure; clients that ask for
// replicas; clients of a Cluster, where the keys of a call must be of one slot; and all others from when a proxy before
// one has refused several.

// freeRequest is one lock's part of a shared call.
type freeRequest struct {
	keys  []string // the lock and its queue
	owner string
	lease string // ms; "": it is released
	last  string // not after, or the channel
	plain string // "1" of a Plain lock
	of    *owner // to release, of a caller that is granted and has left; nil for a release
}

var freeScript = load("shared acquire or release", "free")

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
		What: "acquire or release", Key: "several locks",
	})
}

// enterCoalescer counts a call in. shares: it is to be shared. The caller calls leaveCoalescer afterwards.
func (c *Client) enterCoalescer(k *kind) (shares bool) {
	return c.coalescer != nil && k.coalesces && c.coalescer.Enter()
}

func (c *Client) leaveCoalescer(k *kind) {
	if c.coalescer != nil && k.coalesces {
		c.coalescer.Leave()
	}
}

// sharedCall is one shared call.
func (c *Client) sharedCall(requests []*batch.Request[freeRequest, bool]) script.Call {
	keys, args := make([]string, 0, 2*len(requests)), make([]string, 0, 1+4*len(requests))
	args = append(args, c.publish)
	for _, r := range requests {
		a := &r.Ask
		keys, args = append(keys, a.keys...), append(args, a.owner, a.lease, a.last, a.plain)
	}
	return script.Call{Script: freeScript, Keys: keys, Args: args}
}

// shareable is the part of a shared call that does what a lone acquire or release of l would.
func (l *single) shareable(owner, lease, last string) freeRequest {
	return freeRequest{keys: l.keys, owner: owner, lease: lease, last: last, plain: l.kind.plain}
}

// askShared is Ask in a shared call. done: granted. Otherwise, without an error, the caller asks alone.
func (a *acquisition) askShared(ctx context.Context) (done bool, err error) {
	l, c := a.l, a.l.c
	a.sent = time.Now()
	if a.since.IsZero() {
		a.since = a.sent
	}
	end := a.sent.Add(c.opts.CallTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	last := c.runner.Clock.At(l.key, end)
	if a.runs = end; last == 0 { // nothing refuses it: see script.Timed
		a.runs = a.sent.Add(c.opts.CallTimeout)
	}
	r := l.shareable(a.own.Lease.Owner, c.millis(a.lease), strconv.FormatInt(last, 10))
	r.of = a.own
	if done, err = c.coalescer.Do(ctx, r); err != nil {
		return false, fmt.Errorf("%w (for %q)", err, strings.Clone(l.name))
	}
	return done, nil
}
