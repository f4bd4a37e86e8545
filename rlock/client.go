package rlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes locks and keeps the holds of this process. It is safe for concurrent use. Make one and share it.
type Client struct {
	session *session.Session
	keeper  *hold.Keeper // what all holds share

	// Parts of the session that every call uses.
	opts      session.Options
	runner    *script.Runner
	engine    *lease.Engine
	waiters   *wait.Waiters
	coalescer *batch.Coalescer[freeRequest] // nil: calls are not shared
	cohorts   lockCohorts
	answered  answeredKeys // of all Onces

	clustered   bool
	lockOptions Options  // the options that only locks have; opts has the others, with their defaults
	monitor     *monitor // nil: Liveness is off

	// Arguments of every acquire script, made once.
	watchdogMillis string // Options.WatchdogTimeout
	grantChannel   string // the channel of grants to this process, where one server serves all keys
	publish        string // PUBLISH or SPUBLISH

	holderLookups hold.Holders[Holder] // looks up the holders for the errors of calls that gave up

	// The server of a Quorum's member.
	memberRun   atomic.Int64 // its run, by its last reply
	askedForRun atomic.Bool  // the client waited once for a server to say its run
}

func init() {
	accessor.Register(func(client *Client) *session.Session { return client.session })
	accessor.Register(func(client *Client) *hold.Keeper { return client.keeper })
}

// New makes a client on a hub. The hub stays the caller's and may serve other clients. New sends nothing. It
// returns ErrInvalidOption if an option is out of bounds, and ErrClosed if the hub is closed.
func New(hub *pubsub.Hub, opts Options) (*Client, error) {
	opened, err := session.New(hub, "rlock", "locks", opts.session())
	if err == nil {
		err = opened.Error(opts.check())
	}
	if err != nil {
		return nil, err
	}
	client := &Client{session: opened, publish: opened.Inner.PublishCommand(),
		clustered: hub.Client().Mode() == rueidis.ClientModeCluster, lockOptions: opts}
	beats := lease.Announced(func(group int) string { return lease.BeatKey(client.keeper.ID, group) }, opts.Process)
	if opts.Liveness {
		beats.Interval, beats.Trust = opts.Heartbeat, opts.trust()
		// A hold counts as watched from its grant on, and not only from when its waiter learns of the grant.
		opened.PollCap = min(opened.PollCap, opts.Heartbeat)
	}
	client.keeper = hold.NewKeeper(opened, "hold", "Unlock", lease.Config{Watch: opened.Inner.Watch, Heartbeats: beats})
	client.grantChannel = grantPrefix + client.keeper.ID
	client.watchdogMillis = script.Millis(opened.WatchdogTimeout)
	client.opts, client.runner = opened.Options, opened.Runner
	client.engine, client.waiters = client.keeper.Engine, client.keeper.Waiters
	client.cohorts.base = opened.Base
	client.coalescer = newCoalescer(client)
	if opts.Liveness {
		client.monitor = newMonitor(client)
	}
	return client, nil
}

// millis returns a lease as a script argument. The text of the watchdog's lease is kept, because every acquisition
// sends it.
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
	if c.lockOptions.Fenced {
		return c.Fenced(name)
	}
	return c.lock(name, kindReentrant)
}

// NonReentrant describes a lock whose owner cannot acquire it again: such a call returns ErrReentry at once. For
// everybody else it is the Reentrant lock of that name.
func (c *Client) NonReentrant(name string) *Lock { return c.lock(name, kindNonReentrant) }

// Fenced describes a lock whose holds have a fencing token ([Hold.Token]). The token is a number greater than that of
// every earlier hold of the name. A resource that checks fencing tokens refuses an act with a lower one than it has
// seen. For everybody else it is the Reentrant lock of that name. It is Redisson's RFencedLock. Under contention each
// acquisition takes one call more than that of a Reentrant lock, also where the callers of a process follow each other.
//
// Tokens grow across expiry, DEL, FLUSHALL, failover and a restart without persistence, because a token is at least the
// server's time in µs. The condition is that this clock does not step back by more than Options.TokenRetention, or, if
// the last token was lost, by more than the time for which the lock was idle. A re-entry has the token of the hold that
// it re-enters.
func (c *Client) Fenced(name string) *Lock { return c.lock(name, kindFenced) }

// Close refuses new acquisitions, ends waiting ones (ErrClosed), and ends the contexts of all holds with cause
// ErrClosed. Then it waits for the Unlocks of the holds that are not lost, and for releases that are pending in the
// background, until ctx ends; for 10 s if ctx has no deadline and cannot be cancelled, such as context.Background.
// After that it stops renewing what is left, whose leases run out. Its error names the holds that were not unlocked and
// the releases that were not confirmed. It does not close the hub. Later calls wait for the first until their own ctx
// ends, and return its result.
func (c *Client) Close(ctx context.Context) error {
	return c.session.Close(ctx)
}
