package rlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/session"
)

// heldParts is the hold of one acquisition of a Multi or Quorum: the members' holds, and a life that ends when too few
// of the members' holds last. The contexts of the whole carry the members' owners.
//
// The watchdog knows the members' handles, and calls onEnd. If onEnd kept the holds in use, a dropped hold would be
// renewed forever. So onEnd has a weak pointer, and the timer of reacquireSoon has one, too
// (TestQuorum_HoldDropped_IsNotRenewedNorMended).
type heldParts struct {
	of    *several
	life  *hold.Life
	onEnd *func(*hold.Handle)
	began time.Time    // when enough members were held
	once  session.Once // runs the release

	mu       sync.Mutex
	parts    []heldPart // by member
	needed   int        // the life ends when fewer parts last; 0 during a round of a Quorum
	released bool       // the release has begun: a part that is added now is released at once

	// A Quorum that is renewed requests missing votes again.
	reacquires bool
	timer      *time.Timer // nil: no request is due or in progress
	attempts   int         // requests in a row after which votes were still missing
}

type heldPart struct {
	hold    *Hold     // nil: the member is not held
	endedAt time.Time // zero while the hold lasts; then the instant until which it could be relied on
}

func newHeldParts(q *several) *heldParts {
	parts := &heldParts{of: q, life: &hold.Life{}, parts: make([]heldPart, len(q.members))}
	weakly, life := weak.Make(parts), parts.life
	onEnd := func(handle *hold.Handle) {
		if parts := weakly.Value(); parts != nil {
			parts.partEnded(handle)
		} else { // the hold was dropped; a caller may still wait for its Done
			life.End(handle.Err())
		}
	}
	parts.onEnd = &onEnd
	return parts
}

// add adds the hold of the i-th member. If the release has begun, add releases that hold. Otherwise it releases the
// member's earlier hold, which is lost, so the release sends nothing.
func (p *heldParts) add(ctx context.Context, i int, hold *Hold) {
	unwanted := hold
	p.mu.Lock()
	if !p.released {
		unwanted, p.parts[i] = p.parts[i].hold, heldPart{hold: hold}
		if !p.of.isQuorum {
			p.needed++
		}
	}
	p.mu.Unlock()
	if unwanted != hold {
		hold.h.OnEnd(p.onEnd) // calls onEnd at once if the hold has ended already
	}
	if unwanted != nil {
		unwanted.discard(ctx)
	}
}

// startMajority begins the hold of a Quorum that has a majority, and reports whether the majority still lasts.
func (p *heldParts) startMajority(renewed bool) bool {
	p.mu.Lock()
	p.needed, p.reacquires = p.of.needed, renewed
	enough := p.countLasting() >= p.needed
	p.mu.Unlock()
	if !enough {
		p.life.End(errs.ErrLost)
	}
	if p.life.Err() != nil || !time.Now().Before(p.until()) {
		return false
	}
	p.reacquireSoon()
	return true
}

// countLasting returns the number of parts whose hold lasts. Called with mu held.
func (p *heldParts) countLasting() (count int) {
	for _, part := range p.parts {
		if part.hold != nil && part.endedAt.IsZero() {
			count++
		}
	}
	return count
}

// partEnded is called when the hold of a member has ended. ErrMaxHold and ErrClosed end the whole: acquiring the member
// again would pass the limit, or fail.
func (p *heldParts) partEnded(handle *hold.Handle) {
	why, endedAt := handle.Err(), time.Now()
	if until := handle.Holding.Until(); until.Before(endedAt) {
		endedAt = until
	}
	p.mu.Lock()
	i := slices.IndexFunc(p.parts, func(part heldPart) bool { return part.hold != nil && part.hold.h == handle })
	if i < 0 || !p.parts[i].endedAt.IsZero() {
		p.mu.Unlock()
		return
	}
	p.parts[i].endedAt = endedAt
	over := p.countLasting() < p.needed || !errors.Is(why, errs.ErrLost)
	p.mu.Unlock()
	if over {
		p.life.End(why)
	} else {
		p.reacquireSoon()
	}
}

