package stock

import (
	"cmp"
	"context"
)

// ClaimOnce claims n units for claimant, all or none, under an id of the caller's own, such as that of an order. One round trip,
// repeated until answered.
//
// If the request was granted units, the answer is those that it has until the retention is over: Granted the first time, Replayed
// from then on. After ReturnOnce it is Returned, for as long as Spec.Remember says; then the id is a new one. If fewer than n units
// are left, the answer is SoldOut, and Remaining says how many are. If claimant may not have n more (Spec.PerUser), it is UserLimit.
// A refusal is not recorded: the same request may be granted later. If the id was cancelled (Cancel), the answer is Cancelled. The
// same id with another claimant or another n is ErrMismatch.
//
// Errors: ErrInvalidName for request or claimant, ErrInvalidOption for n, ErrMismatch, ErrNotReplicated, and those
// of Claim.
func (s *Stock) ClaimOnce(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	return s.claimOnce(ctx, act{verb: actOnce, id: request, claimant: claimant, n: n})
}

// ClaimUpTo is ClaimOnce, and if fewer than n units are left, or claimant may not have n more, it grants as many as there are:
// Grant.N, and Grant.Missing is how many it could not get. It is SoldOut or UserLimit only if it could get none. What was granted is
// the answer from then on, also if more units are left later.
func (s *Stock) ClaimUpTo(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	return s.claimOnce(ctx, act{verb: actOnceUpTo, id: request, claimant: claimant, n: n})
}

func (s *Stock) claimOnce(ctx context.Context, a act) (Grant, error) {
	if err := cmp.Or(s.usable(), checkRequest(a.id, a.claimant, a.n)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, isFresh(ctx), func(ctx context.Context) (Grant, error) { return s.granted(ctx, a) })
}
