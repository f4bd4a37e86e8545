package rsemaphore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// At most five of all processes call the service at the same time.
func Example() {
	server := miniredis.NewMiniRedis() // yours is a Redis or Valkey
	server.ClockTTL(true)
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
	c, err := rsemaphore.New(hub, rsemaphore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	err = c.Semaphore("fragile-service", 5).Do(context.Background(), 1, func(ctx context.Context) error {
		fmt.Println("five at a time get here") // ctx ends if the permit is lost: work under it
		return nil
	})
	fmt.Println("released:", err == nil)
	// Output:
	// five at a time get here
	// released: true
}

// demo is a client on a server of its own. Its call timeout is generous so that a busy machine changes no output.
func demo() (c *rsemaphore.Client, end func()) {
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
	c, err = rsemaphore.New(hub,
		rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: time.Minute,
			Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		// An Example that gives permits back by their ids alone leaves the client to think that they are held.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
		hub.Close(context.Background())
		server.Close()
	}
}

// A heavy job takes several permits, all or none.
func ExampleSemaphore_Acquire() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	gpus := c.Semaphore("gpus", 8)
	permit, err := gpus.Acquire(ctx, 6) // renewed until Release, however long the job takes
	if err != nil {
		log.Fatal(err)
	}
	available, _ := gpus.Available(ctx)
	fmt.Println("holds", len(permit.IDs()), "available", available)
	work := permit.Context(ctx) // ends with the permit
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(context.Cause(work))
	// Output:
	// holds 6 available 2
	// released
}

// A request that cannot wait is told when to come again.
func ExampleSemaphore_TryAcquire() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	exports := c.Semaphore("exports", 1)
	running, err := exports.TryAcquire(ctx, 1, 0, 10*time.Minute) // not renewed: done by then, or it is lost
	if err != nil {
		log.Fatal(err)
	}
	defer running.Release(ctx)

	_, err = exports.TryAcquire(ctx, 1, 20*time.Millisecond, 10*time.Minute)
	var busy *rsemaphore.NotAcquiredError
	switch {
	case errors.As(err, &busy):
		fmt.Println("one is free at the latest in", busy.Lease.Round(time.Minute)) // these leases are not renewed
	case err != nil:
		log.Fatal(err)
	}
	// Output:
	// one is free at the latest in 10m0s
}

// The limit is changed while it is in use. Permits that are held stay held.
func ExampleSemaphore_Resize() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	calls := c.Semaphore("calls", 5)
	permit, err := calls.Acquire(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	before, err := calls.Resize(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	available, _ := calls.Available(ctx)
	fmt.Println("before", before, "available", available)
	permit.Release(ctx)
	available, _ = calls.Available(ctx)
	fmt.Println("after the release", available)
	// Output:
	// before 5 available -1
	// after the release 2
}

// Two versions of a program run at once while it is deployed, each with its own limit. The newer one's counts for both.
func ExampleSemaphore_WithRevision() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	before := c.Semaphore("calls", 5).WithRevision(1)
	now := c.Semaphore("calls", 8).WithRevision(2)
	for _, version := range []*rsemaphore.Semaphore{before, now, before} {
		if err := version.Do(ctx, 1, func(context.Context) error { return nil }); err != nil {
			log.Fatal(err)
		}
		available, _ := version.Available(ctx)
		fmt.Println(available)
	}
	// Output:
	// 5
	// 8
	// 8
}

// Inspect lists the permits that are out, with their holders and leases.
func ExampleSemaphore_Inspect() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	calls := c.Semaphore("calls", 5)
	permit, err := calls.WithLabel("host-7 import").Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)

	show := func(state rsemaphore.SemaphoreState) {
		slices.SortFunc(state.Permits, func(a, b rsemaphore.Holder) int { return cmp.Compare(a.Label, b.Label) })
		for _, held := range state.Permits {
			fmt.Println(held.Label, "for up to", held.Lease.Round(time.Minute))
		}
		fmt.Println(state.Available, "of", state.Capacity, "available")
	}
	state, err := calls.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	show(state)
	// Output:
	// host-7 import for up to 1m0s
	// 4 of 5 available
}

