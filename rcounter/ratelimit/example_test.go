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
	// Output:
	// true
	// true
	// false
	// refused by the limit of a day
	// 1 <nil>
}

// A page shows how many uploads a user has left today, and takes none.
func ExampleLimiter_Peek() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	uploads := c.Limiter("uploads", ratelimit.LimiterOptions{Rate: 20, Per: 24 * time.Hour})
	if _, err := uploads.Allow(ctx, "ann", 5); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		a, err := uploads.Peek(ctx, "ann")
		fmt.Println(a.Remaining, "left", err)
	}
	// Output:
	// 15 left <nil>
	// 15 left <nil>
}

// A handler tells its clients in a header how many requests may pass in how many seconds.
func ExampleLimiter_Quota() {
	c, end := demoClient()
	defer end()

	api := c.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Burst: 50})
	n, window := api.Quota()
	fmt.Printf("RateLimit-Policy: %q;q=%d;w=%.0f\n", api.Name(), n, window.Seconds())
	// Output:
	// RateLimit-Policy: "api";q=50;w=5
}

// A batch job takes as many units as there are.
func ExampleLimiter_AllowAtMost() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	rows := c.Limiter("rows", ratelimit.LimiterOptions{Rate: 100, Per: time.Hour, Algorithm: ratelimit.SlidingWindow})
	for range 3 {
		a, err := rows.AllowAtMost(ctx, "", 60)
		fmt.Println(a.Allowed, a.N, err)
	}
	// Output:
	// true 60 <nil>
	// true 40 <nil>
	// false 0 <nil>
}

// After a call with the help desk a user may log in again at once.
func ExampleLimiter_Reset() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	logins := c.Limiter("logins", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	for range 2 {
		a, err := logins.Allow(ctx, "ann", 1)
		fmt.Println(a.Allowed, err)
	}
	if err := logins.Reset(ctx, "ann"); err != nil {
		log.Fatal(err)
	}
	a, err := logins.Allow(ctx, "ann", 1)
	fmt.Println(a.Allowed, err)
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
}

// Callers get turns that are an hour apart, and learn how long they have to wait.
func ExampleLimiter_Reserve() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	calls := c.Limiter("supplier", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	for range 3 {
		r, err := calls.Reserve(ctx, "", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.N(), "in", r.Delay().Round(time.Hour))
	}
	// Output:
	// 1 in 0s
	// 1 in 1h0m0s
	// 1 in 2h0m0s
}

// A caller whose turn would come too late gives it back, and the next caller gets it.
func ExampleReservation_Cancel() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	calls := c.Limiter("supplier", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	for _, caller := range []string{"ann", "bob", "cid"} {
		r, err := calls.Reserve(ctx, "", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(caller, "in", r.Delay().Round(time.Hour))
		if caller == "bob" {
			back, err := r.Cancel(ctx)
			fmt.Println("given back:", back, err)
		}
	}
	// Output:
	// ann in 0s
	// bob in 1h0m0s
	// given back: true <nil>
	// cid in 1h0m0s
}

// An operator lowers a limit during an incident, in all processes.
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
	// Output:
	// 9 <nil>
}

// A colleague asks which limit applies now, and who has set it.
func ExampleLimiter_Inspect() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	if err := c.Limiter("api", ratelimit.LimiterOptions{Rate: 10}).Set(ctx, "ann: incident 7"); err != nil {
		log.Fatal(err)
	}
	now, err := c.Limiter("api", ratelimit.LimiterOptions{Rate: 100, Stored: true}).Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(now.Rate, "in", now.Per, "set by", now.By)
	// Output:
	// 10 in 1s set by ann: incident 7
}

// After the incident the limit of the programs applies again.
func ExampleLimiter_Unset() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	api := c.Limiter("api", ratelimit.LimiterOptions{Rate: 100, Stored: true})
	if err := c.Limiter("api", ratelimit.LimiterOptions{Rate: 10}).Set(ctx, "ann: incident 7"); err != nil {
		log.Fatal(err)
	}
	if err := api.Unset(ctx); err != nil {
		log.Fatal(err)
	}
	now, err := api.Inspect(ctx)
	fmt.Println("set by an operator:", now.Stored, "rate:", now.Rate, err)
	// Output:
	// set by an operator: false rate: 100 <nil>
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

// How many tokens a language model uses is known afterwards. So an estimate is charged, and settled at what was used.
func ExampleLimiter_Charge() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	tokens := c.Limiter("tokens", ratelimit.LimiterOptions{Rate: 10_000, Per: time.Hour})
	charge, a, err := tokens.Charge(ctx, "acme", 4_000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Allowed, a.Remaining)
	used := int64(1_200) // says the model
	if err := charge.Settle(ctx, used); err != nil {
		log.Fatal(err) // or call it again
	}
	a, err = tokens.Peek(ctx, "acme")
	fmt.Println((a.Remaining+50)/100*100, err)
	// Output:
	// true 6000
	// 8800 <nil>
}

// A request and its tokens are charged together, all or none, and settled in one step.
func ExampleClient_ChargeAll() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	requests := c.Limiter("requests", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour})
	tokens := c.Limiter("tokens", ratelimit.LimiterOptions{Rate: 1_000, Per: time.Hour})
	for range 2 {
		charge, d, err := c.ChargeAll(ctx, ratelimit.Take{Limiter: requests, Key: "acme", N: 1},
			ratelimit.Take{Limiter: tokens, Key: "acme", N: 800})
		fmt.Println(d.Allowed, err)
		if err := charge.Settle(ctx, 1, 300); err != nil { // does nothing if the charge was refused
			log.Fatal(err)
		}
	}
	// Output:
	// true <nil>
	// false <nil>
}
