package main

import (
	"context"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

var redlatchPeer = Peer{
	Name: "redlatch", Module: "github.com/redlatch/redlatch", Renews: true, Wakes: "push",
	How: "rlock.Reentrant, defaults",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return openRedlatch(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
	},
}

// plainPeer is the lock whose layout is the peers': one string key.
var plainPeer = Peer{
	Name: "rlock.Plain", Module: redlatchPeer.Module, Wakes: "push",
	How: "one string key, as redsync's and redislock's locks; defaults",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		l, err := openRedlatch(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
		if err != nil {
			return nil, err
		}
		return &queueLocker{of: func(name string) load.Acquire { return ofLock(l.client.Plain(name)) }, close: l.Close}, nil
	},
}

type redlatchLocker struct {
	hub    *pubsub.Hub
	client *rlock.Client

	semaphores *rsemaphore.Client // of permits only
	once       atomic.Bool        // what is done once for a client has been
}

func openRedlatch(o rueidis.ClientOption, s Setup) (*redlatchLocker, error) {
	hub, err := pubsub.Dial(o, pubsub.Options{CallTimeout: patience}) // to connect is not measured
	if err != nil {
		return nil, err
	}
	client, err := rlock.New(hub, rlock.Options{WatchdogTimeout: s.Lease, CallTimeout: s.CallTimeout})
	if err != nil {
		hub.Close(context.Background())
		return nil, err
	}
	return &redlatchLocker{hub: hub, client: client}, nil
}

// openSemaphores is openRedlatch with a client of semaphores.
func openSemaphores(o rueidis.ClientOption, s Setup) (*redlatchLocker, error) {
	l, err := openRedlatch(o, s)
	if err != nil {
		return nil, err
	}
	if l.semaphores, err = rsemaphore.New(l.hub,
		rsemaphore.Options{WatchdogTimeout: s.Lease, CallTimeout: s.CallTimeout}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *redlatchLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	hold, err := l.client.Reentrant(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold.Unlock, nil
}

func (l *redlatchLocker) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is still held runs out
	l.client.Close(ctx)
	if l.semaphores != nil {
		l.semaphores.Close(ctx)
	}
	l.hub.Close(context.Background())
}
