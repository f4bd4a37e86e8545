package rcounter

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
)

// ClaimOnce claims up to n units for claimant under an id of the caller's own, such as that of an order. Fewer are
// granted, and Grant.N says how many, if fewer are left or if claimant may not have so many more (OpenSpec.PerUser).
// One round trip, repeated until answered.
//
// The answer to a request that was granted units is those units, Granted the first time and Replayed from then on,
// while the results are retained; after ReturnOnce it is Returned. Refusals are not kept: the same request may be
// granted later. The id with another claimant or another n is ErrMismatch.
//
// Errors: ErrInvalidName for request or claimant, ErrInvalidOption for n, ErrMismatch, ErrUnconfirmed, and those
// of Claim.
func (s *Stock) ClaimOnce(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := s.c.usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := checkRequest(request); err != nil {
		return Grant{}, err
	}
	if err := checkClaimant(claimant); err != nil {
		return Grant{}, err
	}
	if err := checkN(n); err != nil {
		return Grant{}, err
	}
	d := s.desk()
	if g, ok := d.memory.request(ctx, request); ok {
		s.c.answered(ctx, s.name, g.Outcome)
		return g, nil
	}
	began := s.c.began()
	g, err := s.once(ctx, callID(), request, claimant, n)
	d.memory.heard(g.Outcome)
	s.c.claimed(ctx, s.name, began, g.Outcome, g.N, err)
	return g, err
}

// checkRequest is the check of a request's or reservation's id before anything is sent.
func checkRequest(id string) error {
	if id == "" {
		return fmt.Errorf("%w: the id is empty", ErrInvalidName)
	}
	return checkText("id", id)
}

func checkN(n int64) error {
	if n < 1 || n > MaxLimit {
		return errs.InvalidOption("n", n, fmt.Sprintf("between 1 and %d", int64(MaxLimit)))
	}
	return nil
}

//go:embed once.lua
var onceSource string

var onceScript = stockScript("claim once", onceSource)

// once runs once.lua.
func (s *Stock) once(ctx context.Context, id, request, claimant string, n int64) (Grant, error) {
	v, unconfirmed := s.sure(ctx, 3, onceScript, id, s.c.mark(), request, claimant, strconv.FormatInt(n, 10))
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
