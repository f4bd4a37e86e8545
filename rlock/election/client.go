package election

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// Options are the settings of a Client. The zero value has the defaults. New refuses a value that is out of bounds with
// ErrInvalidOption. All candidates of an election should have the same.
type Options struct {
	// KeyPrefix is put before every name to make its key. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of a leadership: for how long a leader that crashed stands in the way if no candidate
	// watches its heartbeats. It is renewed every third of that time. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// Heartbeat is the interval between the leader's heartbeats. A candidate that waits takes over after three without
	// one. In return, a leadership ends (ErrLost) if none was confirmed for three. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// PollCap is the longest time for which a candidate or an observer sleeps before it looks again, whether or not
	// messages come. At least 10 ms; more than a Heartbeat counts as one. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MaxHold ends every leadership after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to
	// 0: no upper limit.
	MaxHold time.Duration
	// MinReplicas is for how many replicas each election and each renewal waits, for ReplicaTimeout at most. A failover
	// then forgets a leader less easily. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Process is what rlock's Inspect shows of this process while it leads. Defaults to "host:pid".
	Process string
	// Logger gets a line when a leadership is lost, when the server does not answer candidates, when a leader cannot
	// announce itself, and when an observer cannot look. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with what happens to the locks under the elections: EventAcquired is an election won,
	// EventReleased a resignation, EventEnded a leadership that was lost, EventTakenOver a crashed leader. Defaults to
	// none.
	Observer rlock.Observer
}

// Client makes elections and keeps the leaderships of this process. It is safe for concurrent use. Make one and share
// it.
type Client struct {
	session *session.Session
	locks   *rlock.Client
	waiters *wait.Waiters // of observers
	trust   time.Duration // for how long after its last sign of life a worker is believed to be there
	closing session.Once
}

// An election holds and waits in the locks under it.
func init() {
	accessor.Register(func(c *Client) *session.Session { return accessor.Of[*session.Session](c.locks) })
}

// New makes a client on a hub. The hub stays the caller's and may serve other clients. New sends nothing. It returns
// ErrInvalidOption if an option is out of bounds, and ErrClosed if the hub is closed.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	s, err := session.New(h, "election", "leaderships",
		session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
			CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas,
			ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	locks, err := rlock.New(h,
		rlock.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
			CallTimeout:  o.CallTimeout,
			RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
			Logger:   o.Logger,
			Liveness: true, Heartbeat: o.Heartbeat, Process: o.Process, Observer: observes(o.Observer)})
	if err != nil {
		return nil, edge(err)
	}
	heartbeat := cmp.Or(o.Heartbeat, session.DefaultHeartbeat)
	s.PollCap = min(s.PollCap, heartbeat)
	return &Client{session: s, locks: locks, waiters: wait.NewWaiters(h, s.PollCap, nil, nil),
		trust: lease.TrustFor(heartbeat)}, nil
}

// Close ends waiting candidates and loops over Observe (ErrClosed), and the contexts of all leaderships, with cause
// ErrClosed. Then it waits until those that are not lost have resigned and the server has confirmed it, until ctx ends;
// for 10 s if ctx has no end. What is left then lasts until its heartbeats are missed, or its lease is over, and the
// error names it. Close does not close the hub. Later calls wait for the first until their own ctx ends, and return its
// result.
func (c *Client) Close(ctx context.Context) error {
	return edge(c.closing.Close(ctx, func(ctx context.Context) error {
		c.waiters.Close()
		return errors.Join(c.locks.Close(ctx), c.session.Close(ctx))
	}))
}

//go:embed lua
var files embed.FS

var (
	announceScript = script.Load("announce the leader", files, "announce")
	retractScript  = script.Load("retract the leader", files, "retract")
	workersScript  = script.Load("say which workers are there", files, "workers")
)

// observes returns an Observer of the locks under elections that calls o with events of this package; nil if o is nil.
func observes(o rlock.Observer) rlock.Observer {
	if o == nil {
		return nil
	}
	return func(ctx context.Context, e errs.Event) context.Context {
		e.Package = "election"
		return o(ctx, e)
	}
}

// edge gives an error of package rlock this package's name, too.
func edge(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("election: %w", err)
}
