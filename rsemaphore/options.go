package rsemaphore

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of permits and parties that are renewed: a crashed process keeps theirs that long from
	// the others. They are renewed every third of it. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// MaxHold ends every permit after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to 0:
	// no limit.
	MaxHold time.Duration
	// PollCap is the longest time that a waiter sleeps before it asks again, whatever messages come. At least 10 ms. If
	// the process waits for more than 64 semaphores, a waiter that gets messages asks every 10 s. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MinReplicas waits for that many replicas on every grant and renewal of a permit (WAIT, on the same connection), for
	// at most ReplicaTimeout. A grant that they do not confirm is given back (ErrNotReplicated); a renewal does not count.
	// A failover is less likely to forget a permit then; it still may. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Liveness sends heartbeats while the client holds permits that are renewed, and takes those of crashed processes over
	// long before their leases are over: about three Heartbeats after the crash. Holder and waiter both need it. In return
	// a permit ends (ErrLost) if no heartbeat was confirmed for three Heartbeats, however long its lease is. Permits with
	// a leaseTime of their own have no part in it. A barrier's party that crashes leaves after three Heartbeats, too.
	// PollCap is then at most a Heartbeat.
	//
	// It costs one script call for each Heartbeat in which the client holds anything, however many permits that is, and
	// one in a WatchdogTimeout where all are held for less; in a Cluster, as many for each sixteenth of the slots. A
	// process that waits reads the permits that are out, 1,000 in a call, and a key of each process that has some, every
	// half Heartbeat for each name that it waits for. It changes nothing if WatchdogTimeout is three Heartbeats or less.
	// Defaults to off.
	Liveness bool
	// Heartbeat is the interval between heartbeats. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// Process is what Inspect shows of this process from a second after it first held something. It costs a call every ten
	// minutes while anything is held. Every user that may read the keys can see it. At most 256 bytes of UTF-8. Defaults
	// to "host:pid".
	Process string
	// Observer is called with what happens, for metrics and traces. Defaults to none.
	Observer Observer
	// Logger gets a line when a permit is lost or forgotten, when the server does not answer those who wait, and if it
	// evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is called with what happens to the semaphores, latches and barriers of a client. It is redlatch.Observer,
// which is one type for all packages.
type Observer = errs.Observer

// check refuses what is out of bounds among the options that this package has for itself, and fills in their defaults.
func (o *Options) check() error {
	return session.CheckHeartbeat(&o.Heartbeat)
}

// session are the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
		CallTimeout:  o.CallTimeout,
		RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
		Logger: o.Logger, Observer: o.Observer}
}
