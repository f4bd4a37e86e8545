package stock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Lookup returns what has come of u: Units{Claimant: c} is the unit that c has by Claim, Units{Request: id} are those
// of a request or reservation. It changes nothing: it neither claims nor confirms nor gives up the id. What the stock
// does not know, or has forgotten (Spec.Remember), is not an error: the Outcome is 0. That is also so of a claimant
// whose unit was returned. One round trip, repeated until answered.
//
// Errors: ErrNotOpen if there is no stock; ErrRestoring if it is suspended and does not know u; ErrInvalidName;
// ErrInvalidOption if u names anything else; and those of Claim.
func (s *Stock) Lookup(ctx context.Context, u Units) (held Holding, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), u.holder(), u.whole()); err != nil {
		return Holding{}, err
	}
	if u.Request == "" {
		return s.lookup(ctx, u.Claimant)
	}
	f, err := s.find(ctx, u.Request)
	switch {
	case err != nil:
		return Holding{}, err
	case f.record == "":
		return Holding{Epoch: f.epoch}, nil
	case f.record == recordDoubtful:
		return Holding{}, s.verdict([]int64{stockRestoring, 0, 0})
	}
	h, ok := f.holding(u.Request, f.record)
	if !ok {
		return Holding{}, corrupt(s.keys[0], -1, 0)
	}
	return h, nil
}

// whole refuses units that are a part of what their holder has.
func (u Units) whole() error {
	if u.Ordinal != 0 || u.N != 0 || u.Keep != 0 {
		return errs.InvalidOption("units", fmt.Sprintf("%d, %d, %d", u.Ordinal, u.N, u.Keep),
			"all of a claimant or of a request: Ordinal, N and Keep are 0")
	}
	return nil
}

var lookupScript = script.Load("lookup", files, "lookup").Reads()

// lookup runs lookup.lua.
func (s *Stock) lookup(ctx context.Context, claimant string) (Holding, error) {
	v, err := s.run(ctx, 4, lookupScript, claimant)
	switch {
	case err != nil:
		return Holding{}, err
	case v[3] == 0:
		return Holding{Epoch: v[1]}, nil
	}
	return Holding{Outcome: Replayed, Claimant: claimant, Ordinal: v[3], N: 1, Asked: 1, Epoch: v[1]}, nil
}
