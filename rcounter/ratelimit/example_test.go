package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// demo is a hub on an embedded server; a program would call pubsub.Dial with its server's address.
func demo() (h *pubsub.Hub, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	if h, err = pubsub.New(client, pubsub.Options{}); err != nil {
		log.Fatal(err)
	}
	return h, func() { h.Close(context.Background()); client.Close(); server.Close() }
}

// demoClient is a client on an embedded server, which may take its time on a busy machine.
func demoClient() (c *ratelimit.Client, end func()) {
	hub, end := demo()
	c, err := ratelimit.New(hub, ratelimit.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return c, end
}

// In front of a sale: every user may tap three times at once, and then once in a minute.
func ExampleLimiter_Allow() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	taps := c.Limiter("taps", ratelimit.LimiterOptions{Rate: 1, Per: time.Minute, Burst: 3})
	for range 4 {
		a, err := taps.Allow(ctx, "ann", 1)
		if err != nil {
			fmt.Println("503, try again:", err)
			continue
		}
		fmt.Println(a.Allowed, a.Remaining, a.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}

// A worker that may call a supplier ten times a second, together with all other workers, waits for its turn; it is
// told at once if that would come too late.
func ExampleLimiter_Wait() {
	c, end := demoClient()
	defer end()

	calls := c.Limiter("supplier", ratelimit.LimiterOptions{Rate: 10, Per: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		a, err := calls.Wait(ctx, "", 1)
		fmt.Println(a.Allowed, errors.Is(err, ratelimit.ErrLimited), a.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true false 0s
	// false true 6m0s
}

// A limiter of a client of its own, in front of a handler: ten calls a second for each user.
func Example() {
	hub, end := demo()
	defer end()
	limiters, err := ratelimit.New(hub, ratelimit.Options{KeyPrefix: "api:", CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer limiters.Close(ctx)

	calls := limiters.Limiter("calls", ratelimit.LimiterOptions{Rate: 10, Burst: 2})
	var a ratelimit.Admission
	for range 3 {
		if a, err = calls.Allow(ctx, "ann", 1); err != nil {
			log.Fatal(err)
		}
		fmt.Println(a.Allowed, a.Remaining)
	}
	fmt.Println("retry later:", a.RetryAfter > 0)
	// Output:
	// true 1
	// true 0
	// false 0
	// retry later: true
}

// An alarm for units that could not be given back. Here all is well, and nothing is printed.
func ExampleClient_observer() {
	hub, end := demo()
	defer end()
	events := map[ratelimit.EventKind]int{}
	var metrics, alarm ratelimit.Observer
	metrics = func(_ context.Context, e ratelimit.Event) { events[e.Kind]++ }
	alarm = func(_ context.Context, e ratelimit.Event) {
		if e.Kind == ratelimit.EventBackgroundFailed {
			fmt.Println("too few units of", e.Name, "pass:", e.Err)
		}
	}
	limiters, err := ratelimit.New(hub, ratelimit.Options{CallTimeout: 10 * time.Second, Observer: metrics.And(alarm)})
	if err != nil {
		log.Fatal(err)
	}
	defer limiters.Close(context.Background())
	ctx, giveUp := context.WithCancel(context.Background())
	mails := limiters.Limiter("mails", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	mails.Wait(ctx, "", 1)
	time.AfterFunc(10*time.Millisecond, giveUp)
	_, err = mails.Wait(ctx, "", 1)
	fmt.Println(errors.Is(err, context.Canceled), events[ratelimit.EventBackgroundFailed])
	// Output:
	// true 0
}
