package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/bench/internal/load"
)

var (
	redislock1ms   = redislockPeer("redislock, 1 ms", time.Millisecond)
	redislock100ms = redislockPeer("redislock, 100 ms", 100*time.Millisecond)
)

func redislockPeer(name string, backoff time.Duration) Peer {
	return Peer{
		Name: name, Module: "github.com/bsm/redislock", Wakes: "poll",
		How: "LinearBackoff(" + backoff.String() + ")",
		Open: func(_ context.Context, s Setup) (Locker, error) {
			c := goRedis(s)
			return &redislockLocker{c, redislock.New(c), s.Lease, backoff}, nil
		},
	}
}

type redislockLocker struct {
	client  *redis.Client
	locks   *redislock.Client
	lease   time.Duration
	backoff time.Duration
}

func (l *redislockLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	// A fresh strategy for each call; ctx has a deadline, without which the wait would end with the lease.
	h, err := l.locks.Obtain(ctx, name, l.lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(l.backoff)})
	if err != nil {
		return nil, err
	}
	return h.Release, nil
}

func (l *redislockLocker) Close() { l.client.Close() }
