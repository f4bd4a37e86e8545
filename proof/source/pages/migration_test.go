package pages_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// migrated makes what the code of migration.md uses: clients on an embedded server.
func migrated() (ctx context.Context, locks *rlock.Client, end func()) {
	ctx, locks, _, end = moved()
	return ctx, locks, end
}

func moved() (ctx context.Context, locks *rlock.Client, semaphores *rsemaphore.Client, end func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// Generous, so that a busy machine changes no output.
	locks, err = rlock.New(hub,
		rlock.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	if semaphores, err = rsemaphore.New(hub, rsemaphore.Options{CallTimeout: 10 * time.Second}); err != nil {
		log.Fatal(err)
	}
	ctx = context.Background()
	if _, err := counting.New(semaphores, "imports").TrySetPermits(ctx, 20, 0); err != nil {
		log.Fatal(err)
	}
	return ctx, locks, semaphores, func() {
		semaphores.Close(ctx)
		locks.Close(ctx)
		hub.Close(context.Background())
		server.Close()
	}
}

func work(ctx context.Context) error {
	fmt.Println("working:", ctx.Err() == nil)
	return ctx.Err()
}

func write(token int64) { fmt.Println("has a token:", token > 0) }

func Example_fromRedisson() {
	ctx, locks, end := migrated()
	defer end()

	hold, err := locks.Reentrant("order:1").TryLock(ctx, 3*time.Second, 10*time.Second)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return // another owner has it
	}
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	work(hold.Context(ctx)) // the context ends if the lock is lost
	// Output: working: true
}

func Example_fromRedissonReentrant() {
	ctx, locks, end := migrated()
	defer end()

	order := locks.Reentrant("order:1")
	err := order.Do(ctx, func(ctx context.Context) error { // renewed until it returns
		return order.Do(ctx, work) // the same owner, because ctx says so
	})
	fmt.Println("released:", err == nil)
	// Output:
	// working: true
	// released: true
}

func Example_fromRedissonFenced() {
	ctx, locks, end := migrated()
	defer end()

	hold, err := locks.Fenced("order:1").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	token, _ := hold.Token()
	write(token)
	// Output: has a token: true
}

func Example_fromRedsync() {
	ctx, locks, end := migrated()
	defer end()

	order := locks.Reentrant("order:1")
	err := order.WithWait(3*time.Second).Do(ctx, func(ctx context.Context) error {
		return work(ctx) // renewed until it returns; ctx ends if the lock is lost
	})
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return // not within three seconds
	}
	fmt.Println("released:", err == nil)
	// Output:
	// working: true
	// released: true
}

func Example_fromRueidislock() {
	ctx, locks, end := migrated()
	defer end()

	order := locks.Plain("rueidislock:0:order:1")
	hold, err := order.Lock(ctx) // ctx bounds the waiting, not the hold
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	work(hold.Context(ctx))
	// Output: working: true
}

func Example_fromRedislock() {
	ctx, locks, end := migrated()
	defer end()

	order := locks.Plain("order:1") // Reentrant when no process uses redislock any more
	hold, err := order.TryLock(ctx, 0, 10*time.Second)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return // another owner has it
	}
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	work(hold.Context(ctx))
	// Output: working: true
}

func Example_toAnotherName() {
	ctx, locks, end := migrated()
	defer end()

	order, err := rlock.Multi(locks.Plain("rueidislock:0:order:1"), locks.Reentrant("order:1"))
	if err != nil {
		log.Fatal(err)
	}
	err = order.WithWait(3*time.Second).Do(ctx, work) // alone among those that use either
	fmt.Println("released:", err == nil)
	// Output:
	// working: true
	// released: true
}

func Example_fromCountingSemaphore() {
	ctx, _, semaphores, end := moved()
	defer end()

	imports, leased := counting.New(semaphores, "imports"), semaphores.Semaphore("imports:leased", 20)
	if err := imports.Acquire(ctx, 1); err != nil { // always the old one first
		log.Fatal(err)
	}
	defer imports.Release(ctx, 1)
	err := leased.Do(ctx, 1, work)
	fmt.Println("released:", err == nil)
	// Output:
	// working: true
	// released: true
}

// Share makes a client of locks on the rueidis client of the program, which the program closes.
func Share(client rueidis.Client) (locks *rlock.Client, end func(context.Context) error, err error) {
	hub, err := pubsub.New(client, pubsub.Options{})
	if err != nil {
		return nil, nil, err
	}
	locks, err = rlock.New(hub, rlock.Options{})
	if err != nil {
		hub.Close(context.Background())
		return nil, nil, err
	}
	return locks, func(ctx context.Context) error {
		defer hub.Close(ctx) // after its clients
		return locks.Close(ctx)
	}, nil
}

func TestShare_ClientOfTheProgram_StaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.NoError(rueidis.NewClient(redlatchtest.New(t).Option()))(t)
		defer client.Close()
		locks, end, err := Share(client)
		require.NoError(t, err)
		require.NoError(t, locks.Reentrant("a").WithWait(time.Minute).Do(t.Context(), nothing))
		require.NoError(t, end(t.Context()))
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
	})
}
