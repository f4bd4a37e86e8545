package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

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

// The shop opens when three caches are warm, whichever processes warm them.
func ExampleCountDownLatch() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	warm := c.CountDownLatch("caches-warm")
	if _, err := warm.TrySetCount(ctx, 3, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, cache := range []string{"prices", "stock", "images"} {
		go func() {
			// … warm it …
			if _, err := warm.CountDownBy(ctx, cache); err != nil {
				log.Print(err)
			}
		}()
	}
	fmt.Println("open:", warm.Await(ctx) == nil)
	// Output:
	// open: true
}

// A job that is delivered twice, or restarted, counts once.
func ExampleCountDownLatch_CountDownBy() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	l := c.CountDownLatch("import")
	if _, err := l.TrySetCount(ctx, 2, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, job := range []string{"job-1", "job-1", "job-2"} {
		left, err := l.CountDownBy(ctx, job)
		fmt.Println(job, left, err)
	}
	// Output:
	// job-1 1 <nil>
	// job-1 1 <nil>
	// job-2 0 <nil>
}

// A process that was to count down has died. Without a TTL the waiters would wait forever.
func ExampleCountDownLatch_Await_expired() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	l := c.CountDownLatch("import")
	if _, err := l.TrySetCount(ctx, 2, 50*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	err := l.Await(ctx)
	fmt.Println(errors.Is(err, rsemaphore.ErrLatchExpired))
	// Output:
	// true
}

// Any process may set the count when it starts, because only the first call closes the latch.
func ExampleCountDownLatch_TrySetCount() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	shards := c.CountDownLatch("shards-migrated")
	for _, process := range []string{"migrate-1", "migrate-2"} {
		set, err := shards.TrySetCount(ctx, 16, time.Hour) // with an end, in case a process dies
		fmt.Println(process, set, err)
	}
	left, err := shards.Count(ctx)
	fmt.Println("left:", left, err)
	// Output:
	// migrate-1 true <nil>
	// migrate-2 false <nil>
	// left: 16 <nil>
}

// Each service counts down when it is ready, and the last count opens the latch.
func ExampleCountDownLatch_CountDown() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	ready := c.CountDownLatch("services-ready")
	if _, err := ready.TrySetCount(ctx, 2, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, service := range []string{"search", "payments"} {
		left, err := ready.CountDown(ctx)
		fmt.Println(service, "is ready, left:", left, err)
	}
	fmt.Println("open:", ready.Await(ctx) == nil)
	// Output:
	// search is ready, left: 1 <nil>
	// payments is ready, left: 0 <nil>
	// open: true
}

// A status page shows how many parts of an import are left, and how long they may take.
func ExampleCountDownLatch_Inspect() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	parts := c.CountDownLatch("import")
	if _, err := parts.TrySetCount(ctx, 3, time.Hour); err != nil {
		log.Fatal(err)
	}
	if _, err := parts.CountDown(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := parts.Inspect(ctx)
	fmt.Println(state.Count, "parts left, expires in", state.TTL.Round(time.Minute), err)
	// Output: 2 parts left, expires in 1h0m0s <nil>
}

// An import that is called off deletes its latch, so that the next import can set its own count.
func ExampleCountDownLatch_Delete() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	parts := c.CountDownLatch("import")
	if _, err := parts.TrySetCount(ctx, 3, time.Hour); err != nil {
		log.Fatal(err)
	}
	deleted, err := parts.Delete(ctx) // waiters get ErrLatchDeleted
	fmt.Println("deleted:", deleted, err)
	set, err := parts.TrySetCount(ctx, 5, time.Hour)
	fmt.Println("set again:", set, err)
	// Output:
	// deleted: true <nil>
	// set again: true <nil>
}

// Three workers, in any processes, go through two steps together. Between the steps the last worker to arrive merges
// the results.
func ExampleCyclicBarrier() {
	c, end := onEmbedded()
	defer end()

	step := c.CyclicBarrier("simulation", 3).WithAction(func(ctx context.Context) error {
		fmt.Println("merge")
		return nil
	})
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for range 2 {
				// … work …
				if _, err := step.Await(context.Background()); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	workers.Wait()
	state, _ := step.Inspect(context.Background())
	fmt.Println("next generation:", state.Generation)
	// Output:
	// merge
	// merge
	// next generation: 3
}

// A party that will not come, or whose process dies, does not keep the others waiting forever: the generation is
// broken for all, and they begin the next together.
func ExampleCyclicBarrier_Await_broken() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	b := c.CyclicBarrier("simulation", 3)
	impatient, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for _, ctx := range []context.Context{ctx, impatient} {
		workers.Go(func() {
			_, err := b.Await(ctx)
			fmt.Println("broken:", errors.Is(err, rsemaphore.ErrBrokenBarrier))
		})
	}
	for {
		if state, err := b.Inspect(ctx); err != nil || state.Waiting == 2 {
			break
		}
	}
	cancel()
	workers.Wait()
	state, _ := b.Inspect(ctx)
	fmt.Println("waiting:", state.Waiting, "next generation:", state.Generation)
	// Output:
	// broken: true
	// broken: true
	// waiting: 0 next generation: 2
}

// If the action fails, no worker goes on to the next step.
func ExampleCyclicBarrier_WithAction() {
	c, end := onEmbedded()
	defer end()
	errDiskFull := errors.New("disk full")

	step := c.CyclicBarrier("simulation", 2).WithAction(func(ctx context.Context) error {
		return errDiskFull // such as: the merged results cannot be written
	})
	results := make(chan error)
	for range 2 {
		go func() {
			_, err := step.Await(context.Background())
			results <- err
		}()
	}
	both := errors.Join(<-results, <-results)
	fmt.Println("the last worker has the reason:", errors.Is(both, errDiskFull))
	fmt.Println("the step is broken:", errors.Is(both, rsemaphore.ErrBrokenBarrier))
	// Output:
	// the last worker has the reason: true
	// the step is broken: true
}

// Inspect shows which generation the workers wait for, and how many have arrived.
func ExampleCyclicBarrier_Inspect() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	step := c.CyclicBarrier("simulation", 1)
	if _, err := step.Await(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := step.Inspect(ctx)
	fmt.Println("generation", state.Generation, "has", state.Waiting, "of", state.Parties, err)
	// Output:
	// generation 2 has 0 of 1 <nil>
}

// One party of each generation is told that it was the last: it does what is to be done once.
func ExampleArrival() {
	c, end := onEmbedded()
	defer end()

	b := c.CyclicBarrier("simulation", 2)
	arrivals := make(chan rsemaphore.Arrival)
	for range 2 {
		go func() {
			arrival, err := b.Await(context.Background())
			if err != nil {
				log.Print(err)
			}
			arrivals <- arrival
		}()
	}
	one, other := <-arrivals, <-arrivals
	fmt.Println(one.Generation, other.Generation, one.Last != other.Last)
	// Output:
	// 1 1 true
}
