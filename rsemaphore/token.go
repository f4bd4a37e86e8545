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

// The token of a permit is made by a call of its own after the grant, whether the permit was granted to a request, in a
// shared call, or handed over. Only a permit that is held gets a token. An exclusive semaphore has only one permit, so
// the next holder's token is made later, and is greater. A repeated request makes a later token of the same holder. A
// request that arrives when the permit is over makes none (token.lua).

var tokenScript = script.Load("make a token", luaFiles, "token")

// tokenKept is how long the last token is kept after the last grant. rlock.Options.TokenRetention has the same default.
const tokenKept = 24 * time.Hour

// Fenced returns the same semaphore, whose permit has a fencing token ([Permit.Token]): a number greater than the token
// of every earlier permit of the name that was acquired with Fenced. A resource that checks tokens refuses an act with
// a token that is lower than one it has seen. Tokens grow like those of a Fenced lock of package rlock, and under the
// same condition; the last token is kept for 24 h.
//
// The capacity must be 1, otherwise every call returns ErrInvalidOption. With several permits at a time none is stale,
// but a resource that has seen the last token would refuse all the others. If the server's capacity is not 1 (Resize,
// AddPermits, Shared), or more than one permit is held, Acquire returns ErrCapacityMismatch and keeps nothing.
//
// All users of the resource have to acquire with Fenced. A permit of Redisson's, or without Fenced, has no token, and
// does not make the token of the holder before it stale. Each acquisition takes one more call.
func (s *Semaphore) Fenced() *Semaphore {
	changed, at := *s, *s.site
	changed.site, at.fenced = &at, true
	changed.refuseWeights("Fenced")
	if s.capacity != 1 {
		changed.refuse(fmt.Errorf("%q: %w", s.name, errs.InvalidOption("capacity of a Fenced semaphore", s.capacity, "1")))
	}
	return &changed
}

// Token returns the fencing token of the permit. ok is false if its semaphore is not Fenced.
func (x *Permit) Token() (token int64, ok bool) {
	token = x.permit().token
	return token, token != 0
}

// mint makes the token of the granted permit.
func (a *acquisition) mint(ctx context.Context) error {
	semaphore := a.s
	message, err := semaphore.c.session.Do(ctx, semaphore.c.session.Confirmed(script.Call{Script: tokenScript,
		Keys: []string{semaphore.key, semaphore.permits, keyname.Suffix(semaphore.key, "token")},
		Args: []string{idOf(a.p.base(), 0), script.Millis(tokenKept)}}))
	if err != nil {
		if ended := errs.Ended(ctx); ended != nil {
			return &wait.GaveUp{Left: -1, Cause: ended}
		}
		return err
	}
	values, err := message.AsIntSlice()
	switch {
	case err != nil || len(values) != 2, values[0] == 1 && values[1] < 1:
		return script.Unexpected("make a token", values, err)
	case values[0] == 0:
		return fmt.Errorf("%w: %q was granted, and lost before it had a token", errs.ErrUnavailable, semaphore.name)
	case values[0] == 2:
		return capacityMismatch(semaphore.name, values[1], semaphore.capacity)
	}
	a.p.token = values[1]
	return nil
}
