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
//
// The program ends with status 1 if the second part did not run the job exactly once for each tick.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

type config struct {
	redis           string
	machines, ticks int
	period, skew    time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.redis, "redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	flag.IntVar(&c.machines, "machines", 4, "machines with the same schedule")
	flag.IntVar(&c.ticks, "ticks", 5, "how often the job is due")
	flag.DurationVar(&c.period, "period", time.Second, "time from tick to tick")
	flag.DurationVar(&c.skew, "skew", 300*time.Millisecond, "how far the machines' clocks are apart")
	flag.Parse()
	if err := run(context.Background(), c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cron-once:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, out io.Writer) error {
	if c.machines < 2 || c.ticks < 1 || c.skew <= 0 || c.period < 2*c.skew {
		return fmt.Errorf("-machines is %d, must be 2 or more; -ticks is %d, must be 1 or more; -period is %v, must be at "+
			"least twice -skew (%v), which must be more than 0", c.machines, c.ticks, c.period, c.skew)
	}
	if c.redis == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		server.ClockTTL(true)
		c.redis = server.Addr()
	}
	fmt.Fprintf(out, "%d machines, %d ticks of %v, clocks up to %v apart\n", c.machines, c.ticks, c.period, c.skew)
	plain, err := c.schedule(ctx, out, "Unlock when done", func(ctx context.Context, h *rlock.Hold) error {
		return h.Unlock(ctx)
	})
	if err != nil {
		return err
	}
	least := c.period - (c.period-c.skew)/2
	kept, err := c.schedule(ctx, out, fmt.Sprintf("UnlockAfter(%v)", least),
		func(ctx context.Context, h *rlock.Hold) error { return h.UnlockAfter(ctx, least) })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the job ran %d times with Unlock, %d times with UnlockAfter; it was due %d times\n", plain, kept,
		c.ticks)
	if kept != c.ticks {
		return fmt.Errorf("ran %d times, due %d times", kept, c.ticks)
	}
	return nil
}

// schedule has all machines follow the schedule, each by its own clock, and returns how often the job ran.
func (c config) schedule(ctx context.Context, out io.Writer, how string,
	unlock func(context.Context, *rlock.Hold) error) (total int, err error) {
	runs := make([]int, c.ticks)
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, c.machines)
	start := time.Now().Add(100 * time.Millisecond)
	for m := range c.machines {
		behind := c.skew * time.Duration(m) / time.Duration(c.machines-1)
		wg.Go(func() {
			errs[m] = c.machine(ctx, start.Add(behind), unlock, func(tick int) {
				mu.Lock()
				defer mu.Unlock()
				runs[tick]++
			})
		})
	}
	wg.Wait()
	var line strings.Builder
	for _, n := range runs {
		fmt.Fprintf(&line, " %-*s", c.machines, strings.Repeat("*", n))
		total += n
	}
	fmt.Fprintf(out, "%-22s |%s|  runs in each tick\n", how, line.String())
	return total, errors.Join(errs...)
}

// machine waits for each tick by its own clock, and runs the job if no other machine has the locks.
func (c config) machine(ctx context.Context, start time.Time, unlock func(context.Context, *rlock.Hold) error,
	job func(tick int)) error {
	option := rueidis.ClientOption{InitAddress: []string{c.redis}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(option, redlatch.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	locks := red.Locks()
	both, err := rlock.Multi(locks.Reentrant("{cron}:nightly-report"), locks.Reentrant("{cron}:report-file"))
	if err != nil {
		return err
	}
	for tick := range c.ticks {
		time.Sleep(time.Until(start.Add(time.Duration(tick) * c.period)))
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
