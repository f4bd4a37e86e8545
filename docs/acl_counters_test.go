package docs_test

import (
	"context"
	"errors"
	"time"

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
