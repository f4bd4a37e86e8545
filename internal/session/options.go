package session

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Bounds and defaults that are the same in all packages.
const (
	MinLease       = 10 * time.Millisecond
	MinCallTimeout = time.Millisecond
	// MaxDuration bounds every duration sent to the server.
	MaxDuration = 100 * 365 * 24 * time.Hour
	// DefaultHeartbeat is the default of rlock, and of the packages that are built on rlock.
	DefaultHeartbeat = time.Second
)

// Options are the fields that the Options of clients have in common. A package sets those that its own Options have.
// The others keep their defaults, and are not used.
type Options struct {
	KeyPrefix       string
	WatchdogTimeout time.Duration
	PollCap         time.Duration
	CallTimeout     time.Duration
	RetryTimeout    time.Duration
	MaxHold         time.Duration
	MinReplicas     int
	ReplicaTimeout  time.Duration
	Logger          *slog.Logger
	Observer        errs.Observer
}

// check refuses options out of bounds, and fills in the defaults.
func (o *Options) check() error {
	// Names with the prefix must be able to be valid: see keyname.Check for braces.
	if err := keyname.Check(o.KeyPrefix + "x"); err != nil {
		return errs.InvalidOption("KeyPrefix", fmt.Sprintf("%.64q", o.KeyPrefix),
			"such that names with it stay valid: "+err.Error())
	}
	err := Check(
		Duration{"WatchdogTimeout", &o.WatchdogTimeout, 100 * time.Millisecond, MaxDuration, 30 * time.Second},
		Duration{"PollCap", &o.PollCap, 10 * time.Millisecond, MaxDuration, time.Second},
		Duration{"CallTimeout", &o.CallTimeout, MinCallTimeout, MaxDuration, 500 * time.Millisecond},
		Duration{"MaxHold", &o.MaxHold, MinLease, MaxDuration, 0},
	)
	if err != nil {
		return err
	}
	if err := Check(Duration{"RetryTimeout", &o.RetryTimeout, o.CallTimeout, MaxDuration, o.CallTimeout}); err != nil {
		return err
	}
	if o.MinReplicas < 0 {
		return errs.InvalidOption("MinReplicas", o.MinReplicas, "0 or more")
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = o.CallTimeout / 2
	}
	if o.ReplicaTimeout < MinCallTimeout && o.MinReplicas > 0 || o.ReplicaTimeout < 0 ||
		o.ReplicaTimeout >= o.CallTimeout {
		return errs.InvalidOption("ReplicaTimeout", o.ReplicaTimeout,
			fmt.Sprintf("%v or more, and less than CallTimeout (%v)", MinCallTimeout, o.CallTimeout))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

// Duration is one option that is a duration.
type Duration struct {
	Name        string
	Value       *time.Duration // 0: becomes Default
	Least, Most time.Duration
	Default     time.Duration
}

// Check fills in the defaults, and refuses the first duration that is out of its bounds.
func Check(durations ...Duration) error {
	for _, option := range durations {
		if *option.Value == 0 {
			*option.Value = option.Default
		} else if *option.Value < option.Least || *option.Value > option.Most {
			return errs.InvalidOption(option.Name, *option.Value,
				fmt.Sprintf("0 (the default), or %v to %v", option.Least, option.Most))
		}
	}
	return nil
}

// CheckHeartbeat fills in the default of a heartbeat, and refuses a heartbeat out of its bounds. A connection id can
// say for how long the longest heartbeat is trusted.
func CheckHeartbeat(heartbeat *time.Duration) error {
	return Check(Duration{"Heartbeat", heartbeat, 50 * time.Millisecond, 10 * time.Second, DefaultHeartbeat})
}

// CheckWait refuses a waitTime that is negative or too long.
func CheckWait(duration time.Duration) error { return CheckRange("waitTime", duration, 0) }

// CheckLease refuses a leaseTime that is out of bounds. 0 is a lease that is renewed.
func CheckLease(duration time.Duration) error {
	if duration != 0 && (duration < MinLease || duration > MaxDuration) {
		return errs.InvalidOption("leaseTime", duration, fmt.Sprintf("0 (renewed) or %v to %v", MinLease, MaxDuration))
	}
	return nil
}

// MaxLabel is the length of the longest label, in bytes.
const MaxLabel = 256

// CheckLabel refuses a text that is too long for a label, or no text.
func CheckLabel(field, text string) error {
	if len(text) > MaxLabel || !utf8.ValidString(text) {
		return errs.InvalidOption(field, fmt.Sprintf("%.64q", text), fmt.Sprintf("UTF-8 of at most %d bytes", MaxLabel))
	}
	return nil
}

// CheckProcess refuses a process name that is too long, and fills in the default, "host:pid".
func CheckProcess(process *string) error {
	if *process == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		*process = host + ":" + strconv.Itoa(os.Getpid())
	}
	return CheckLabel("Process", *process)
}

// CheckNumber refuses a number that is out of its bounds.
func CheckNumber(field string, number, least, most int64) error {
	if number < least || number > most {
		return errs.InvalidOption(field, number, fmt.Sprintf("%d to %d", least, most))
	}
	return nil
}

// CheckTTL refuses the TTL of a key that has none with 0.
func CheckTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < time.Millisecond || ttl > MaxDuration) {
		return errs.InvalidOption("ttl", ttl, "0 (no end) or 1ms to "+MaxDuration.String())
	}
	return nil
}

// CheckRange refuses an argument that is less than least or more than MaxDuration.
func CheckRange(field string, duration, least time.Duration) error {
	if duration < least || duration > MaxDuration {
		return errs.InvalidOption(field, duration, fmt.Sprintf("%v to %v", least, MaxDuration))
	}
	return nil
}