// reacquireSoon requests the missing votes after a pause, which grows with the attempts.
//
// The first pause is short. Unlock returns when a majority has released, so the slowest server refuses an acquisition
// that follows at once. With a pause of a third of the lease, the hold would have no spare vote for that time.
func (p *heldParts) reacquireSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reacquires || p.released || p.timer != nil || p.countLasting() == len(p.parts) {
		return
	}
	pause := 10 * time.Millisecond << min(p.attempts, 20)
	for _, member := range p.of.members {
		pause = min(pause, member.c.opts.WatchdogTimeout/3)
	}
	p.attempts++
	weakly := weak.Make(p)
	p.timer = time.AfterFunc(pause-rand.N(pause/10+1), func() {
		if parts := weakly.Value(); parts != nil && parts.life.Err() == nil {
			parts.reacquire()
		}
	})
}

// reacquire requests the missing votes once.
func (p *heldParts) reacquire() {
	var wg sync.WaitGroup
	for i, hold := range p.holdsByMember() {
		if hold != nil && hold.Err() == nil {
			continue
		}
		member := p.of.members[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(member.c.session.Context(), member.voteTimeout(0))
			defer cancel()
			if hold, err := p.of.acquireMember(ctx, i, terms{}); err == nil {
				p.add(ctx, i, hold)
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	p.timer = nil
	if p.countLasting() == len(p.parts) {
		p.attempts = 0
	}
	p.mu.Unlock()
	p.reacquireSoon()
}

// holdsByMember returns the members' holds by member; nil for a member that is not held.
func (p *heldParts) holdsByMember() []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	holds := make([]*Hold, len(p.parts))
	for i, part := range p.parts {
		holds[i] = part.hold
	}
	return holds
}

// heldMembers returns the holds of the members that are held.
func (p *heldParts) heldMembers() []*Hold {
	return slices.DeleteFunc(p.holdsByMember(), func(hold *Hold) bool { return hold == nil })
}

// startRelease returns the holds to release. A hold that is added later is released at once.
func (p *heldParts) startRelease() []*Hold {
	p.mu.Lock()
	p.released = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	return p.heldMembers()
}

// handle returns the handle of the member whose owner a context carries under that key; nil if no held member has it.
func (p *heldParts) handle(key any) *hold.Handle {
	if _, ok := key.(ownerKey); !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, part := range p.parts {
		if part.hold != nil && p.of.members[i].ownKey == key {
			return part.hold.h
		}
	}
	return nil
}

// owners returns the members' owners, joined by commas; empty for a member that is not held.
func (p *heldParts) owners() Owner {
	owners := make([]string, len(p.parts))
	for i, hold := range p.holdsByMember() {
		if hold != nil {
			owners[i] = string(hold.Owner())
		}
	}
	return Owner(strings.Join(owners, ","))
}

// token returns the token of a Multi's Fenced member. ok is false unless there is exactly one such member.
func (p *heldParts) token() (token int64, ok bool) {
	for _, hold := range p.heldMembers() {
		minted, fenced := hold.Token()
		if fenced && ok {
			return 0, false
		}
		token, ok = max(token, minted), ok || fenced
	}
	return token, ok
}

// until returns the instant until which as many parts can be trusted as must be held.
func (p *heldParts) until() time.Time {
	p.mu.Lock()
	var ends []time.Time
	for _, part := range p.parts {
		switch {
		case part.hold == nil:
		case part.endedAt.IsZero():
			ends = append(ends, part.hold.Until())
		default:
			ends = append(ends, part.endedAt)
		}
	}
	p.mu.Unlock()
	if len(ends) < p.of.needed {
		return time.Time{}
	}
	slices.SortFunc(ends, func(first, second time.Time) int { return second.Compare(first) })
	return ends[p.of.needed-1]
}

// releaseGrace is how long a call whose time is over still waits for the releases of its parts. A healthy server has
// replied by then, so nothing is held when the call returns.
const releaseGrace = 50 * time.Millisecond

// releaseAll releases the parts of a failed acquisition at the same time. It waits for the releases until their
// CallTimeout, until (zero: no bound) or the end of ctx, and then for releaseGrace. Unfinished releases go on in the
// background, and Close waits for them.
func (p *heldParts) releaseAll(ctx context.Context, until time.Time) {
	holds := p.startRelease()
	p.life.End(errs.ErrReleased)
	var releases sync.WaitGroup
	for _, hold := range holds {
		releases.Go(func() { hold.discard(ctx) })
	}
	inTime := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		inTime, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	done := make(chan struct{})
	go func() { releases.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-inTime.Done():
	}
	select {
	case <-done:
	case <-time.After(releaseGrace):
	}
}

// discard releases a hold that is not wanted. If the release fails, it goes on in the background.
func (x *Hold) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.client().opts.CallTimeout)
	defer cancel()
	_ = x.Unlock(ctx)
}

