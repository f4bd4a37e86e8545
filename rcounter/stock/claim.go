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
// The process may answer SoldOut by itself, of a moment before; "Sold out" in the package comment says what that can miss.
// Lookup, and Claim with Fresh, miss nothing. Only the server ever says that claimant has a unit.
//
// Errors, with a zero Grant: ErrInvalidName for the claimant, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrUnavailable,
// ErrUnknownOutcome.
func (s *Stock) Claim(ctx context.Context, claimant string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, err
	}
	d := s.shared()
	return s.obtain(ctx, d.cache.claim(ctx, claimant), func() (Grant, error) { return d.claims.Do(ctx, claimant) })
}

// obtain answers a claim: SoldOut by the process itself if it knows that (k), otherwise as the server answers (ask).
func (s *Stock) obtain(ctx context.Context, k *soldOut, ask func() (Grant, error)) (Grant, error) {
	if k != nil {
		s.c.observer.AnsweredLocally(ctx, s.name, SoldOut)
		return Grant{Outcome: SoldOut, Epoch: k.epoch}, nil
	}
	began := s.c.began()
	g, err := ask()
	s.shared().cache.heard(g)
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
