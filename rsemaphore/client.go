package rsemaphore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes semaphores, latches and barriers, and keeps what this process holds of them. It is safe for concurrent
// use; make one and share it.
type Client struct {
	id       string
	seed     [8]byte // the first half of every permit id: the first of the connection id
	opts     Options
	hub      *pubsub.Hub
	runner   *script.Runner
	engine   *lease.Engine
	queue    *wait.Queue
	retrier  *session.Retrier
	observer Observer
	log      *slog.Logger

	inflight session.Inflight
}

// New makes a client on a hub, which stays the caller's and may serve others. It sends nothing. ErrClosed: the hub is
// closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	if h == nil {
		return nil, fmt.Errorf("rsemaphore: %w", errs.InvalidOption("hub", nil, "a *pubsub.Hub"))
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("rsemaphore: %w", err)
	}
	if h.Context().Err() != nil {
		return nil, fmt.Errorf("rsemaphore: hub: %w", ErrClosed)
	}
	c := &Client{opts: o, hub: h, log: o.Logger, retrier: session.NewRetrier()}
	c.inflight.Hub = h.Context()
	text, id := lease.NewConnectionID(0)
	c.id, c.seed = text, [8]byte(id[:8])
	c.observer = o.Observer.guarded(func(p any) { c.log.Error("redlatch: observer panicked", "panic", p) })
	c.runner = script.NewRunner(h.Client(), o.CallTimeout)
	c.queue = wait.NewQueue(h, o.PollCap, c.observer.Woken)
	c.engine = lease.New(lease.Config{Client: h.Client(), Runner: c.runner, Log: c.log,
		Replicas: o.MinReplicas, ReplicasWait: o.ReplicaTimeout, Renewed: c.observer.Renewed})
	return c, nil
}

// ID is the connection id: what tells this client from others on the server.
func (c *Client) ID() string { return c.id }

// key is the main key of an object, and why the name cannot be used.
func (c *Client) key(name string) (string, error) {
	key := c.opts.KeyPrefix + name
	if name == "" {
		return key, fmt.Errorf("rsemaphore: %w: it is empty", ErrInvalidName)
	}
	if err := keyname.Check(key); err != nil {
		return key, fmt.Errorf("rsemaphore: %w", err)
	}
	return key, nil
}

// begin counts in a call that may wait, or a hold, unless the client is closed; inflight.Leave counts it out.
func (c *Client) begin() error {
	if err := c.inflight.Enter(); err != nil {
		return fmt.Errorf("rsemaphore: %w", err)
	}
	return nil
}

// Close refuses new calls and ends waiting ones (ErrClosed), ends the contexts of all permits with cause ErrClosed,
// and waits for the Releases of those that are not lost and for releases still owed in the background, until ctx ends;
// for 10 s if ctx has no end, as context.Background. Then it stops renewing what is left, whose leases run out, and names
// it in its error, what is held and what was not confirmed. It does not close the hub. Later calls return nil at once.
func (c *Client) Close(ctx context.Context) error {
	drained, first := c.inflight.Close()
	if !first {
		return nil
	}
	ctx, cancel := session.Bounded(ctx)
	defer cancel()
	c.queue.Close()
	c.engine.EndAll(ErrClosed)
	select {
	case <-drained:
	case <-ctx.Done():
	}
	names := c.engine.Names(func(l *lease.Lease) bool {
		p, ok := l.Of.(*permit)
		return !ok || !p.isDropped()
	})
	owed := c.retrier.Settle(ctx)
	c.engine.Stop()
	c.retrier.Stop()
	if err := session.Leftovers(ctx, names, owed); err != nil {
		return fmt.Errorf("rsemaphore: %w", err)
	}
	return nil
}

// warnOfEviction looks, once in a client's life and beside the first success, whether the server may throw permits away.
// Close waits for it, for a call timeout at most.
func (c *Client) warnOfEviction() {
	if c.runner.EvictionAsked() || c.inflight.Enter() != nil {
		return
	}
	go func() {
		defer c.inflight.Leave()
		ctx, cancel := context.WithTimeout(c.hub.Context(), c.opts.CallTimeout)
		defer cancel()
		c.runner.WarnOfEviction(ctx, c.log, "permits")
	}()
}

// ask runs a question, or an intervention, on behalf of a caller whose ctx may have no deadline. bad is what is wrong
// with the object.
func ask[T any](ctx context.Context, c *Client, bad error, f func(context.Context) (T, error)) (T, error) {
	var none T
	if bad != nil {
		return none, bad
	}
	if c.inflight.Closed() {
		return none, fmt.Errorf("rsemaphore: %w", ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, askTries*c.opts.CallTimeout)
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		return none, fmt.Errorf("rsemaphore: %w", err)
	}
	c.warnOfEviction()
	return v, nil
}

// askTries times CallTimeout bounds a question.
const askTries = 4
