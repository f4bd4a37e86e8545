package main

import (
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"

	"github.com/redlatch/redlatch/bench/internal/load"
)

var redsyncGoRedis = Peer{
	Name: "redsync (go-redis)", Module: "github.com/go-redsync/redsync/v4", Wakes: "poll",
	How: "one server, default delays (50 to 250 ms between tries), any number of tries",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		c := goRedis(s)
		return &redsyncLocker{redsync.New(redsyncgoredis.NewPool(c)), s.Lease, func() { c.Close() }}, nil
	},
}

var redsyncRueidis = Peer{
	Name: "redsync (rueidis)", Module: "github.com/go-redsync/redsync/v4", Wakes: "poll",
	How: "one server, default delays (50 to 250 ms between tries), any number of tries",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
		if err != nil {
			return nil, err
		}
		var pool redsyncredis.Pool = redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c))
		return &redsyncLocker{redsync.New(pool), s.Lease, c.Close}, nil
	},
}

// goRedis is the go-redis client that peers on it get: as many connections as they like to use at a time.
func goRedis(s Setup) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Redis, PoolSize: 64})
}

type redsyncLocker struct {
	sync  *redsync.Redsync
	lease time.Duration
	close func()
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	m := l.sync.NewMutex(name, redsync.WithExpiry(l.lease), redsync.WithTries(math.MaxInt32))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		return err
	}, nil
}

func (l *redsyncLocker) Close() { l.close() }
