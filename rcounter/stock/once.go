package stock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// ClaimOnce claims up to n units for claimant under an id of the caller's own, such as that of an order. Fewer are
// granted, and Grant.N says how many, if fewer are left or if claimant may not have so many more (Spec.PerUser).
// One round trip, repeated until answered.
//
// The answer to a request that was granted units is those units, Granted the first time and Replayed from then on,
// while the results are retained; after ReturnOnce it is Returned. Refusals are not kept: the same request may be
// granted later. The id with another claimant or another n is ErrMismatch.
//
// Errors: ErrInvalidName for request or claimant, ErrInvalidOption for n, ErrMismatch, ErrNotReplicated, and those
// of Claim.
func (s *Stock) ClaimOnce(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := keyname.Required("id", request); err != nil {
		return Grant{}, err
	}
	if err := keyname.Required("claimant", claimant); err != nil {
		return Grant{}, err
	}
	if err := checkN(n); err != nil {
		return Grant{}, err
	}
	d := s.shared()
	if g, ok := d.cache.request(ctx, request); ok {
		s.c.answered(ctx, s.name, g.Outcome)
		return g, nil
	}
	began := s.c.began()
	g, err := s.once(ctx, session.CallID(), request, claimant, n)
	d.cache.heard(g.Outcome)
	s.c.claimed(ctx, s.name, began, g.Outcome, g.N, err)
	return g, err
}

func checkN(n int64) error {
	if n < 1 || n > maxLimit {
		return errs.InvalidOption("n", n, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	}
	return nil
}

var onceScript = script.Load("claim once", files, "once")

// once runs once.lua.
func (s *Stock) once(ctx context.Context, id, request, claimant string, n int64) (Grant, error) {
	v, unconfirmed := s.sure(ctx, 3, onceScript, id, s.c.calls.Mark(), request, claimant, strconv.FormatInt(n, 10))
	return s.granted("claim once", request, v, unconfirmed)
}

// granted decodes {0, epoch, remaining, outcome, ordinal, n}.
func (s *Stock) granted(what, request string, v []int64, unconfirmed error) (Grant, error) {
	if v == nil {
		return Grant{}, unconfirmed
	}
	if err := s.verdict(v); err != nil {
		return Grant{}, err
	}
	if len(v) != 6 {
		return Grant{}, malformed(what, s.keys[0])
	}
	g := Grant{Outcome: Outcome(v[3]), Ordinal: v[4], N: v[5], Remaining: v[2], Epoch: v[1]}
	if !g.Won() {
		return g, nil // nothing was granted that a replica could forget
	}
	if unconfirmed != nil {
		return Grant{}, unconfirmed
	}
	g.Request = request
	return g, nil
}
