package rcounter

import (
	"context"
	_ "embed"

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
// Errors: ErrInvalidName for the claimant, ErrCorrupt, ErrWrongType, ErrUnavailable, ErrUnknownOutcome; the Grant is
// then zero, and Won is false.
func (s *Stock) Claim(ctx context.Context, claimant string) (Grant, error) {
	if err := s.c.usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := checkClaimant(claimant); err != nil {
		return Grant{}, err
	}
	g, err := s.claim(ctx, callID(), []string{claimant})
	if err != nil {
		return Grant{}, err
	}
	return g[0], nil
}

//go:embed claim.lua
var claimSource string

var claimScript = script.New("claim", claimSource)

// claim runs claim.lua for at most 128 claimants; the grants are in their order.
func (s *Stock) claim(ctx context.Context, id string, claimants []string) ([]Grant, error) {
	args := make([]string, 1, 1+len(claimants))
	args[0] = id
	v, err := s.ints(ctx, 3, claimScript, append(args, claimants...)...)
	if err != nil {
		return nil, err
	}
	if err := s.verdict(v); err != nil {
		return nil, err
	}
	if len(v) != 3+2*len(claimants) {
		return nil, malformed("claim", s.keys[0])
	}
	grants := make([]Grant, len(claimants))
	for i := range grants {
		grants[i] = Grant{Outcome: Outcome(v[3+2*i]), Ordinal: v[4+2*i], Remaining: v[2], Epoch: v[1]}
	}
	return grants, nil
}
