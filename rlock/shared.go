package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

// What many goroutines of a process do at once with locks that are free is the same few commands on keys of their own, and most
// of its price is that of the call around them: the system calls of its packets, the server's parsing, the script's start. So from
// shareFrom calls under way on they share calls (free.lua, batch.Batcher). Below that a call by itself is as fast, and nothing
// here costs it more than two atomic additions.
//
// A shared call does for each lock what its lone call would, or nothing at all:
//
//	the lock                        shared                           then
//	free, nobody queues             granted                          nothing: one call
//	held, or others queue           0, nothing is done               a call of its own, which queues, hands over, waits
//	another type, no right          0, nothing is done               a call of its own, which says what is wrong
//	the whole call was refused      nothing is done                  a call of its own
//	no reply                        unknown                          as after a lone call without a reply
//
// Some interleavings:
//
//   - A request whose caller leaves before its call is sent is not sent, and its caller is told so (batch.Batcher).
//   - A request that is granted after its caller has left is given back: by Batcher.Abandoned if the reply comes in time for the
//     call, by Call.Late if that was given up, and by the pending release of an acquisition with a try of unknown outcome.
//   - Between "0, ask alone" and the lone call the lock may change hands any number of times. The lone call is sent with an instant
//     of its own after which it is refused, and its lease counts from its own send.
//   - A call that broke off half way, which no lock's state can cause because each is looked at with pcall, counts as unknown for
//     all: had one been released, its lone call would find nothing and report a loss that was none.
//
// Not shared: re-entries, joins and reads, of which a first look at the lock says nothing; fenced locks, which have a key more;
// waiters that have a place in the queue, and releases that name a waiter; clients that ask for replicas; clients of a Cluster,
// where the keys of a call must be of one slot.
type lane struct {
	calls   batch.Batcher[freeRequest, bool]
	options batch.Options
	under   atomic.Int64 // calls of locks that could be shared, and are under way, shared or not
	until   atomic.Int64 // sharing rests until then, after its client's base: see rest
}

const (
	// shareFrom is how many calls must be under way: with fewer, waiting for others to share with costs more than it saves.
	shareFrom = 24
	// shareCalls is how many shared calls are under way at most. With more, the same requests are spread over smaller calls; with one
	// alone, a server a millisecond away would be idle most of the time.
	shareCalls = 4
	// restFor is how long sharing rests after a call of which at least half was told to ask alone: each of those makes two calls in
	// place of one.
	restFor = 50 * time.Millisecond
)

// freeRequest is one lock's part of a shared call.
type freeRequest struct {
	key, queue, owner string
	lease             string // ms; "": it is released
	last              string // not after, or the channel
	of                *owner // to give back to whoever is granted and has left; nil for a release
}

var freeScript = load("shared acquire or release", "free")

// newLane returns the lane of a client; nil if its calls cannot be shared.
func newLane(c *Client) *lane {
	if c.clustered || c.opts.MinReplicas > 0 {
		return nil
	}
	l := &lane{options: batch.Options{MaxCalls: shareCalls}}
	if err := l.options.Check(); err != nil {
		panic(err) // the defaults
	}
	l.calls = batch.Batcher[freeRequest, bool]{
		Options: &l.options, Spawn: c.session.Finish, Bound: 2 * c.opts.CallTimeout, Patience: errLaneTime,
		What: "acquire or release", Key: "several locks",
		Run: func(ctx context.Context, requests []*batch.Request[freeRequest, bool]) { c.runShared(ctx, requests) },
		Abandoned: func(requests []*batch.Request[freeRequest, bool]) {
			for _, r := range requests {
				r.Ask.late(r.Answer)
			}
		},
	}
	return l
}

// errLaneTime: a call under way may take one call timeout, and the shared call after it another.
var errLaneTime = errors.New("no reply within two call timeouts")

// late gives back what was granted after its caller had left.
func (r *freeRequest) late(done bool) {
	if done && r.of != nil {
		r.of.Late()
	}
}

// enter counts a call in. shares: it is to be shared. The caller calls leave afterwards.
func (c *Client) enterLane(k *kind) (shares bool) {
	l := c.lane
	if l == nil || !k.shares {
		return false
	}
	n := l.under.Add(1)
	return n >= shareFrom && int64(time.Since(c.session.Base)) >= l.until.Load()
}

func (c *Client) leaveLane(k *kind) {
	if c.lane != nil && k.shares {
		c.lane.under.Add(-1)
	}
}

// share does r in a shared call. done is false, without an error, if nothing was done and r is to be made alone. The caller waits
// for two call timeouts at most: for a call under way to end, and for its own.
func (c *Client) share(ctx context.Context, r freeRequest) (done bool, err error) {
	return c.lane.calls.Do(ctx, r)
}

// runShared makes one shared call.
func (c *Client) runShared(ctx context.Context, requests []*batch.Request[freeRequest, bool]) {
	keys, args := make([]string, 0, 2*len(requests)), make([]string, 0, 1+3*len(requests))
	args = append(args, c.publish)
	for _, r := range requests {
		a := &r.Ask
		keys, args = append(keys, a.key, a.queue), append(args, a.owner, a.lease, a.last)
	}
	call := script.Call{Script: freeScript, Keys: keys, Args: args, Late: func(res rueidis.RedisResult) {
		if m, err := res.ToMessage(); err == nil {
			if _, done, err := decodeShared(m, len(requests)); err == nil {
				for i, r := range requests {
					r.Ask.late(done[i] == 1)
				}
			}
		}
	}}
	sent := time.Now()
	m, err := c.runner.Attempt(ctx, call)
	received := time.Now()
	var server int64
	var done []int64
	if err == nil {
		server, done, err = decodeShared(m, len(requests))
	}
	switch {
	case err == nil:
		c.runner.Clock.Learn(keys[0], server, sent, received)
	case script.Retryable(err):
		for _, r := range requests {
			r.Err = err
		}
		return
	case refusedWhole(err):
		done = make([]int64, len(requests)) // each learns alone what is wrong
	default:
		for _, r := range requests {
			r.Err = fmt.Errorf("%w: a shared call broke off: %w", ErrUnknownOutcome, err)
		}
		return
	}
	alone := 0
	for i, r := range requests {
		if r.Answer = done[i] == 1; !r.Answer {
			alone++
		}
	}
	if 2*alone >= len(requests) {
		c.lane.until.Store(int64(time.Since(c.session.Base) + restFor))
	}
}

// refusedWhole reports whether err, an answer of the server, says that the script did not begin: the user may not run scripts, or
// not use these keys.
func refusedWhole(err error) bool { return errors.Is(err, ErrDenied) && !script.BrokenOff(err) }

// decodeShared reads the reply for n locks.
func decodeShared(m rueidis.RedisMessage, n int) (server int64, done []int64, err error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != n+1 {
		return 0, nil, fmt.Errorf("shared acquire or release: unexpected reply %v, error %v", v, err)
	}
	return v[0], v[1:], nil
}

// shareable is the part of a shared call that does what a lone acquire or release of l would.
func (l *single) shareable(owner, lease, last string) freeRequest {
	return freeRequest{key: l.key, queue: l.keys[len(l.keys)-1], owner: owner, lease: lease, last: last}
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
	r := l.shareable(a.own.Lease.Owner, c.millis(a.lease), strconv.FormatInt(c.runner.Clock.At(l.key, end), 10))
	r.of = a.own
	if done, err = c.share(ctx, r); err != nil {
		return false, fmt.Errorf("%w (for %q)", err, strings.Clone(l.name))
	}
	return done, nil
}
