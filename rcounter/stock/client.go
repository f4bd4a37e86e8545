package stock

import (
	"context"
	"embed"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix stands before every name. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call, which is repeated for that long while the server does not answer. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MinReplicas is how many replicas must confirm every answer but Refused and "": whatever is reserved, sold, lapsed or
	// closed, the first time and every time. If they do not within ReplicaTimeout, the error is ErrNotReplicated; call
	// again. A failover is then less likely to forget the answer, and still can. Defaults to 0: none.
	MinReplicas int
	// ReplicaTimeout bounds that wait: at least 1 ms, less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// Books returns the book of a sale, a database that has its ledger; nil: no book. Restore needs a book.
	//
	// Open asks the book before it opens a sale that the server does not have. Pay, Cancel and Return ask the book before
	// they close an id that the server does not know. If the book has units of it, a failover has forgotten the order, and
	// the error is ErrNoStock: otherwise a customer who has the unit would be refunded. Defaults to none.
	Books func(sale string) Book
	// SoldOutTrust is how long this process says SoldOut by itself after the server last said that nothing is left. At
	// least 10 ms. Defaults to a second. Negative: every order asks the server.
	SoldOutTrust time.Duration
	// MaxBatch is how many calls of this process on one sale share a request at most, 1 to 128. Negative: every call is
	// sent alone, at once. Defaults to 128.
	MaxBatch int
	// Observer, a redlatch.Observer, is called with orders, and with failures in the background. Defaults to none.
	Observer errs.Observer
	// Logger gets a line when something in the background fails for good. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes sales on one server, Sentinel group or Cluster. A Client is safe for concurrent use. Without calls under
// way it holds no connection and no goroutine.
type Client struct {
	calls *session.Session
	batch batch.Options // of Buy
	acts  batch.Options // of all else
	trust time.Duration // Options.SoldOutTrust
	books func(string) Book
	sales batch.WeakMap[processState] // by the first key
}

func init() { accessor.Register(func(c *Client) *session.Session { return c.calls }) }

// New makes a client on h's rueidis client. New sends nothing. The hub stays the caller's.
//
// Errors: ErrInvalidOption for a nil hub or options out of bounds; ErrClosed for a closed hub.
func New(h *pubsub.Hub, o Options) (client *Client, err error) {
	defer edge(&err)
	c := &Client{books: o.Books, batch: batch.Options{MaxBatch: o.MaxBatch}}
	c.calls, err = session.New(h, packageName, "sales",
		session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger, Observer: o.Observer})
	if err != nil {
		return nil, err
	}
	if c.trust, err = soldOutTrust(o.SoldOutTrust); err != nil {
		return nil, err
	}
	if err := c.batch.Check(); err != nil {
		return nil, err
	}
	c.batch.Bound, c.batch.ErrTimeout, c.batch.Spawn = c.calls.Bound(), session.ErrPatience, c.calls.Finish
	c.acts = c.batch
	c.acts.MaxCalls, c.acts.MinInFlight, c.acts.SplitInHalf = min(c.acts.MaxCalls, maxActCalls), shareActsFrom, true
	return c, nil
}

// Close makes every later call return ErrClosed. Close waits until ctx ends for shared calls, and for units that are
// given back in the background.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

// book is the book of a sale, or nil.
func (c *Client) book(name string) Book {
	if c.books == nil {
		return nil
	}
	return c.books(name)
}

// failed reports a failure in the background; what is the line for the log.
func (c *Client) failed(ctx context.Context, what, name string, err error) {
	c.calls.Tell(ctx, errs.Event{Kind: errs.EventBackgroundFailed, Name: name, Err: edged(err)})
	c.calls.Complain(what, name, err)
}

//go:embed lua
var files embed.FS
