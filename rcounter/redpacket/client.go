package redpacket

import (
	"context"
	"embed"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes red packets on one server, Sentinel group or Cluster. It is safe for concurrent use. A Client has no
// connection of its own, no goroutine while nobody grabs, and no memory of a name that is not used.
type Client struct {
	calls   *session.Session
	batch   batch.Options
	packets batch.WeakMap[grabs] // by the key of the packet
}

func init() { accessor.Register(func(c *Client) *session.Session { return c.calls }) }

// New makes a client on the hub's connection. The hub stays the caller's: Close does not close it. New sends nothing.
// The error is ErrInvalidOption for a nil hub, a hub without a client, or an option out of its bounds, and ErrClosed
// for a closed hub.
func New(h *pubsub.Hub, o Options) (client *Client, err error) {
	defer edge(&err)
	c := &Client{batch: batch.Options{MaxBatch: o.MaxBatch}}
	c.calls, err = session.New(h, "redpacket", "red packets",
		session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger, Observer: o.Observer})
	if err != nil {
		return nil, err
	}
	if err := c.batch.Check(); err != nil {
		return nil, err
	}
	c.batch.Bound, c.batch.ErrTimeout, c.batch.Spawn = c.calls.Bound(), session.ErrPatience, c.calls.Finish
	return c, nil
}

// Close makes every later call on c and its packets fail with ErrClosed. Calls under way end as they would have. Close
// waits for the calls that Grabs share, at most a RetryTimeout. If ctx ends first, the error says so, and they go on.
// Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

//go:embed lua
var files embed.FS
