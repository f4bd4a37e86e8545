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
	"github.com/redlatch/redlatch/internal/session"
)

// heldParts is one acquisition of a Multi or Quorum: the members' holds, and the life that ends when fewer of them last
// than must be held. The contexts of the whole carry the members' owners.
//
// The watchdog knows the members' handles, and calls onEnd. If onEnd kept the holds in use, a forgotten hold would be
// renewed forever. So onEnd has a weak pointer, and so has the timer of reacquireSoon
// (TestQuorum_HoldDropped_IsNotRenewedNorMended).
type heldParts struct {
	of    *several
	life  *session.Life
	onEnd *func(*session.Handle)
	began time.Time    // when enough members were held
	once  session.Once // the release

	mu       sync.Mutex
	parts    []heldPart // by member
	needed   int        // the life ends when fewer parts last; 0 in a round of a Quorum
	released bool       // or about to be: a part that comes now is released

	// A Quorum that is renewed requests the votes that it lacks.
	reacquires bool
	timer      *time.Timer // nil: no request is due or under way
	attempts   int         // in a row that left votes missing
}

type heldPart struct {
	hold    *Hold     // nil: the member is not held
	endedAt time.Time // zero while the hold lasts; then the instant until which it could be relied on
}

func newHeldParts(q *several) *heldParts {
	parts := &heldParts{of: q, life: &session.Life{}, parts: make([]heldPart, len(q.members))}
	weakly, life := weak.Make(parts), parts.life
	onEnd := func(handle *session.Handle) {
		if parts := weakly.Value(); parts != nil {
			parts.partEnded(handle)
		} else { // the hold was forgotten; a caller may wait for its Done
			life.End(handle.Err())
		}
	}
	parts.onEnd = &onEnd
	return parts
}

// add takes in the hold of the i-th member. If all was released meanwhile, it releases that hold; otherwise the lost
// one before it, which sends nothing.
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
		hold.h.OnEnd(p.onEnd) // which calls it if the hold has ended already
	}
	if unwanted != nil {
		unwanted.discard(ctx)
	}
}

