package rcounter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/rcounter"
)

// In front of a sale: every user may tap three times at once, and then once in a minute.
func ExampleRateLimiter_Allow() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	taps := c.RateLimiter("taps", rcounter.RateLimiterOptions{Rate: 1, Per: time.Minute, Burst: 3})
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
func ExampleRateLimiter_Wait() {
	c, end := demoClient()
	defer end()

	calls := c.RateLimiter("supplier", rcounter.RateLimiterOptions{Rate: 10, Per: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(calls.Wait(ctx, "", 1))
	err := calls.Wait(ctx, "", 1)
	var limited *rcounter.RateLimitedError
	fmt.Println(errors.As(err, &limited), limited.RetryAfter.Round(time.Minute))
	// Output:
	// <nil>
	// true 6m0s
}
