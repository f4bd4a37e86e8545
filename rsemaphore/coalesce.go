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

// Acquires and releases of one permit each, of any semaphores, share calls (free.lua) while many are under way.
// batch.Coalescer decides when, and docs/design/protocols.md has the interleavings.
//
//	the semaphore                                  shared                     then
//	has a free permit, empty queue                 granted                    nothing: one call
//	permit held, empty queue                       released                   nothing: one call
//	none is free, others queue, a lease is over,
//	not in use, another capacity, a new revision   0, nothing is done         a single call, which queues, serves, prunes
//	another type, no right                         0, nothing is done         a single call, which returns the error
//
// A shared release serves no waiter, because with a queue the reply is 0. So its lost reply names no waiter.
//
// These requests are not shared:
//
//   - more than one permit, weights, and permits of a tenant;
//   - requests of waiters that queue, and releases that may have left a queue entry behind;
//   - requests of clients that need replicas;
//   - requests of clients of a Cluster, where the keys of a call must be of one slot;
//   - all requests after a proxy has refused keys of several slots;
//   - an acquire before the first reply of the server, because it has no instant after which it is refused.

// freeRequest is the part of one permit in a shared call.
type freeRequest struct {
	semaphore         *Semaphore
	base              string
	lease             string  // in ms; "" for a release
	notAfterOrChannel string  // of an acquire the instant after which it is refused; of a release the channel
	abandoned         *permit // released if it is granted and its caller has left; nil for a release
}

var freeScript = script.Load("shared acquire or release", luaFiles, "free")

// newCoalescer returns the coalescer of a client; nil if its calls cannot be shared.
func newCoalescer(client *Client) *batch.Coalescer[freeRequest] {
	if client.clustered || client.opts.MinReplicas > 0 {
		return nil
	}
	return batch.NewCoalescer(batch.CoalescerConfig[freeRequest]{
		Runner: client.runner, Timeout: client.opts.CallTimeout, Spawn: client.session.Finish, Call: client.sharedCall,
		Shared: client.session.TellShared(""),
		Late: func(late freeRequest) {
			if late.abandoned != nil {
				late.abandoned.Late()
			}
		},
		What: "acquire or release", Key: "several semaphores",
	})
}

// plain reports whether requests for that many permits may share calls.
func (s *Semaphore) plain(permits int) bool {
	return s.c.coalescer != nil && permits == 1 && s.store.perPermit && s.share == nil
}

// sharedCall returns the script call of requests that share it.
func (c *Client) sharedCall(requests []*batch.Request[freeRequest, bool]) script.Call {
	keys, args := make([]string, 0, 5*len(requests)), make([]string, 0, 1+5*len(requests))
	args = append(args, c.session.Inner.PublishCommand())
	indexes := make(map[string]string, len(requests)) // of the keys of a semaphore
	for _, request := range requests {
		request := &request.Ask
		index, known := indexes[request.semaphore.key]
		if !known {
			index = strconv.Itoa(len(indexes))
			indexes[request.semaphore.key], keys = index, append(keys, request.semaphore.allKeys[:5]...)
		}
		base, capacity := request.base, request.semaphore.revised
		if request.semaphore.interop {
			capacity = "*" + capacity
		}
		if request.lease != "" {
			base += request.semaphore.label
		}
		args = append(args, index, base, request.lease, request.notAfterOrChannel, capacity)
	}
	return script.Call{Script: freeScript, Keys: keys, Args: args}
}

// askShared is Ask in a shared call. done reports a grant. If there is neither a grant nor an error, the caller sends a
// single request.
func (a *acquisition) askShared(ctx context.Context) (answer wait.Answer, done bool, err error) {
	semaphore, client := a.s, a.s.c
	sent := time.Now()
	end := wait.EndsAt(ctx, sent.Add(client.opts.CallTimeout))
	notAfter := client.runner.Clock.At(semaphore.key, end)
	if notAfter == 0 {
		return answer, false, nil
	}
	done, err = client.coalescer.Do(ctx, freeRequest{
		semaphore: semaphore, base: a.p.base(), lease: script.Millis(a.lease), notAfterOrChannel: decimal(notAfter),
		abandoned: a.p,
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%w (for %q)", err, strings.Clone(semaphore.name))
		a.p.unheard.Store(!errors.Is(err, errs.ErrUnavailable))
	case !done:
		return answer, false, nil
	}
	answer, err = a.answer(&requestReply{acquireReply: acquireReply{status: acquireDone}, sent: sent,
		received: time.Now(), lastRun: end}, 0, err)
	return answer, done, err
}

// releaseShared is runRelease of one permit in a shared call. done reports that the permit was held. If it was not, and
// there is no error, the caller sends a single request.
func (s *Semaphore) releaseShared(ctx context.Context, base string) (done bool, err error) {
	done, err = s.c.coalescer.Do(ctx, freeRequest{semaphore: s, base: base, notAfterOrChannel: s.channel})
	switch {
	case err != nil:
		return false, fmt.Errorf("%w (for %q)", err, strings.Clone(s.name))
	case done:
		s.c.waiters.Wake(s.queueKey)
	}
	return done, nil
}
