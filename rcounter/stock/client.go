package stock

import (
	"context"
	"embed"
	"log/slog"
	"sync"
	"sync/atomic"
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
	// MinReplicas has every answer that grants or repeats a grant confirmed by so many replicas (WAIT, once for all
	// claims that share a call) within ReplicaTimeout, and is ErrNotReplicated if they do not. It makes it less likely that
	// a failover forgets a grant, not impossible: another replica than those that confirmed may be promoted. Defaults
	// to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait, at least a millisecond and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// SoldOutTrust is the longest time for which an answer of the server's that nothing is left stands without being
	// confirmed: for so long this process answers SoldOut by itself, to every claimant that the server has no unit of,
	// unless news of a return comes, which takes milliseconds; see "Sold out" in the package comment. At least 10 ms.
	// Defaults to a second; negative: every claim asks the server.
	SoldOutTrust time.Duration
	// MaxWinners is how many claimants, and as many requests, a stock may have had for them to be read for that. Of a
	// larger one only ClaimAny is answered by the process. They take two bytes each. Defaults to 1,000,000; negative: none
	// are read.
	MaxWinners int
	// MaxBatch is how many claims of this process on one stock share a call at most, 1 to 128: Claim and ClaimAny do, and a
	// call that finds nothing under way is sent at once, by itself. Negative: each claim is sent by itself, at once. Defaults to 128:
	// one of 128 claimants takes the server some 200 us, during which it does nothing else.
	MaxBatch int
	// MaxCalls is how many calls that claims share are under way at most. Defaults to 64.
	MaxCalls int
	// BatchWindow is how long the first claim of a call that is not full waits for more, while others are under way.
	// Defaults to 100 us.
	BatchWindow time.Duration
	// Observer is told of claims, and of what fails in the background.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one of a kind in 10 s, and one
	// if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Client makes stocks on one server, Sentinel group or Cluster. It is safe for concurrent use, holds no
// connection of its own, no goroutine while nobody claims, and costs nothing per name that is not used.
type Client struct {
	calls    *session.Session
	caches   atomic.Bool // client-side caching was seen to work
	batch    batch.Options
	soldOut  soldOutOptions
	stocks   sync.Map // key of a stock -> weak.Pointer[shared]
	observer Observer
}

// New makes a client on h's rueidis client. h stays the caller's: Close does not close it. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed; New
// sends nothing.
func New(h *pubsub.Hub, o Options) (_ *Client, err error) {
	defer edge(&err)
	c := new(Client)
	c.calls, err = session.New(h, "stock", "stocks", session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, MinReplicas: o.MinReplicas,
		ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if c.soldOut, err = o.soldOut(); err != nil {
		return nil, err
	}
	c.batch = batch.Options{MaxBatch: o.MaxBatch, MaxCalls: o.MaxCalls, Window: o.BatchWindow}
	if err := c.batch.Check(); err != nil {
		return nil, err
	}
	c.observer = o.Observer.guarded(c.calls)
	return c, nil
}

// Close makes every later call on c and its stocks fail with ErrClosed. Calls under way end as they
// would have. It waits for what goes on in the background: claims that share a call, and the return of units
// whose callers had left, which takes at most five call timeouts. If ctx ends first, the error says so, and all of that goes on.
// It may be called again.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

//go:embed lua
var files embed.FS
