package redpacket

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/script"
)

// Refund takes back what is left when the packet's time is over: Share.Cents, which is 0 if nothing is left. From then
// on no user can take a share, and the packet's own books are closed: the shares that were taken and the refund
// add up to the total.
//
// The refund happens once. A later call, because the reply was lost or because another worker refunded, returns the
// same amount, with Again. Pay it out by an entry that is unique over (packet, epoch), and not only without Again: the
// process that got that answer may have died before it paid. Refund before the packet's retention is over: afterwards
// the server has forgotten the packet, and the error is ErrNoPacket.
//
// Errors: ErrNotEnded before the end, even if all shares are taken. The others as for Grab. One round trip, repeated
// until answered.
func (p *Packet) Refund(ctx context.Context) (share Share, err error) {
	defer edge(&err)
	if err := p.usable(); err != nil {
		return Share{}, err
	}
	v, err := p.run(ctx, p.c.calls.Confirmed(p.call(refundScript, p.c.calls.Mark())))
	switch {
	case v == nil:
		return Share{}, err
	case v[0] == codeNotEnded: // a refusal needs no replica
		return Share{}, fmt.Errorf("%w: %q, for another %v", ErrNotEnded, p.name, script.Duration(v[1]))
	case v[0] != codeOK || len(v) != 5:
		return Share{}, p.malformed()
	case err != nil:
		return Share{}, err
	}
	return Share{Epoch: v[1], Again: v[2] == 1, Left: v[3], Cents: v[4]}, nil
}

var refundScript = script.Load("redpacket_refund", files, "refund")
