//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

const limitHelp = `limit takes units from a rate limit that all machines share, and says by its exit code whether they may pass: 0 if they may, 1 if not.
If not, nothing was taken, and the time until they could pass is written to stdout, in seconds.

It does not wait, unless --wait says for how long. All programs that use a name must give it the same rate.`

func (t *tool) limit() *cobra.Command {
	var o ratelimit.LimiterOptions
	var key string
	var n int64
	var wait time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "limit NAME --rate N [--per TIME]",
		Short: "take units from a rate limit; the exit code says whether they may pass",
		Long:  limitHelp + "\n\n" + exitHelp,
		Example: "  redlatch limit mails --rate 10 --per 1m && sendmail ...\n" +
			"  redlatch limit api --rate 100 --burst 20 --key \"$USER\" --wait 5s && curl ...",
		Args: exactly(1, "the name of a limit"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := keyname.Braced(t.server.prefix, args[0], "a limiter"); err != nil {
				return usage("name %q: %w", args[0], err)
			}
			switch {
			case o.Rate < 1 || o.Rate > 1_000_000_000:
				return usage("--rate %d: must be from 1 to 1000000000", o.Rate)
			case o.Per < time.Microsecond || o.Per > 366*24*time.Hour:
				return usage("--per %v: must be from 1µs to 366 days", o.Per)
			case o.Burst < 1 || o.Burst > 1<<52/o.Per.Microseconds():
				return usage("--burst %d: must be at least 1, and with --per %v at most %d", o.Burst, o.Per, int64(1<<52)/o.Per.Microseconds())
			case n < 1 || n > o.Burst:
				return usage("-n %d: must be from 1 to --burst %d", n, o.Burst)
			case wait < 0:
				return usage("--wait %v: must not be negative", wait)
			}
			if err := keyname.Text("key", key); err != nil {
				return usage("--key %q: %w", key, err)
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error {
				a, err := admit(ctx, red.Limiters().Limiter(args[0], o), key, n, wait)
				if err != nil {
					return err
				}
				if asJSON {
					err = t.json(map[string]any{"allowed": a.Allowed, "retry_after_ms": a.RetryAfter.Milliseconds(), "remaining": a.Remaining, "reset_after_ms": a.ResetAfter.Milliseconds()})
				} else if !a.Allowed {
					fmt.Fprintf(t.out, "%.3f\n", a.RetryAfter.Seconds())
				}
				if !a.Allowed && err == nil {
					err = silent(exitConflict)
				}
				return err
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&o.Rate, "rate", 0, "so many units pass in every --per")
	f.DurationVar(&o.Per, "per", time.Second, "the period of --rate")
	f.Int64Var(&o.Burst, "burst", 1, "so many units may pass at once after a pause")
	f.StringVar(&key, "key", "", "each `key`, such as a user, has a limit of its own")
	f.Int64VarP(&n, "units", "n", 1, "take this `number` of units")
	f.DurationVarP(&wait, "wait", "w", 0, "wait for at most this `time`")
	f.BoolVar(&asJSON, "json", false, "write JSON: an object")
	return c
}

// admit takes the units now, or within wait.
func admit(ctx context.Context, l *ratelimit.Limiter, key string, n int64, wait time.Duration) (ratelimit.Admission, error) {
	if wait == 0 {
		return l.Allow(ctx, key, n)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a, err := l.Wait(ctx, key, n)
	if errors.Is(err, ratelimit.ErrLimited) {
		return a, nil
	}
	a.Allowed = err == nil
	return a, err
}
