package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Multi describes several locks as one: acquired all or none, valid only while all are held, released together. It is
// Redisson's RMultiLock. The locks may be of any kind, and of several clients and servers. All other programs see
// single locks. docs/design/protocols.md describes in which order the locks are acquired, and what a call costs.
//
// The returned lock has its own WithWait, WithLease and WithLabel. The members' own settings are not used, except a
// member's label if the returned lock has no label. Acquiring under a hold's context re-enters what that context
// carries: a hold of the Multi, or of any member. Opposite orders cannot deadlock, because all processes acquire by
// key.
//
//   - Lock and TryLock: on failure nothing is held. A *NotAcquiredError names the member that another owner held.
//   - Err, Done and Context of the Hold end when any member is lost. The others stay held, and renewed, until Unlock.
//   - Until is the earliest Until of all members. Extend and Unlock act on all members; their errors are joined.
//   - Owner is the members' owners, joined by commas; pass it to [Lock.WithOwner] of the same Multi. Token is the token
//     of the Fenced member, if there is exactly one.
//   - IsLocked reports whether one or more members are held. ForceUnlock takes all members from their holders.
//
// A lock that is passed twice counts once. ErrInvalidOption is returned without locks, for a nil lock, for a Multi or
// Quorum as a member, and for two kinds or both sides of a ReadWrite lock on one key, because they would wait for each
// other. If two clients reach one server by different addresses, Multi may not notice: one key through both waits for
// itself.
func Multi(locks ...*Lock) (*Lock, error) {
	if len(locks) == 0 {
		return nil, fmt.Errorf("rlock: %w: multi: no locks, must be one or more", errs.ErrInvalidOption)
	}
	if err := checkMembers("multi", locks); err != nil {
		return nil, err
	}
	type lockID struct {
		server rueidis.Client
		key    string
	}
	seen := map[lockID]*single{}
	var members []*Lock
	for _, lock := range locks {
		member := lock.form.(*single)
		id := lockID{member.c.session.Hub.Client(), member.key}
		switch other := seen[id]; {
		case other == nil:
			seen[id] = member
			members = append(members, lock)
		case other.kind != member.kind:
			return nil, fmt.Errorf("rlock: %w: multi: %q is there as %s and as %s, which would wait for each other",
				errs.ErrInvalidOption, member.name, other.kind.title, member.kind.title)
		}
	}
	// By key first, and by server only if keys are equal. Otherwise the order would be the same in all processes only if
	// all of them know the servers by the same addresses.
	slices.SortStableFunc(members, func(one, other *Lock) int {
		first, second := one.form.(*single), other.form.(*single)
		if first.key != second.key {
			return cmp.Compare(first.key, second.key)
		}
		return cmp.Compare(first.c.address(), second.c.address())
	})
	return newSeveral("multi", members, len(members)).asLock(), nil
}

// address returns the first address of the server's nodes in alphabetical order. It identifies the server.
func (c *Client) address() string {
	return slices.Min(slices.Collect(maps.Keys(c.session.Hub.Client().Nodes())))
}

// acquireAll acquires all members of a Multi:
//
//  1. The members are sorted by key. Each key of a rueidis client occurs once.
//  2. If one script can acquire all members (multiRequest.isPossible), it requests all. If any member is held, the
//     script acquires none, and its reply names that member. A free member with a queue is handed to the first in the
//     queue, as in acquire.lua, and counts as held.
//  3. After a refusal, if the call may wait, the members are acquired one after the other in that order. Each has its
//     ordinary wait, all have one deadline, and each is renewed as soon as it is held. If a member is lost meanwhile,
//     all are released, and the acquisition starts over. A call that is out of time waits 50 ms for these releases; the
//     rest go on in the background.
//  4. When all are held, the members with a fixed lease are extended if they have lost more than a tenth of it, and
//     renewed no more.
func (q *several) acquireAll(ctx context.Context, wanted terms) (*heldParts, error) {
	multi := &multiAcquisition{of: q, terms: wanted, began: time.Now()}
	if wanted.wait != forever {
		multi.until = multi.began.Add(wanted.wait)
	}
	request := &multiRequest{multiAcquisition: multi, c: q.members[0].c}
	if request.isPossible(ctx) {
		parts, err := request.acquire(ctx)
		if !errors.Is(err, errOneByOne) {
			return parts, err
		}
	}
	for n := 0; ; n++ {
		parts, err := multi.assemble(ctx)
		if !errors.Is(err, errLostMeanwhile) || ctx.Err() != nil || multi.timeLeft() == 0 ||
			!script.Pause(ctx, script.Backoff(n)) {
			return parts, err
		}
	}
}

