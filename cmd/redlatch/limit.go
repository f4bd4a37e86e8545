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

const limitHelp = `limit takes units from a rate limit that all machines share, and says by its exit code whether they
may pass: 0 if they may, 1 if not. If not, nothing was taken, and the time until they could pass is written to stdout,
in seconds.

It does not wait, unless --wait says for how long. All programs that use a name must give it the same rate. --peek
takes nothing and shows where the limit stands; --reset lets it start again, as if no unit had passed.`

// limitOrders are the flags of limit.
type limitOrders struct {
	o                        ratelimit.LimiterOptions
	key, by                  string
	n                        int64
	wait                     time.Duration
	json, peek, reset, unset bool
	sets                     bool // --set was given
}

func (t *tool) limit() *cobra.Command {
	var l limitOrders
	c := &cobra.Command{
		Use:   "limit NAME --rate N [--per TIME]",
		Short: "take units from a rate limit; the exit code says whether they may pass",
		Long:  limitHelp + "\n\n" + exitHelp,
		Example: "  redlatch limit mails --rate 10 --per 1m && sendmail ...\n" +
			"  redlatch limit api --rate 100 --burst 20 --key \"$USER\" --wait 5s && curl ...\n" +
			"  redlatch limit api --rate 100 --burst 20 --key ann --peek",
		Args: exactly(1, "the name of a limit"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := keyname.Braced(t.server.prefix, args[0], "a limiter"); err != nil {
				return usage("name %q: %w", args[0], err)
			}
			if err := l.check(c.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error {
				return t.limitDo(ctx, red.Limiters().Limiter(args[0], l.o), &l)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&l.o.Rate, "rate", 0, "so many units pass in every --per")
	f.DurationVar(&l.o.Per, "per", time.Second, "the period of --rate")
	f.Int64Var(&l.o.Burst, "burst", 0, "so many units may pass at once after a pause; without it as many as --rate")
	f.StringVar(&l.key, "key", "", "each `key`, such as a user, has a limit of its own")
	f.Int64VarP(&l.n, "units", "n", 1, "take this `number` of units")
	f.DurationVarP(&l.wait, "wait", "w", 0, "wait for at most this `time`")
	f.BoolVar(&l.json, "json", false, "write JSON: an object")
	f.BoolVar(&l.peek, "peek", false, "take nothing, and show where the limit stands")
	f.BoolVar(&l.o.Stored, "stored", false,
		"go by the limit that is kept on the server, if one is; --rate counts otherwise")
	f.StringVar(&l.by, "set", "", "keep this limit on the server; `who` sets it, or why")
	f.BoolVar(&l.unset, "unset", false, "remove the limit that is kept on the server")
	f.BoolVar(&l.reset, "reset", false, "let the limit start again")
	return c
}

// check refuses flags that cannot be used, and fills in what was left out.
func (l *limitOrders) check(given func(flag string) bool) error {
	o := &l.o
	acts := 0
	for _, name := range []string{"peek", "reset", "set", "unset", "units"} {
		if given(name) {
			acts++
		}
	}
	if acts > 1 || acts == 1 && l.wait > 0 && !given("units") {
		return usage("--peek, --reset, --set, --unset and --units (with --wait) are alternatives")
	}
	l.sets = given("set")
	if l.unset && o.Rate == 0 {
		o.Rate = 1
	}
	if o.Burst == 0 {
		o.Burst = o.Rate
	}
	switch {
	case o.Rate < 1 || o.Rate > 1_000_000_000:
		return usage("--rate %d: must be from 1 to 1000000000", o.Rate)
	case o.Per < time.Microsecond || o.Per > 366*24*time.Hour:
		return usage("--per %v: must be from 1µs to 366 days", o.Per)
	case o.Burst < 1 || o.Burst > 1<<52/o.Per.Microseconds():
		return usage("--burst %d: must be at least 1, and with --per %v at most %d", o.Burst, o.Per,
			int64(1<<52)/o.Per.Microseconds())
	case l.n < 1 || l.n > o.Burst:
		return usage("-n %d: must be from 1 to --burst %d", l.n, o.Burst)
	case l.wait < 0:
		return usage("--wait %v: must not be negative", l.wait)
	}
	if err := keyname.Text("key", l.key); err != nil {
		return usage("--key %q: %w", l.key, err)
	}
	return nil
}

// limitDo does what the flags say.
func (t *tool) limitDo(ctx context.Context, l *ratelimit.Limiter, o *limitOrders) error {
	switch {
	case o.reset:
		return l.Reset(ctx, o.key)
	case o.unset:
		return l.Unset(ctx)
	case o.sets:
		return l.Set(ctx, o.by)
	case o.peek:
		return t.peek(ctx, l, o.key, o.o.Stored, o.json)
	}
	a, err := admit(ctx, l, o.key, o.n, o.wait)
	if err != nil {
		return err
	}
	if o.json {
		err = t.json(map[string]any{"allowed": a.Allowed, "retry_after_ms": a.RetryAfter.Milliseconds(),
			"remaining": a.Remaining, "reset_after_ms": a.ResetAfter.Milliseconds()})
	} else if !a.Allowed {
		fmt.Fprintf(t.out, "%.3f\n", a.RetryAfter.Seconds())
	}
	if !a.Allowed && err == nil {
		err = silent(exitConflict)
	}
	return err
}

// peek writes where a limit stands.
func (t *tool) peek(ctx context.Context, l *ratelimit.Limiter, key string, stored, asJSON bool) error {
	a, err := l.Peek(ctx, key)
	if err != nil {
		return err
	}
	s, err := l.Inspect(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return t.json(map[string]any{"remaining": a.Remaining, "reset_after_ms": a.ResetAfter.Milliseconds(),
			"stored": s.Stored, "stored_rate": s.Rate, "stored_by": s.By})
	}
	fmt.Fprintf(t.out, "%d could pass now; all of them in %.3f s\n", a.Remaining, a.ResetAfter.Seconds())
	if s.Stored {
		fmt.Fprintf(t.out, "on the server: %d in %v, set by %q %v ago%s\n", s.Rate, s.Per, s.By, s.Age.Round(time.Second),
			map[bool]string{false: "; --stored goes by it"}[stored])
	}
	return nil
}

// admit takes the units now, or within wait.
func admit(ctx context.Context, l *ratelimit.Limiter, key string, n int64,
	wait time.Duration) (ratelimit.Admission, error) {
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
