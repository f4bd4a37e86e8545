//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

var (
	algorithms = []string{string(ratelimit.GCRA), string(ratelimit.SlidingWindow), string(ratelimit.FixedWindow)}
	units      = []string{string(ratelimit.Minute), string(ratelimit.Hour), string(ratelimit.Day), string(ratelimit.Week),
		string(ratelimit.Month), string(ratelimit.Year)}
)

// limitOrders are the flags of limit.
type limitOrders struct {
	o                        ratelimit.LimiterOptions
	key, by                  string
	json, peek, reset, unset bool
	sets                     bool // --set was given
	kept                     bool // without --rate: by the limit on the server
}

func (t *tool) limit() *cobra.Command {
	l := limitOrders{o: ratelimit.LimiterOptions{Algorithm: ratelimit.GCRA}}
	c := &cobra.Command{
		Use:   "limit NAME {--peek | --reset | --set WHO | --unset} [--rate N [--per TIME]]",
		Short: "show, restart, store or remove a rate limit",
		Args:  names(cobra.ExactArgs(1), t.stockName),
		RunE: func(c *cobra.Command, args []string) error {
			if err := l.check(c.Flags().Changed); err != nil {
				return err
			}
			return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
				of := red.Limiters().Limiter(args[0], l.o)
				switch {
				case l.reset:
					return of.Reset(ctx, l.key)
				case l.unset:
					return of.Unset(ctx)
				case l.sets:
					return of.Set(ctx, l.by)
				}
				return t.peek(ctx, of, &l)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&l.o.Rate, "rate", 0, "`units` per period (see --per)")
	f.DurationVar(&l.o.Per, "per", 0, "`period` of --rate (default 1s)")
	f.Int64Var(&l.o.Burst, "burst", 0, "burst size: `units` that may pass at once after a pause (default --rate)")
	f.Var(choice[ratelimit.Algorithm]{&l.o.Algorithm, algorithms}, "algorithm",
		"`algorithm`: GCRA, SlidingWindow or FixedWindow; required by --set")
	f.Var(choice[ratelimit.Unit]{&l.o.Unit, units}, "unit",
		"calendar `unit` of a FixedWindow: Minute, Hour, Day, Week, Month or Year")
	f.Func("zone", "time `zone` of --unit, such as Europe/Berlin (default UTC)", func(name string) (err error) {
		if l.o.Zone, err = time.LoadLocation(name); err == nil && l.o.Zone == time.Local {
			err = errors.New("differs from machine to machine")
		}
		return err
	})
	f.StringVar(&l.key, "key", "", "`key` to limit, such as a user; each key has a limit of its own")
	f.BoolVar(&l.json, "json", false, "print JSON: an object")
	f.BoolVar(&l.peek, "peek", false, "show the remaining units, and take none")
	f.BoolVar(&l.o.Stored, "stored", false,
		"use the limit that is stored on the server, if any; otherwise --rate applies")
	f.StringVar(&l.by, "set", "", "store this limit on the server; `who` sets it, or why")
	f.BoolVar(&l.unset, "unset", false, "remove the limit that is stored on the server")
	f.BoolVar(&l.reset, "reset", false, "restart the limit, as if no unit had been taken")
	_ = c.RegisterFlagCompletionFunc("algorithm", cobra.FixedCompletions(algorithms, noFiles))
	_ = c.RegisterFlagCompletionFunc("unit", cobra.FixedCompletions(units, noFiles))
	c.MarkFlagsOneRequired("peek", "reset", "set", "unset")
	c.MarkFlagsMutuallyExclusive("peek", "reset", "set", "unset")
	return c
}

// check refuses flags that cannot be used together, but for those of the limit, which the library does.
func (l *limitOrders) check(given func(flag string) bool) error {
	l.sets = given("set")
	if l.sets && !(given("rate") && given("algorithm")) { // another way to count would start all keys anew
		return usage("--set needs --rate and --algorithm, the same as in the programs")
	}
	if !given("rate") { // no verb needs it, or it is on the server
		l.kept = l.peek
		l.o.Rate, l.o.Stored = 1, l.kept
	}
	if err := keyname.Text("key", l.key); err != nil {
		return usage("--key %q: %w", l.key, err)
	}
	return nil
}

// peek writes where a limit stands.
func (t *tool) peek(ctx context.Context, l *ratelimit.Limiter, o *limitOrders) error {
	s, err := l.Inspect(ctx)
	if err != nil {
		return err
	}
	if o.kept && !s.Stored {
		return coded{exitConflict,
			fmt.Errorf("no limit is stored on the server for %q: give the programs' limit by --rate", l.Name())}
	}
	a, err := l.Peek(ctx, o.key)
	if err != nil {
		return err
	}
	charges, err := l.OpenCharges(ctx, o.key)
	if err != nil {
		return err
	}
	if o.json {
		return t.json(map[string]any{"remaining": a.Remaining, "reset_after_ms": a.ResetAfter.Milliseconds(),
			"open_charges": charges,
			"stored":       s.Stored, "stored_rate": s.Rate, "stored_by": s.By, "stored_algorithm": s.Algorithm,
			"stored_per_ms": s.Per.Milliseconds(), "stored_unit": s.Unit, "stored_zone": s.Zone})
	}
	fmt.Fprintf(t.out, "%d remaining; full again in %.3f s\n", a.Remaining, a.ResetAfter.Seconds())
	if charges > 0 {
		fmt.Fprintf(t.out, "%d charges are not settled; each counts at its estimate\n", charges)
	}
	if s.Stored {
		per := s.Per.String()
		if s.Algorithm == ratelimit.FixedWindow {
			per = fmt.Sprintf("%s (%s)", s.Unit, s.Zone)
		}
		fmt.Fprintf(t.out, "stored on the server: %d per %s, set by %q %v ago%s\n", s.Rate, per, s.By,
			s.Age.Round(time.Second), map[bool]string{false: "; use it by --stored"}[o.o.Stored])
	}
	return nil
}

// isLimit reports whether a limit is kept under a name, or units count that were taken of it without a key.
func isLimit(ctx context.Context, c rueidis.Client, full string) (bool, error) {
	key, size := keyname.Prefix("rc", full), strconv.Itoa(len(full))
	n, err := c.Do(ctx, c.B().Exists().Key(key+":l"+size, key+":q"+size).Build()).AsInt64()
	return n > 0, err
}
