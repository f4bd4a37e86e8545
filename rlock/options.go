package rlock

import (
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
	} {
		if *d.value == 0 {
			*d.value = d.def
		} else if err := checkDuration(d.name, *d.value, d.min); err != nil {
			return o, err
		}
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
