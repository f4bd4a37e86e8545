package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Options of Open. The zero value is good.
//
// The first nine fields are for all packages: each is copied to the options of every package with a field of that name.
// The functions then get these options, to change the options of one package:
//
//	redlatch.Options{
//		KeyPrefix:   "shop:",
//		MinReplicas: 1,
//		Locks:       func(o *rlock.Options) { o.Liveness = true },
//		Limiters:    func(o *ratelimit.Options) { o.KeyPrefix = "" },
//		Sales:       func(o *stock.Options) { o.MinReplicas = 0 },
//	}
type Options struct {
	// KeyPrefix is put before every name to make its key. Redisson has no prefix. Defaults to "".
	KeyPrefix string
	// CallTimeout bounds one request to the server. At least 1 ms. Defaults to 500 ms, and to 5 s for the hub.
	CallTimeout time.Duration
	// RetryTimeout bounds a call that does not wait for others: the call is repeated for so long while the server does not
	// answer or refuses, as during a failover. The context may end it sooner, and never later. At least CallTimeout.
	// Defaults to CallTimeout.
	RetryTimeout time.Duration
	// MinReplicas has grants and renewals confirmed by that many replicas within ReplicaTimeout. Open fails with it on a
	// server that refuses WAIT. Defaults to 0: off.
	MinReplicas int
	// ReplicaTimeout bounds that wait. At least 1 ms, and less than CallTimeout. Defaults to half of CallTimeout.
	ReplicaTimeout time.Duration
	// SurviveFailover is for work that two owners must not do at once when a primary fails. It sets
	//
	//   - MinReplicas to 1, unless it is set: a replica confirms grants, renewals and the answers of sales, or they do not
	//     count;
	//   - Strict and Durable of the hub: Open refuses a server that evicts keys, that keeps no append-only file, or that
	//     goes on without replicas (min-replicas-to-write);
	//   - Fenced of locks: Reentrant makes Fenced locks, so that the resource can refuse late writes, and WithOwner is
	//     refused.
	//
	// The functions for the packages come after it, and can change each of these.
	//
	// Some gaps stay. A replica that did not confirm a grant may be promoted: with more than one replica, set MinReplicas
	// to as many as there are. Two owners may act then, and only the resource can refuse the older one, by its token.
	// Counters, limits, latches and CountingSemaphores are not confirmed by replicas. With one replica nothing is granted
	// while the replica is away, so have two. The page guarantees.md says what each part costs. Defaults to off.
	SurviveFailover bool
	// Process is the name of this process in Inspect and on the debug page. Defaults to "host:pid".
	Process string
	// Logger gets the lines of all packages. Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with the events of all packages. If a function below sets an Observer for its package, the
	// package's Observer is called first. Defaults to none.
	Observer Observer

	// Hub can set NewClient, a constructor of the rueidis client that adds tracing or hooks.
	Hub        func(*pubsub.Options)
	Locks      func(*rlock.Options)
	Elections  func(*election.Options)
	Semaphores func(*rsemaphore.Options)
	Counters   func(*rcounter.Options)
	Sales      func(*stock.Options)
	RedPackets func(*redpacket.Options)
	Limiters   func(*ratelimit.Options)
}

// Client is a connection to a server, Sentinel group or Cluster, and the client of every package on it. A process needs
// one Client. All methods are safe for concurrent use.
type Client struct {
	hub        *pubsub.Hub
	locks      *rlock.Client
	elections  *election.Client
	semaphores *rsemaphore.Client
	counters   *rcounter.Client
	sales      *stock.Client
	packets    *redpacket.Client
	limiters   *ratelimit.Client

	clients []closer // all of them
	closing session.Once
}

// Open connects by [pubsub.Dial] and makes the client of every package on that hub. ctx bounds connecting, and nothing
// later. A client that is not used costs a few hundred bytes, and neither a goroutine nor a request. The errors are the
// errors of pubsub.Dial and of the packages' New. Options are checked before anything is sent: ErrInvalidOption names
// every package that cannot use its own, with a field and its value. MinReplicas is refused, too, by a server that
// refuses WAIT. After an error nothing is left open.
func Open(ctx context.Context, o rueidis.ClientOption, opts Options) (*Client, error) {
	if opts.SurviveFailover {
		opts.surviveFailover()
	}
	all := opts.packages()
	if err := all.check(ctx); err != nil {
		return nil, fmt.Errorf("redlatch: %w", err)
	}
	hub, err := pubsub.Dial(ctx, o, all.hub)
	if err != nil {
		return nil, err
	}
	c, err := all.clients(hub)
	if err == nil {
		err = script.CanWait(ctx, hub.Client(), cmp.Or(opts.CallTimeout, waitsFor), max(all.locks.MinReplicas,
			all.elections.MinReplicas, all.semaphores.MinReplicas, all.sales.MinReplicas,
			all.packets.MinReplicas))
	}
	if err != nil {
		_ = c.Close(context.WithoutCancel(ctx)) // nothing is held yet
		return nil, fmt.Errorf("redlatch: %w", err)
	}
	return c, nil
}

// packages are the options of all packages.
type packages struct {
	hub        pubsub.Options
	locks      rlock.Options
	elections  election.Options
	semaphores rsemaphore.Options
	counters   rcounter.Options
	sales      stock.Options
	packets    redpacket.Options
	limiters   ratelimit.Options
}

