package rsemaphore

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// The token of a permit is made by a call of its own, once the permit is there, however it came: by a request, in a
// call for several, or handed over. Only a permit that is out gets one, and of an exclusive semaphore no other is out
// meanwhile, so the next holder's token is made later, and is greater. A request for it that is repeated makes a later
// one, of the same holder; one that arrives when the permit is over makes none (token.lua).

var tokenScript = script.Load("make a token", luaFiles, "token")

// tokenKept is how long the last token is kept after the last grant, as rlock.Options.TokenRetention by default.
const tokenKept = 24 * time.Hour

// Fenced returns the same semaphore, whose permit has a fencing token ([Permit.Token]): a number greater than that of
// every earlier permit of the name that was acquired so. A resource that checks tokens refuses an act with a lower one
// than it has seen. They grow as those of a Fenced lock of package rlock do, and under the same condition; the last one
// is kept for 24 h.
//
// The capacity must be 1, otherwise every call returns ErrInvalidOption: of several permits that are out at a time none
// is stale, but a resource that has seen the token of the last one would refuse all the others. If the server's
// capacity is not 1 (Resize, AddPermits, Shared), or more than one permit is out, Acquire returns ErrCapacityMismatch
// and keeps nothing.
//
// All that use the resource have to acquire with Fenced: a permit of Redisson's, or without Fenced, has no token, and
// does not make that of the holder before it stale. Each acquisition takes one call more.
func (s *Semaphore) Fenced() *Semaphore {
	m, at := *s, *s.site
	m.site, at.fenced = &at, true
	m.refuseWeights("Fenced")
	if s.capacity != 1 {
		m.refuse(fmt.Errorf("%q: %w", s.name, errs.InvalidOption("capacity of a Fenced semaphore", s.capacity, "1")))
	}
	return &m
}

// Token returns the fencing token of the permit. ok is false if its semaphore is not Fenced.
func (x *Permit) Token() (token int64, ok bool) {
	token = x.permit().token
	return token, token != 0
}

// mint makes the token of what was granted.
func (a *acquisition) mint(ctx context.Context) error {
	s := a.s
	m, err := s.c.session.Do(ctx, s.c.session.Confirmed(script.Call{Script: tokenScript,
		Keys: []string{s.key, s.permits, keyname.Suffix(s.key, "token")},
		Args: []string{idOf(a.p.base(), 0), script.Millis(tokenKept)}}))
	if err != nil {
		if ended := errs.Ended(ctx); ended != nil {
			return &wait.GaveUp{Left: -1, Cause: ended}
		}
		return err
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) != 2:
		return script.Unexpected("make a token", v, err)
	case v[0] == 0:
		return fmt.Errorf("%w: %q was granted, and lost before it had a token", errs.ErrUnavailable, s.name)
	case v[0] == 2:
		return capacityMismatch(s.name, v[1], s.capacity)
	}
	a.p.token = v[1]
	return nil
}
