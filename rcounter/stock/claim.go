package stock

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Claim claims one unit for claimant: any text that names one participant of this sale, such as a user id or an order id. One
// round trip, repeated until answered.
//
// If claimant has a unit, the answer is that unit until the retention is over, also if the stock is sold out, has ended or was
// closed: Granted the first time, Replayed from then on. So after an error, ErrUnknownOutcome above all, repeat Claim until it is
// answered, or call Lookup. A request that was given up may still be served; the next Claim then tells the unit. After a Return
// claimant may claim again, and gets another ordinal.
//
// Only under Fresh may the process answer SoldOut by itself, as of a moment ago.
//
// Errors, with a zero Grant: ErrInvalidName for the claimant, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrUnavailable,
// ErrUnknownOutcome.
func (s *Stock) Claim(ctx context.Context, claimant string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, isFresh(ctx), func(ctx context.Context) (Grant, error) { return s.shared().claims.Do(ctx, claimant) })
}

// obtain answers a claim: SoldOut by the process itself if it may say so and knows it, otherwise as the server answers (ask).
func (s *Stock) obtain(ctx context.Context, may bool, ask func(context.Context) (Grant, error)) (Grant, error) {
	m := &s.shared().cache
	if may {
		epoch, yes, until := m.soldOut(ctx)
		if yes {
			s.c.observe(ctx, Event{Kind: EventAnsweredLocally, Name: s.name, Outcome: SoldOut})
			return Grant{Outcome: SoldOut, Epoch: epoch}, nil
		}
		var done context.CancelFunc
		ctx, done = patience(ctx, until)
		defer done()
	}
	turns, began := m.turns.Load(), s.c.began()
	g, err := ask(ctx)
	m.heard(g, turns)
	s.c.claimed(ctx, s.name, began, g, err)
	return g, err
}

var claimScript = script.Load("claim", files, "claim")

// claim runs claim.lua for at most 128 claimants; the grants are in their order. With ErrNotReplicated they are there
// too.
func (s *Stock) claim(ctx context.Context, id string, claimants []string) ([]Grant, error) {
	args := make([]string, 2, 2+len(claimants))
	args[0], args[1] = id, s.c.calls.Mark()
	v, unconfirmed := s.sure(ctx, 3+2*len(claimants), claimScript, append(args, claimants...)...)
	if v == nil {
		return nil, unconfirmed
	}
	grants := make([]Grant, len(claimants))
	for i := range grants {
		grants[i] = Grant{Outcome: Outcome(v[3+2*i]), Ordinal: v[4+2*i], Remaining: v[2], Epoch: v[1]}
		if grants[i].Won() {
			grants[i].N = 1
		}
	}
	return grants, unconfirmed
}
