package stock

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Claim claims one unit for claimant, any text that names who is asking in this sale: a user id, an order id. One
// round trip, repeated until answered.
//
// The answer to a claimant who has a unit is always that unit, Granted the first time and Replayed from then on, sold
// out, ended, closed or not, while the results are retained. So a caller who got an error, ErrUnknownOutcome above
// all, repeats Claim until it is answered, or asks Lookup. A request given up on may still be served: the claimant
// then has a unit that the next Claim tells. After a Return, claimant may claim again and gets another ordinal.
//
// SoldOut may be said by the process itself, of a moment before: for what that can miss, see SoldOut. Lookup, and
// Claim with Fresh, miss nothing. That claimant has a unit is only ever the server's answer.
//
// Errors: ErrInvalidName for the claimant, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrUnavailable, ErrUnknownOutcome; the Grant is
// then zero, and Won is false.
func (s *Stock) Claim(ctx context.Context, claimant string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, err
	}
	d := s.shared()
	return s.obtain(ctx, d.cache.claim(ctx, claimant), func() (Grant, error) { return d.claims.Do(ctx, claimant) })
}

// obtain answers a claim: SoldOut by the process itself if it knows that (k), else as the server answers (ask).
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
