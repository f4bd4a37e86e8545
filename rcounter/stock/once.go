package stock

import (
	"cmp"
	"context"
)

// ClaimOnce claims up to n units for claimant under an id of the caller's own, such as that of an order. If fewer are left, or
// claimant may not have so many more (Spec.PerUser), it grants fewer; Grant.N says how many. One round trip, repeated until
// answered.
//
// If the request was granted units, the answer is those units until the retention is over: Granted the first time, Replayed from
// then on. After ReturnOnce it is Returned, for as long as Spec.Remember says; then the id is a new one. A refusal is not recorded: the same request may be granted later. The same id with
// another claimant or another n is ErrMismatch.
//
// Errors: ErrInvalidName for request or claimant, ErrInvalidOption for n, ErrMismatch, ErrNotReplicated, and those
// of Claim.
func (s *Stock) ClaimOnce(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkRequest(request, claimant, n)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, s.shared().cache.request(ctx, request), func() (Grant, error) {
		return s.granted(ctx, act{verb: actOnce, id: request, claimant: claimant, n: n})
	})
}
