package rsemaphore

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of what is renewed for its holder: how long a crashed process keeps it from the
	// others. It is renewed every third of it. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// PollCap is the longest a waiter sleeps without looking, whatever messages come or do not. At least 10 ms.
	// Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. A call that asks only, and whose context has no deadline,
	// ends after five of them. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// MaxHold ends every permit after this time (ErrMaxHold), also one whose work is stuck. 0: no limit, the default.
	// At least 10 ms.
	MaxHold time.Duration
	// MinReplicas has every grant and every renewal of a permit confirmed by so many replicas (WAIT, on the same
	// connection) within ReplicaTimeout: a grant that is not is taken back (ErrNotReplicated), a renewal that is not
	// does not count. It makes it less likely that a failover forgets a permit, not impossible. 0: off, the default.
	MinReplicas int
	// ReplicaTimeout bounds that wait; at least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Logger gets a line when a permit is lost or forgotten, and one if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is told of what happens, for metrics. Its nil functions are skipped.
	Observer Observer
}

// session are the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap, CallTimeout: o.CallTimeout,
		MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger}
}
