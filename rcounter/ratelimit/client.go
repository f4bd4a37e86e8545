package ratelimit

import (
	"context"
	"embed"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/inside"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. It has no braces. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: for so long it is repeated while the server does not answer or refuses,
	// as during a failover. The context may end it sooner, and never later. At least CallTimeout. Defaults to CallTimeout.
	RetryTimeout time.Duration
	// Observer is called with what happens, for metrics. Defaults to none.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one in 10 s, and one
	// if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes rate limiters on one server, Sentinel group or Cluster. It is safe for concurrent use. It holds no
// connection and no goroutine of its own, and nothing for a name that is not used.
type Client struct {
	calls    *session.Session
	observer Observer
}

func init() { inside.Reveal(func(c *Client) *session.Session { return c.calls }) }

// New makes a client on the hub's connection. The hub stays the caller's: Close does not close it. New sends nothing. The
// error is ErrInvalidOption for a nil hub, a hub without a client, or an option out of its bounds, and ErrClosed for a closed
// hub.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	calls, err := session.New(h, "ratelimit", "rate limits", session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Client{calls, o.Observer}, nil
}

// Close makes every later call on c and its limiters fail with ErrClosed. Calls under way end as they would have. Close waits
// until units whose callers have left are given back, at most a call timeout. If ctx ends first, the error says so, and that
// goes on. Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

const notGivenBack = "units of a rate limiter could not be given back, and too few pass"

// failed tells of units that could not be given back.
func (c *Client) failed(ctx context.Context, name string, err error) {
	edge(&err)
	session.Tell(ctx, c.calls, c.observer, Event{Kind: EventBackgroundFailed, Name: name, Err: err})
	c.calls.Complain(notGivenBack, name, err)
}

//go:embed lua
var files embed.FS
