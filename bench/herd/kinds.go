package main

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// client is what one process has.
type client struct {
	hub        *pubsub.Hub
	locks      *rlock.Client
	semaphores *rsemaphore.Client
	more       []*client // on the other servers of a Quorum
}

// votingLease is that of the locks of a Quorum: its servers vote when they have been up for that long.
const votingLease = 5 * time.Second

// open connects to a server; of several, to each.
func open(servers string) (*client, error) {
	first, rest, several := strings.Cut(servers, ",")
	c, err := openOne(first, several)
	for err == nil && rest != "" {
		var next string
		next, rest, _ = strings.Cut(rest, ",")
		var more *client
		if more, err = openOne(next, true); err == nil {
			c.more = append(c.more, more)
		}
	}
	return c, err
}

func openOne(server string, votes bool) (*client, error) {
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server}, PipelineMultiplex: -1,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	c := &client{hub: hub}
	// So many processes on few processors stall each other for longer than the default.
	const stall = 10 * time.Second
	o := rlock.Options{CallTimeout: stall}
	if votes {
		o = rlock.Options{WatchdogTimeout: votingLease}
	}
	if c.locks, err = rlock.New(hub, o); err != nil {
		return nil, err
	}
	c.semaphores, err = rsemaphore.New(hub, rsemaphore.Options{CallTimeout: stall})
	return c, err
}

func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c.locks.Close(ctx)
	c.semaphores.Close(ctx)
	c.hub.Close(ctx)
	for _, more := range c.more {
		more.close()
	}
}

// acquire waits, and returns what releases.
type acquire func(ctx context.Context) (func(context.Context) error, error)

// part is what one process does, again and again.
type part struct {
	acquire     acquire
	hold, think time.Duration
}

// kind is something to wait for: either part or await is set.
type kind struct {
	name    string
	servers int // 0: one
	part    func(ctx context.Context, c *client, o order) (part, error)
	// await waits for an event, which end brings about once it is set up; both are for the o.Round-th event.
	await func(ctx context.Context, c *client, o order) error
	setUp func(ctx context.Context, c *client, o order) error
	end   func(ctx context.Context, c *client, o order) error
}

const name = "herd"

func locking(l *rlock.Lock) acquire {
	return func(ctx context.Context) (func(context.Context) error, error) {
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

func exclusive(name string, of func(c *client) *rlock.Lock) kind {
	return kind{name: name, part: func(_ context.Context, c *client, o order) (part, error) {
		return part{locking(of(c)), o.Hold, 0}, nil
	}}
}

var kinds = []kind{
	exclusive("reentrant", func(c *client) *rlock.Lock { return c.locks.Reentrant(name) }),
	exclusive("fair", func(c *client) *rlock.Lock { return c.locks.Fair(name) }),
	exclusive("plain", func(c *client) *rlock.Lock { return c.locks.Plain(name) }),
	{name: "quorum", servers: 3, part: func(_ context.Context, c *client, o order) (part, error) {
		members := []*rlock.Lock{c.locks.Reentrant(name)}
		for _, more := range c.more {
			members = append(members, more.locks.Reentrant(name))
		}
		q, err := rlock.Quorum(members...)
		if err != nil {
			return part{}, err
		}
		return part{locking(q), o.Hold, 0}, nil
	}},
	exclusive("write", func(c *client) *rlock.Lock { return c.locks.ReadWrite(name).Write() }),
	// All readers but one process, which writes. It holds for so long that all wait, and comes back when they are all in.
	{name: "read", part: func(_ context.Context, c *client, o order) (part, error) {
		turn := o.Hold * time.Duration(o.Processes)
		if o.Index == 0 {
			return part{locking(c.locks.ReadWrite(name).Write()), turn, 0}, nil
		}
		return part{locking(c.locks.ReadWrite(name).Read()), o.Hold, turn / 2}, nil
	}},
	{name: "semaphore", part: func(_ context.Context, c *client, o order) (part, error) {
		s := c.semaphores.Semaphore(name, o.Permits)
		return part{func(ctx context.Context) (func(context.Context) error, error) {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}, o.Hold * time.Duration(o.Permits), 0}, nil
	}},
	{name: "counting", part: func(ctx context.Context, c *client, o order) (part, error) {
		s := c.semaphores.CountingSemaphore(name)
		if _, err := s.TrySetPermits(ctx, o.Permits, 0); err != nil {
			return part{}, err
		}
		return part{func(ctx context.Context) (func(context.Context) error, error) {
			if err := s.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, nil
		}, o.Hold * time.Duration(o.Permits), 0}, nil
	}},
	{
		name: "latch",
		setUp: func(ctx context.Context, c *client, _ order) error {
			_, err := c.semaphores.CountDownLatch(name).TrySetCount(ctx, 1, 0)
			return err
		},
		await: func(ctx context.Context, c *client, _ order) error {
			return c.semaphores.CountDownLatch(name).Await(ctx)
		},
		end: func(ctx context.Context, c *client, _ order) error {
			_, err := c.semaphores.CountDownLatch(name).CountDown(ctx)
			return err
		},
	},
	{
		name:  "barrier",
		setUp: func(context.Context, *client, order) error { return nil },
		await: arrive,
		end:   arrive,
	},
}

func arrive(ctx context.Context, c *client, o order) error {
	_, err := c.semaphores.CyclicBarrier(name, o.Processes*o.Waiters+1).Await(ctx)
	return err
}
