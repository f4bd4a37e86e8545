package rlock

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
)

// Options are the settings of a Client. The zero value has the defaults. New refuses a value that is out of bounds with
// ErrInvalidOption.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has no prefix. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of a hold that is renewed for its holder: how long a crashed process blocks the others.
	// It is renewed every third of that time. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// PollCap is the longest time for which a waiter sleeps before it asks again, whether or not messages come. At least
	// 10 ms. Waiters that queue on the server ask at least every 10 s, however long it is, with Liveness every Heartbeat.
	// While nothing happens a process asks once in a PollCap for each name that it waits for, some 7 commands on the
	// server. If it waits for more than 64 names, a waiter that gets messages asks every 10 s. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MaxHold ends every hold after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to 0: no
	// upper limit.
	MaxHold time.Duration
	// Fenced has Reentrant return the Fenced lock of the name, so that its holds have tokens. It is then not joined from
	// another process (WithOwner). The other kinds are as they were. Defaults to off.
	Fenced bool
	// TokenRetention is how long the last token of a Fenced lock is kept after its last grant. It matters if the server's
	// clock may step back, and if Redisson takes the lock, too: Redisson counts from 1 when the last token is gone. At
	// least 1 min. Defaults to 24 h.
	TokenRetention time.Duration
	// MinReplicas is for how many replicas each grant and each renewal waits (WAIT, on the same connection), for
	// ReplicaTimeout at most. If fewer have confirmed it by then, a grant is taken back (ErrNotReplicated), and a renewal
	// does not count. It makes it less likely that a failover forgets a hold, not impossible: another replica than those
	// that confirmed may be promoted. Each call occupies a connection while it waits. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Liveness sends heartbeats while the client holds locks, and takes the locks of crashed processes over long before
	// their leases are over: about three Heartbeats after the crash. Holder and waiter both need it. In return, a hold
	// ends (ErrLost) if no heartbeat was confirmed for three Heartbeats, however long its lease is. PollCap is then at
	// most a Heartbeat.
	//
	// It costs one script call for each Heartbeat in which the client holds anything, however many locks that is; in a
	// Cluster, one for each sixteenth of the slots. A process that waits reads two keys every half Heartbeat for each name
	// that it waits for. Defaults to off.
	Liveness bool
	// Heartbeat is the interval between heartbeats. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// Process is what [Lock.Inspect] shows of this process from a second after it first held something, with Liveness from
	// a Heartbeat after. It costs a call every ten minutes while anything is held. Every user that may read the keys can
	// see it. At most 256 bytes of UTF-8. Defaults to "host:pid".
	Process string
	// HashOver is the length in bytes above which the name of a Plain lock is replaced in the key by its SHA-256 in hex
	// (64 bytes, after KeyPrefix). Use it for names made of what users send: a hashed name may be any text. Defaults to 0:
	// never.
	HashOver int
	// Logger gets a line when a hold is lost or forgotten, when the server does not answer those who wait, and when the
	// library works with less than it should. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with what happens, for metrics and traces. Defaults to none.
	Observer Observer
}

// Observer is called with what happens to the locks of a client. It is redlatch.Observer, which is one type
// for all packages.
type Observer = errs.Observer

// session are the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
		CallTimeout:  o.CallTimeout,
		RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
		Logger: o.Logger, Observer: o.Observer}
}

// check refuses what is out of bounds among the options that only locks have, and fills in their defaults.
func (o *Options) check() error {
	err := session.Check(
		session.Duration{Name: "TokenRetention", Value: &o.TokenRetention, Least: time.Minute, Most: session.MaxDuration,
			Default: 24 * time.Hour},
	)
	if err == nil {
		err = session.CheckHeartbeat(&o.Heartbeat)
	}
	if err != nil {
		return err
	}
	if o.HashOver < 0 {
		return errs.InvalidOption("HashOver", o.HashOver, "0 (never), or more")
	}
	return session.CheckProcess(&o.Process)
}

// trust is for how long after a heartbeat the client's holds last. A connection id says it in units of 10 ms.
func (o *Options) trust() time.Duration {
	return lease.TrustFor(o.Heartbeat)
}
