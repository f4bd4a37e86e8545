package rsemaphore

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

	MinWatchdogTimeout = 100 * time.Millisecond
	MinLease           = 10 * time.Millisecond
	MinPollCap         = 10 * time.Millisecond
	MinCallTimeout     = time.Millisecond
	// MaxDuration bounds every duration sent to the server.
	MaxDuration = 100 * 365 * 24 * time.Hour
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// WatchdogTimeout is the lease of what is renewed for its holder: how long a crashed process keeps it from the
	// others. It is renewed every third of it. At least MinWatchdogTimeout. Defaults to DefaultWatchdogTimeout.
	WatchdogTimeout time.Duration
	// PollCap is the longest a waiter sleeps without looking, whatever messages come or do not. At least MinPollCap.
	// Defaults to DefaultPollCap.
	PollCap time.Duration
	// CallTimeout bounds one request to the server. At least MinCallTimeout. Defaults to DefaultCallTimeout.
	CallTimeout time.Duration
	// MaxHold ends every permit after this time (ErrMaxHold), also one whose work is stuck. 0: no limit, the default.
	// At least MinLease.
	MaxHold time.Duration
	// MinReplicas has every grant and every renewal of a permit confirmed by so many replicas (WAIT, on the same
	// connection) within ReplicaTimeout: a grant that is not is taken back (ErrNotReplicated), a renewal that is not
	// does not count. It makes it less likely that a failover forgets a permit, not impossible. 0: off, the default.
	MinReplicas int
	// ReplicaTimeout bounds that wait; at least MinCallTimeout, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Logger gets a line when a permit is lost or forgotten, and one if the server evicts keys when its memory is full. Defaults to slog.Default().
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
	} {
		if *d.value == 0 {
			*d.value = d.def
		} else if *d.value < d.min || *d.value > MaxDuration {
			return o, errs.InvalidOption(d.name, *d.value, "0 (the default), or "+d.min.String()+" to "+MaxDuration.String())
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

func checkWait(d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return fmt.Errorf("rsemaphore: %w", errs.InvalidOption("waitTime", d, "0 to "+MaxDuration.String()))
	}
	return nil
}

func checkLease(d time.Duration) error {
	if d != 0 && (d < MinLease || d > MaxDuration) {
		return fmt.Errorf("rsemaphore: %w", errs.InvalidOption("leaseTime", d, fmt.Sprintf("0 (renewed) or %v to %v", MinLease, MaxDuration)))
	}
	return nil
}