// Everybody must bring the same capacity: two configurations of one limit are a mistake that should be seen.
func ExampleSemaphore_Acquire_mismatch() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	permit, err := c.Semaphore("calls", 5).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	_, err = c.Semaphore("calls", 50).Acquire(ctx, 1)
	fmt.Println(err)
	// Output:
	// rsemaphore: capacity mismatch: "calls" has 5, not 50
}

// Do releases the permit when the search returns, also when it fails.
func ExampleSemaphore_Do() {
	c, end := demo()
	defer end()
	ctx := context.Background()
	errNoIndex := errors.New("no index")

	searches := c.Semaphore("searches", 5)
	err := searches.Do(ctx, 1, func(ctx context.Context) error {
		return errNoIndex // ctx ends if the permit is lost: search under it
	})
	fmt.Println("the search failed:", err)
	available, err := searches.Available(ctx)
	fmt.Println("available", available, err)
	// Output:
	// the search failed: no index
	// available 5 <nil>
}

// A dashboard shows how many licences are free.
func ExampleSemaphore_Available() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	licences := c.Semaphore("licences", 20)
	permit, err := licences.Acquire(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	available, err := licences.Available(ctx)
	fmt.Println(available, "licences are free", err)
	// Output: 17 licences are free <nil>
}

// A label tells an operator which job holds a permit.
func ExampleSemaphore_WithLabel() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	gpus := c.Semaphore("gpus", 8)
	permit, err := gpus.WithLabel("training run 12").Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	state, err := gpus.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, held := range state.Permits {
		fmt.Println("a GPU is held by", held.Label)
	}
	// Output: a GPU is held by training run 12
}

// A process that was handed a job looks whether the job's permit is still held.
func ExampleSemaphore_InspectIDs() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	encoders := c.Semaphore("encoders", 4)
	permit, err := encoders.WithLabel("video 7").TryAcquire(ctx, 1, 0, time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	ids := permit.IDs() // handed over with the job
	seen, err := encoders.InspectIDs(ctx, ids...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen[0].Label, "may be encoded for", seen[0].Lease.Round(time.Minute))

	permit.Release(ctx)
	seen, err = encoders.InspectIDs(ctx, ids...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", seen[0].Lease > 0)
	// Output:
	// video 7 may be encoded for 1h0m0s
	// held: false
}

// A request that was cancelled still releases its permit.
func ExamplePermit_Release() {
	c, end := demo()
	defer end()
	request, cancel := context.WithCancel(context.Background())

	exports := c.Semaphore("exports", 2)
	permit, err := exports.Acquire(request, 1)
	if err != nil {
		log.Fatal(err)
	}
	cancel() // the client has gone
	fmt.Println("released:", permit.Release(request))
	available, err := exports.Available(context.Background())
	fmt.Println("available", available, err)
	// Output:
	// released: <nil>
	// available 2 <nil>
}

// An export that is larger than expected asks for more time before its lease is over.
func ExamplePermit_Extend() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	permit, err := c.Semaphore("exports", 2).TryAcquire(ctx, 1, 0, 10*time.Minute) // 10 min, and not renewed
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	fmt.Println("time left:", time.Until(permit.Until()).Round(time.Minute))
	if err := permit.Extend(ctx, time.Hour); err != nil {
		log.Fatal(err) // errors.Is(err, redlatch.ErrLost): another export may run in its place
	}
	fmt.Println("time left:", time.Until(permit.Until()).Round(time.Minute))
	// Output:
	// time left: 10m0s
	// time left: 1h0m0s
}

// Work runs under the permit's context, which ends when an operator takes the permit away.
func ExamplePermit_Context() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	encoders := c.Semaphore("encoders", 4)
	permit, err := encoders.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	work := permit.Context(ctx)
	if err := encoders.ReleaseIDs(ctx, permit.IDs()...); err != nil { // the operator
		log.Fatal(err)
	}
	permit.Extend(ctx, time.Minute) // asks the server and so finds out; otherwise the next renewal does
	<-work.Done()
	fmt.Println("stops, because the permit was lost:", errors.Is(context.Cause(work), redlatch.ErrLost))
	// Output: stops, because the permit was lost: true
}
