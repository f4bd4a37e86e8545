package redpacket

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Grab takes a share for user. One round trip, repeated until answered. Grabs of one packet at the same time in a
// process share it (Options.MaxBatch), whatever Packet values they use.
//
// The answer to a user who has a share is always that share, until the packet's retention is over, even if the packet
// is empty, over or refunded. So after an error, ErrUnknownOutcome above all, call Grab again until it is answered. A
// request whose caller gave up may still run: the user then has a share, and the next Grab says so.
//
// Errors: ErrNoPacket, ErrSending; ErrInvalidName for the user, ErrNotReplicated, ErrWrongType, ErrDenied,
// ErrUnavailable, ErrUnknownOutcome; the Share is then zero, and Won is false.
func (p *Packet) Grab(ctx context.Context, user string) (share Share, err error) {
	defer edge(&err)
	if err := cmp.Or(p.usable(), keyname.Required("user", user)); err != nil {
		return Share{}, err
	}
	if p.c.calls.Observer == nil { // without an observer no clock is read
		return p.batcher().Do(ctx, user)
	}
	began := time.Now()
	share, err = p.batcher().Do(ctx, user)
	event := errs.Event{Kind: errs.EventClaimed, Name: p.name, Outcome: share.Why, N: share.Cents, Again: share.Again,
		Took: time.Since(began), Err: edged(err)}
	if share.Won() {
		event.Outcome = grabbed
	}
	p.c.calls.Tell(ctx, event)
	return share, err
}

var grabScript = script.Load("redpacket_grab", files, "grab")

// grab runs grab.lua for at most 128 users; the shares are in their order. With ErrNotReplicated they are there, too.
func (p *Packet) grab(ctx context.Context, users []string) ([]Share, error) {
	v, err := p.run(ctx, p.c.calls.Confirmed(p.call(grabScript, append([]string{p.c.calls.Mark()}, users...)...)))
	if v == nil {
		return nil, err
	}
	if len(v) != 5+3*len(users) {
		return nil, p.malformed()
	}
	why := map[int64]string{3: SoldOut, 6: Ended}
	shares := make([]Share, len(users))
	for i := range shares {
		code, ordinal, cents := v[5+3*i], v[6+3*i], v[7+3*i]
		shares[i] = Share{User: users[i], Ordinal: ordinal, Cents: cents, Why: why[code], Again: code == 1, Left: v[3],
			LeftCents: v[4], Epoch: v[1]}
	}
	return shares, err
}
