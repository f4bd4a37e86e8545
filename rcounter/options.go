package rcounter

import (
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has none. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// Logger gets a line if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with what happens, for metrics. Defaults to none.
	Observer Observer
}

// Observer is called with what happens to the counters of a client. It is redlatch.Observer, which is one type
// for all packages.
type Observer = errs.Observer