// win begins the hold of a Quorum's majority, and reports whether it lasts.
func (p *heldParts) win(renewed bool) bool {
	p.mu.Lock()
	p.needed, p.reacquires = p.of.needed, renewed
	enough := p.lasting() >= p.needed
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

// lasting returns how many parts last. Called with mu held.
func (p *heldParts) lasting() (n int) {
	for _, part := range p.parts {
		if part.hold != nil && part.endedAt.IsZero() {
			n++
		}
	}
	return n
}

// partEnded is called when the hold of a member has ended. ErrMaxHold and ErrClosed end the whole: to acquire the
// member again would pass the limit.
func (p *heldParts) partEnded(handle *session.Handle) {
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
	over := p.lasting() < p.needed || !errors.Is(why, errs.ErrLost)
	p.mu.Unlock()
	if over {
		p.life.End(why)
	} else {
		p.reacquireSoon()
	}
}

// reacquireSoon requests the votes that are missing after a pause, which grows with the attempts.
//
// The first request comes soon: Unlock returns when a majority has released, so the slowest server refuses an
// acquisition that follows at once. Otherwise the hold would have no vote to spare for a third of the lease.
func (p *heldParts) reacquireSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reacquires || p.released || p.timer != nil || p.lasting() == len(p.parts) {
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

// reacquire requests the votes that are missing.
func (p *heldParts) reacquire() {
	var wg sync.WaitGroup
	for i, hold := range p.holds() {
		if hold != nil && hold.Err() == nil {
			continue
		}
		member := p.of.members[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(member.c.session.Context(), member.voteTimeout(0))
			defer cancel()
			if hold, err := p.of.acquireMember(ctx, i, 0, 0, true); err == nil {
				p.add(ctx, i, hold)
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	p.timer = nil
	if p.lasting() == len(p.parts) {
		p.attempts = 0
	}
	p.mu.Unlock()
	p.reacquireSoon()
}

// holds returns the holds by member; nil for a member that is not held.
func (p *heldParts) holds() []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	holds := make([]*Hold, len(p.parts))
	for i, part := range p.parts {
		holds[i] = part.hold
	}
	return holds
}

// held returns the holds that there are.
func (p *heldParts) held() []*Hold {
	return slices.DeleteFunc(p.holds(), func(hold *Hold) bool { return hold == nil })
}

// end returns the holds to release. Later ones are released as they come.
func (p *heldParts) end() []*Hold {
	p.mu.Lock()
	p.released = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	return p.held()
}

// handle returns the handle of the member with that key.
func (p *heldParts) handle(key any) *session.Handle {
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

func (p *heldParts) owners() Owner {
	owners := make([]string, len(p.parts))
	for i, hold := range p.holds() {
		if hold != nil {
			owners[i] = string(hold.Owner())
		}
	}
	return Owner(strings.Join(owners, ","))
}

// token returns the token of the only Fenced member of a Multi.
func (p *heldParts) token() (token int64, ok bool) {
	for _, hold := range p.held() {
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
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[p.of.needed-1]
}

// releaseGrace is how long a call whose time is over still waits for the releases of its parts: a server that replies
// has replied by then, so that nothing is held when the call returns.
const releaseGrace = 50 * time.Millisecond

// releaseAll releases the parts of a failed acquisition, at the same time. It waits for each release for a CallTimeout,
// and no longer than until (zero: not bounded) and ctx allow. The releases go on in the background, and Close waits for
// them.
func (p *heldParts) releaseAll(ctx context.Context, until time.Time) {
	holds := p.end()
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

// extend is Hold.Extend.
func (p *heldParts) extend(ctx context.Context, extension time.Duration) error {
	if err := session.CheckRange("extension", extension, session.MinLease); err != nil {
		return errs.Edge("rlock", err)
	}
	lost := func(why error) error { return fmt.Errorf("rlock: extend %q: %w", p.of.name, why) }
	if why := p.life.Err(); why != nil {
		return lost(why)
	}
	holds := p.held()
	for _, hold := range holds {
		// A restarted server votes after this time. With an extension of an hour it would vote for another holder after 30 s,
		// while the holder of before, which cannot reach it, still trusts the vote that the server forgot.
		most := max(hold.h.Holding.Longest(), hold.client().opts.WatchdogTimeout)
		if p.of.isQuorum && extension > most {
			return fmt.Errorf("rlock: %w", errs.InvalidOption("extension of a Quorum", extension,
				fmt.Sprintf("%v to %v, its lease or WatchdogTimeout", session.MinLease, most)))
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

// each runs do for the holds, at the same time. It returns nil as soon as do has succeeded for as many of them as must
// be held. Otherwise it returns when all calls of do have ended, or when ctx ends: those of a Quorum then go on.
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

// sinceHeld returns the time after the member's acquisition that is atLeast after the acquisition of the whole.
func (p *heldParts) sinceHeld(hold *Hold, atLeast time.Duration) time.Duration {
	return p.began.Add(atLeast).Sub(hold.client().session.Base.Add(hold.h.Began))
}

// keep has all parts last until atLeast after the whole was acquired.
func (p *heldParts) keep(atLeast time.Duration) {
	for _, hold := range p.held() {
		keep(hold.h, p.sinceHeld(hold, atLeast))
	}
}

// begin is Hold.begin.
func (p *heldParts) begin(ctx context.Context, atLeast time.Duration) error {
	return p.each(ctx, p.held(), func(ctx context.Context, hold *Hold) error {
		return hold.begin(ctx, p.sinceHeld(hold, atLeast))
	})
}

// unlock is Hold.Unlock. Of a Quorum it returns when a majority has replied; the other releases go on.
func (p *heldParts) unlock(ctx context.Context) error {
	q := p.of
	return q.members[0].c.handles.Release(ctx, q.name, p.life, &p.once, func(ctx context.Context) error {
		holds := p.end()
		p.life.End(errs.ErrReleased) // before anything is sent: no work may go on under a hold that is being released
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
