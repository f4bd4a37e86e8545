package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// option is that of your server; here of one inside the process.
var option rueidis.ClientOption

func serve() (stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		log.Fatal(err)
	}
	option = rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true}
	return server.Close
}

func Example() {
	defer serve()()

	ctx := context.Background()
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)
	report := red.Locks().Reentrant("nightly-report").WithWait(10 * time.Second)
	err = report.Do(ctx, func(ctx context.Context) error {
		fmt.Println("one process at a time gets here") // ctx ends if the lock is lost: work under it
		return nil
	})
	if err != nil {
		log.Fatal(err) // errors.Is(err, redlatch.ErrNotAcquired): another process held it the whole time
	}
	fmt.Println("released")
	// Output:
	// one process at a time gets here
	// released
}

// At shutdown Close ends the contexts of all holds, and waits until the work has stopped and released them.
func ExampleClient_Close() {
	defer serve()()

	ctx := context.Background()
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	started := make(chan struct{})
	go red.Locks().Reentrant("nightly-report").Do(ctx, func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		fmt.Println("the report stops")
		return ctx.Err()
	})
	<-started
	limit, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fmt.Println("closed:", red.Close(limit))
	// Output:
	// the report stops
	// closed: <nil>
}

// Admit limits each user to 10 requests a second and 1,000 a day, across all processes. While Redis is down, it admits
// every request.
func Admit(ctx context.Context, limits *ratelimit.Client,
	user string) (allowed bool, retryAfter time.Duration, err error) {
	second := limits.Limiter("second", ratelimit.LimiterOptions{Rate: 10, WhenDown: ratelimit.Open})
	day := limits.Limiter("day",
		ratelimit.LimiterOptions{Rate: 1000, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day, WhenDown: ratelimit.Open})
	d, err := limits.AllowAll(ctx, ratelimit.Take{Limiter: second, Key: user, N: 1},
		ratelimit.Take{Limiter: day, Key: user, N: 1})
	return d.Allowed, d.RetryAfter, err // not allowed: status 429, with Retry-After
}

func Example_limits() {
	defer serve()()

	slow := func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second } // a busy machine
	red, err := redlatch.Open(context.Background(), option,
		redlatch.Options{CallTimeout: 10 * time.Second, Limiters: slow})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(context.Background())
	for n := 0; ; n++ {
		allowed, retryAfter, err := Admit(context.Background(), red.Limiters(), "ann")
		if err != nil {
			log.Fatal(err)
		}
		if !allowed {
			fmt.Println("ten passed, or more:", n >= 10, "and later again:", retryAfter > 0)
			return
		}
	}
	// Output: ten passed, or more: true and later again: true
}