// packages calls the functions of o, each once.
func (o *Options) packages() packages {
	p := packages{
		hub: with(o.Hub, pubsub.Options{CallTimeout: o.CallTimeout, Logger: o.Logger}),
		locks: with(o.Locks, rlock.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Process: o.Process, Logger: o.Logger,
		}),
		elections: with(o.Elections, election.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Process: o.Process, Logger: o.Logger,
		}),
		semaphores: with(o.Semaphores, rsemaphore.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Process: o.Process, Logger: o.Logger,
		}),
		counters: with(o.Counters, rcounter.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, Logger: o.Logger,
		}),
		sales: with(o.Sales, stock.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger,
		}),
		packets: with(o.RedPackets, redpacket.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout,
			MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout, Logger: o.Logger,
		}),
		limiters: with(o.Limiters, ratelimit.Options{
			KeyPrefix: o.KeyPrefix, CallTimeout: o.CallTimeout, RetryTimeout: o.RetryTimeout, Logger: o.Logger,
		}),
	}
	for _, own := range []*Observer{&p.hub.Observer, &p.locks.Observer, &p.elections.Observer, &p.semaphores.Observer,
		&p.counters.Observer, &p.sales.Observer, &p.packets.Observer, &p.limiters.Observer} {
		*own = own.And(o.Observer)
	}
	return p
}

// clients makes the client of every package. With an error it returns the clients made so far, to be closed.
func (p packages) clients(hub *pubsub.Hub) (*Client, error) {
	c := &Client{hub: hub}
	return c, errors.Join(
		add(c, &c.locks, rlock.New, p.locks),
		add(c, &c.elections, election.New, p.elections),
		add(c, &c.semaphores, rsemaphore.New, p.semaphores),
		add(c, &c.counters, rcounter.New, p.counters),
		add(c, &c.sales, stock.New, p.sales),
		add(c, &c.packets, redpacket.New, p.packets),
		add(c, &c.limiters, ratelimit.New, p.limiters),
	)
}

// check makes all clients on a hub without a server, because no New sends anything.
func (p packages) check(ctx context.Context) error {
	own := p.hub
	own.Strict, own.Durable = false, false // only Dial asks the server
	hub, bad := pubsub.New(unconnected{}, own)
	if bad != nil {
		hub, _ = pubsub.New(unconnected{}, pubsub.Options{}) // for the other packages
	}
	c, err := p.clients(hub)
	_ = c.Close(context.WithoutCancel(ctx)) // nothing is held
	return errors.Join(bad, err)
}

// unconnected is a client through which nothing is sent.
type unconnected struct{ rueidis.Client }

func (unconnected) Mode() rueidis.ClientMode { return rueidis.ClientModeStandalone }

// waitsFor is how long Open awaits the answer to WAIT, if MinReplicas is set and CallTimeout is not.
const waitsFor = 5 * time.Second

// with is o after set, the function that Options have for one package.
func with[O any](set func(*O), o O) O {
	if set != nil {
		set(&o)
	}
	return o
}

// add makes the client of one package, for Close to close.
func add[P closer, O any](c *Client, to *P, create func(*pubsub.Hub, O) (P, error), o O) error {
	p, err := create(c.hub, o)
	if err == nil {
		*to, c.clients = p, append(c.clients, p)
	}
	return err
}

// closer is a client of any package.
type closer interface {
	Close(ctx context.Context) error
}

// Hub returns the hub through which all clients hear messages. Hub.Client is the rueidis client.
func (c *Client) Hub() *pubsub.Hub { return c.hub }

// Locks returns the client that makes locks.
func (c *Client) Locks() *rlock.Client { return c.locks }

// Elections returns the client that makes elections of a leader.
func (c *Client) Elections() *election.Client { return c.elections }

// Semaphores returns the client that makes semaphores, latches and barriers.
func (c *Client) Semaphores() *rsemaphore.Client { return c.semaphores }

// Counters returns the client that makes counters.
func (c *Client) Counters() *rcounter.Client { return c.counters }

// Sales returns the client that makes sales, in which the first N orders win.
func (c *Client) Sales() *stock.Client { return c.sales }

// RedPackets returns the client that makes red packets.
func (c *Client) RedPackets() *redpacket.Client { return c.packets }

// Limiters returns the client that makes rate limiters.
func (c *Client) Limiters() *ratelimit.Client { return c.limiters }

// Close closes all clients at the same time, and then the hub with its connections. Waiting calls end with ErrClosed,
// and the contexts of holds end. Close then waits until all holds are released and the server has confirmed all
// releases, until ctx ends, or for 10 s if ctx has no end. Anything still held then stays locked until its lease
// expires; the error lists it. Later calls wait for the first until their own ctx ends, and return its result.
func (c *Client) Close(ctx context.Context) error {
	err := c.closing.Close(ctx, c.close)
	if err != nil {
		return fmt.Errorf("redlatch: %w", err)
	}
	return nil
}

// close closes the hub last. The calls of a client that outlived it could not be woken, and would return that the hub
// was closed, not that the holds were released.
func (c *Client) close(ctx context.Context) error {
	errs := make([]error, len(c.clients), len(c.clients)+1)
	var all sync.WaitGroup
	for i, p := range c.clients {
		all.Go(func() { errs[i] = p.Close(ctx) })
	}
	all.Wait()
	return errors.Join(append(errs, c.hub.Close(ctx))...)
}
