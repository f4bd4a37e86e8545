package rlock

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes locks and keeps the holds of this process. It is safe for concurrent use; make one and share it.
type Client struct {
	id        string // connection id: the first half of every owner
	base      time.Time
	opts      Options
	hub       *pubsub.Hub
	publish   string // PUBLISH or SPUBLISH
	handover  bool   // waiters queue on the server
	clustered bool
	sharded   bool // a channel lives on the node of its hash tag
	runner    *script.Runner
	engine    *lease.Engine
	queue     *wait.Queue
	retrier   *session.Retrier
	monitor   *monitor // nil: Liveness is off
	observer  Observer
	log       *slog.Logger
	owners    atomic.Int64 // the second half of the last owner
	run       atomic.Int64 // of a Quorum's member: the run of the server that was last heard of
	metOnce   atomic.Bool  // likewise: the server was given time once to say who it is

	ctx        context.Context // of what runs in the background; ends at Close
	cancel     context.CancelFunc
	background sync.WaitGroup

	inflight session.Inflight
}

// New makes a client on a hub, which stays the caller's and may serve others. It sends nothing, unless Options.Strict.
// ErrClosed: the hub is closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	if h == nil {
		return nil, fmt.Errorf("rlock: %w", errs.InvalidOption("hub", nil, "a *pubsub.Hub"))
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("rlock: %w", err)
	}
	if h.Context().Err() != nil {
		return nil, fmt.Errorf("rlock: hub: %w", ErrClosed)
	}
	c := &Client{opts: o, hub: h, base: time.Now(), log: o.Logger, retrier: session.NewRetrier()}
	c.inflight.Hub = h.Context()
	var beats lease.Heartbeats
	if o.Liveness {
		beats = lease.Heartbeats{Interval: o.Heartbeat, Trust: o.trust(), Value: o.Process}
	}
	c.id, _ = lease.NewConnectionID(beats.Trust)
	beats.Key = func(district int) string { return c.aliveKey(district, c.id) }
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.observer = o.Observer.guarded(func(p any) { c.log.Error("redlatch: observer panicked", "panic", p) })
	c.runner = script.NewRunner(h.Client(), o.CallTimeout)
	c.publish = h.PublishCommand()
	c.sharded = c.publish == "SPUBLISH"
	c.clustered = h.Client().Mode() == rueidis.ClientModeCluster
	// In a Cluster older than Redis 7 a publisher does not learn who hears it: there waiters race.
	c.handover = c.sharded || !c.clustered
	c.queue = wait.NewQueue(h, o.PollCap, c.observer.Woken)
	c.engine = lease.New(lease.Config{Client: h.Client(), Runner: c.runner, Log: c.log, Watch: h.Watch,
		Replicas: o.MinReplicas, ReplicasWait: o.ReplicaTimeout, Heartbeats: beats, Renewed: c.observer.Renewed})
	if o.Liveness {
		c.monitor = newMonitor(c)
	}
	if o.Strict {
		c.runner.EvictionAsked() // no warning beside
		ctx, cancel := context.WithTimeout(c.ctx, evictionTimeout)
		policy := c.runner.EvictionPolicy(ctx)
		cancel()
		if policy != "" {
			c.Close(context.Background())
			return nil, fmt.Errorf("rlock: %w", errs.InvalidOption("the server's maxmemory-policy", policy, "noeviction (Options.Strict)"))
		}
	}
	return c, nil
}

// warnOfEviction looks, once in a client's life and beside the first acquisition, whether the server may throw locks away.
func (c *Client) warnOfEviction() {
	if c.runner.EvictionAsked() {
		return
	}
	c.inflight.IfOpen(func() { // Close may be waiting for the background already
		c.background.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, evictionTimeout)
			defer cancel()
			c.runner.WarnOfEviction(ctx, c.log, "locks")
		})
	})
}

// evictionTimeout bounds the question.
const evictionTimeout = 5 * time.Second

