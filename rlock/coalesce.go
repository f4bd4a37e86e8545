package rlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Acquires and releases of free locks share calls (free.lua) while many are under way. batch.Coalescer has the
// conditions, and docs/design/protocols.md the interleavings.
//
//	the lock                        shared                           then
//	free, empty queue               granted                          no lone call
//	held, or others are queued      0, nothing is done               a lone call, which queues, hands over, waits
//	another type, no right          0, nothing is done               a lone call, which returns the refusal
//
// These requests are not shared:
//
//   - re-entries, joins and reads, because they depend on more than whether the lock is free;
//   - requests for fenced locks, which have one more key;
//   - requests of waiters with a queue entry, and releases that request the next tenure;
//   - requests of clients that wait for replicas;
//   - requests of clients of a Cluster, where the keys of a call must be of one slot;
//   - all requests, as soon as a proxy has refused a call for its several slots.

// freeRequest is one lock's part of a shared call.
type freeRequest struct {
	keys  []string // the lock and its queue
	owner string
	lease string // ms; "" for a release
	bound string // the not-after instant of an acquire, or the channel of a release
	plain string // "1" for a Plain lock

	holding *owner // released if the caller of a granted request has left; nil for a release
}

var freeScript = load("shared acquire or release", "free")

// newCoalescer returns the coalescer of a client; nil if its calls cannot be shared.
func newCoalescer(client *Client) *batch.Coalescer[freeRequest] {
	if client.clustered || client.opts.MinReplicas > 0 {
		return nil
	}
	return batch.NewCoalescer(batch.CoalescerConfig[freeRequest]{
		Runner: client.runner, Timeout: client.opts.CallTimeout, Spawn: client.session.Finish, Call: client.sharedCall,
		Shared: client.session.TellShared(""),
		Late: func(request freeRequest) {
			if request.holding != nil {
				request.holding.Late()
			}
		},
		What: "acquire or release", Key: "several locks",
	})
}

// enterCoalescer counts in a call, and reports whether it should be shared. The caller calls leaveCoalescer afterwards.
func (c *Client) enterCoalescer(kind *kind) (shares bool) {
	return c.coalescer != nil && kind.coalesces && c.coalescer.Enter()
}

func (c *Client) leaveCoalescer(kind *kind) {
	if c.coalescer != nil && kind.coalesces {
		c.coalescer.Leave()
	}
}

// sharedCall returns the shared call for the requests.
func (c *Client) sharedCall(requests []*batch.Request[freeRequest, bool]) script.Call {
	keys, args := make([]string, 0, 2*len(requests)), make([]string, 0, 1+4*len(requests))
	args = append(args, c.publish)
	for _, request := range requests {
		ask := &request.Ask
		keys, args = append(keys, ask.keys...), append(args, ask.owner, ask.lease, ask.bound, ask.plain)
	}
	return script.Call{Script: freeScript, Keys: keys, Args: args}
}

// shareable returns the part of a shared call that replaces a lone acquire or release of l. bound is the not-after
// instant of an acquire, or the channel of a release.
func (l *single) shareable(owner, lease, bound string) freeRequest {
	return freeRequest{keys: l.keys, owner: owner, lease: lease, bound: bound, plain: l.kind.layout.stringKeyArg}
}

// askShared is Ask in a shared call. done reports whether the lock was granted. If it is false, without an error, the
// caller sends a lone call.
func (a *acquisition) askShared(ctx context.Context) (done bool, err error) {
	lock, client := a.lock, a.lock.c
	a.times.sent(time.Now())
	callEnd := wait.EndsAt(ctx, a.times.sentAt.Add(client.opts.CallTimeout))
	notAfter := client.runner.Clock.At(lock.key, callEnd)
	if a.times.lastRunAt = callEnd; notAfter == 0 { // the server cannot refuse a late request: see script.Timed
		a.times.lastRunAt = a.times.sentAt.Add(client.opts.CallTimeout)
	}
	request := lock.shareable(a.own.Lease.Owner, client.millis(a.wanted.lease), strconv.FormatInt(notAfter, 10))
	request.holding = a.own
	if done, err = client.coalescer.Do(ctx, request); err != nil {
		return false, fmt.Errorf("%w (for %q)", err, strings.Clone(lock.name))
	}
	return done, nil
}
