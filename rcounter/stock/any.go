package stock

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

// ClaimAny claims up to n units without a claimant. Grant.N says how many were granted, Ordinal is the first; Return
// gives them back. One round trip, repeated until answered.
//
// No later call can ask for these units again, so after an error the caller has none. The server may have granted units
// all the same, if the call was given up or its outcome is unknown. The process returns them in the background, and a
// copy of the call that has not run by then never takes effect. If the server cannot be asked within five call
// timeouts, the units stay sold.
//
// Errors: ErrInvalidOption for n, and those of Claim.
func (s *Stock) ClaimAny(ctx context.Context, n int64) (grant Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkN("n", n)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, true, func(ctx context.Context) (Grant, error) { return s.processState().anys.Do(ctx, n) })
}

var anyScript = script.Load("claim any", files, "any")

// any runs any.lua.
func (s *Stock) any(ctx context.Context, id string, n int64) (Grant, error) {
	return s.grant(ctx, anyScript, id, id, decimal(n))
}
