//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter"
)

const benchHelp = `bench measures what this machine gets from your server: cycles of lock and unlock, and INCR by a
Counter, with 1 and with 64 goroutines, each with its floor, what the same number of the smallest calls costs through
the same client. Each goroutine has names of its own, so nothing waits. It is a quick look: four measurements with
their floors, --for each. The server is busy meanwhile.

Its names begin with redlatch_bench: (after --prefix); what it leaves ends within a minute.`

// measurement is a line of bench.
type measurement struct {
	What       string  `json:"what"`
	Goroutines int     `json:"goroutines"`
	Rate       float64 `json:"per_second"`
	Floor      float64 `json:"floor_per_second"`
}

func (t *tool) bench() *cobra.Command {
	var length time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "bench", Short: "measure locks and counters against your server", Long: benchHelp, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if length < 10*time.Millisecond || length > 10*time.Minute {
				return usage("--for %v: must be from 10ms to 10m", length)
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error {
				all, err := measure(ctx, red, length)
				if err != nil {
					return err
				}
				if asJSON {
					return t.json(all)
				}
				w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
				fmt.Fprintln(w, "\tGOROUTINES\tA SECOND\tFLOOR\tOF THE FLOOR\t")
				for _, m := range all {
					fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.2f\t\n", m.What, m.Goroutines, m.Rate, m.Floor, m.Rate/m.Floor)
				}
				return w.Flush()
			})
		},
	}
	c.Flags().DurationVar(&length, "for", time.Second, "measure for this `time` each")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON: an array with an object for each line")
	return c
}

func measure(ctx context.Context, red *redlatch.Client, length time.Duration) (all []measurement, err error) {
	client := red.Hub().Client()
	name := "redlatch_bench:" + rand.Text()
	// a script as small as one can be, with a key, so that it goes where the lock is
	smallest := rueidis.NewLuaScript("return redis.call('EXISTS', KEYS[1])")
	for _, n := range []int{1, 64} {
		var names []string
		for i := range n {
			names = append(names, name+":"+strconv.Itoa(i))
		}
		acts := []struct {
			what        string
			act, lowest func(i int) error
		}{
			{"lock and unlock", func(i int) error {
				h, err := red.Locks().Reentrant(names[i]).TryLock(ctx, 0, 0)
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			}, func(i int) error {
				return errors.Join(smallest.Exec(ctx, client, names[i:i+1], nil).Error(),
					smallest.Exec(ctx, client, names[i:i+1], nil).Error())
			}},
			{"counter Incr", func(i int) error {
				_, err := red.Counters().Counter(names[i]+":n", rcounter.CounterOptions{}).Incr(ctx)
				return err
			}, func(i int) error {
				return client.Do(ctx, client.B().Incr().Key(names[i]+":f").Build()).Error()
			}},
		}
		for _, a := range acts {
			m := measurement{What: a.what, Goroutines: n}
			if m.Rate, err = rate(ctx, n, length, a.act); err == nil {
				m.Floor, err = rate(ctx, n, length, a.lowest)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
		for _, k := range names {
			client.Do(ctx, client.B().Del().Key(k+":n").Build())
			client.Do(ctx, client.B().Del().Key(k+":f").Build())
		}
	}
	return all, ctx.Err()
}

// rate is how often a second n goroutines together do act.
func rate(ctx context.Context, n int, length time.Duration, act func(i int) error) (float64, error) {
	if err := act(0); err != nil { // connections and scripts are there
		return 0, err
	}
	var done atomic.Int64
	var first atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil && first.Load() == nil {
				if err := act(i); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := first.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(began).Seconds(), ctx.Err()
}
