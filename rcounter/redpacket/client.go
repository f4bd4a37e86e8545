package redpacket

import (
	"context"
	"embed"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
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
	// MinReplicas has every answer of a Send, Grab or Refund confirmed by so many replicas (WAIT, once for all Grabs that
	// share a call) within ReplicaTimeout, and is ErrNotReplicated if they do not. It makes it less likely that
	// a failover forgets it, not impossible: another replica than those that confirmed may be promoted. Defaults
	// to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait, at least a millisecond and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// MaxBatch is how many Grabs of this process by one Packet share a call at most, 1 to 128: a call that finds nothing
	// under way is sent at once, by itself. Negative: each Grab is sent by itself, at once. Defaults to 128.
	MaxBatch int
	// MaxCalls is how many calls that Grabs share are under way at most. Defaults to 64.
	MaxCalls int
	// BatchWindow is how long the first Grab of a call that is not full waits for more, while others are under way.
	// Defaults to 100 us.
	BatchWindow time.Duration
	// Logger gets a line if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes red packets on one server, Sentinel group or Cluster. It is safe for concurrent use, holds no
// connection of its own, no goroutine while nobody grabs, and costs nothing per name that is not used.
type Client struct {
	calls *session.Calls
	batch batch.Options
}

// New makes a client on h's rueidis client. h stays the caller's: Close does not close it. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed; New
// sends nothing.
func New(h *pubsub.Hub, o Options) (_ *Client, err error) {
	defer edge(&err)
	c := &Client{batch: batch.Options{MaxBatch: o.MaxBatch, MaxCalls: o.MaxCalls, Window: o.BatchWindow}}
	c.calls, err = session.NewCalls(h, "redpacket", "red packets", session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, MinReplicas: o.MinReplicas,
		ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err := c.batch.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// Close makes every later call on c and its packets fail with ErrClosed. Calls under way end as they would have. It waits for
// calls that Grabs share, at most five call timeouts. If ctx ends first, the error says so, and they go on. It may be called again.
func (c *Client) Close(ctx context.Context) (err error) {
	defer edge(&err)
	return c.calls.Close(ctx)
}

//go:embed lua
var files embed.FS
