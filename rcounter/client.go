package rcounter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// DefaultCallTimeout is the default of Options.CallTimeout.
const DefaultCallTimeout = 500 * time.Millisecond

// patience is how many call timeouts a call may last whose context has no deadline.
const patience = 5

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix stands before every name: Counter("hits") with KeyPrefix "shop:" is the key shop:hits. Java
	// processes find counters under the same names if it is empty. A prefix with braces is refused by every verb but a
	// Counter's, and one whose first brace is that of an empty {} by New, as no name can follow it. Defaults to "".
	KeyPrefix string
	// CallTimeout is how long one attempt may wait for its reply, at least a millisecond. A call whose context has
	// no deadline ends after five of them. Defaults to DefaultCallTimeout.
	CallTimeout time.Duration
	// MinReplicas has every answer that grants or repeats a grant confirmed by so many replicas (WAIT, once for all
	// claims that share a call) within ReplicaTimeout, and is ErrUnconfirmed if they do not. It makes it less likely that
	// a failover forgets a grant, not impossible: another replica than those that confirmed may be promoted. Defaults
	// to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait, at least a millisecond and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Combine says how claims share script calls.
	Combine Combine
	// SoldOut says how claims are answered when nothing is left.
	SoldOut SoldOutOptions
	// Observer is told of claims, and of what fails in the background.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one of a kind in 10 s, and one
	// if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes counters and stocks on one server, Sentinel group or Cluster. It is safe for concurrent use, holds no
// connection of its own, no goroutine while nobody claims, and costs nothing per name that is not used.
type Client struct {
	runner *script.Runner
	prefix string
	bound  time.Duration
	closed atomic.Bool
	hub    context.Context // ends when the hub is closed

	timeout time.Duration
	caches  atomic.Bool // client-side caching was seen to work

	client  rueidis.Client
	base    time.Time
	combine Combine
	soldOut SoldOutOptions
	desks   sync.Map // key of a stock -> weak.Pointer[desk]
	tasks   tasks

	observer   Observer
	log        *slog.Logger
	complaints complaints

	replicas     int
	replicasWait time.Duration
}

// New makes a client on h's rueidis client. h stays the caller's: Close does not close it. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed; New
// sends nothing.
func New(h *pubsub.Hub, o Options) (_ *Client, err error) {
	defer edge(&err)
	if h == nil {
		return nil, errs.InvalidOption("hub", "nil", "a hub")
	}
	if h.Context().Err() != nil {
		return nil, fmt.Errorf("hub: %w", ErrClosed)
	}
	client := h.Client()
	if client == nil {
		return nil, errs.InvalidOption("hub's client", "nil", "a client")
	}
	if len(o.KeyPrefix) >= keyname.MaxLen || !utf8.ValidString(o.KeyPrefix) || strings.IndexByte(o.KeyPrefix, 0) >= 0 {
		return nil, errs.InvalidOption("KeyPrefix", fmt.Sprintf("%.64q", o.KeyPrefix), "valid UTF-8 without a NUL byte, shorter than a name may be")
	}
	if i := strings.IndexByte(o.KeyPrefix, '{'); i >= 0 && strings.HasPrefix(o.KeyPrefix[i:], "{}") {
		return nil, errs.InvalidOption("KeyPrefix", fmt.Sprintf("%.64q", o.KeyPrefix), "without an empty {}, which splits every name over Cluster slots")
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = DefaultCallTimeout
	}
	if o.CallTimeout < time.Millisecond {
		return nil, errs.InvalidOption("CallTimeout", o.CallTimeout, "at least 1ms, or 0 for the default")
	}
	if o.MinReplicas < 0 {
		return nil, errs.InvalidOption("MinReplicas", o.MinReplicas, "0 or more")
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = o.CallTimeout / 2
	}
	if o.ReplicaTimeout < time.Millisecond && o.MinReplicas > 0 || o.ReplicaTimeout < 0 || o.ReplicaTimeout >= o.CallTimeout {
		return nil, errs.InvalidOption("ReplicaTimeout", o.ReplicaTimeout, fmt.Sprintf("at least 1ms and less than CallTimeout, which is %v", o.CallTimeout))
	}
	if err := o.Combine.check(); err != nil {
		return nil, err
	}
	if err := o.SoldOut.check(); err != nil {
		return nil, err
	}
	bound := patience * o.CallTimeout
	if bound/patience != o.CallTimeout { // centuries: the product overflowed
		bound = o.CallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	log := o.Logger
	return &Client{runner: script.NewRunner(client, o.CallTimeout), prefix: o.KeyPrefix, bound: bound, timeout: o.CallTimeout, hub: h.Context(),
		replicas: o.MinReplicas, replicasWait: o.ReplicaTimeout, combine: o.Combine,
		client: client, base: time.Now(), soldOut: o.SoldOut, log: log,
		observer: o.Observer.guarded(func(p any) { log.Error("redlatch: observer panicked", "panic", p) })}, nil
}

// Close makes every later call on c, its counters and its stocks fail with ErrClosed. Calls under way end as they
// would have. It waits for what goes on in the background: flights of claims that share a call, and the return of units
// whose callers had left, which takes at most five call timeouts. It never fails, and may be called again.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.tasks.wait()
	return nil
}

// usable is the check that comes before everything else: refused is what was wrong with a handle when it was made.
func (c *Client) usable(refused error) error {
	if c.closed.Load() || c.hub.Err() != nil {
		return fmt.Errorf("client: %w", ErrClosed)
	}
	return refused
}

var errPatience = errors.New("no answer within five call timeouts, the bound of a context without a deadline")

// do runs call, until ctx ends or, if ctx has no deadline, for the client's bound.
func (c *Client) do(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, err := c.runner.Do(ctx, call)
	if err == nil && !c.runner.EvictionAsked() {
		c.tasks.spawn(c.warnOfEviction)
	}
	return m, err
}

// warnOfEviction looks, once in a client's life and beside the first call that is answered, whether the server may throw
// counters and stocks away.
func (c *Client) warnOfEviction() {
	ctx, cancel := context.WithTimeout(c.hub, c.timeout)
	defer cancel()
	c.runner.WarnOfEviction(ctx, c.log, "counters and stocks")
}

// bounded is ctx, with the client's bound for its deadline if it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.bound, errPatience)
}

// wait is for how long a request made now may still be wanted.
func (c *Client) wait(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(c.bound, max(0, time.Until(d)))
	}
	return c.bound
}

// now is the monotonic time since the client was made, in ns.
func (c *Client) now() int64 { return int64(time.Since(c.base)) }

// millis is d in whole milliseconds, rounded up, so that nothing ends early or opens early.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// duration is ms as a time.Duration, the longest one if it does not fit.
func duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(most, ms))) * time.Millisecond
}
