package rsemaphore

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
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
	sweeper  *lease.Sweeper
	observer Observer
	log      *slog.Logger

	mu      sync.Mutex
	hungry  map[string]int // semaphores, by key -> calls that wait for permits and were told that there are not enough
	closed  bool
	held    int           // calls under way that may wait, and what is held and neither released nor lost
	drained chan struct{} // made by Close, closed when held reaches 0
}

// New makes a client on a hub, which stays the caller's and may serve others. It sends nothing.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	if h == nil {
		return nil, fmt.Errorf("rsemaphore: %w", errs.InvalidOption("hub", nil, "a *pubsub.Hub"))
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("rsemaphore: %w", err)
	}
	c := &Client{opts: o, hub: h, log: o.Logger, sweeper: lease.NewSweeper(), hungry: map[string]int{}}
	c.id, c.seed = newConnectionID()
	c.observer = o.Observer.guarded(func(p any) { c.log.Error("redlatch: observer panicked", "panic", p) })
	c.runner = script.NewRunner(h.Client(), o.CallTimeout)
	c.queue = wait.NewQueue(h, o.PollCap, c.observer.Woken)
	c.engine = lease.New(lease.Config{ConnID: c.id, Client: h.Client(), Runner: c.runner, Log: c.log,
		Replicas: o.MinReplicas, ReplicasWait: o.ReplicaTimeout, Renewed: c.observer.Renewed})
	return c, nil
}

// newConnectionID is a UUID of version 8 (RFC 9562), whose other 122 bits are random, and its first eight bytes.
func newConnectionID() (id string, seed [8]byte) {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), [8]byte(b[:8])
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

// begin counts in a call that may wait, or a hold, unless the client is closed; done counts it out.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("rsemaphore: %w", ErrClosed)
	}
	c.held++
	return nil
}

func (c *Client) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held--; c.held == 0 && c.drained != nil {
		close(c.drained)
		c.drained = nil
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close refuses new calls and ends waiting ones (ErrClosed), ends the contexts of all permits with cause ErrClosed,
// and waits for the Releases of those that are not lost and for releases still owed in the background, until ctx ends.
// Then it stops renewing what is left, whose leases run out, and names it in its error. It does not close the hub.
// Later calls return nil at once.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	drained := make(chan struct{})
	if c.held == 0 {
		close(drained)
	} else {
		c.drained = drained
	}
	c.mu.Unlock()
	c.queue.Close()
	c.engine.EndAll(ErrClosed)
	select {
	case <-drained:
	case <-ctx.Done():
	}
	names := c.names()
	owed := c.sweeper.Settle(ctx)
	c.engine.Stop()
	c.sweeper.Stop()
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if owed > 0 {
		problems = append(problems, fmt.Sprintf("%d unconfirmed releases given up, left to their leases", owed))
	}
	switch why := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case why == nil:
		return fmt.Errorf("rsemaphore: close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("rsemaphore: close: %s: %w", strings.Join(problems, "; "), why)
	}
}

// names are those of what somebody still holds, each as often as it is held. A permit whose handle was dropped is left
// to its lease anyway.
func (c *Client) names() (names []string) {
	for _, claim := range c.engine.All() {
		if p, ok := claim.Of.(*permit); !ok || !p.isDropped() {
			names = append(names, claim.Name)
		}
	}
	slices.Sort(names)
	return names
}

// shorten keeps an error readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

// ask runs a question, or an intervention, on behalf of a caller whose ctx may have no deadline. bad is what is wrong
// with the object.
func ask[T any](ctx context.Context, c *Client, bad error, f func(context.Context) (T, error)) (T, error) {
	var none T
	if bad != nil {
		return none, bad
	}
	if c.isClosed() {
		return none, fmt.Errorf("rsemaphore: %w", ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, askTries*c.opts.CallTimeout)
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		return none, fmt.Errorf("rsemaphore: %w", err)
	}
	return v, nil
}

// askTries times CallTimeout bounds a question.
const askTries = 4

// millis is d in whole milliseconds, rounded up: a bound is never cut to nothing.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
