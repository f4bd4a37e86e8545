package rlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes locks and keeps the holds of this process. It is safe for concurrent use. Make one and share it.
type Client struct {
	session *session.Session
	handles session.Handles // what holds have in common
	asked
	texts

	clustered      bool
	tokenRetention time.Duration
	fenced         bool // Options.Fenced
	hashOver       int
	heartbeat      time.Duration // 0: Liveness is off
	monitor        *monitor      // nil: likewise
	cohorts        cohorts
	looks
	voter
}

// looks are what is looked at for those that wait, or have waited.
type looks struct {
	named session.Holders[Holder] // by the errors of calls that gave up
}

// asked are parts of the session, which are asked for all the time.
type asked struct {
	opts      session.Options
	runner    *script.Runner
	engine    *lease.Engine
	waiters   *wait.Waiters
	coalescer *batch.Coalescer[freeRequest] // nil: calls are not shared
}

// texts are sent with every acquisition, and made once.
type texts struct {
	watchdogMillis string // Options.WatchdogTimeout
	grantsHere     string // the channel of this process's grants, where one server serves all keys
	publish        string // PUBLISH or SPUBLISH
}

// voter is what is known of the server of a Quorum's member.
type voter struct {
	run     atomic.Int64 // its run, by its last answer
	metOnce atomic.Bool  // it was given time once to say which that is
}

func init() { accessor.Register(func(c *Client) *session.Session { return c.session }) }

// New makes a client on a hub. The hub stays the caller's and may serve other clients. New sends nothing. It
// returns ErrInvalidOption if an option is out of bounds, and ErrClosed if the hub is closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	s, err := session.New(h, "rlock", "locks", o.session())
	if err == nil {
		err = s.Error(o.check())
	}
	if err != nil {
		return nil, err
	}
	c := &Client{session: s, texts: texts{publish: s.Inner.PublishCommand()},
		clustered: h.Client().Mode() == rueidis.ClientModeCluster, tokenRetention: o.TokenRetention, hashOver: o.HashOver,
		fenced: o.Fenced}
	beats := lease.Announced(func(group int) string { return lease.BeatKey(s.ID, group) }, o.Process)
	if o.Liveness {
		beats.Interval, beats.Trust = o.Heartbeat, o.trust()
		c.heartbeat = o.Heartbeat
		// a hold is seen from when it is granted, not from when its waiter hears of it
		s.PollCap = min(s.PollCap, o.Heartbeat)
	}
	s.Start(lease.Config{Watch: s.Inner.Watch, Heartbeats: beats})
	c.grantsHere, c.watchdogMillis = grantPrefix+s.ID, script.Millis(s.WatchdogTimeout)
	c.opts, c.runner, c.engine, c.waiters = s.Options, s.Runner, s.Engine, s.Waiters
	c.handles = session.Handles{Session: s, Noun: "hold", Verb: "Unlock"}
	c.cohorts.base = s.Base
	c.coalescer = newCoalescer(c)
	if o.Liveness {
		c.monitor = newMonitor(c)
	}
	return c, nil
}

// millis is a lease as the server is asked for it; the usual one's text is kept, because every acquisition sends it.
func (c *Client) millis(lease time.Duration) string {
	if lease == c.opts.WatchdogTimeout {
		return c.watchdogMillis
	}
	return script.Millis(lease)
}

// Reentrant describes the lock of that name: a hash owner -> count on the server, Redisson's RLock. If the name cannot
// be used, every call on the lock returns ErrInvalidName.
//
// Waiting processes queue on the server and are handed the lock in their order. TryLock with a waitTime of 0 acquires
// the lock only if it is free and the queue is empty. The same is true of NonReentrant and Fenced.
//
// With Options.Fenced it is the Fenced lock of that name.
func (c *Client) Reentrant(name string) *Lock {
	if c.fenced {
		return c.Fenced(name)
	}
	return c.lock(name, reentrant)
}

// NonReentrant describes a lock whose owner cannot acquire it again: such a call returns ErrReentry at once. For
// everybody else it is the Reentrant lock of that name.
func (c *Client) NonReentrant(name string) *Lock { return c.lock(name, nonReentrant) }

// Fenced describes a lock whose holds have a fencing token ([Hold.Token]). The token is a number greater than that of
// every earlier hold of the name. A resource that checks fencing tokens refuses an act with a lower one than it has
// seen. For everybody else it is the Reentrant lock of that name. It is Redisson's RFencedLock. Under contention each
// acquisition takes one call more than that of a Reentrant lock, also where the callers of a process follow each other.
//
// Tokens grow across expiry, DEL, FLUSHALL, failover and a restart without persistence, because a token is at least the
// server's time in µs. The condition is that this clock does not step back by more than Options.TokenRetention, or, if
// the last token was lost, by more than the time for which the lock was idle. A re-entry has the token of the hold that
// it re-enters.
func (c *Client) Fenced(name string) *Lock { return c.lock(name, fencing) }

// Close refuses new acquisitions, ends waiting ones (ErrClosed), and ends the contexts of all holds with cause
// ErrClosed. Then it waits for the Unlocks of the holds that are not lost, and for releases that are pending in the
// background, until ctx ends; for 10 s if ctx has no deadline and cannot be cancelled, such as context.Background.
// After that it stops renewing what is left, whose leases run out. Its error names the holds that were not unlocked and
// the releases that were not confirmed. It does not close the hub. Later calls wait for the first until their own ctx
// ends, and return its result.
func (c *Client) Close(ctx context.Context) error {
	return c.session.Close(ctx)
}
