package rlock

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

// Defaults of Options, and bounds.
const (
	DefaultWatchdogTimeout = 30 * time.Second
	DefaultPollCap         = time.Second
	DefaultCallTimeout     = 500 * time.Millisecond
	DefaultTokenRetention  = 24 * time.Hour
	DefaultHeartbeat       = time.Second

	MinWatchdogTimeout = 100 * time.Millisecond
	MinLease           = 10 * time.Millisecond
	MinPollCap         = 10 * time.Millisecond
	MinCallTimeout     = time.Millisecond
	MinTokenRetention  = time.Minute
	MinHeartbeat       = 50 * time.Millisecond
	MaxHeartbeat       = 10 * time.Second
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
	// Waiters in the server's queue look every 10 s all the same, with Liveness every Heartbeat. Defaults to
	// DefaultPollCap.
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
	// Liveness has the locks of a crashed process taken over long before their leases are over, by the waiters of
	// clients that have it on, too: about three Heartbeats after the crash. See "Crashed holders" in the package comment. It
	// costs one script call for each Heartbeat in which the client holds anything (in a Cluster, for each sixteenth of the
	// slots), however many locks that is, and a process that waits two reads every half Heartbeat for each name it waits
	// for. The price: a hold ends (ErrLost) when no heartbeat was confirmed for three Heartbeats, however long its lease is. PollCap is at most a Heartbeat then. Off by
	// default.
	Liveness bool
	// Heartbeat is the interval. MinHeartbeat to MaxHeartbeat. Defaults to DefaultHeartbeat.
	Heartbeat time.Duration
	// Process is what [Client.Inspect] shows of this process while Liveness is on, to everybody who may read the keys.
	// At most MaxLabel bytes of UTF-8. Defaults to "host:pid".
	Process string
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
		{"Heartbeat", &o.Heartbeat, MinHeartbeat, DefaultHeartbeat},
	} {
		if *d.value == 0 {
			*d.value = d.def
		} else if err := checkDuration(d.name, *d.value, d.min); err != nil {
			return o, err
		}
	}
	if o.Heartbeat > MaxHeartbeat {
		return o, errs.InvalidOption("Heartbeat", o.Heartbeat, fmt.Sprintf("0 (the default), or %v to %v", MinHeartbeat, MaxHeartbeat))
	}
	if len(o.Process) > MaxLabel || !utf8.ValidString(o.Process) {
		return o, errs.InvalidOption("Process", fmt.Sprintf("%.64q", o.Process), fmt.Sprintf("UTF-8 of at most %d bytes", MaxLabel))
	}
	if o.Process == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Process = host + ":" + strconv.Itoa(os.Getpid())
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
	if o.Liveness {
		o.PollCap = min(o.PollCap, o.Heartbeat) // a hold is seen from when it is granted, not from when its waiter hears of it
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// trust is for how long after a heartbeat the client's holds last. A connection id says it in units of 10 ms.
func (o *Options) trust() time.Duration {
	return (3*o.Heartbeat + 10*time.Millisecond - 1).Truncate(10 * time.Millisecond)
}

func checkDuration(field string, d, least time.Duration) error {
	if d < least || d > MaxDuration {
		return errs.InvalidOption(field, d, "0 (the default), or "+least.String()+" to "+MaxDuration.String())
	}
	return nil
}
