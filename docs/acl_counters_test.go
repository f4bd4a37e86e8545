package docs_test

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/rcounter"
)

// packets uses all of a red packet.
func packets(ctx context.Context, counters *rcounter.Client, must func(what string, e error)) {
	p := counters.RedPacket("gift")
	_, e := p.Send(ctx, rcounter.PacketSpec{Total: 10, Shares: 3, OpenFor: time.Millisecond, Retain: time.Minute})
	must("send", e)
	p = counters.RedPacket("present")
	_, e = p.Send(ctx, rcounter.PacketSpec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute})
	must("send", e)
	_, e = p.Grab(ctx, "ann")
	must("grab", e)
	_, e = p.Status(ctx)
	must("packet status", e)
	for _, e := range p.Shares(ctx) {
		must("shares", e)
	}
	for {
		_, e = counters.RedPacket("gift").Refund(ctx)
		var early *rcounter.NotEndedError
		if !errors.As(e, &early) {
			break
		}
		time.Sleep(early.Left)
	}
	must("refund", e)
}
