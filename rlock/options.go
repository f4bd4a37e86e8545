package rlock

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of a hold that is renewed for its holder: how long a crashed process blocks the
	// others. It is renewed every third of it. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// PollCap is the longest a waiter sleeps without looking, whatever messages come or do not. At least 10 ms.
	// Waiters in the server's queue look every 10 s all the same, with Liveness every Heartbeat. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. A call that asks only, and whose context has no deadline,
	// ends after five of them. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// MaxHold ends every hold after this time (ErrMaxHold), also one whose work is stuck. 0: no limit, the default.
	// At least 10 ms.
	MaxHold time.Duration
	// TokenRetention is how long the last token of a Fenced lock is kept after its last grant. It matters where the
	// server's clock may step back, and where Redisson holds the lock, too, which counts from 1 when the last token is
	// gone. At least 1 min. Defaults to 24 h.
	TokenRetention time.Duration
	// MinReplicas has every grant and every renewal confirmed by so many replicas (WAIT, on the same connection)
	// within ReplicaTimeout: a grant that is not is taken back (ErrNotReplicated), a renewal that is not does not
	// count. It makes it less likely that a failover forgets a hold, not impossible: another replica than those that
	// confirmed may be promoted. Each call takes a connection for itself while it waits. 0: off, the default.
	MinReplicas int
	// ReplicaTimeout bounds that wait; at least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Liveness has the locks of a crashed process taken over long before their leases are over, by the waiters of
	// clients that have it on, too: about three Heartbeats after the crash. See "Crashed holders" in the package comment. It
	// costs one script call for each Heartbeat in which the client holds anything (in a Cluster, for each sixteenth of the
	// slots), however many locks that is, and a process that waits two reads every half Heartbeat for each name it waits
	// for. The price: a hold ends (ErrLost) when no heartbeat was confirmed for three Heartbeats, however long its lease is. PollCap is at most a Heartbeat then. Off by
	// default.
	Liveness bool
	// Heartbeat is the interval. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// Process is what [Lock.Inspect] shows of this process while Liveness is on, to everybody who may read the keys.
	// At most 256 bytes of UTF-8. Defaults to "host:pid".
	Process string
	// HashOver, if above 0, has names of Plain locks that are longer than so many bytes replaced in the key by their SHA-256
	// in hex (64 bytes, after KeyPrefix): for names made of what users send. Such a name may be any text. Defaults to 0:
	// never.
	HashOver int
	// Strict has New fail (ErrInvalidOption) if a server would evict keys when its memory is full (maxmemory-policy
	// other than noeviction), which can take a lock from under its holder. Otherwise the first acquisition logs a
	// warning. Where the server does not let us ask, neither happens.
	Strict bool
	// Logger gets a line when a hold is lost or forgotten. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is told of what happens, for metrics. Its nil functions are skipped.
	Observer Observer
}

// session are the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap, CallTimeout: o.CallTimeout,
		MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger}
}

// check refuses what is out of bounds among the options that only locks have, and fills in their defaults.
func (o *Options) check() error {
	err := session.Check(
		session.Duration{Name: "TokenRetention", Value: &o.TokenRetention, Least: time.Minute, Most: session.MaxDuration, Default: 24 * time.Hour},
		session.Duration{Name: "Heartbeat", Value: &o.Heartbeat, Least: 50 * time.Millisecond, Most: 10 * time.Second, Default: time.Second},
	)
	if err != nil {
		return err
	}
	if o.HashOver < 0 {
		return errs.InvalidOption("HashOver", o.HashOver, "0 (never), or more")
	}
	if len(o.Process) > maxLabel || !utf8.ValidString(o.Process) {
		return errs.InvalidOption("Process", fmt.Sprintf("%.64q", o.Process), fmt.Sprintf("UTF-8 of at most %d bytes", maxLabel))
	}
	if o.Process == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Process = host + ":" + strconv.Itoa(os.Getpid())
	}
	return nil
}

// trust is for how long after a heartbeat the client's holds last. A connection id says it in units of 10 ms.
func (o *Options) trust() time.Duration {
	return (3*o.Heartbeat + 10*time.Millisecond - 1).Truncate(10 * time.Millisecond)
}