// multiAcquisition is one acquisition of a Multi.
type multiAcquisition struct {
	of    *several
	terms terms
	began time.Time
	until time.Time // the end of the wait; zero: only ctx bounds the wait
}

// timeLeft returns how long the acquisition may still wait.
func (a *multiAcquisition) timeLeft() time.Duration {
	if a.until.IsZero() {
		return forever
	}
	return max(0, time.Until(a.until))
}

// releaseUntil returns the instant until which the acquisition waits for releases of parts; zero: only ctx bounds that
// wait. A call that does not wait for the lock waits for one CallTimeout.
func (a *multiAcquisition) releaseUntil() time.Time {
	if a.terms.wait == 0 {
		return a.until.Add(a.of.members[0].c.opts.CallTimeout)
	}
	return a.until
}

// assemble acquires the members one after the other. The error is errLostMeanwhile if a member was lost while others
// were acquired.
//
// The parts are renewed meanwhile, even if the call has a fixed lease. Otherwise, after a wait longer than the lease,
// the first members would belong to another owner when the last member is granted
// (TestMulti_LeaseShorterThanTheWait_MakesNoSecondHolder).
func (a *multiAcquisition) assemble(ctx context.Context) (*heldParts, error) {
	q, parts := a.of, newHeldParts(a.of)
	whole, cancel := context.WithCancel(ctx)
	defer cancel()
	err := a.acquireEach(parts.life.Context(whole), parts) // the context ends when a part is lost
	why := parts.life.Err()
	if err == nil && why == nil && time.Now().Before(parts.until()) {
		return parts, nil
	}
	name := q.name
	for i, hold := range parts.holdsByMember() {
		if hold != nil && hold.Err() != nil {
			name = q.members[i].name
		}
	}
	parts.releaseAll(ctx, a.releaseUntil())
	switch {
	case why == nil && err != nil:
		return nil, err
	case errors.Is(why, errs.ErrClosed):
		return nil, fmt.Errorf("rlock: %q: %w", name, errs.ErrClosed)
	case errors.Is(why, errs.ErrMaxHold):
		return nil, fmt.Errorf("rlock: %q: %w before all of %q were acquired", name, errs.ErrMaxHold, q.name)
	}
	lost := &NotAcquiredError{Name: name, Lease: -1, Waited: time.Since(a.began), Cause: errLostMeanwhile}
	if ctx.Err() != nil {
		lost.Cause = fmt.Errorf("%w: %w", lost.Cause, context.Cause(ctx))
	}
	return nil, lost
}

var errLostMeanwhile = errors.New("lost while others were acquired")

// acquireEach acquires the members one after the other, and then applies the fixed lease of the call.
func (a *multiAcquisition) acquireEach(ctx context.Context, parts *heldParts) error {
	for i := range a.of.members {
		hold, err := a.of.acquireMember(ctx, i, terms{wait: a.timeLeft(), lease: a.terms.lease, beside: parts})
		if err != nil {
			var contended *NotAcquiredError
			if errors.As(err, &contended) {
				contended.Waited = time.Since(a.began)
			}
			return err
		}
		parts.add(ctx, i, hold)
	}
	if a.terms.lease == 0 || parts.life.Err() != nil {
		return nil
	}
	return a.applyLease(ctx, parts)
}

// applyLease applies the fixed lease of the call, now that all parts are held. A part that has lost more than a tenth
// of the lease is extended, and no part is renewed any more.
func (a *multiAcquisition) applyLease(caller context.Context, parts *heldParts) error {
	ctx, wanted, holds := caller, a.terms.lease, parts.heldMembers()
	if until := a.releaseUntil(); !until.IsZero() {
		end := time.Now().Add(holds[0].client().opts.CallTimeout) // the call has at least one CallTimeout
		if until.After(end) {
			end = until
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	err := parts.each(ctx, holds, func(ctx context.Context, hold *Hold) error {
		if time.Until(hold.Until()) >= wanted-lease.Margin(wanted)-wanted/10 {
			return nil
		}
		return hold.Extend(ctx, wanted)
	})
	for _, hold := range holds {
		hold.h.Manual()
	}
	if cause := errs.Ended(caller); cause != nil && errs.IsCut(err) {
		return &NotAcquiredError{Name: a.of.name, Lease: -1, Waited: time.Since(a.began), Cause: cause, Unheard: true}
	}
	return err
}
