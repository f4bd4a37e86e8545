package main

import (
	"context"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/sovietaced/go-redisson/mutex"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

var lockPeers = []Peer{
	{"redlatch", here, "rlock.Reentrant, defaults", inCluster, openOurs((*rlock.Client).Reentrant)},
	{"rlock.Plain", here, "one string key, as redsync's and redislock's locks; defaults", inCluster,
		openOurs((*rlock.Client).Plain)},
	{lower, "github.com/redis/rueidis",
		"SET NX PX, and compare and delete, as scripts; a waiter asks again at once", inCluster, openRaw},
	{"rueidislock", "github.com/redis/rueidis", "KeyMajority 1, NoLoopTracking; waiters are woken by invalidations",
		inCluster, openRueidislock},
	{"redsync", "github.com/go-redsync/redsync/v4", "go-redis, one server, delays of 50 to 250 ms, any number of tries",
		givesUp, openRedsync},
	{"redislock, 1 ms", "github.com/bsm/redislock", "LinearBackoff(1ms)", givesUp, openRedislock(time.Millisecond)},
	{"redislock, 100 ms", "github.com/bsm/redislock", "LinearBackoff(100ms)", waits,
		openRedislock(100 * time.Millisecond)},
	{"go-redisson", "github.com/sovietaced/go-redisson", "defaults", waits, openGoRedisson},
	{etcd, "go.etcd.io/etcd/client/v3", "client/v3/concurrency on one embedded node whose log is in memory; one session " +
		"for all locks of a process, more only for waiters on the same one", waits, openEtcd},
}

// locker is a Locker of two functions.
type locker struct {
	lock  load.Acquire
	close func()
}

func (l locker) Lock(ctx context.Context, name string) (load.Release, error) {
	return l.lock(ctx, name)
}
func (l locker) Close() { l.close() }

func dial(s Setup) (*pubsub.Hub, error) {
	return pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: []string{s.Redis}}, // Dial is not measured
		pubsub.Options{CallTimeout: patience})
}

func openOurs(of func(c *rlock.Client, name string) *rlock.Lock) func(context.Context, Setup) (Locker, error) {
	return func(ctx context.Context, s Setup) (Locker, error) {
		hub, err := dial(s)
		if err != nil {
			return nil, err
		}
		c, err := rlock.New(hub, rlock.Options{WatchdogTimeout: s.Lease})
		if err != nil {
			hub.Close(ctx)
			return nil, err
		}
		return locker{func(ctx context.Context, name string) (load.Release, error) {
			hold, err := of(c, name).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return hold.Unlock, nil
		}, func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel() // locks that are still held expire
			c.Close(ended)
			hub.Close(context.Background())
		}}, nil
	}
}

func openRaw(_ context.Context, s Setup) (Locker, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
	if err != nil {
		return nil, err
	}
	return locker{load.RawLock(c, s.Lease), c.Close}, nil
}

func openRueidislock(_ context.Context, s Setup) (Locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true, KeyValidity: s.Lease,
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Redis}}})
	if err != nil {
		return nil, err
	}
	return locker{func(ctx context.Context, name string) (load.Release, error) {
		// A hold of rueidislock ends with the context with which it was acquired. So it gets a context of its own, which ctx
		// ends only while it waits.
		own, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, end)
		_, release, err := l.WithContext(own, name)
		if err == nil && !stop() { // ctx ended, too
			release()
			err = ctx.Err()
		}
		if err != nil {
			stop()
			end()
			return nil, err
		}
		return func(context.Context) error { release(); end(); return nil }, nil // release waits for the reply
	}, l.Close}, nil
}

// goRedis is the client of the peers on go-redis.
func goRedis(s Setup) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Redis, PoolSize: 64})
}

func openRedsync(_ context.Context, s Setup) (Locker, error) {
	c := goRedis(s)
	r := redsync.New(redsyncgoredis.NewPool(c))
	return locker{func(ctx context.Context, name string) (load.Release, error) {
		m := r.NewMutex(name, redsync.WithExpiry(s.Lease), redsync.WithTries(math.MaxInt32))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
	}, func() { c.Close() }}, nil
}

func openRedislock(backoff time.Duration) func(context.Context, Setup) (Locker, error) {
	return func(_ context.Context, s Setup) (Locker, error) {
		c := goRedis(s)
		locks := redislock.New(c)
		return locker{func(ctx context.Context, name string) (load.Release, error) {
			// A strategy for each call. ctx has a deadline, otherwise the wait would end with the lease.
			h, err := locks.Obtain(ctx, name, s.Lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)})
			if err != nil {
				return nil, err
			}
			return h.Release, nil
		}, func() { c.Close() }}, nil
	}
}

func openGoRedisson(_ context.Context, s Setup) (Locker, error) {
	c := goRedis(s)
	lease := mutex.WithLeaseDuration(s.Lease)
	return locker{func(ctx context.Context, name string) (load.Release, error) {
		m := mutex.NewMutex(c, name, lease)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return m.Unlock, nil
	}, func() { c.Close() }}, nil
}
