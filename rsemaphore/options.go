package rsemaphore

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Options of a Client. The zero value has all defaults.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of permits and parties that are renewed. A crashed process keeps its permits from
	// others for that long. They are renewed every third of it. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// MaxHold ends every permit after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to 0:
	// no limit.
	MaxHold time.Duration
	// PollCap is the longest time between two requests of a waiter, whatever messages come. At least 10 ms. If the process
	// waits for more than 64 semaphores, a waiter that receives messages polls every 10 s. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MinReplicas makes every grant and renewal of a permit wait for that many replicas (WAIT, on the same connection),
	// for at most ReplicaTimeout. A grant that they do not confirm is given back (ErrNotReplicated), and such a renewal
	// does not count. A failover is less likely to forget a permit then, but it still may. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Liveness sends heartbeats while the client holds permits that are renewed, and takes over the permits of crashed
	// processes long before their leases are over: about three Heartbeats after the crash. Holder and waiter both need it.
	// In return a permit ends (ErrLost) if no heartbeat was confirmed for three Heartbeats, however long its lease is.
	// Permits with a leaseTime of their own are not affected. A barrier's party that crashes leaves after three
	// Heartbeats, too. PollCap is then at most a Heartbeat.
	//
	// It costs one script call for each Heartbeat in which the client holds anything, however many permits that is, and
	// one in a WatchdogTimeout if all permits are held for less. In a Cluster it costs as many for each sixteenth of the
	// slots. For each name that a process waits for, every half Heartbeat it reads the permits that are held, 1,000 in a
	// call, and a key of each process that holds some. Liveness has no effect if WatchdogTimeout is three Heartbeats or
	// less. Defaults to off.
	Liveness bool
	// Heartbeat is the interval between heartbeats. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// Process is the name of this process in Inspect, from a second after it first held something. It costs a call every
	// ten minutes while anything is held. Every user that may read the keys can see it. At most 256 bytes of UTF-8.
	// Defaults to "host:pid".
	Process string
	// Observer is called with the client's events, for metrics and traces. Defaults to none.
	Observer Observer
	// Logger receives a line when a permit is lost or forgotten, when the server does not answer waiters, and if it evicts
	// keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is called with the events of a client's semaphores, latches and barriers. It is redlatch.Observer, which is
// one type for all packages.
type Observer = errs.Observer

// check refuses options out of bounds, of those that only this package has, and fills in their defaults.
func (o *Options) check() error {
	return session.CheckHeartbeat(&o.Heartbeat)
}

// session returns the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
		CallTimeout:  o.CallTimeout,
		RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
		Logger: o.Logger, Observer: o.Observer}
}
