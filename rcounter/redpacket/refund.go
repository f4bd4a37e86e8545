package redpacket

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Refund takes back what is left when the packet's time is over: Share.Cents, which is 0 if nothing is left. From then
// on no user can take a share, and the packet's own books are closed: what was taken and what was refunded add up to
// the total.
//
// The refund happens once. A later call, because the reply was lost or because another worker refunded, returns the
// same amount as Replayed. Pay it out by an entry that is unique over (packet, epoch), and not only when the Outcome is
// Granted: the process that got that answer may have died before it paid. Refund before the packet's retention is over:
// afterwards the server has forgotten the packet, and the error is ErrNoPacket.
//
// Errors: ErrNotEnded before the end, even if all shares are taken. ErrNoPacket. The others as for Grab. One round
// trip, repeated until answered.
func (p *Packet) Refund(ctx context.Context) (_ Share, err error) {
	defer edge(&err)
	if err := p.usable(); err != nil {
		return Share{}, err
	}
	return p.refund(ctx, session.CallID())
}

var refundScript = script.Load("redpacket_refund", files, "refund")

// refund runs refund.lua.
func (p *Packet) refund(ctx context.Context, id string) (Share, error) {
	v, unconfirmed := p.sure(ctx, 3, refundScript, id, p.c.calls.Mark())
	switch {
	case v == nil:
		return Share{}, unconfirmed
	case v[0] == 1:
		return Share{}, fmt.Errorf("%w: %q, for another %v", ErrNotEnded, p.name, script.Duration(v[2]))
	case v[0] == 2:
		return Share{}, fmt.Errorf("%w: %q", ErrNoPacket, p.keys[0])
	case v[0] != 0:
		return Share{}, p.verdict(v)
	case len(v) != 5:
		return Share{}, malformed("refund", p.keys[0])
	case unconfirmed != nil:
		return Share{}, unconfirmed
	}
	s := Share{Outcome: Replayed, Epoch: v[1], Cents: v[2], Left: v[3]}
	if v[4] == 1 {
		s.Outcome = Granted
	}
	return s, nil
}
