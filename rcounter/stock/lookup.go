package stock

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Lookup reports whether claimant has a unit by Claim, and returns it as a Grant that is Replayed. If claimant has none, or there
// is no stock, the Grant is zero. Lookup claims nothing. One round trip, repeated until answered.
func (s *Stock) Lookup(ctx context.Context, claimant string) (_ Grant, _ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, false, err
	}
	g, err := s.lookup(ctx, claimant)
	return g, g.Won(), err
}

var lookupScript = script.Load("lookup", files, "lookup")

// lookup runs lookup.lua; the grant is zero if there is none.
func (s *Stock) lookup(ctx context.Context, claimant string) (Grant, error) {
	v, err := s.run(ctx, 4, lookupScript, claimant)
	if err != nil || v[3] == 0 {
		return Grant{}, err
	}
	return Grant{Outcome: Replayed, Epoch: v[1], Remaining: v[2], Ordinal: v[3], N: 1}, nil
}
