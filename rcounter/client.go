package rcounter

import (
	"context"
	"embed"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix stands before every name: Counter("hits") with KeyPrefix "shop:" is the key shop:hits. Java
	// processes find counters under the same names if it is empty. A prefix whose first brace is that of an empty {} is
	// refused by New, as no name can follow it. Defaults to "".
	KeyPrefix string
	// CallTimeout is how long one attempt may wait for its reply, at least a millisecond. A call whose context has
	// no deadline ends after five of them. Defaults to 500 ms.
	CallTimeout time.Duration
	// Logger gets a line if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes counters on one server, Sentinel group or Cluster. It is safe for concurrent use, holds no
// connection and no goroutine of its own, and costs nothing per name that is not used.
type Client struct{ calls *session.Calls }

// New makes a client on h's rueidis client. h stays the caller's: Close does not close it. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed; New
// sends nothing.
func New(h *pubsub.Hub, o Options) (_ *Client, err error) {
	defer edge(&err)
	calls, err := session.NewCalls(h, "rcounter", "counters", session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Client{calls}, nil
}

// Close makes every later call on c and its counters fail with ErrClosed. Calls under way end as they would have. It waits
// for what goes on in the background, a look at the server's settings. It may be called again.
func (c *Client) Close(ctx context.Context) (err error) {
	defer edge(&err)
	return c.calls.Close(ctx)
}

//go:embed lua
var files embed.FS
