package rcounter

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
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
func (s *Stock) Return(ctx context.Context, claimant string, ordinal int64) (bool, error) {
	if err := s.c.usable(s.refused); err != nil {
		return false, err
	}
	if err := checkClaimant(claimant); err != nil {
		return false, err
	}
	if ordinal < 1 || ordinal > MaxLimit {
		return false, errs.InvalidOption("ordinal", ordinal, "that of a Grant that was won, at least 1")
	}
	return s.giveBack(ctx, callID(), claimant, ordinal)
}

//go:embed return.lua
var returnSource string

var returnScript = script.New("return", returnSource)

// giveBack runs return.lua.
func (s *Stock) giveBack(ctx context.Context, id, claimant string, ordinal int64) (bool, error) {
	v, err := s.ints(ctx, 3, returnScript, id, claimant, strconv.FormatInt(ordinal, 10))
	if err != nil {
		return false, err
	}
	return v[1] == 1 && v[0] == stockOK, s.verdict(v)
}
