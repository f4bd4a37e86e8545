package counting_test

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
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// Two permits of a semaphore that Java processes may use, too: redisson.getSemaphore("printer").
func ExampleSemaphore() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	s := counting.New(c, "printer")
	// the first process sets them; with an end, or a leak lasts forever
	if _, err := s.TrySetPermits(ctx, 2, time.Hour); err != nil {
		log.Fatal(err)
	}
	if err := s.Acquire(ctx, 1); err != nil {
		log.Fatal(err)
	}
	free, _ := s.Available(ctx)
	fmt.Println("free:", free)
	if err := s.Release(ctx, 1); err != nil {
		log.Fatal(err)
	}
	free, _ = s.Available(ctx)
	fmt.Println("free:", free)
	// Output:
	// free: 1
	// free: 2
}

// All permits are in use: TryAcquire waits for its waitTime and then returns ErrNotAcquired.
func ExampleSemaphore_TryAcquire() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	s := counting.New(c, "printer")
	if _, err := s.TrySetPermits(ctx, 2, time.Hour); err != nil {
		log.Fatal(err)
	}
	fmt.Println("two:", s.TryAcquire(ctx, 2, 0))
	err := s.TryAcquire(ctx, 1, 10*time.Millisecond)
	fmt.Println("one more:", errors.Is(err, redlatch.ErrNotAcquired))
	// Output:
	// two: <nil>
	// one more: true
}

// The number of permits changes while the semaphore is in use.
func ExampleSemaphore_AddPermits() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	s := counting.New(c, "printer")
	free, err := s.AddPermits(ctx, 3)
	fmt.Println(free, err)
	free, err = s.AddPermits(ctx, -1)
	fmt.Println(free, err)
	state, err := s.Inspect(ctx)
	fmt.Println(state.Available, state.TTL < 0, err)
	// Output:
	// 3 <nil>
	// 2 <nil>
	// 2 true <nil>
}

// onEmbedded is a client on an embedded server. Yours is pubsub.Dial(ctx, rueidis.ClientOption{InitAddress: …},
// pubsub.Options{}) and rsemaphore.New(hub, rsemaphore.Options{}).
func onEmbedded() (c *rsemaphore.Client, end func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	// the embedded server knows neither Cluster nor client-side caching
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// patient, so that a busy machine changes no output
	c, err = rsemaphore.New(hub, rsemaphore.Options{CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close(context.Background())
		hub.Close(context.Background())
		server.Close()
	}
}
