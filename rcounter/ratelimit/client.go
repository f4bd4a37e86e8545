package ratelimit

import (
	"cmp"
	"context"
	"embed"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
	"golang.org/x/time/rate"
)

// Options of a Client. The zero value is good.
type Options struct {
	// KeyPrefix is put before every name to make its key. It has no braces. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: it is repeated for that long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// AllowTimeout bounds what one Allow, AllowAtMost, AllowAll or Peek takes, because it stands in every request: however
	// patient its context is, and whatever CallTimeout and RetryTimeout are. At least 1 ms. Defaults to 50 ms.
	AllowTimeout time.Duration
	// RefusalTrust is how long this process refuses a key by itself after the server has: for as long as the server said,
	// and no longer than this, because units may be given back, or a limit Reset, meanwhile. At least 1 ms. Defaults to a
	// second. Negative: every request asks the server.
	RefusalTrust time.Duration
	// Observer is called with what happens, for metrics. Defaults to none.
	Observer Observer
	// Logger gets a line when something in the background fails for good, at most one in 10 s; one when a limiter's policy
	// begins to answer in place of the server, and one when it ends; and one if the server evicts keys when its memory is
	// full. Defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is called with what happens to the limiters of a client. It is redlatch.Observer, which is one type
// for all packages.
type Observer = errs.Observer

// Client makes rate limiters on one server, Sentinel group or Cluster. It is safe for concurrent use. It holds no
// connection and no goroutine of its own, and nothing for a name that is not used.
type Client struct {
	calls        *session.Session
	allowTimeout time.Duration
	allows       *script.Runner // its calls last for allowTimeout
	asks         *batch.Slots[*request, []reply]
	batch        batch.Options
	settles      *batch.Slots[settlement, []int64]
	settleBatch  batch.Options
	refusals     refusals
	known        sync.Map // key of a stored limit -> *storedLimit
	down         outage
	local        localLimits
}

func init() {
	accessor.Register(func(c *Client) *session.Session { return c.calls })
	accessor.Register(func(c *Client) accessor.Limits { return (*inner)(c) })
}

// New makes a client on the hub's connection. The hub stays the caller's: Close does not close it. New sends nothing.
// The error is ErrInvalidOption for a nil hub, a hub without a client, or an option out of its bounds, and ErrClosed
// for a closed hub.
func New(h *pubsub.Hub, o Options) (*Client, error) {
	calls, err := session.New(h, "ratelimit", "rate limits",
		session.Options{KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, Logger: o.Logger,
			Observer: o.Observer})
	if err != nil {
		return nil, err
	}
	if o.RefusalTrust >= 0 {
		err = session.Check(session.Duration{Name: "RefusalTrust", Value: &o.RefusalTrust, Least: time.Millisecond,
			Most: session.MaxDuration, Default: time.Second})
	}
	err = cmp.Or(err, session.Check(session.Duration{Name: "AllowTimeout", Value: &o.AllowTimeout,
		Least: session.MinCallTimeout, Most: session.MaxDuration, Default: 50 * time.Millisecond}))
	if edge(&err); err != nil {
		return nil, err
	}
	c := &Client{
		calls: calls, allowTimeout: o.AllowTimeout, allows: calls.NewRunner(o.AllowTimeout),
		refusals: refusals{trust: o.RefusalTrust, base: time.Now()},
		local:    localLimits{buckets: map[string]*rate.Limiter{}},
		down:     outage{limiters: map[string]policed{}},
	}
	c.allows.Late(errAllowTimeout)
	c.batch = batch.CheapCalls()
	c.batch.Bound, c.batch.ErrTimeout, c.batch.Spawn = c.allowTimeout, errAllowTimeout, calls.Finish
	c.asks = batch.NewSlots(c.allows.Apart, 1, c.newAsks)
	c.settleBatch = batch.CheapCalls()
	c.settleBatch.Bound, c.settleBatch.ErrTimeout, c.settleBatch.Spawn = calls.Bound(), session.ErrPatience, calls.Finish
	c.settles = batch.NewSlots(c.allows.Apart, 1, c.newSettles)
	if h.Client().Mode() != rueidis.ClientModeCluster {
		c.down.pause = o.AllowTimeout
	}
	return c, nil
}

// Close makes every later call on c and its limiters fail with ErrClosed. Calls under way end as they would have. Close
// waits until units whose callers have left are given back, at most a call timeout. If ctx ends first, the error says
// so, and that goes on. Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error { return c.calls.Close(ctx) }

//go:embed lua
var files embed.FS
