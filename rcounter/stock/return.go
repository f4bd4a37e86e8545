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

// Units names units that a claimant has, for Return and Lookup: those of a claimant by Claim, those of a request or
// reservation, or some of a ClaimAny.
type Units struct {
	// Claimant is who has a unit by Claim. Return wants its Ordinal too.
	Claimant string
	// Request is the id of a request or reservation, or the Grant.Request of a ClaimAny. Return wants Ordinal and N of the
	// latter too.
	Request string
	// Ordinal is that of the unit, or of the first of N units.
	Ordinal, N int64
	// Keep is how many units of a request or reservation stay, from the first on.
	Keep int64
}

// Return gives units back, and returns how many came back by this call: 0, without an error, if they had come back
// before, or no claimant has them. They can then be claimed again, by the same claimant too, and get new ordinals; the
// old ones are never given out again. Return works until the retention is over. One round trip, repeated until
// answered. There are three kinds:
//
//   - Units{Claimant: c, Ordinal: o}: the unit that c has by Claim. The ordinal says which is meant, so a Return can be
//     repeated at any time, by this library or by a queue that delivers a cancellation twice. Claimant has unit 5 and
//     returns it, claims again and has unit 9; then a second copy of the first Return arrives. It names 5, so it
//     changes nothing.
//   - Units{Request: id}: all units of a request or confirmed reservation, once. For as long as Spec.Remember says, the
//     id cannot be used again: a repeated request finds the record and gets nothing (Returned). With Keep, all but the
//     first so many, which keep their ordinals. That it says what is to stay, and not how many are to come back, makes
//     it safe to repeat.
//   - Units{Request: g.Request, Ordinal: o, N: n}: units o to o + n - 1 of the grant g of a ClaimAny. Each part is
//     returned once: if it overlaps what was returned before, nothing is returned. A grant can be returned in at most
//     1024 parts; one more is ErrOutOfRange.
//
// Errors: ErrNotOpen if there is no stock, and ErrRestoring if it is suspended and does not know the units: then
// nothing came back. ErrInvalidName, ErrInvalidOption for anything else in u, ErrNotReplicated, and those of Claim.
func (s *Stock) Return(ctx context.Context, u Units) (returned int64, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), u.check()); err != nil {
		return 0, err
	}
	switch {
	case u.Request == "":
		return s.giveBack(ctx, session.CallID(), u.Claimant, u.Ordinal)
	case u.Ordinal > 0:
		return s.returned(ctx, s.c.calls.Confirmed(s.returningAny(session.CallID(), u.Request, u.Ordinal, u.N)))
	}
	return s.undo(ctx, act{verb: actReturn, id: u.Request, n: u.Keep})
}

// holder is what is wrong with the claimant or the id of u.
func (u Units) holder() error {
	if u.Request == "" {
		return keyname.Required("claimant", u.Claimant)
	}
	if u.Claimant != "" {
		return errs.InvalidOption("Claimant", fmt.Sprintf("%.32q", u.Claimant), "empty with a Request")
	}
	return keyname.Required("id", u.Request)
}

// check refuses what Return cannot return.
func (u Units) check() error {
	if err := u.holder(); err != nil {
		return err
	}
	part := u.Request != "" && (u.Ordinal != 0 || u.N != 0)
	switch {
	case (u.Request == "" || part) && (u.Ordinal < 1 || u.Ordinal > maxLimit):
		return errs.InvalidOption("Ordinal", u.Ordinal, "that of a Grant that was won, at least 1")
	case part && (u.N < 1 || u.N > maxLimit-u.Ordinal+1):
		return errs.InvalidOption("N", u.N, "that of ClaimAny's grant or less, at least 1")
	case u.Request == "" && (u.N < 0 || u.N > 1):
		return errs.InvalidOption("N", u.N, "0 or 1 for the unit of a claimant")
	case u.Keep < 0 || u.Keep > maxLimit || u.Keep > 0 && (part || u.Request == ""):
		return errs.InvalidOption("Keep", u.Keep,
			fmt.Sprintf("between 0 and %d, and 0 unless all units of a request are named", int64(maxLimit)))
	}
	return nil
}

var (
	returnScript    = script.Load("return", files, "return")
	returnAnyScript = script.Load("return any", files, "returnany")
)

// giveBack runs return.lua.
func (s *Stock) giveBack(ctx context.Context, call, claimant string, ordinal int64) (int64, error) {
	return s.returned(ctx, s.c.calls.Confirmed(
		s.call(returnScript, call, claimant, decimal(ordinal), s.c.calls.Mark())))
}

// returningAny is returnany.lua. With first 0 it gives up the whole call, even if that has not run yet.
func (s *Stock) returningAny(call, request string, first, n int64) script.Call {
	return s.call(returnAnyScript, call, request, decimal(first), decimal(n), s.c.calls.Mark())
}

// giveBackAny runs it, and waits for no replica.
func (s *Stock) giveBackAny(ctx context.Context, call, request string, first, n int64) (int64, error) {
	return s.returned(ctx, s.returningAny(call, request, first, n))
}

// returned decodes {0, n, 0}: this call returned n units.
func (s *Stock) returned(ctx context.Context, call script.Call) (n int64, err error) {
	v, err := s.reply(ctx, 3, call)
	if v != nil {
		s.processState().cache.forget()
		err = cmp.Or(s.verdict(v), err) // the latter: no replica confirms it
	}
	if err != nil {
		return 0, err
	}
	return v[1], nil
}
