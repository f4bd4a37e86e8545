package rights_test

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// useOfPackets uses all of a red packet.
func useOfPackets(ctx context.Context, packets *redpacket.Client, must func(what string, e error)) {
	p := packets.Packet("gift")
	_, e := p.Send(ctx, redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Millisecond, Retain: time.Minute})
	must("send", e)
	p = packets.Packet("present")
	_, e = p.Send(ctx, redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true})
	must("send", e)
	_, e = p.Grab(ctx, "ann")
	must("grab", e)
	_, e = p.Ledger(ctx, 100, func(context.Context, []redpacket.Entry) error { return nil })
	must("packet ledger", e)
	_, e = p.Inspect(ctx)
	must("packet status", e)
	for _, e := range p.Shares(ctx) {
		must("shares", e)
	}
	for {
		_, e = packets.Packet("gift").Refund(ctx)
		if !errors.Is(e, redpacket.ErrNotEnded) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	must("refund", e)
}

// useOfLimits uses all of a rate limiter, with a line in which somebody leaves.
func useOfLimits(ctx context.Context, limiters *ratelimit.Client, must func(what string, e error)) {
	l := limiters.Limiter("calls", ratelimit.LimiterOptions{Rate: 1, Per: 500 * time.Millisecond, Stored: true})
	_, e := l.Allow(ctx, "ann", 1)
	must("allow", e)
	first, e := l.Reserve(ctx, "ann", 1)
	must("reserve", e)
	last, e := l.Reserve(ctx, "ann", 1)
	must("reserve", e)
	for _, r := range []*ratelimit.Reservation{first, last} {
		if r != nil {
			_, e = r.Cancel(ctx)
			must("cancel", e)
		}
	}
	_, e = limiters.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "ann", N: 1},
		ratelimit.Take{Limiter: limiters.Limiter("a day",
			ratelimit.LimiterOptions{Rate: 5, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day}), Key: "ann", N: 1})
	must("allow all", e)
	must("set", l.Set(ctx, "ann"))
	_, e = l.Inspect(ctx)
	must("inspect", e)
	must("unset", l.Unset(ctx))
	must("reset", l.Reset(ctx, "ann"))
}

// useOfCounters uses all of a counter.
func useOfCounters(ctx context.Context, counters *rcounter.Client, must func(what string, e error)) {
	for _, name := range []string{"a", "d{1}"} {
		k := counters.Counter(name+":count", rcounter.CounterOptions{})
		for _, d := range []int64{1, -1, 7} {
			_, e := k.Add(ctx, d)
			must("add", e)
		}
		_, e := k.Get(ctx)
		must("get", e)
		_, _, e = k.AddOnce(ctx, "order", 1)
		must("add once", e)
		_, e = k.Cached(ctx, time.Minute)
		must("cached", e)
		bounded := counters.Counter(name+":bounded",
			rcounter.CounterOptions{Initial: 5, Max: rcounter.Bound(9), TTL: time.Minute})
		_, e = bounded.Incr(ctx)
		must("bounded add", e)
		must("set", bounded.Set(ctx, 3))
		_, e = bounded.CompareAndSet(ctx, 3, 4)
		must("compare and set", e)
	}
}
