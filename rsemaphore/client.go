package rsemaphore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Client makes semaphores, latches and barriers, and keeps this process's holds of them. It is safe for concurrent use;
// make one and share it.
type Client struct {
	session *session.Session
	keeper  *hold.Keeper // what all permits share
	// Copies of the session's fields, which nearly every call uses.
	clustered    bool
	seed         [8]byte       // the first half of every permit id: the first bytes of the connection id
	lastBase     atomic.Uint64 // the number in the last base of ids, see newOwner
	opts         session.Options
	runner       *script.Runner
	engine       *lease.Engine
	waiters      *wait.Waiters
	coalescer    *batch.Coalescer[freeRequest] // nil: calls are not shared
	monitor      *lease.Monitor                // nil without Liveness: permits last for their leases
	partyLease   time.Duration                 // the lease of a barrier's party
	named        hold.Holders[Holder]          // for the errors of calls that gave up
	grantChannel string                        // the channel of this process's grants, if one serves all keys
}

func init() {
	accessor.Register(func(client *Client) *session.Session { return client.session })
	accessor.Register(func(client *Client) *hold.Keeper { return client.keeper })
}

// New makes a client on hub, which still belongs to the caller and may serve other clients. It sends nothing. The error
// is ErrClosed if the hub is closed.
func New(hub *pubsub.Hub, opts Options) (*Client, error) {
	clientSession, err := session.New(hub, "rsemaphore", "permits", opts.session())
	if err == nil {
		err = clientSession.Error(opts.check())
	}
	if err != nil {
		return nil, err
	}
	if err := session.CheckProcess(&opts.Process); err != nil {
		return nil, clientSession.Error(err)
	}
	client := &Client{session: clientSession, clustered: hub.Client().Mode() == rueidis.ClientModeCluster}
	beats := opts.heartbeats(client)
	if beats.Trust > 0 {
		// other processes expect heartbeats from the grant on, so a waiter must learn of its grant within an Interval
		clientSession.PollCap = min(clientSession.PollCap, beats.Interval)
	}
	client.keeper = hold.NewKeeper(clientSession, "permit", "Release", lease.Config{Heartbeats: beats})
	client.seed, client.opts, client.runner = [8]byte(client.keeper.Seed[:8]), clientSession.Options, clientSession.Runner
	client.engine, client.waiters = client.keeper.Engine, client.keeper.Waiters
	client.grantChannel = grantChannelPrefix + client.keeper.ID
	if client.partyLease = clientSession.WatchdogTimeout; beats.Trust > 0 {
		client.partyLease, client.monitor = beats.Trust,
			lease.NewMonitor(clientSession.Runner, beats.Interval, clientSession.CallTimeout, clientSession.Background)
	}
	client.coalescer = newCoalescer(client)
	return client, nil
}

// grantChannelPrefix is the prefix of the channels of grants where one server serves all keys.
const grantChannelPrefix = "redlatch_grant:"

// Close refuses new calls, ends waiting calls (ErrClosed), and ends the contexts of all permits with cause ErrClosed.
// It waits until the permits that are not lost have been released, and until no release is pending in the background.
// It waits until ctx ends, or for 10 s if ctx has no end, as context.Background. It does not wait for a permit with a
// leaseTime to which the program has no reference any more.
//
// Then it stops renewing the permits that are left, whose leases run out. Its error names them, and the releases that
// were not confirmed. It does not close the hub. Later calls wait for the first until their own ctx ends, and return
// its result.
func (c *Client) Close(ctx context.Context) error { return c.session.Close(ctx) }

// object is the part that latches and barriers share: one name.
type object struct {
	c                  *Client
	name, key, channel string
	bad                error // the error of every call
}

// object returns the object of that name. It has no channel yet.
func (c *Client) object(name string) object {
	key, bad := c.session.Key(name)
	return object{c: c, name: name, key: key, bad: bad}
}
