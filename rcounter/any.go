package rcounter

import (
	"context"
	_ "embed"
	"strconv"
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
	if err := s.c.usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := checkN(n); err != nil {
		return Grant{}, err
	}
	d := s.desk()
	if g, ok := d.memory.any(ctx); ok {
		s.c.answered(ctx, s.name, g.Outcome)
		return g, nil
	}
	began := s.c.began()
	g, err := d.anys.claim(ctx, &seat{n: n})
	d.memory.heard(g.Outcome)
	s.c.claimed(ctx, s.name, began, g.Outcome, g.N, err)
	return g, err
}

//go:embed any.lua
var anySource string

var anyScript = stockScript("claim any", anySource)

// any runs any.lua.
func (s *Stock) any(ctx context.Context, id string, n int64) (Grant, error) {
	v, unconfirmed := s.sure(ctx, 3, anyScript, id, s.c.mark(), strconv.FormatInt(n, 10))
	return s.granted("claim any", id, v, unconfirmed)
}
