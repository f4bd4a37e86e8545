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
	// KeyPrefix stands before every name. Every verb refuses a prefix with braces. New refuses one whose first brace
	// begins an empty {}. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: for that long it is repeated while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MinReplicas is how many replicas must confirm every answer upon which money moves: each Outcome that is Final,
	// given for the first time or again, and each Cancel and Return (WAIT, once for all calls that are sent as one). If
	// they do not within ReplicaTimeout, the call returns ErrNotReplicated. A failover is then less likely to forget the
	// answer, but it still can: it may promote a replica that did not confirm. No replica confirms what is only read
	// (Lookup, Inspect, Holders), nor Open, Change, EndSale, Delete, Reap and Restore. Defaults to 0: none.
	MinReplicas int
	// ReplicaTimeout bounds that wait, at least a millisecond and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// SoldOutTrust is how long this process answers SoldOut by itself after the server last said that nothing is left: to
	// ClaimAny, and to claims and reservations under Fresh. News of a return ends it sooner, within milliseconds; see
	// "Sold out" in the package comment. At least 10 ms. Defaults to a second. Negative: every claim asks the server.
	SoldOutTrust time.Duration
	// MaxBatch is how many requests of this process on one stock share a call at most, 1 to 128: those of Claim with each
	// other, those of ClaimAny, those of Lookup by an id, and all acts by an id together: requests, reservations and what
	// is done to them. A claim that finds no call under way is sent alone, at once, and so are the others while fewer than
	// 8 of them are under way. Negative: every request is sent alone, at once. Defaults to 128: a call of 128 claimants
	// takes the server some 200 us, and one of 128 reservations some 600 us, during which it does nothing else.
	MaxBatch int
	// MaxCalls is how many shared calls are under way at most: of acts by an id no more than 4, of looks as many. Defaults
	// to 64.
	MaxCalls int
	// BatchWindow is how long the first claim of a call that is not full waits for more claims, while other calls are
	// under way. Defaults to 100 us.
	BatchWindow time.Duration
	// Observer is called with claims, and with what fails in the background, for metrics. Defaults to none.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one line of a kind in 10 s, and one line
	// if the server evicts keys when its memory is full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is called with what happens to the stocks of a client. It is redlatch.Observer, which is one type
// for all packages.
type Observer = errs.Observer

// Client makes stocks on one server, Sentinel group or Cluster. It is safe for concurrent use. It holds no connection
// of its own and no goroutine while nothing is claimed, and a name that is not used costs nothing.
type Client struct {
	calls  *session.Session
	batch  batch.Options
	acts   batch.Options // for acts by ids
	tally  batch.Tally
	trust  time.Duration               // Options.SoldOutTrust
	stocks batch.WeakMap[processState] // by the key of the stock
}

func init() { accessor.Register(func(c *Client) *session.Session { return c.calls }) }

// New makes a client on h's rueidis client. It sends nothing. The hub stays the caller's: Close does not close it.
//
// Errors: ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds; ErrClosed for a closed hub.
func New(h *pubsub.Hub, o Options) (client *Client, err error) {
	defer edge(&err)
	c := new(Client)
	c.calls, err = session.New(h, "stock", "stocks",
		session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas:    o.MinReplicas,
			ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger, Observer: o.Observer})
	if err != nil {
		return nil, err
	}
	if c.trust, err = o.soldOutTrust(); err != nil {
		return nil, err
	}
	c.batch = batch.Options{MaxBatch: o.MaxBatch, MaxCalls: o.MaxCalls, Window: o.BatchWindow}
	if err := c.batch.Check(); err != nil {
		return nil, err
	}
	c.batch.Bound, c.batch.ErrTimeout, c.batch.Spawn = c.calls.Bound(), session.ErrPatience, c.calls.Finish
	c.acts = c.batch
	c.acts.MaxCalls = min(c.acts.MaxCalls, shareActsCalls)
	c.acts.MinInFlight, c.acts.SplitInHalf = shareActsFrom, true
	return c, nil
}

// Close makes every later call on c and its stocks return ErrClosed. Calls under way end as they would have. Close
// waits for what goes on in the background: calls that claims share, and the return of units whose callers had left,
// which takes at most five call timeouts. If ctx ends first, Close returns an error that says so, and the background
// work goes on. Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

//go:embed lua
var files embed.FS