// extend implements Hold.Extend.
func (p *heldParts) extend(ctx context.Context, extension time.Duration) error {
	if err := session.CheckRange("extension", extension, session.MinLease); err != nil {
		return errs.Edge("rlock", err)
	}
	lost := func(why error) error { return fmt.Errorf("rlock: extend %q: %w", p.of.name, why) }
	if why := p.life.Err(); why != nil {
		return lost(why)
	}
	holds := p.heldMembers()
	for _, hold := range holds {
		// A restarted server votes again after this time. After an extension of an hour, it would vote for another holder
		// after 30 s. The first holder, which cannot reach the server, would still trust the forgotten vote.
		longest := max(hold.h.Holding.Longest(), hold.client().opts.WatchdogTimeout)
		if p.of.isQuorum && extension > longest {
			return fmt.Errorf("rlock: %w", errs.InvalidOption("extension of a Quorum", extension,
				fmt.Sprintf("%v to %v, its lease or WatchdogTimeout", session.MinLease, longest)))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := p.each(ctx, holds, func(ctx context.Context, hold *Hold) error { return hold.Extend(ctx, extension) })
	if why := p.life.Err(); err != nil && why != nil {
		return lost(why)
	}
	return err
}

// each calls do for each hold, at the same time. It returns nil as soon as enough calls have succeeded: as many as
// members must be held. Otherwise it returns an error when all calls have ended. For a Quorum it also returns when ctx
// ends, and the calls go on.
func (p *heldParts) each(ctx context.Context, holds []*Hold, do func(context.Context, *Hold) error) error {
	done := make(chan error, len(holds))
	for _, hold := range holds {
		go func() { done <- do(ctx, hold) }()
	}
	var ended <-chan struct{}
	if p.of.isQuorum {
		ended = ctx.Done()
	}
	var failures []error
	for succeeded := 0; succeeded < p.of.needed; {
		if succeeded+len(failures) == len(holds) {
			return p.of.failure(failures)
		}
		select {
		case err := <-done:
			if err != nil {
				failures = append(failures, err)
			} else {
				succeeded++
			}
		case <-ended:
			return p.of.failure(append(failures,
				fmt.Errorf("rlock: %q: %w: %w", p.of.name, errs.ErrUnknownOutcome, context.Cause(ctx))))
		}
	}
	return nil
}

// sinceHeld converts atLeast, a time after the acquisition of the whole, to a time after the member's acquisition.
func (p *heldParts) sinceHeld(hold *Hold, atLeast time.Duration) time.Duration {
	return p.began.Add(atLeast).Sub(hold.client().session.Base.Add(hold.h.Began))
}

// keep makes all parts last until atLeast after the whole was acquired.
func (p *heldParts) keep(atLeast time.Duration) {
	for _, hold := range p.heldMembers() {
		keep(hold.h, p.sinceHeld(hold, atLeast))
	}
}

// begin implements Hold.begin.
func (p *heldParts) begin(ctx context.Context, atLeast time.Duration) error {
	return p.each(ctx, p.heldMembers(), func(ctx context.Context, hold *Hold) error {
		return hold.begin(ctx, p.sinceHeld(hold, atLeast))
	})
}

// unlock implements Hold.Unlock. For a Quorum it returns when a majority has released; the other releases go on.
func (p *heldParts) unlock(ctx context.Context) error {
	q := p.of
	return q.members[0].c.keeper.Release(ctx, q.name, p.life, &p.once, func(ctx context.Context) error {
		holds := p.startRelease()
		p.life.End(errs.ErrReleased) // before anything is sent: no work may continue under a hold that is being released
		why := p.life.Err()
		err := p.each(ctx, holds, func(ctx context.Context, hold *Hold) error {
			if q.isQuorum {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 4*hold.client().opts.CallTimeout)
				defer cancel()
			}
			return hold.Unlock(ctx)
		})
		if q.isQuorum {
			q.members[0].c.waiters.Wake(q.queueKey)
		}
		if errors.Is(why, errs.ErrLost) && (q.isQuorum || err == nil) {
			return fmt.Errorf("rlock: unlock %q: %w", q.name, why)
		}
		return err
	})
}
