package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// demo is a hub on an embedded server; a program would call pubsub.Dial with its server's address.
func demo() (h *pubsub.Hub, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
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
	c, err := ratelimit.New(hub, ratelimit.Options{CallTimeout: 10 * time.Second, AllowTimeout: 10 * time.Second})
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

	calls := c.Limiter("supplier", ratelimit.LimiterOptions{Rate: 10, Per: time.Hour, Burst: 1})
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
	limiters, err := ratelimit.New(hub,
		ratelimit.Options{KeyPrefix: "api:", CallTimeout: 10 * time.Second, AllowTimeout: 10 * time.Second})
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
	events := map[redlatch.EventKind]int{}
	var alarm ratelimit.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		if events[e.Kind]++; e.Kind == redlatch.EventBackgroundFailed {
			fmt.Println("too few units of", e.Name, "pass:", e.Err)
		}
		return ctx
	}
	limiters, err := ratelimit.New(hub, ratelimit.Options{CallTimeout: 10 * time.Second, Observer: alarm})
	if err != nil {
		log.Fatal(err)
	}
	defer limiters.Close(context.Background())
	ctx, giveUp := context.WithCancel(context.Background())
	mails := limiters.Limiter("mails", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	mails.Wait(ctx, "", 1)
	time.AfterFunc(10*time.Millisecond, giveUp)
	_, err = mails.Wait(ctx, "", 1)
	fmt.Println(errors.Is(err, context.Canceled), events[redlatch.EventBackgroundFailed])
	// Output:
	// true 0
}

// A user's request is admitted by two limits at once. The one that refuses it costs the other nothing.
func ExampleClient_AllowAll() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	names := []string{"an hour", "a day"}
	hour := c.Limiter("hour", ratelimit.LimiterOptions{Rate: 3, Per: time.Hour})
	day := c.Limiter("day",
		ratelimit.LimiterOptions{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year, Zone: time.UTC})
	var d ratelimit.Decision
	var err error
	for range 3 {
		d, err = c.AllowAll(ctx, ratelimit.Take{Limiter: hour, Key: "ann", N: 1},
			ratelimit.Take{Limiter: day, Key: "ann", N: 1})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed)
		for i, a := range d.Each {
			if !a.Allowed {
				fmt.Println("refused by the limit of", names[i])
			}
		}
	}
	a, err := hour.Peek(ctx, "ann")
	fmt.Println(a.Remaining, err)
	n, window := day.Quota()
	fmt.Println(day.Name(), n, "in", window)
	// Output:
	// true
	// true
	// false
	// refused by the limit of a day
	// 1 <nil>
	// day 2 in 8760h0m0s
}

// A batch job takes as many units as there are, and an operator lets it start again.
func ExampleLimiter_AllowAtMost() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	rows := c.Limiter("rows", ratelimit.LimiterOptions{Rate: 100, Per: time.Hour, Algorithm: ratelimit.SlidingWindow})
	for range 3 {
		a, err := rows.AllowAtMost(ctx, "", 60)
		fmt.Println(a.Allowed, a.N, err)
	}
	fmt.Println(rows.Reset(ctx, ""))
	a, err := rows.AllowAtMost(ctx, "", 60)
	fmt.Println(a.Allowed, a.N, err)
	// Output:
	// true 60 <nil>
	// true 40 <nil>
	// false 0 <nil>
	// <nil>
	// true 60 <nil>
}

// A turn is taken, looked at, and given back: the next that reserves gets it.
func ExampleLimiter_Reserve() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	calls := c.Limiter("supplier", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	var r *ratelimit.Reservation
	var err error
	for range 3 {
		r, err = calls.Reserve(ctx, "", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.N(), "in", r.Delay().Round(time.Hour))
		if r.Delay() > 90*time.Minute { // too late
			back, err := r.Cancel(ctx)
			fmt.Println("given back:", back, err)
		}
	}
	r, err = calls.Reserve(ctx, "", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.N(), "in", r.Delay().Round(time.Hour))
	// Output:
	// 1 in 0s
	// 1 in 1h0m0s
	// 1 in 2h0m0s
	// given back: true <nil>
	// 1 in 2h0m0s
}

// An operator lowers a limit during an incident, in all processes, and says why.
func ExampleLimiter_Set() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	program := ratelimit.LimiterOptions{Rate: 100, Stored: true}
	lower := c.Limiter("api", ratelimit.LimiterOptions{Rate: 10})
	if err := lower.Set(ctx, "ann: incident 7"); err != nil {
		log.Fatal(err)
	}
	a, err := c.Limiter("api", program).Allow(ctx, "bob", 1)
	fmt.Println(a.Remaining, err)

	var s ratelimit.LimitState
	s, err = lower.Inspect(ctx)
	fmt.Println(s.Rate, s.Per, "by", s.By, err)
	fmt.Println(lower.Unset(ctx))
	// Output:
	// 9 <nil>
	// 10 1s by ann: incident 7 <nil>
	// <nil>
}

// A crowd of a process shares calls, and each caller has an answer of its own.
func ExampleLimiter_Allow_crowd() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	api := c.Limiter("api", ratelimit.LimiterOptions{Rate: 20, Per: time.Hour})
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			a, err := api.Allow(ctx, "ann", 1)
			if err != nil {
				log.Fatal(err)
			}
			passed.Add(a.N)
		})
	}
	all.Wait()
	fmt.Println(passed.Load())
	// Output: 20
}

// While Redis is down, each of four processes lets a quarter of the rate pass by itself.
func ExamplePolicy() {
	hub, end := demo()
	defer end()
	limiters, err := ratelimit.New(hub,
		ratelimit.Options{CallTimeout: 10 * time.Second, AllowTimeout: 10 * time.Second,
			Observer: func(ctx context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventDegraded {
					fmt.Println(e.Name, e.Outcome, e.Err)
				}
				return ctx
			}})
	if err != nil {
		log.Fatal(err)
	}
	defer limiters.Close(context.Background())
	api := limiters.Limiter("api", ratelimit.LimiterOptions{Rate: 100, WhenDown: ratelimit.Local, Share: .25})
	a, err := api.Allow(context.Background(), "ann", 1)
	fmt.Println(a.Allowed, a.Remaining, a.Down, err)
	fmt.Println(ratelimit.GCRA, ratelimit.Day, ratelimit.Local)
	// Output:
	// true 99 <nil> <nil>
	// GCRA Day Local
}
