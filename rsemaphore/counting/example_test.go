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

// Every process may set the permits when it starts, because only the first call does.
func ExampleSemaphore_TrySetPermits() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	scanner := counting.New(c, "scanner")
	for _, process := range []string{"web-1", "web-2"} {
		set, err := scanner.TrySetPermits(ctx, 3, time.Hour)
		fmt.Println(process, set, err)
	}
	free, err := scanner.Available(ctx)
	fmt.Println("free:", free, err)
	// Output:
	// web-1 true <nil>
	// web-2 false <nil>
	// free: 3 <nil>
}

// Acquire waits until another job has released its permit.
func ExampleSemaphore_Acquire() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	scanner := counting.New(c, "scanner")
	if _, err := scanner.TrySetPermits(ctx, 1, time.Hour); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the passport is scanned:", scanner.Acquire(ctx, 1))
	go func() {
		fmt.Println("the scanner is free")
		scanner.Release(ctx, 1)
	}()
	fmt.Println("the letter is scanned:", scanner.Acquire(ctx, 1)) // a deadline of ctx would bound the waiting
	scanner.Release(ctx, 1)
	// Output:
	// the passport is scanned: <nil>
	// the scanner is free
	// the letter is scanned: <nil>
}

// A request that was cancelled still releases its permit, which no lease would give back.
func ExampleSemaphore_Release() {
	c, end := onEmbedded()
	defer end()
	request, cancel := context.WithCancel(context.Background())

	scanner := counting.New(c, "scanner")
	if _, err := scanner.TrySetPermits(request, 1, time.Hour); err != nil {
		log.Fatal(err)
	}
	if err := scanner.Acquire(request, 1); err != nil {
		log.Fatal(err)
	}
	cancel() // the client has gone
	fmt.Println("released:", scanner.Release(request, 1))
	free, err := scanner.Available(context.Background())
	fmt.Println("free:", free, err)
	// Output:
	// released: <nil>
	// free: 1 <nil>
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
