package redlatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
)

func counterScenes(c *rcounter.Client) []hostileCase {
	bg := context.Background()
	top := int64(1000)
	return []hostileCase{{"counted", func(t testing.TB, name string) ([]act, func()) {
		x := c.Counter(name, rcounter.CounterOptions{Initial: 3, Max: &top, TTL: time.Minute})
		require.NoError(t, second(x.Incr(bg)))
		_, _, err := x.AddOnce(bg, "before", 5)
		require.NoError(t, err)
		once := func(id string) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				_, _, err := x.AddOnce(ctx, id, 5)
				return err
			}
		}
		return []act{
			does("Get", func(ctx context.Context) error { return second(x.Get(ctx)) }),
			does("Cached", func(ctx context.Context) error { return second(x.Cached(ctx, time.Millisecond)) }),
			does("AddOnce", once("now")),
			does("AddOnce again", once("before")),
			does("Incr", func(ctx context.Context) error { return second(x.Incr(ctx)) }),
			does("Add", func(ctx context.Context) error { return second(x.Add(ctx, -2)) }),
			does("CompareAndSet", func(ctx context.Context) error { return second(x.CompareAndSet(ctx, 9, 10)) }),
			does("Set", func(ctx context.Context) error { return x.Set(ctx, 9) }),
			does("Incr unbounded", func(ctx context.Context) error {
				return second(c.Counter(name, rcounter.CounterOptions{}).Incr(ctx))
			}),
		}, func() {}
	}, func(ctx context.Context, name string) error {
		return second(c.Counter(name, rcounter.CounterOptions{Max: &top}).Incr(ctx))
	}}}
}

func limitScenes(c *ratelimit.Client, o ratelimit.LimiterOptions) []hostileCase {
	bg := context.Background()
	acts := func(name string, r *ratelimit.Reservation) []act {
		x := c.Limiter(name, o)
		all := []act{
			does("Peek", func(ctx context.Context) error { return second(x.Peek(ctx, "k")) }),
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("Allow", func(ctx context.Context) error { return second(x.Allow(ctx, "k", 2)) }),
			does("AllowAtMost", func(ctx context.Context) error { return second(x.AllowAtMost(ctx, "k", 2)) }),
			does("AllowAll", func(ctx context.Context) error {
				return second(c.AllowAll(ctx, ratelimit.Take{Limiter: x, Key: "k", N: 1},
					ratelimit.Take{Limiter: x, Key: "other", N: 1}))
			}),
			waitsFor("Wait", func(ctx context.Context) error { return second(x.Wait(ctx, "k", 5)) }),
		}
		if o.Algorithm == ratelimit.GCRA {
			all = append(all, act{name: "Reserve", parts: true, do: func(ctx context.Context) error {
				r, err := x.Reserve(ctx, "k", 3)
				if err == nil {
					_, err = r.Cancel(ctx)
				}
				return err
			}})
		}
		if r != nil {
			all = append(all, act{name: "Cancel", parts: true, do: func(ctx context.Context) error {
				return second(r.Cancel(ctx))
			}})
		}
		if o.Stored {
			all = append(all, does("Set", func(ctx context.Context) error {
				return x.Set(ctx, "me")
			}), does("Unset", func(ctx context.Context) error { return x.Unset(ctx) }))
		}
		return append(all, does("Reset", func(ctx context.Context) error {
			return x.Reset(ctx, "k")
		}), does("Allow again", func(ctx context.Context) error { return second(x.Allow(ctx, "k", 2)) }))
	}
	works := func(ctx context.Context, name string) error {
		x := c.Limiter(name, o)
		if err := x.Reset(ctx, "k"); err != nil {
			return err
		}
		return second(x.Allow(ctx, "k", 1))
	}
	scenes := []hostileCase{{"taken", func(t testing.TB, name string) ([]act, func()) {
		x := c.Limiter(name, o)
		require.NoError(t, second(x.Allow(bg, "k", 5)))
		if o.Stored {
			require.NoError(t, x.Set(bg, "me"))
		}
		return acts(name, nil), func() {}
	}, works}}
	if o.Algorithm == ratelimit.GCRA {
		scenes = append(scenes, hostileCase{"reserved", func(t testing.TB, name string) ([]act, func()) {
			x := c.Limiter(name, o)
			require.NoError(t, second(x.Allow(bg, "k", 10)))
			require.NoError(t, second(x.Reserve(bg, "k", 5)))
			r, err := x.Reserve(bg, "k", 5)
			require.NoError(t, err)
			require.NoError(t, second(x.Reserve(bg, "k", 5)))
			return acts(name, r), func() {}
		}, works})
	}
	return scenes
}

