package stock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Return gives claimant's unit back, and reports whether this call did so. The unit can then be claimed again, by claimant too,
// and gets a new ordinal; the old one is never given out again. Return works until the retention is over. It is false, without an
// error, if claimant does not have that unit: it was returned before, or claimant never had it. One round trip, repeated until
// answered.
//
// ordinal says which unit is meant. So a Return can be repeated at any time, by this library or by a queue that delivers a
// cancellation twice. Claimant has unit 5 and returns it, claims again and has unit 9; then a second copy of the first Return
// arrives. It names 5, so it changes nothing. Without an ordinal it would have taken unit 9. Lookup tells the ordinal.
func (s *Stock) Return(ctx context.Context, claimant string, ordinal int64) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkUnit(claimant, ordinal)); err != nil {
		return false, err
	}
	return s.giveBack(ctx, session.CallID(), claimant, ordinal)
}

// ReturnOnce gives back the units of a ClaimOnce or of a confirmed reservation, given its id, and reports whether this call did
// so. The units can then be claimed again and get new ordinals. For as long as Spec.Remember says, the id cannot be
// used again: a repeated request finds the record and gets nothing (Returned). It is false, without an error, if nothing was granted
// to request, or it was returned before.
// A request is returned once, however often ReturnOnce is called. One round trip, repeated until answered.
func (s *Stock) ReturnOnce(ctx context.Context, request string) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", request)); err != nil {
		return false, err
	}
	n, err := s.undo(ctx, act{verb: actReturn, id: request})
	return n > 0, err
}

// ReturnPart has the request or confirmed reservation keep its first keep units, at least 1, and gives the others back. It returns
// how many came back by this call: 0, without an error, if it has so few already, or nothing was granted to request. The units that
// came back get new ordinals when they are claimed again; those that stay keep theirs. One round trip, repeated until answered.
//
// That the call says what is to stay, and not how many are to come back, makes it safe to repeat at any time, by this library or by a
// queue that delivers a message twice. ReturnOnce gives back all.
func (s *Stock) ReturnPart(ctx context.Context, request string, keep int64) (returned int64, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", request), checkN("keep", keep)); err != nil {
		return 0, err
	}
	return s.undo(ctx, act{verb: actReturn, id: request, n: keep})
}

// ReturnAny gives back units of ClaimAny, and reports whether this call did so. g is the grant or a part of it: the
// same Request, with Ordinal and N within it. Each part is returned once: if g overlaps what was returned before, nothing is
// returned. A grant can be returned in at most 1024 parts; one more is ErrOutOfRange. One round trip, repeated until answered.
func (s *Stock) ReturnAny(ctx context.Context, g Grant) (_ bool, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return false, err
	}
	switch {
	case !g.Won():
		return false, errs.InvalidOption("grant", g.Outcome, "one that was won")
	case g.Request == "" || keyname.Text("", g.Request) != nil:
		return false, errs.InvalidOption("Request", fmt.Sprintf("%.32q", g.Request), "that of ClaimAny's grant")
	case g.Ordinal < 1 || g.Ordinal > maxLimit:
		return false, errs.InvalidOption("Ordinal", g.Ordinal, "that of ClaimAny's grant, at least 1")
	case g.N < 1 || g.N > maxLimit-g.Ordinal+1:
		return false, errs.InvalidOption("N", g.N, "that of ClaimAny's grant or less, at least 1")
	}
	n, err := s.giveBackAny(ctx, session.CallID(), g.Request, g.Ordinal, g.N)
	return n > 0, err
}

var (
	returnScript    = script.Load("return", files, "return")
	returnAnyScript = script.Load("return any", files, "returnany")
)

// giveBack runs return.lua.
func (s *Stock) giveBack(ctx context.Context, call, claimant string, ordinal int64) (bool, error) {
	n, err := s.returned(ctx, returnScript, call, claimant, decimal(ordinal))
	return n > 0, err
}

// giveBackAny runs returnany.lua. With first 0 it gives up the whole call, even if that has not run yet.
func (s *Stock) giveBackAny(ctx context.Context, call, request string, first, n int64) (int64, error) {
	return s.returned(ctx, returnAnyScript, call, request, decimal(first), decimal(n))
}

// returned decodes {0, n, 0}: this call returned n units.
func (s *Stock) returned(ctx context.Context, sc *script.Script, args ...string) (n int64, err error) {
	v, err := s.run(ctx, 3, sc, args...)
	if v != nil {
		s.shared().cache.forget()
	}
	if err != nil {
		return 0, err
	}
	return v[1], nil
}
