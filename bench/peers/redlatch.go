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

// plainPeer takes part beside the peers that are made of the same one string key.
var plainPeer = Peer{
	Name: "rlock.Plain", Module: redlatchPeer.Module, Renews: true, Wakes: "push", Optional: true,
	How: "rlock.Plain, defaults",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		l, err := openRedlatch(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
		if err != nil {
			return nil, err
		}
		l.of = l.client.Plain
		return l, nil
	},
}

type redlatchLocker struct {
	of     func(name string) *rlock.Lock
	hub    *pubsub.Hub
	client *rlock.Client

	semaphores *rsemaphore.Client // of queues only
	once       atomic.Bool        // what is done once for a client has been
}

func openRedlatch(o rueidis.ClientOption, s Setup) (*redlatchLocker, error) {
	hub, err := pubsub.Dial(o, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	client, err := rlock.New(hub, rlock.Options{WatchdogTimeout: s.Lease, CallTimeout: s.CallTimeout})
	if err != nil {
		hub.Close(context.Background())
		return nil, err
	}
	return &redlatchLocker{of: client.Reentrant, hub: hub, client: client}, nil
}

func (l *redlatchLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	hold, err := l.of(name).Lock(ctx)
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
