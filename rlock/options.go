package rlock

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Defaults of Options, and bounds.
const (
	DefaultWatchdogTimeout = 30 * time.Second
	DefaultPollCap         = time.Second
	DefaultCallTimeout     = 500 * time.Millisecond
	DefaultTokenRetention  = 24 * time.Hour

	MinWatchdogTimeout = 100 * time.Millisecond
	MinLease           = 10 * time.Millisecond
	MinPollCap         = 10 * time.Millisecond
	MinCallTimeout     = time.Millisecond
	MinTokenRetention  = time.Minute
	// MaxDuration bounds every duration sent to the server.
	MaxDuration = 100 * 365 * 24 * time.Hour
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of a hold that is renewed for its holder: how long a crashed process blocks the
	// others. It is renewed every third of it. At least MinWatchdogTimeout. Defaults to DefaultWatchdogTimeout.
	WatchdogTimeout time.Duration
	// PollCap is the longest a waiter sleeps without looking, whatever messages come or do not. At least MinPollCap.
	// Defaults to DefaultPollCap.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least MinCallTimeout. Defaults to DefaultCallTimeout.
	CallTimeout time.Duration
	// MaxHold ends every hold after this time (ErrMaxHold), also one whose work is stuck. 0: no limit, the default.
	// At least MinLease.
	MaxHold time.Duration
	// TokenRetention is how long the last token of a Fenced lock is kept after its last grant. It matters where the
	// server's clock may step back, and where Redisson holds the lock, too, which counts from 1 when the last token is
	// gone. At least MinTokenRetention. Defaults to DefaultTokenRetention.
	TokenRetention time.Duration
	// MinReplicas has every grant and every renewal confirmed by so many replicas (WAIT, on the same connection)
	// within ReplicaTimeout: a grant that is not is taken back (ErrNotReplicated), a renewal that is not does not
	// count. It makes it less likely that a failover forgets a hold, not impossible: another replica than those that
	// confirmed may be promoted. Each call takes a connection for itself while it waits. 0: off, the default.
	MinReplicas int
	// ReplicaTimeout bounds that wait; at least MinCallTimeout, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Strict has New fail (ErrInvalidOption) if a server would evict keys when its memory is full (maxmemory-policy
	// other than noeviction), which can take a lock from under its holder. Otherwise the first acquisition logs a
	// warning. Where the server does not let us ask, neither happens.
	Strict bool
	// Logger gets a line when a hold is lost or forgotten. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is told of what happens, for metrics. Its nil functions are skipped.
	Observer Observer
}

func (o Options) withDefaults() (Options, error) {
	if o.KeyPrefix != "" {
		if err := keyname.Check(o.KeyPrefix + "x"); err != nil {
			return o, errs.InvalidOption("KeyPrefix", o.KeyPrefix, "such that names with it stay valid: "+err.Error())
		}
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		min, def time.Duration
	}{
		{"WatchdogTimeout", &o.WatchdogTimeout, MinWatchdogTimeout, DefaultWatchdogTimeout},
		{"PollCap", &o.PollCap, MinPollCap, DefaultPollCap},
		{"CallTimeout", &o.CallTimeout, MinCallTimeout, DefaultCallTimeout},
		{"MaxHold", &o.MaxHold, MinLease, 0},
		{"TokenRetention", &o.TokenRetention, MinTokenRetention, DefaultTokenRetention},
	} {
		if *d.value == 0 {
			*d.value = d.def
		} else if err := checkDuration(d.name, *d.value, d.min); err != nil {
			return o, err
		}
	}
	if o.MinReplicas < 0 {
		return o, errs.InvalidOption("MinReplicas", o.MinReplicas, "0 or more")
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = o.CallTimeout / 2
	}
	if o.ReplicaTimeout < MinCallTimeout && o.MinReplicas > 0 || o.ReplicaTimeout < 0 || o.ReplicaTimeout >= o.CallTimeout {
		return o, errs.InvalidOption("ReplicaTimeout", o.ReplicaTimeout, fmt.Sprintf("%v or more, and less than CallTimeout (%v)", MinCallTimeout, o.CallTimeout))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

func checkDuration(field string, d, least time.Duration) error {
	if d < least || d > MaxDuration {
		return errs.InvalidOption(field, d, "0 (the default), or "+least.String()+" to "+MaxDuration.String())
	}
	return nil
}
