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
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// Options are the settings of a Client. The zero value has the defaults. New refuses a value that is out of bounds with
// ErrInvalidOption. All candidates of an election should have the same options.
type Options struct {
	// KeyPrefix is put before every name to make its key. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of a leadership. A leader that crashed blocks the election for this long if no
	// candidate watches its heartbeats. The lease is renewed every third of that time. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// Heartbeat is the interval between the leader's heartbeats. A waiting candidate takes over after three intervals
	// without a heartbeat. In return, a leadership ends (ErrLost) if no heartbeat was confirmed for three intervals. 50 ms
	// to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// PollCap is the longest time for which a candidate or an observer sleeps before its next request, with or without
	// messages. At least 10 ms; a value above Heartbeat counts as Heartbeat. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for other processes. The call is repeated for that long while the
	// server does not answer or refuses, as during a failover. The context may end it sooner, and never later. At least
	// CallTimeout. Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MaxHold ends every leadership after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to
	// 0: no upper limit.
	MaxHold time.Duration
	// MinReplicas is the number of replicas that must confirm each election and each renewal within ReplicaTimeout. A
	// failover then forgets a leader less easily. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds the wait for MinReplicas. At least 1 ms, and less than CallTimeout. Defaults to half of
	// CallTimeout.
	ReplicaTimeout time.Duration
	// Process is the name of this process in rlock's Inspect while it leads. Defaults to "host:pid".
	Process string
	// Logger gets a line when a leadership is lost, when the server does not answer candidates, when a leader cannot
	// announce itself, and when an observer cannot read the leader. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with the events of the locks under the elections. EventAcquired is an election won, EventReleased
	// a resignation, EventEnded a lost leadership, and EventTakenOver a crashed leader. Defaults to none.
	Observer rlock.Observer
}

// Client makes elections and keeps the leaderships of this process. It is safe for concurrent use. Make one Client and
// share it.
type Client struct {
	session *session.Session
	locks   *rlock.Client
	waiters *wait.Waiters // the loops over Observe
	closing session.Once

	trustPeriod time.Duration // a worker counts as present for this long after its last heartbeat
}

// The holds and waits of an election are in the session of its lock client.
func init() {
	accessor.Register(func(c *Client) *session.Session { return accessor.Of[*session.Session](c.locks) })
	accessor.Register(func(c *Client) *rlock.Client { return c.locks })
	accessor.Register(func(c *Client) *hold.Keeper { return accessor.Of[*hold.Keeper](c.locks) })
}

// New makes a client on a hub. The hub stays the caller's and may serve other clients. New sends nothing. It returns
// ErrInvalidOption if an option is out of bounds, and ErrClosed if the hub is closed.
func New(hub *pubsub.Hub, opts Options) (*Client, error) {
	base, err := session.New(hub, "election", "leaderships",
		session.Options{KeyPrefix: opts.KeyPrefix, WatchdogTimeout: opts.WatchdogTimeout, PollCap: opts.PollCap,
			CallTimeout: opts.CallTimeout, RetryTimeout: opts.RetryTimeout, MaxHold: opts.MaxHold, MinReplicas: opts.MinReplicas,
			ReplicaTimeout: opts.ReplicaTimeout, Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	locks, err := rlock.New(hub,
		rlock.Options{KeyPrefix: opts.KeyPrefix, WatchdogTimeout: opts.WatchdogTimeout, PollCap: opts.PollCap,
			CallTimeout: opts.CallTimeout, RetryTimeout: opts.RetryTimeout, MaxHold: opts.MaxHold, MinReplicas: opts.MinReplicas,
			ReplicaTimeout: opts.ReplicaTimeout, Logger: opts.Logger, Liveness: true, Heartbeat: opts.Heartbeat,
			Process: opts.Process, Observer: withElectionEvents(opts.Observer)})
	if err != nil {
		return nil, withPackage(err)
	}
	heartbeat := cmp.Or(opts.Heartbeat, session.DefaultHeartbeat)
	base.PollCap = min(base.PollCap, heartbeat)
	return &Client{session: base, locks: locks, waiters: wait.NewWaiters(hub, base.PollCap, nil, nil),
		trustPeriod: lease.TrustFor(heartbeat)}, nil
}

// Close ends waiting candidates and loops over Observe (ErrClosed), and the contexts of all leaderships, with cause
// ErrClosed. Then it waits until the leaderships that are not lost have resigned and the server has confirmed it. ctx
// bounds this wait; if ctx has no deadline, 10 s do. A leadership that is left lasts until its heartbeats are missed,
// or its lease is over, and the error names it. Close does not close the hub. Later calls wait for the first until
// their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error {
	return withPackage(c.closing.Close(ctx, func(ctx context.Context) error {
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

// withElectionEvents returns an Observer for the locks under elections. It calls observer with events of this package;
// it is nil if observer is nil.
func withElectionEvents(observer rlock.Observer) rlock.Observer {
	if observer == nil {
		return nil
	}
	return func(ctx context.Context, e errs.Event) context.Context {
		e.Package = "election"
		return observer(ctx, e)
	}
}

// withPackage adds this package's name to an error of package rlock.
func withPackage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("election: %w", err)
}
