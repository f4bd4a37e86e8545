// Command cron-once runs a job once for each tick of a schedule, although several machines have the same schedule and
// their clocks differ.
//
//	go -C docs/examples run ./cron-once                      embedded server, nothing else needed
//	go -C docs/examples run ./cron-once -redis 127.0.0.1:6379
//
// A lock alone is not enough. The job takes a moment, and then the lock is free again. A machine whose clock is behind
// comes to the same tick later, and runs the job again. The first part shows that.
//
// In the second part the machines release the lock with UnlockAfter. It keeps the lock taken for most of a period after
// it was acquired, which is longer than the clocks differ. That also holds if the process exits. The job holds two
// locks together (rlock.Multi), so that it also excludes another job that uses the same report.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rlock"
)

const (
	machines = 4
	ticks    = 4
	period   = 2 * time.Second
	skew     = 400 * time.Millisecond // how far the machines' clocks are apart
	minimum  = period - (period-skew)/2
)

func main() {
	option := stage.Redis()
	fmt.Printf("%d machines, %d ticks of %v, clocks up to %v apart; runs in each tick:\n", machines, ticks, period, skew)
	plain := schedule(option, "Unlock when done", func(ctx context.Context, h *rlock.Hold) error { return h.Unlock(ctx) })
	kept := schedule(option, fmt.Sprintf("UnlockAfter(%v)", minimum),
		func(ctx context.Context, h *rlock.Hold) error { return h.UnlockAfter(ctx, minimum) })
	fmt.Printf("the job ran %d times with Unlock, and %d times with UnlockAfter; it was due %d times\n", plain, kept,
		ticks)
	if kept != ticks {
		log.Fatal("cron-once: that is not once for each tick")
	}
}

// schedule has all machines follow the schedule, each by its own clock, and returns how often the job ran.
func schedule(option rueidis.ClientOption, how string, unlock func(context.Context, *rlock.Hold) error) (total int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	runs := make([]int, ticks)
	start := time.Now().Add(300 * time.Millisecond)
	for m := range machines {
		behind := skew * time.Duration(m) / (machines - 1)
		all.Go(func() {
			err := machine(context.Background(), option, start.Add(behind), unlock, func(tick int) {
				mu.Lock()
				defer mu.Unlock()
				runs[tick]++
			})
			if err != nil {
				log.Fatal("cron-once: ", err)
			}
		})
	}
	all.Wait()
	fmt.Printf("%-18s", how)
	for _, n := range runs {
		fmt.Printf(" | %-*s", machines, strings.Repeat("*", n))
		total += n
	}
	fmt.Println()
	return total
}

// machine waits for each tick by its own clock, and runs the job if no other machine has the locks.
func machine(ctx context.Context, option rueidis.ClientOption, start time.Time,
	unlock func(context.Context, *rlock.Hold) error, job func(tick int)) error {
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	locks := red.Locks()
	both, err := rlock.Multi(locks.Reentrant("{cron}:nightly-report"), locks.Reentrant("{cron}:report-file"))
	if err != nil {
		return err
	}
	for tick := range ticks {
		time.Sleep(time.Until(start.Add(time.Duration(tick) * period)))
		hold, err := both.TryLock(ctx, 0, 0)
		switch {
		case errors.Is(err, redlatch.ErrNotAcquired):
			continue // another machine runs it, or has run it
		case err != nil:
			return err
		}
		job(tick)
		if err := unlock(ctx, hold); err != nil {
			return err
		}
	}
	return nil
}
