package rsemaphore_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A permit that is over closes Done, and says why it is over.
func ExamplePermit() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	permit, err := c.Semaphore("slots", 5).TryAcquire(ctx, 1, 0, 30*time.Second) // 30 s, and not renewed
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(permit.Name(), len(permit.IDs()), permit.Err(), time.Until(permit.Until()) > 20*time.Second)
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	<-permit.Done()
	fmt.Println(permit.Err())
	// Output:
	// slots 1 <nil> true
	// released
}

// The permit of an exclusive semaphore has a token. The resource keeps the greatest that it has seen.
func ExampleSemaphore_Fenced() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	printer := c.Semaphore("printer", 1).Fenced()
	seen := int64(0)
	for range 2 {
		permit, err := printer.Acquire(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		token, _ := permit.Token()
		fmt.Println("admitted:", token > seen)
		seen = token
		if err := permit.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}

	_, err := c.Semaphore("printers", 4).Fenced().Acquire(ctx, 1)
	fmt.Println(errors.Is(err, redlatch.ErrInvalidOption)) // of four permits none is stale
	// Output:
	// admitted: true
	// admitted: true
	// true
}

// A job is handed to another process with the ids of its permits. That process keeps them, and looks at them.
func ExampleSemaphore_ExtendIDs() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	slots := c.Semaphore("slots", 5)
	permit, err := slots.WithLabel("job-17").TryAcquire(ctx, 1, 0, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	ids := permit.IDs() // goes along with the job
	if err := slots.ExtendIDs(ctx, time.Hour, ids...); err != nil {
		log.Fatal(err)
	}
	seen, err := slots.InspectIDs(ctx, ids...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen[0].Label, "for up to", seen[0].Lease.Round(time.Minute))
	fmt.Println(slots.ReleaseIDs(ctx, ids...))
	// Output:
	// job-17 for up to 1h0m0s
	// <nil>
}

// A worker that joins brings capacity along, and takes it away when it leaves, whatever others do meanwhile.
func ExampleSemaphore_AddPermits() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	jobs := c.Semaphore("jobs", 8)
	joined, err := jobs.AddPermits(ctx, 4)
	if err != nil {
		log.Fatal(err)
	}
	left, err := jobs.AddPermits(ctx, -4)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(joined, left)
	// Output:
	// 12 8
}

// Another process, or an operator, gives back a permit by its id. The ids are those that Inspect shows.
func ExampleSemaphore_ReleaseIDs() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	slots := c.Semaphore("slots", 5)
	permit, err := slots.TryAcquire(ctx, 2, 0, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(permit.IDs()), slots.ReleaseIDs(ctx, permit.IDs()...))
	err = slots.ReleaseIDs(ctx, permit.IDs()...)
	fmt.Println("not held any more:", errors.Is(err, redlatch.ErrLost))
	// Output:
	// 2 <nil>
	// not held any more: true
}

// Java sets the capacity of a semaphore that is shared with Redisson, and no Go process objects.
func ExampleSemaphore_Shared() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	if _, err := c.Semaphore("slots", 8).Shared().Resize(ctx, 8); err != nil { // as Redisson's setPermits
		log.Fatal(err)
	}
	slots := c.Semaphore("slots", 5).Shared()
	permit, err := slots.Acquire(ctx, 7)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	available, _ := slots.Available(ctx)
	fmt.Println(available)
	// Output:
	// 1
}

// Metrics: how many permits of each name this process holds, and of how many acquisitions they are.
func ExampleObserver() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(context.Background())
	held := expvar.Map{}
	var observer rsemaphore.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		switch e.Kind {
		case redlatch.EventAcquired:
			held.Add(e.Name, e.N)
		case redlatch.EventReleased:
			held.Add(e.Name, -e.N)
		}
		alarms := []redlatch.EventKind{redlatch.EventRenewed, redlatch.EventEnded}
		if e.Err != nil && slices.Contains(alarms, e.Kind) {
			log.Println(e.Name, e.Kind, e.Err)
		}
		return ctx
	}
	c, err := rsemaphore.New(hub, rsemaphore.Options{CallTimeout: 10 * time.Second, Observer: observer})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	err = c.Semaphore("gpus", 8).Do(context.Background(), 6, func(context.Context) error {
		fmt.Println(held.String(), c.Stats().Held)
		return nil
	})
	fmt.Println(held.String(), err)
	// Output:
	// {"gpus": 6} 1
	// {"gpus": 0} <nil>
}
