package main

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/rsemaphore"
)

// free is how many permits each semaphore has that no other worker wants.
const free = 8

// permitPeer acquires and releases one permit. It stands with the locks, because it is their mechanism with another
// script.
var permitPeer = Peer{
	Name: "rsemaphore.Permit", Module: redlatchPeer.Module, Wakes: "push", AloneOnly: true,
	How: "one of 8 leased permits of a Semaphore, defaults",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return openPermits(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
	},
}

// rawPermit is the floor under it.
var rawPermit = Peer{
	Name: "raw permit scripts", Module: "github.com/redis/rueidis", AloneOnly: true, Wakes: "spin",
	How: "the two EVALSHA calls of rsemaphore.Permit, recorded and sent again through rueidis; nothing around them",
	Open: func(ctx context.Context, s Setup) (Locker, error) {
		looking, err := openSemaphores(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
		if err != nil {
			return nil, err
		}
		defer looking.Close()
		return openRecorded(ctx, s, func(o rueidis.ClientOption) (Locker, error) { return openPermits(o, s) },
			func(ctx context.Context, _ rueidis.Client, name string) (bool, error) {
				n, err := looking.semaphores.Semaphore(name, free).Available(ctx)
				return n == free-1, err
			})
	},
}

func openPermits(o rueidis.ClientOption, s Setup) (Locker, error) {
	l, err := openSemaphores(o, s)
	if err != nil {
		return nil, err
	}
	return &queueLocker{of: func(name string) load.Acquire {
		return ofPermits(l.semaphores.Semaphore(name, free))
	}, close: l.Close}, nil
}

func ofPermits(s *rsemaphore.Semaphore) load.Acquire {
	return func(ctx context.Context, _ string) (load.Release, error) {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}
