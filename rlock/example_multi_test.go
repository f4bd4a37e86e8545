package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// Two accounts are locked together, or neither. Transfers in the other direction at the same time cannot deadlock.
func ExampleMulti() {
	locks, end := demo()
	defer end()
	ctx := context.Background()

	both, err := rlock.Multi(locks.Reentrant("{acct}:ann"), locks.Reentrant("{acct}:bob")) // one slot: one call
	if err != nil {
		log.Fatal(err)
	}
	err = both.Do(ctx, func(ctx context.Context) error {
		_, err := locks.Reentrant("{acct}:bob").TryLock(context.Background(), 0, 0)
		fmt.Println("bob alone:", errors.Is(err, redlatch.ErrNotAcquired))
		return nil
	})
	fmt.Println(err)
	// Output:
	// bob alone: true
	// <nil>
}

// The error names the member that somebody else holds, and nothing is held.
func ExampleMulti_contended() {
	locks, end := demo()
	defer end()
	ctx := context.Background()

	bob, err := locks.Reentrant("bob").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	both, err := rlock.Multi(locks.Reentrant("ann"), locks.Reentrant("bob"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = both.TryLock(ctx, 0, 0)
	var contended *rlock.NotAcquiredError
	if errors.As(err, &contended) {
		fmt.Println("somebody else has", contended.Name)
	}
	ann, err := locks.Reentrant("ann").IsLocked(ctx)
	fmt.Println("ann:", ann, err)
	fmt.Println(bob.Unlock(ctx))
	// Output:
	// somebody else has bob
	// ann: false <nil>
	// <nil>
}

// fleet is three independent servers, and a client of each.
func fleet() (servers []*miniredis.Miniredis, clients []*rlock.Client, end func()) {
	var ends []func()
	for range 3 {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		redistest.Describe(server, time.Hour) // up for long enough to vote
		hub, err := pubsub.Dial(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
		if err != nil {
			log.Fatal(err)
		}
		locks, err := rlock.New(hub,
			rlock.Options{WatchdogTimeout: time.Minute, CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			log.Fatal(err)
		}
		servers, clients = append(servers, server), append(clients, locks)
		ends = append(ends, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			locks.Close(ctx) // what is owed to a dead server is owed for a lease
			hub.Close(context.Background())
			server.Close()
		})
	}
	return servers, clients, func() {
		for _, end := range ends {
			end()
		}
	}
}

// A majority of three servers is enough: one may die.
func ExampleQuorum() {
	servers, clients, end := fleet() // a client of each server
	defer end()
	ctx := context.Background()

	leader, err := rlock.Quorum(clients[0].Reentrant("leader"), clients[1].Reentrant("leader"),
		clients[2].Reentrant("leader"))
	if err != nil {
		log.Fatal(err)
	}
	servers[1].Close()
	err = leader.Do(ctx, func(ctx context.Context) error {
		_, err := leader.TryLock(context.Background(), 0, 0)
		fmt.Println("another:", errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable))
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// another: true
	// <nil>
}
