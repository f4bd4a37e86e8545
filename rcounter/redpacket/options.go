package redpacket

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. It has no braces. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MaxBatch is how many Grabs of this process on one Packet share a call at most, 1 to 128: a Grab that finds no call
	// under way is sent at once, alone. Negative: each Grab is sent alone, at once. Defaults to 128.
	MaxBatch int
	// MinReplicas has every answer of a Send, Grab or Refund confirmed by that many replicas (WAIT, once for all Grabs
	// that share a call) within ReplicaTimeout, and returns ErrNotReplicated if they do not. It makes it less likely that
	// a failover forgets the answer, not impossible: another replica than those that confirmed may be promoted. Defaults
	// to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Logger gets a line if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer, a redlatch.Observer, is called with grabs. Defaults to none.
	Observer errs.Observer
}
