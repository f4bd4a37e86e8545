package rsemaphore

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

// Client makes semaphores, latches and barriers, and keeps what this process holds of them. It is safe for concurrent
// use; make one and share it.
type Client struct {
	session *session.Session
	handles session.Handles // what permits have in common
	// from the session, because they are used all the time:
	clustered bool
	seed      [8]byte       // the first half of every permit id: the first bytes of the connection id
	bases     atomic.Uint64 // the number in the last base of ids
	opts      session.Options
	runner    *script.Runner
	engine    *lease.Engine
	waiters   *wait.Waiters
	coalescer *batch.Coalescer[freeRequest] // nil: calls are not shared
	live      liveness
	named     session.Holders[Holder] // by the errors of calls that gave up
	// texts that nearly every call sends
	watchdogMillis, staleMillis, rareMillis string
	grantChannel                            string // the channel of grants of this process, where it is that of all keys
}

func init() {
	accessor.Register(func(c *Client) *session.Session { return c.session })
}

// New makes a client on a hub, which stays the caller's and may serve others. It sends nothing. ErrClosed: the hub is
// closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	s, err := session.New(h, "rsemaphore", "permits", o.session())
	if err == nil {
		err = s.Error(o.check())
	}
	if err != nil {
		return nil, err
	}
	if err := session.CheckProcess(&o.Process); err != nil {
		return nil, s.Error(err)
	}
	c := &Client{session: s, clustered: h.Client().Mode() == rueidis.ClientModeCluster}
	beats := o.heartbeats(c)
	if beats.Trust > 0 {
		// permits are seen from when they are granted, not from when their waiter hears of it
		s.PollCap = min(s.PollCap, beats.Interval)
	}
	s.Start(lease.Config{Heartbeats: beats})
	c.seed, c.opts, c.runner, c.engine, c.waiters = [8]byte(s.Seed[:8]), s.Options, s.Runner, s.Engine, s.Waiters
	c.grantChannel = grantsOfAll + s.ID
	if c.live.party = s.WatchdogTimeout; beats.Trust > 0 {
		c.live = liveness{beats.Trust, lease.NewMonitor(s.Runner, beats.Interval, s.CallTimeout, s.Background)}
	}
	c.coalescer = newCoalescer(c)
	c.watchdogMillis, c.staleMillis, c.rareMillis = script.Millis(s.WatchdogTimeout),
		script.Millis(5*c.poll()/2), script.Millis(5*wait.MaxPoll/2)
	c.handles = session.Handles{Session: s, Noun: "permit", Verb: "Release"}
	return c, nil
}

// grantsOfAll is the prefix of the channels of grants where one server serves all keys.
const grantsOfAll = "redlatch_grant:"

// millis is a lease as the server is asked for it; the usual one's text is kept.
func (c *Client) millis(lease time.Duration) string {
	if lease == c.opts.WatchdogTimeout {
		return c.watchdogMillis
	}
	return script.Millis(lease)
}

// Close refuses new calls, ends waiting ones (ErrClosed), and ends the contexts of all permits with cause ErrClosed. It
// waits until the permits that are not lost have been released, and until no release is pending in the background. It
// waits until ctx ends, or for 10 s if ctx has no end, as context.Background. It does not wait for a permit with a
// leaseTime to which the program has no reference any more. Then it stops renewing what is left, whose leases run out.
// Its error names the permits that are still held and the releases that were not confirmed. It does not close the hub.
// Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.session.Close(ctx) }
