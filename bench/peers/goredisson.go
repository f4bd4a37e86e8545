package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/sovietaced/go-redisson/mutex"

	"github.com/redlatch/redlatch/bench/internal/load"
)

var goRedisson = Peer{
	Name: "go-redisson", Module: "github.com/sovietaced/go-redisson", Renews: true, Wakes: "push",
	How: "defaults; every waiter has a subscription and a connection of its own",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return &goRedissonLocker{goRedis(s), mutex.WithLeaseDuration(s.Lease)}, nil
	},
}

type goRedissonLocker struct {
	client *redis.Client
	lease  mutex.Option
}

func (l *goRedissonLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	m := mutex.NewMutex(l.client, name, l.lease)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}

func (l *goRedissonLocker) Close() { l.client.Close() }
