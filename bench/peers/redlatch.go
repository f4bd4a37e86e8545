package main

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

var redlatchPeer = Peer{
	Name: "redlatch", Module: "github.com/redlatch/redlatch", Renews: true, Wakes: "push",
	How: "rlock.Reentrant, defaults",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return openRedlatch(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
	},
}

type redlatchLocker struct {
	hub    *pubsub.Hub
	client *rlock.Client
}

func openRedlatch(o rueidis.ClientOption, s Setup) (*redlatchLocker, error) {
	hub, err := pubsub.Dial(o, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	client, err := rlock.New(hub, rlock.Options{WatchdogTimeout: s.Lease})
	if err != nil {
		hub.Close(context.Background())
		return nil, err
	}
	return &redlatchLocker{hub, client}, nil
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
	l.hub.Close(context.Background())
}
