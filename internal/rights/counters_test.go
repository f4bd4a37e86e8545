package rights_test

import (
	"context"
	"errors"
	"time"

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
	_, e = limiters.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "ann", N: 1}, ratelimit.Take{Limiter: limiters.Limiter("a day", ratelimit.LimiterOptions{Rate: 5, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day}), Key: "ann", N: 1})
	must("allow all", e)
	must("set", l.Set(ctx, "ann"))
	_, e = l.Inspect(ctx)
	must("inspect", e)
	must("unset", l.Unset(ctx))
	must("reset", l.Reset(ctx, "ann"))
}
