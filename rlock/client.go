package rlock

import (
	"context"
	"log/slog"
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
	session *session.Session
	handles session.Handles // what holds have in common
	// What the session has, and is asked for all the time.
	id      string // connection id: the first half of every owner
	base    time.Time
	opts    session.Options
	hub     *pubsub.Hub
	runner  *script.Runner
	engine  *lease.Engine
	queue   *wait.Queue
	retrier *session.Retrier
	log     *slog.Logger

	publish        string // PUBLISH or SPUBLISH
	handover       bool   // waiters queue on the server
	clustered      bool
	sharded        bool // a channel lives on the node of its hash tag
	tokenRetention time.Duration
	hashOver       int
	heartbeat      time.Duration // 0: Liveness is off
	monitor        *monitor      // nil: likewise
	observer       Observer
	run            atomic.Int64 // of a Quorum's member: the run of the server that was last heard of
	metOnce        atomic.Bool  // likewise: the server was given time once to say who it is
}

// New makes a client on a hub, which stays the caller's and may serve others. It sends nothing, unless Options.Strict.
// ErrClosed: the hub is closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	s, err := session.New(h, "rlock", "locks", o.session())
	if err == nil {
		err = s.Error(o.check())
	}
	if err != nil {
		return nil, err
	}
	c := &Client{session: s, publish: h.PublishCommand(), clustered: h.Client().Mode() == rueidis.ClientModeCluster, tokenRetention: o.TokenRetention, hashOver: o.HashOver}
	c.sharded = c.publish == "SPUBLISH"
	// In a Cluster older than Redis 7 a publisher does not learn who hears it: there waiters race.
	c.handover = c.sharded || !c.clustered
	c.observer = o.Observer.guarded(s)
	beats := lease.Heartbeats{Key: func(group int) string { return c.aliveKey(group, s.ID) }}
	if o.Liveness {
		beats.Interval, beats.Trust, beats.Value = o.Heartbeat, o.trust(), o.Process
		c.heartbeat = o.Heartbeat
		s.PollCap = min(s.PollCap, o.Heartbeat) // a hold is seen from when it is granted, not from when its waiter hears of it
	}
	s.Start(lease.Config{Watch: h.Watch, Heartbeats: beats, Renewed: c.observer.Renewed}, c.observer.Woken)
	c.id, c.base, c.opts, c.hub, c.runner, c.log = s.ID, s.Base, s.Options, s.Hub, s.Runner, s.Logger
	c.engine, c.queue, c.retrier = s.Engine, s.Queue, s.Retrier
	c.handles = session.Handles{Session: s, Noun: "hold", Verb: "Unlock", Ended: c.observer.Ended,
		Released: func(ctx context.Context, h *session.Holding, lasted time.Duration, err error) {
			c.observer.Released(ctx, h.Lease.Name, lasted, err)
		}}
	if o.Liveness {
		c.monitor = newMonitor(c)
	}
	if o.Strict {
		if policy := s.EvictionPolicy(); policy != "" {
			c.Close(context.Background())
			return nil, s.Error(errs.InvalidOption("the server's maxmemory-policy", policy, "noeviction (Options.Strict)"))
		}
	}
	return c, nil
}

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

// Close refuses new acquisitions and ends waiting ones (ErrClosed), ends the contexts of all holds with cause
// ErrClosed, and waits for the Unlocks of those that are not lost and for releases still pending in the background, until
// ctx ends; for 10 s if ctx has no end, as context.Background. Then it stops renewing what is left, whose leases run out,
// and names it in its error, what is held and what was not confirmed. It does not close the hub. Later calls return nil at
// once.
func (c *Client) Close(ctx context.Context) error { return c.session.Close(ctx) }
