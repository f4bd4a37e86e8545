package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

const defaultCallTimeout = 500 * time.Millisecond

// CallOptions are the options that the clients of counters share.
type CallOptions struct {
	KeyPrefix      string
	CallTimeout    time.Duration
	MinReplicas    int
	ReplicaTimeout time.Duration
	Logger         *slog.Logger
	// Kept says what is kept in keys, for the warning of a server that evicts them.
	Kept string
}

func (o *CallOptions) check() error {
	if len(o.KeyPrefix) >= keyname.MaxLen || !utf8.ValidString(o.KeyPrefix) || strings.IndexByte(o.KeyPrefix, 0) >= 0 {
		return errs.InvalidOption("KeyPrefix", fmt.Sprintf("%.64q", o.KeyPrefix), "valid UTF-8 without a NUL byte, shorter than a name may be")
	}
	if i := strings.IndexByte(o.KeyPrefix, '{'); i >= 0 && strings.HasPrefix(o.KeyPrefix[i:], "{}") {
		return errs.InvalidOption("KeyPrefix", fmt.Sprintf("%.64q", o.KeyPrefix), "without an empty {}, which splits every name over Cluster slots")
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.CallTimeout < time.Millisecond {
		return errs.InvalidOption("CallTimeout", o.CallTimeout, "at least 1ms, or 0 for the default")
	}
	if o.MinReplicas < 0 {
		return errs.InvalidOption("MinReplicas", o.MinReplicas, "0 or more")
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = o.CallTimeout / 2
	}
	if o.ReplicaTimeout < time.Millisecond && o.MinReplicas > 0 || o.ReplicaTimeout < 0 || o.ReplicaTimeout >= o.CallTimeout {
		return errs.InvalidOption("ReplicaTimeout", o.ReplicaTimeout, fmt.Sprintf("at least 1ms and less than CallTimeout, which is %v", o.CallTimeout))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

// Calls makes the calls of a client that holds nothing: each bounded, and none after the client or its hub was closed. It is
// safe for concurrent use.
type Calls struct {
	Tasks Tasks

	runner *script.Runner
	client rueidis.Client
	o      CallOptions
	bound  time.Duration
	closed atomic.Bool
	hub    context.Context // ends when the hub is closed
	base   time.Time
	log    complaints
}

// NewCalls checks a hub and options. It sends nothing.
func NewCalls(h *pubsub.Hub, o CallOptions) (*Calls, error) {
	if h == nil {
		return nil, errs.InvalidOption("hub", "nil", "a hub")
	}
	if h.Context().Err() != nil {
		return nil, fmt.Errorf("hub: %w", errs.ErrClosed)
	}
	client := h.Client()
	if client == nil {
		return nil, errs.InvalidOption("hub's client", "nil", "a client")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	bound := patience * o.CallTimeout
	if bound/patience != o.CallTimeout { // centuries: the product overflowed
		bound = o.CallTimeout
	}
	return &Calls{runner: script.NewRunner(client, o.CallTimeout), client: client, o: o, bound: bound, hub: h.Context(), base: time.Now(), log: complaints{to: o.Logger}}, nil
}

// Close refuses all calls from now on, and waits for what goes on in the background, at most until ctx ends.
func (c *Calls) Close(ctx context.Context) error {
	c.closed.Store(true)
	return c.Tasks.Wait(ctx)
}

// Usable is the check that comes before everything else: refused is what was wrong with a handle when it was made.
func (c *Calls) Usable(refused error) error {
	if c.closed.Load() || c.hub.Err() != nil {
		return fmt.Errorf("client: %w", errs.ErrClosed)
	}
	return refused
}

// Client is the client that all is sent by.
func (c *Calls) Client() rueidis.Client { return c.client }

// Prefix is what stands before every name.
func (c *Calls) Prefix() string { return c.o.KeyPrefix }

// Timeout is for how long one attempt waits for its reply.
func (c *Calls) Timeout() time.Duration { return c.o.CallTimeout }

// Bound is for how long a call without a deadline lasts.
func (c *Calls) Bound() time.Duration { return c.bound }

// ErrPatience is the cause of the end of a call without a deadline.
var ErrPatience = errors.New("no answer within five call timeouts, the bound of a context without a deadline")

// Do runs call, until ctx ends or, if ctx has no deadline, for the client's bound.
func (c *Calls) Do(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	m, err := c.runner.Do(ctx, call)
	if err == nil && !c.runner.EvictionAsked() {
		c.Tasks.Spawn(c.warnOfEviction)
	}
	return m, err
}

// Attempt makes one attempt of call.
func (c *Calls) Attempt(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	return c.runner.Attempt(ctx, call)
}

// Confirmed is call with what it writes confirmed by as many replicas as the options say.
func (c *Calls) Confirmed(call script.Call) script.Call {
	call.Replicas, call.ReplicasWait = c.o.MinReplicas, c.o.ReplicaTimeout
	return call
}

// Mark is the argument of a script that says whether its grants are to be confirmed.
func (c *Calls) Mark() string {
	if c.o.MinReplicas > 0 {
		return "1"
	}
	return "0"
}

// warnOfEviction looks, once in a client's life and beside the first call that is answered, whether the server may throw
// keys away.
func (c *Calls) warnOfEviction() {
	ctx, cancel := context.WithTimeout(c.hub, c.o.CallTimeout)
	defer cancel()
	c.runner.WarnOfEviction(ctx, c.o.Logger, c.o.Kept)
}

// Bounded is ctx, with the client's bound for its deadline if it has none.
func (c *Calls) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.bound, ErrPatience)
}

// Wanted is for how long a request made now may still be wanted.
func (c *Calls) Wanted(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(c.bound, max(0, time.Until(d)))
	}
	return c.bound
}

// Now is the monotonic time since the client was made, in ns.
func (c *Calls) Now() int64 { return int64(time.Since(c.base)) }

// At is the instant of a time that Now told.
func (c *Calls) At(now int64) time.Time { return c.base.Add(time.Duration(now)) }

// RemoveAfter has what is left of an object removed some time after its retention, which is as long as that from now, is
// over: see ends.lua. call is of a script that does so when it finds the object over, and otherwise no harm. If this process
// is gone by then, or its client, whoever else calls does it.
func (c *Calls) RemoveAfter(d time.Duration, call script.Call) {
	client := weak.Make(c)
	time.AfterFunc(d+d/1000+time.Second, func() { // two clocks may run apart
		c := client.Value()
		if c == nil || c.closed.Load() {
			return
		}
		c.Tasks.Spawn(func() { c.Do(context.Background(), call) }) // if that fails, they expire
	})
}

// Complain logs something in the background that failed for good: what says what that means. Of one kind it logs at most one
// line in 10 s.
func (c *Calls) Complain(what, name string, err error) { c.log.log(what, name, err) }

// Logger is the options' logger.
func (c *Calls) Logger() *slog.Logger { return c.o.Logger }
