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
	// WatchdogTimeout is the lease of a renewed hold: a crashed process blocks the others for this long. The lease is
	// renewed every third of that time. At least 100 ms. Defaults to 30 s.
	WatchdogTimeout time.Duration
	// PollCap is the longest time for which a waiter sleeps before its next request, with or without messages. At least 10
	// ms. Waiters that queue on the server send a request at least every 10 s, even with a longer PollCap, and with
	// Liveness every Heartbeat. While nothing happens a process sends one request in a PollCap for each name that it waits
	// for, some 7 commands on the server. If it waits for more than 64 names, a waiter that gets messages sends a request
	// every 10 s. Defaults to 1 s.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for other owners. The call is repeated for that long while the server
	// does not answer or refuses, as during a failover. The context may end it sooner, and never later. At least
	// CallTimeout. Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MaxHold ends every hold after this time (ErrMaxHold), even if its work is stuck. At least 10 ms. Defaults to 0: no
	// upper limit.
	MaxHold time.Duration
	// Fenced makes Reentrant return the Fenced lock of the name, so that its holds have tokens. Another process cannot
	// join such a lock (WithOwner). The other kinds do not change. Defaults to off.
	Fenced bool
	// TokenRetention is how long the last token of a Fenced lock is kept after its last grant. It matters if the server's
	// clock may step back, and if Redisson takes the lock, too: Redisson counts from 1 when the last token has expired. At
	// least 1 min. Defaults to 24 h.
	TokenRetention time.Duration
	// MinReplicas is the number of replicas that must confirm each grant and each renewal (WAIT, on the same connection)
	// within ReplicaTimeout. If fewer have confirmed, a grant is released (ErrNotReplicated), and a renewal does not
	// count. A failover then forgets a hold less easily, but still can: a replica that has not confirmed may be promoted.
	// Each call occupies a connection while it waits. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds the wait for MinReplicas. At least 1 ms, and less than CallTimeout. Defaults to half of
	// CallTimeout.
	ReplicaTimeout time.Duration
	// Liveness sends heartbeats while the client holds locks, and takes the locks of crashed processes over long before
	// their leases are over: about three Heartbeats after the crash. Holder and waiter both need it. In return, a hold
	// ends (ErrLost) if no heartbeat was confirmed for three Heartbeats, however long its lease is. PollCap is then at
	// most a Heartbeat.
	//
	// It costs one script call for each Heartbeat in which the client holds anything, for any number of locks; in a
	// Cluster, one for each sixteenth of the slots. A process that waits reads two keys every half Heartbeat for each name
	// that it waits for. Defaults to off.
	Liveness bool
	// Heartbeat is the interval between heartbeats. 50 ms to 10 s. Defaults to 1 s.
	Heartbeat time.Duration
	// Process is the name of this process in [Lock.Inspect]. It is shown from a second after the process first held
	// something, with Liveness from a Heartbeat after. It costs a call every ten minutes while anything is held. Every
	// user that may read the keys can see it. At most 256 bytes of UTF-8. Defaults to "host:pid".
	Process string
	// HashOver is the length in bytes above which the name of a Plain lock is replaced in the key by its SHA-256 in hex
	// (64 bytes, after KeyPrefix). Use it for names made of user input: a hashed name may be any text. Defaults to 0:
	// never.
	HashOver int
	// Logger gets a line when a hold is lost or forgotten, when the server does not answer waiting calls, and when the
	// library works with less than it should. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with the events of the client's locks, for metrics and traces. Defaults to none.
	Observer Observer
}

// Observer is called with the events of a client's locks. It is redlatch.Observer, which is one type for all packages.
type Observer = errs.Observer

// session returns the options that all clients have.
func (o *Options) session() session.Options {
	return session.Options{KeyPrefix: o.KeyPrefix, WatchdogTimeout: o.WatchdogTimeout, PollCap: o.PollCap,
		CallTimeout:  o.CallTimeout,
		RetryTimeout: o.RetryTimeout, MaxHold: o.MaxHold, MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
		Logger: o.Logger, Observer: o.Observer}
}

// check refuses options of locks that are out of bounds, and fills in their defaults.
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

// trust is how long the client's holds last after a heartbeat. A connection id carries it in units of 10 ms.
func (o *Options) trust() time.Duration {
	return lease.TrustFor(o.Heartbeat)
}
