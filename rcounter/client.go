package rcounter

import (
	"context"
	"embed"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes counters on one server, Sentinel group or Cluster. It is safe for concurrent use. It holds no
// connection and no goroutine of its own, and nothing for a name that is not used.
type Client struct {
	calls *session.Session
	batch batch.Options
	adds  *batch.Slots[addition, int64]
}

func init() { accessor.Register(func(c *Client) *session.Session { return c.calls }) }

// New makes a client on the hub's connection. The hub stays the caller's: Close does not close it. New sends nothing.
// The error is ErrInvalidOption for a nil hub, a hub without a client, or an option out of its bounds, and ErrClosed
// for a closed hub.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	calls, err := session.New(h, "rcounter", "counters",
		session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, Logger: o.Logger,
			Observer: o.Observer})
	if err != nil {
		return nil, err
	}
	c := &Client{calls: calls, batch: batch.CheapCalls()}
	c.batch.Bound, c.batch.ErrTimeout, c.batch.Spawn = calls.Bound(), session.ErrPatience, calls.Finish
	c.adds = batch.NewSlots(calls.Runner.Apart, shareSlots, c.newAdds)
	return c, nil
}

// Close makes every later call on c and its counters fail with ErrClosed. Calls under way end as they would have. Close
// waits for what goes on in the background: shared calls whose callers have left, and a look at the server's settings.
// Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

//go:embed lua
var files embed.FS
