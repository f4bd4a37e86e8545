package ratelimit

import (
	"context"
	"embed"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix stands before every name. One with braces is refused by every verb, and one whose first brace is that of
	// an empty {} by New. Defaults to "".
	KeyPrefix string
	// CallTimeout is how long one attempt may wait for its reply, at least a millisecond. A call whose context has
	// no deadline ends after five of them. Defaults to 500 ms.
	CallTimeout time.Duration
	// Observer is told of what fails in the background.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one in 10 s, and one
	// if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is a set of functions told of what happens, each with a context and the name of the limiter; nil ones are skipped
// and cost nothing. They run on the goroutine where it happens: they must return at once. One that panics is logged and
// otherwise ignored.
type Observer struct {
	// BackgroundFailed: the return of units whose caller has left failed, and is not tried again: too few pass. ctx has the
	// values of the caller's, and may have ended.
	BackgroundFailed func(ctx context.Context, name string, err error)
}

// Client makes rate limiters on one server, Sentinel group or Cluster. It is safe for concurrent use, holds no
// connection and no goroutine of its own, and costs nothing per name that is not used.
type Client struct {
	calls    *session.Calls
	observer Observer
}

// New makes a client on h's rueidis client. h stays the caller's: Close does not close it. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed; New
// sends nothing.
func New(h *pubsub.Hub, o Options) (_ *Client, err error) {
	defer edge(&err)
	calls, err := session.NewCalls(h, "ratelimit", "rate limits", session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Client{calls, o.Observer}, nil
}

// Close makes every later call on c and its limiters fail with ErrClosed. Calls under way end as they would have. It waits for
// the return of units whose callers have left, at most a call timeout. If ctx ends first, the error says so, and that goes on.
// It may be called again.
func (c *Client) Close(ctx context.Context) (err error) {
	defer edge(&err)
	return c.calls.Close(ctx)
}

const notGivenBack = "units of a rate limiter could not be given back, and too few pass"

// failed tells of units that could not be given back.
func (c *Client) failed(ctx context.Context, name string, err error) {
	err = errs.Edge("ratelimit", err)
	if f := c.observer.BackgroundFailed; f != nil {
		func() {
			defer func() {
				if p := recover(); p != nil {
					c.calls.Logger().Error("redlatch: observer panicked", "panic", p)
				}
			}()
			f(ctx, name, err)
		}()
	}
	c.calls.Complain(notGivenBack, name, err)
}

//go:embed lua
var files embed.FS
