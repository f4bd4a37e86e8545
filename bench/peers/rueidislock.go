package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch/bench/internal/load"
)

var rueidislockTuned = Peer{
	Name: "rueidislock", Module: "github.com/redis/rueidis", Renews: true, Wakes: "push",
	How: "KeyMajority 1, NoLoopTracking; waiters are woken by invalidations",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return openRueidislock(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true}, s)
	},
}

var rueidislockDefault = Peer{
	Name: "rueidislock (defaults)", Module: "github.com/redis/rueidis", Renews: true, Wakes: "push",
	How: "defaults (KeyMajority 2: three keys); waiters are woken by invalidations",
	Open: func(_ context.Context, s Setup) (Locker, error) {
		return openRueidislock(rueidislock.LockerOption{}, s)
	},
}

type rueidislockLocker struct{ rueidislock.Locker }

func openRueidislock(o rueidislock.LockerOption, s Setup) (Locker, error) {
	o.ClientOption = rueidis.ClientOption{InitAddress: []string{s.Redis}}
	o.KeyValidity = s.Lease
	l, err := rueidislock.NewLocker(o)
	if err != nil {
		return nil, err
	}
	return rueidislockLocker{l}, nil
}

func (l rueidislockLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	_, cancel, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	// It waits for the reply; there is no error to return.
	return func(context.Context) error { cancel(); return nil }, nil
}
