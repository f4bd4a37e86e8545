package contract_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func counterScenes(c *rcounter.Client) []hostileCase {
	bg := context.Background()
	top := int64(1000)
	return []hostileCase{{"counted", func(t testing.TB, name string) ([]act, func()) {
		x := c.Counter(name, rcounter.CounterOptions{Initial: 3, Max: &top, TTL: time.Minute})
		require.NoError(t, err1(x.Incr(bg)))
		_, _, err := x.AddOnce(bg, "before", 5)
		require.NoError(t, err)
		return append(counterActs(x),
			does("AddOnce again", func(ctx context.Context) error { return err2(x.AddOnce(ctx, "before", 5)) }),
			returns("Incr unbounded", c.Counter(name, rcounter.CounterOptions{}).Incr),
		), func() {}
	}, func(ctx context.Context, name string) error {
		return err1(c.Counter(name, rcounter.CounterOptions{Max: &top}).Incr(ctx))
	}}}
}

func limitScenes(c *ratelimit.Client, o ratelimit.LimiterOptions) []hostileCase {
	bg := context.Background()
	acts := func(name string, r *ratelimit.Reservation, charges ...*ratelimit.Charge) []act {
		x := c.Limiter(name, o)
		all := limiterActs(c, x)
		for i, h := range charges {
			all = append(all, does("Settle", func(ctx context.Context) error { return h.Settle(ctx, int64(8*i)) }))
		}
		if o.Algorithm == ratelimit.GCRA {
			all = append(all, reserveAct(x))
		}
		if r != nil {
			all = append(all, act{name: "Cancel", parts: true, do: returns("", r.Cancel).do})
		}
		if o.Stored {
			all = append(all, storedActs(x)...)
		}
		return append(all, does("Reset", func(ctx context.Context) error { return x.Reset(ctx, "k") }),
			limiterActs(c, x)[2])
	}
	works := func(ctx context.Context, name string) error {
		x := c.Limiter(name, o)
		if err := x.Reset(ctx, "k"); err != nil {
			return err
		}
		return err1(x.Allow(ctx, "k", 1))
	}
	scenes := []hostileCase{{"taken", func(t testing.TB, name string) ([]act, func()) {
		x := c.Limiter(name, o)
		require.NoError(t, err1(x.Allow(bg, "k", 5)))
		if o.Stored {
			require.NoError(t, x.Set(bg, "me"))
		}
		return acts(name, nil), func() {}
	}, works}, {"charged", func(t testing.TB, name string) ([]act, func()) {
		less, _, err := c.Limiter(name, o).Charge(bg, "k", 3)
		require.NoError(t, err)
		more, _, err := c.Limiter(name, o).Charge(bg, "k", 3)
		require.NoError(t, err)
		return acts(name, nil, less, more), func() {}
	}, works}}
	if o.Algorithm == ratelimit.GCRA {
		scenes = append(scenes, hostileCase{"reserved", func(t testing.TB, name string) ([]act, func()) {
			x := c.Limiter(name, o)
			require.NoError(t, err1(x.Allow(bg, "k", 10)))
			require.NoError(t, err1(x.Reserve(bg, "k", 5)))
			r := redistest.NoError(x.Reserve(bg, "k", 5))(t)
			require.NoError(t, err1(x.Reserve(bg, "k", 5)))
			return acts(name, r), func() {}
		}, works})
	}
	return scenes
}

func packetScenes(c *redpacket.Client) []hostileCase {
	bg := context.Background()
	works := func(ctx context.Context, name string) error {
		if _, err := c.Packet(name).Inspect(ctx); err != nil {
			return err
		}
		return err1(c.Packet(name).Grab(ctx, "eve"))
	}
	make := func(openFor time.Duration, refund bool) func(t testing.TB, name string) ([]act, func()) {
		return func(t testing.TB, name string) ([]act, func()) {
			x := c.Packet(name)
			require.NoError(t, err1(x.Send(bg,
				redpacket.Spec{Total: 100, Shares: 5, OpenFor: openFor, Retain: time.Minute, Ledger: true})))
			x.Grab(bg, "bob")
			if refund {
				redistest.Eventually(t, 10*time.Second, "refunded", func() bool { return err1(x.Refund(bg)) == nil })
			}
			return packetActs(x), func() {}
		}
	}
	return []hostileCase{{"open", make(time.Minute, false), works}, {"refunded", make(time.Millisecond, true), works}}
}

// counterKinds are the objects of package rcounter and those below it.
func counterKinds() map[string]scenes {
	limits := func(o ratelimit.LimiterOptions) scenes {
		return func(_ *hostileRig, a actors) []hostileCase { return limitScenes(a.other.Limiters(), o) }
	}
	return map[string]scenes{
		"counter": func(_ *hostileRig, a actors) []hostileCase { return counterScenes(a.other.Counters()) },
		"limiter": limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Burst: 10, MaxWait: time.Hour}),
		"stored":  limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Burst: 10, MaxWait: time.Hour, Stored: true}),
		"sliding": limits(ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Algorithm: ratelimit.SlidingWindow}),
		"fixed":   limits(ratelimit.LimiterOptions{Rate: 10, Unit: ratelimit.Day, Algorithm: ratelimit.FixedWindow}),
		"packet":  func(_ *hostileRig, a actors) []hostileCase { return packetScenes(a.other.RedPackets()) },
		"sale":    func(_ *hostileRig, a actors) []hostileCase { return saleScenes(a.other) },
	}
}

func saleScenes(red *redlatch.Client) []hostileCase {
	works := func(ctx context.Context, name string) error {
		return err1(red.Sales().Sale(name).Buy(ctx, stock.Order{User: "zoe"}))
	}
	return []hostileCase{{"open", func(t testing.TB, name string) ([]act, func()) {
		x := sale(t, red, name)
		require.NoError(t, err1(x.Buy(t.Context(), stock.Order{User: "ann"})))
		require.NoError(t, err1(x.Buy(t.Context(), stock.Order{Anyone: true})))
		require.NoError(t, err1(x.Cancel(t.Context(), "never made")))
		return saleActs(x), func() {}
	}, works}}
}
