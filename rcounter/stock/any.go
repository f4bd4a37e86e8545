package stock

import (
	"context"
	"strconv"

	"github.com/redlatch/redlatch/internal/script"
)

// ClaimAny claims up to n units for nobody in particular: whoever asks takes what there is. Grant.N says how many were
// granted, Ordinal is the first; ReturnAny gives them back. One round trip, repeated until answered.
//
// Nobody can ask again for what was granted, so an error means that the caller has no units. What the server may have
// granted all the same, to a call given up on or of unknown outcome, is returned in the background as soon as the
// server can be asked, for as long as five call timeouts; a call that has not run by then is told never to. If the
// server cannot be asked for so long, the units stay sold.
//
// Errors: ErrInvalidOption for n, and those of Claim.
func (s *Stock) ClaimAny(ctx context.Context, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := checkN(n); err != nil {
		return Grant{}, err
	}
	d := s.shared()
	if g, ok := d.cache.any(ctx); ok {
		s.c.answered(ctx, s.name, g.Outcome)
		return g, nil
	}
	began := s.c.began()
	g, err := d.anys.Do(ctx, n)
	d.cache.heard(g.Outcome)
	s.c.claimed(ctx, s.name, began, g.Outcome, g.N, err)
	return g, err
}

var anyScript = script.Load("claim any", files, "any")

// any runs any.lua.
func (s *Stock) any(ctx context.Context, id string, n int64) (Grant, error) {
	v, unconfirmed := s.sure(ctx, 3, anyScript, id, s.c.calls.Mark(), strconv.FormatInt(n, 10))
	return s.granted("claim any", id, v, unconfirmed)
}
