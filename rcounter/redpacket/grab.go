package redpacket

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Share is the answer to a Grab or a Refund, and one line of Shares.
type Share struct {
	User string // empty for a Refund
	// Outcome is Granted the first time and Replayed from then on. SoldOut: no share is left. NotOpen: there is no such
	// packet. Ended: the packet's time is over.
	Outcome Outcome
	// Ordinal is the place in the order of taking, from 1, if Won. 0 for a Refund.
	Ordinal int64
	// Cents is the amount, if Won.
	Cents int64
	// Left and LeftCents are the number of shares left when the server answered, and their sum: 0 after a Refund. For a
	// Refund, Left is the number of shares that are left. Not set by Shares.
	Left, LeftCents int64
	// Epoch is that of the packet which answered, as Send returned it; 0 if NotOpen.
	Epoch int64
}

// Won reports whether the user has a share: Granted or Replayed.
func (s Share) Won() bool { return s.Outcome == Granted || s.Outcome == Replayed }

// Grab takes a share for user. One round trip, repeated until answered. Grabs of one packet at the same time in a
// process share it (Options.MaxBatch), whatever Packet values they use.
//
// The answer to a user who has a share is always that share, until the packet's retention is over, even if the packet
// is empty, over or refunded. So after an error, ErrUnknownOutcome above all, call Grab again until it is answered. A
// request whose caller gave up may still run: the user then has a share, and the next Grab says so.
//
// Errors: ErrInvalidName for the user, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrDenied, ErrUnavailable,
// ErrUnknownOutcome; the Share is then zero, and Won is false.
func (p *Packet) Grab(ctx context.Context, user string) (share Share, err error) {
	defer edge(&err)
	if err := cmp.Or(p.usable(), keyname.Required("claimant", user)); err != nil {
		return Share{}, err
	}
	return p.claim(ctx, func() (Share, error) { return p.batcher().Do(ctx, user) })
}

func (p *Packet) grabEach(ctx context.Context, users []string) ([]Share, error) {
	return p.grab(ctx, session.CallID(), users)
}

var grabScript = script.Load("redpacket_grab", files, "grab")

// grab runs grab.lua for at most 128 users; the shares are in their order. With ErrNotReplicated they are there, too.
func (p *Packet) grab(ctx context.Context, id string, users []string) ([]Share, error) {
	v, unconfirmed := p.sure(ctx, 3, grabScript, append([]string{id, p.c.calls.Mark()}, users...)...)
	switch {
	case v == nil:
		return nil, unconfirmed
	case v[0] != 0:
		return nil, p.verdict(v)
	case len(v) != 4+3*len(users):
		return nil, malformed("grab", p.keys[0])
	}
	shares := make([]Share, len(users))
	for i := range shares {
		o := v[4+3*i:]
		shares[i] = Share{User: users[i], Outcome: outcome(o[0]), Ordinal: o[1], Cents: o[2], Left: v[2], LeftCents: v[3],
			Epoch: v[1]}
	}
	return shares, unconfirmed
}