// newOwner is an id that was never used. A label becomes part of it: there it needs no key of its own, lives exactly
// as long as the hold, and changes nothing for Redisson, which only compares owners.
func (c *Client) newOwner(label string) string {
	id := c.id + ":" + strconv.FormatInt(c.owners.Add(1), 10)
	if label != "" {
		id += ":" + url.PathEscape(label)
		if head, ok := strings.CutSuffix(id, ":write"); ok {
			id = head + ":%77rite" // Redisson's mark of a writer
		}
	}
	return id
}

// ID is the connection id: the part before the colon of every owner of this client.
func (c *Client) ID() string { return c.id }

// Reentrant describes the lock of that name: a hash owner -> count on the server, Redisson's RLock. A name that cannot
// be used is reported by every call on it. Processes that wait queue on the server and are handed the lock in their order;
// TryLock with a waitTime of 0 acquires only what is free while nobody queues. That holds for NonReentrant and Fenced, too.
func (c *Client) Reentrant(name string) *Lock {
	return c.lock(name, reentrant)
}

// NonReentrant describes a lock whose owner cannot acquire it again: doing so fails with ErrReentry, at once. For all
// others it is the Reentrant lock of that name.
func (c *Client) NonReentrant(name string) *Lock { return c.lock(name, nonReentrant) }

// Fenced describes a lock whose holds have a fencing token ([Hold.Token]): a number greater than that of every earlier
// hold of the name, which a resource can use to refuse those who act late. For all others it is the Reentrant lock of
// that name; Redisson's RFencedLock. Where it is contended each acquisition takes one call more than a Reentrant one.
//
// Tokens grow across expiry, DEL, FLUSHALL, failover and a restart without persistence, because a token is at least
// the server's time in µs; provided that clock does not step back by more than Options.TokenRetention, or by as much
// as a lock that lost its last token was idle. Re-entries have the token of the hold they re-enter.
func (c *Client) Fenced(name string) *Lock { return c.lock(name, fencing) }

// Spin describes a lock whose waiters poll, and neither publish nor subscribe: for servers that forbid that, and for
// locks that are free again within a moment. For all others it is the Reentrant lock of that name (Redisson's
// RSpinLock); its release wakes their waiters where it may publish, and those come first: a Spin waiter acquires only
// when nobody queues.
//
// Waiters of one process spin one after the other, not all at once. A TryLock with a waitTime of 0 may overtake them, but not
// those of the other kinds that queue.
func (c *Client) Spin(name string, b Backoff) *Lock {
	s, bad := c.single(name, spinning)
	b, err := b.withDefaults()
	if err != nil && bad == nil {
		bad = fmt.Errorf("rlock: %w", err)
	}
	s.backoff = &b
	return s.asLock(bad)
}

// begin counts an acquisition in, unless the client is closed; inflight.Leave counts it out.
func (c *Client) begin() error {
	if err := c.inflight.Enter(); err != nil {
		return fmt.Errorf("rlock: %w", err)
	}
	return nil
}

// Close refuses new acquisitions and ends waiting ones (ErrClosed), ends the contexts of all holds with cause
// ErrClosed, and waits for the Unlocks of those that are not lost and for releases still owed in the background, until
// ctx ends; for 10 s if ctx has no end, as context.Background. Then it stops renewing what is left, whose leases run out,
// and names it in its error, what is held and what was not confirmed. It does not close the hub. Later calls return nil at
// once.
func (c *Client) Close(ctx context.Context) error {
	drained, first := c.inflight.Close()
	if !first {
		return nil
	}
	ctx, cancel := session.Bounded(ctx)
	defer cancel()
	c.queue.Close()
	c.engine.EndAll(ErrClosed)
	c.cancel()
	defer c.background.Wait()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	names := c.engine.Names(func(l *lease.Lease) bool { return l.Of.(*owner).inUse() })
	owed := c.retrier.Settle(ctx)
	c.engine.Stop()
	c.retrier.Stop()
	if err := session.Leftovers(ctx, names, owed); err != nil {
		return fmt.Errorf("rlock: %w", err)
	}
	return nil
}
