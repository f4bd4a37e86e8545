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

// Return gives claimant's unit back, and reports whether this call did so. The unit can then be claimed again, by
// claimant too, and goes out under a new ordinal: ordinal is never given to anybody else. Return works until the
// results' retention is over. One round trip, repeated until answered.
//
// ordinal says which unit is meant, and is why a Return may be repeated at will, by this library or by a queue that
// delivers a cancellation twice: claimant has unit 5, it is returned, claimant claims again and has unit 9, then a
// second copy of the first Return arrives. It names 5, claimant has 9, and it changes nothing. Without an ordinal it
// would have taken the unit just bought. A caller who did not keep the ordinal asks Lookup.
//
// False without an error: claimant does not have that unit, never had it or returned it before.
func (s *Stock) Return(ctx context.Context, claimant string, ordinal int64) (_ bool, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return false, err
	}
	if err := keyname.Required("claimant", claimant); err != nil {
		return false, err
	}
	if ordinal < 1 || ordinal > maxLimit {
		return false, errs.InvalidOption("ordinal", ordinal, "that of a Grant that was won, at least 1")
	}
	return s.giveBack(ctx, session.CallID(), claimant, ordinal)
}

var returnScript = script.Load("return", files, "return")

// giveBack runs return.lua.
func (s *Stock) giveBack(ctx context.Context, id, claimant string, ordinal int64) (bool, error) {
	v, err := s.ints(ctx, 3, returnScript, id, claimant, strconv.FormatInt(ordinal, 10))
	if err != nil {
		return false, err
	}
	s.shared().cache.forget()
	return v[1] == 1 && v[0] == stockOK, s.verdict(v)
}

// ReturnOnce gives back the units that ClaimOnce granted to request, or that a reservation of that id was confirmed
// for, and reports whether this call did so. They can then be claimed again and go out under new ordinals. The id is
// spent: a late copy of the request finds the record and gets nothing (Returned). One round trip, repeated until
// answered, at will: a request is returned once.
//
// False without an error: nothing was granted to request, or it was returned before.
func (s *Stock) ReturnOnce(ctx context.Context, request string) (_ bool, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return false, err
	}
	if err := keyname.Required("id", request); err != nil {
		return false, err
	}
	return s.giveBackRequest(ctx, session.CallID(), request)
}

var returnOnceScript = script.Load("return once", files, "returnonce")

// giveBackRequest runs returnonce.lua.
func (s *Stock) giveBackRequest(ctx context.Context, id, request string) (bool, error) {
	v, err := s.ints(ctx, 3, returnOnceScript, id, request)
	if err != nil {
		return false, err
	}
	s.shared().cache.forget()
	return v[1] > 0 && v[0] == stockOK, s.verdict(v)
}

// ReturnAny gives back units of ClaimAny, and reports whether this call did so: those of g, which is what ClaimAny
// answered, or a part of it (the same Request, with Ordinal and N within it). Each part is returned once: where one
// overlaps what was returned before, nothing is returned. One grant can be returned in at most 1024 parts, beyond
// which it is ErrOutOfRange. One round trip, repeated until answered.
func (s *Stock) ReturnAny(ctx context.Context, g Grant) (_ bool, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
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

var returnAnyScript = script.Load("return any", files, "returnany")

// giveBackAny runs returnany.lua, with first 0 to give the whole call up.
func (s *Stock) giveBackAny(ctx context.Context, id, request string, first, n int64) (returned int64, err error) {
	v, err := s.ints(ctx, 3, returnAnyScript, id, request, strconv.FormatInt(first, 10), strconv.FormatInt(n, 10))
	if err != nil {
		return 0, err
	}
	if err := s.verdict(v); err != nil {
		return 0, err
	}
	s.shared().cache.forget()
	return v[2], nil
}
