package rights_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// useOfPackets uses all of a red packet.
func useOfPackets(ctx context.Context, packets *redpacket.Client) {
	p := packets.Packet("gift")
	redistest.Got(p.Send(ctx, redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Millisecond, Retain: time.Minute}))
	p = packets.Packet("present")
	redistest.Got(p.Send(ctx,
		redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true}))
	redistest.Got(p.Grab(ctx, "ann"))
	redistest.Got(p.Ledger(ctx, 100, func(context.Context, []redpacket.Entry) error { return nil }))
	redistest.Got(p.Inspect(ctx))
	for _, e := range p.Shares(ctx) {
		redistest.Must(e)
	}
	var e error
	for {
		_, e = packets.Packet("gift").Refund(ctx)
		if !errors.Is(e, redpacket.ErrNotEnded) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	redistest.Must(e)
}

// useOfLimits uses all of a rate limiter, with lines in which somebody leaves.
func useOfLimits(ctx context.Context, limiters *ratelimit.Client) {
	l := limiters.Limiter("calls", ratelimit.LimiterOptions{Rate: 1, Per: 500 * time.Millisecond, Stored: true})
	redistest.Got(l.Allow(ctx, "ann", 1))
	first := redistest.Got(l.Reserve(ctx, "ann", 1))
	last := redistest.Got(l.Reserve(ctx, "ann", 1))
	for _, r := range []*ratelimit.Reservation{first, last} {
		if r != nil {
			redistest.Got(r.Cancel(ctx))
		}
	}
	redistest.Got(limiters.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "ann", N: 1},
		ratelimit.Take{Limiter: limiters.Limiter("a day",
			ratelimit.LimiterOptions{Rate: 5, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day}), Key: "ann", N: 1}))
	for i, o := range []ratelimit.LimiterOptions{{Rate: 100, Per: time.Minute},
		{Rate: 100, Algorithm: ratelimit.SlidingWindow, Per: time.Minute}} {
		for _, used := range []int64{1, 3, 9} {
			charge, _, e := limiters.Limiter(fmt.Sprint("tokens", i), o).Charge(ctx, "ann", 3)
			redistest.Must(e)
			redistest.Must(charge.Settle(ctx, used))
		}
	}
	redistest.Got(l.OpenCharges(ctx, "ann"))
	redistest.Must(l.Set(ctx, "ann"))
	redistest.Got(l.Inspect(ctx))
	redistest.Must(l.Unset(ctx))
	redistest.Must(l.Reset(ctx, "ann"))

	many := limiters.Limiter("many", ratelimit.LimiterOptions{Rate: 100, Per: 2 * time.Second})
	redistest.Got(many.Allow(ctx, "bob", 100))
	first = redistest.Got(many.Reserve(ctx, "bob", 100))
	for range 2 {
		redistest.Got(many.Reserve(ctx, "bob", 100))
	}
	if first != nil {
		redistest.Got(first.Cancel(ctx))
	}
	for range 4 { // time passes over the hole that was left, so units pass beside the line
		time.Sleep(50 * time.Millisecond)
		redistest.Got(many.Allow(ctx, "bob", 1))
	}
	redistest.Got(many.Peek(ctx, "bob"))
}

// useOfCounters uses all of a counter.
func useOfCounters(ctx context.Context, counters *rcounter.Client) {
	for _, name := range []string{"a", "d{1}"} {
		k := counters.Counter(name+":count", rcounter.CounterOptions{})
		for _, d := range []int64{1, -1, 7} {
			redistest.Got(k.Add(ctx, d))
		}
		redistest.Got(k.Get(ctx))
		_, _, e := k.AddOnce(ctx, "order", 1)
		redistest.Must(e)
		redistest.Got(k.Cached(ctx, time.Minute))
		bounded := counters.Counter(name+":bounded",
			rcounter.CounterOptions{Initial: 5, Max: rcounter.Bound(9), TTL: time.Minute})
		redistest.Got(bounded.Incr(ctx))
		redistest.Must(bounded.Set(ctx, 3))
		redistest.Got(bounded.CompareAndSet(ctx, 3, 4))
	}
}