func packetScenes(c *redpacket.Client) []hostileCase {
	bg := context.Background()
	acts := func(name string) []act {
		x := c.Packet(name)
		return []act{
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("Shares", func(ctx context.Context) error {
				for _, err := range x.Shares(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			}),
			does("Grab", func(ctx context.Context) error { return second(x.Grab(ctx, "ann")) }),
			does("Grab again", func(ctx context.Context) error { return second(x.Grab(ctx, "bob")) }),
			does("Ledger", func(ctx context.Context) error {
				return second(x.Ledger(ctx, 10, func(context.Context, []redpacket.Entry) error { return nil }))
			}),
			does("Refund", func(ctx context.Context) error { return second(x.Refund(ctx)) }),
			does("Send", func(ctx context.Context) error {
				return second(x.Send(ctx, redpacket.Spec{Total: 100, Shares: 5, OpenFor: time.Minute, Retain: time.Minute}))
			}),
		}
	}
	works := func(ctx context.Context, name string) error {
		if _, err := c.Packet(name).Inspect(ctx); err != nil {
			return err
		}
		return second(c.Packet(name).Grab(ctx, "eve"))
	}
	make := func(openFor time.Duration, refund bool) func(t testing.TB, name string) ([]act, func()) {
		return func(t testing.TB, name string) ([]act, func()) {
			x := c.Packet(name)
			require.NoError(t, second(x.Send(bg,
				redpacket.Spec{Total: 100, Shares: 5, OpenFor: openFor, Retain: time.Minute, Ledger: true})))
			x.Grab(bg, "bob")
			if refund {
				redistest.Eventually(t, 10*time.Second, "refunded", func() bool { return second(x.Refund(bg)) == nil })
			}
			return acts(name), func() {}
		}
	}
	return []hostileCase{{"open", make(time.Minute, false), works}, {"refunded", make(time.Millisecond, true), works}}
}

func TestHostileValuesOfCountersAreErrWrongType(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	ends := func(t *testing.T, c closer, err error) {
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c.Close(ctx)
		})
	}
	limits := func(o ratelimit.LimiterOptions) func(t *testing.T, s *hostileRig) []hostileCase {
		return func(t *testing.T, s *hostileRig) []hostileCase {
			c, err := ratelimit.New(s.hub, ratelimit.Options{CallTimeout: calls, AllowTimeout: calls, Logger: quiet})
			ends(t, c, err)
			return limitScenes(c, o)
		}
	}
	kinds := map[string]func(t *testing.T, s *hostileRig) []hostileCase{
		"counter": func(t *testing.T, s *hostileRig) []hostileCase {
			c, err := rcounter.New(s.hub, rcounter.Options{CallTimeout: calls, Logger: quiet})
			ends(t, c, err)
			return counterScenes(c)
		},
		"limiter": limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Burst: 10, MaxWait: time.Hour}),
		"stored":  limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Burst: 10, MaxWait: time.Hour, Stored: true}),
		"sliding": limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Algorithm: ratelimit.SlidingWindow}),
		"fixed":   limits(ratelimit.LimiterOptions{Rate: 10, Unit: ratelimit.Day, Algorithm: ratelimit.FixedWindow}),
		"packet": func(t *testing.T, s *hostileRig) []hostileCase {
			c, err := redpacket.New(s.hub, redpacket.Options{CallTimeout: calls, Logger: quiet})
			ends(t, c, err)
			return packetScenes(c)
		},
	}
	redistest.SideBySide(t, kinds,
		func(t *testing.T, kind string, scenes func(t *testing.T, s *hostileRig) []hostileCase) {
			s := newStage(t)
			defer s.report(t)
			s.suffer(t, kind, scenes(t, s), redistest.Sized(40, 30, 1))
		})
}
