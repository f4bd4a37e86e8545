package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// bundle is the hold of a composite as its parts' handles know it. It must not refer to any Hold: the watchdog refers
// to the handles, and they to the bundle, so a forgotten composite would be renewed forever
// (TestQuorum_HoldDropped_IsNotRenewedNorMended).
type bundle struct {
	life session.Life
	hook func(*session.Handle) // ended

	mu   sync.Mutex
	need int                           // the hold is over when fewer parts last
	live map[*session.Handle]struct{}  // parts that last
	dead map[*session.Handle]time.Time // parts that do not, and until when they could be relied on
	why  error                         // another reason than ErrLost for which one has ended before any was needed

	reacquire   func() // of a Quorum: asks for the missing votes again, soon
	reacquiring *time.Timer
}

func newBundle() *bundle {
	b := &bundle{live: map[*session.Handle]struct{}{}, dead: map[*session.Handle]time.Time{}}
	b.hook = b.ended
	return b
}

// attach takes in a hold that was just acquired; it may have ended already. needed: the hold of all is over without it.
func (b *bundle) attach(x *Hold, needed bool) {
	h := x.h
	b.mu.Lock()
	b.live[h] = struct{}{}
	if needed {
		b.need++
	}
	b.mu.Unlock()
	h.OnEnd(&b.hook)
}

// require has the hold of all end when fewer than need parts last; false: it has.
func (b *bundle) require(need int) bool {
	b.mu.Lock()
	b.need = need
	why := b.why
	if why == nil && len(b.live) < need {
		why = errs.ErrLost
	}
	b.mu.Unlock()
	if why != nil {
		b.life.End(why)
	}
	return why == nil
}

// ended is called when a part is over. ErrMaxHold and ErrClosed of any part end the whole: to acquire a vote again
// would pass the limit.
func (b *bundle) ended(h *session.Handle) {
	why, until := h.Err(), time.Now()
	if d := h.Holding.Until(); d.Before(until) {
		until = d
	}
	b.mu.Lock()
	if _, ok := b.live[h]; !ok {
		b.mu.Unlock()
		return
	}
	delete(b.live, h)
	b.dead[h] = until
	over := b.need > 0 && (len(b.live) < b.need || !errors.Is(why, errs.ErrLost))
	if !errors.Is(why, errs.ErrLost) {
		b.why = why
	}
	reacquire := b.reacquire
	b.mu.Unlock()
	switch {
	case over:
		b.life.End(why)
	case reacquire != nil:
		reacquire()
	}
}

// until is the n-th latest deadline of the parts: until then n parts can be trusted.
func (b *bundle) until(holds []*Hold, n int) time.Time {
	ends := make([]time.Time, 0, len(holds))
	b.mu.Lock()
	for _, x := range holds {
		if x == nil {
			continue
		}
		end, over := b.dead[x.h]
		if !over {
			end = x.Until()
		}
		ends = append(ends, end)
	}
	b.mu.Unlock()
	if len(ends) < n {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[n-1]
}

// stopReacquiring ends the asking for missing votes. The hold is over.
func (b *bundle) stopReacquiring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reacquire = nil
	if b.reacquiring != nil {
		b.reacquiring.Stop()
	}
}

// parts is the hold of a composite, as its Hold knows it.
type parts struct {
	of    *composite
	b     *bundle
	began time.Time // when all were there

	mu    sync.Mutex
	holds []*Hold // by member; nil: not held
	given bool    // given back, or about to be: a part that comes now is not wanted
	once  session.Once
}

func newParts(q *composite) *parts {
	return &parts{of: q, b: newBundle(), holds: make([]*Hold, len(q.members))}
}

// add takes in the hold of the i-th member. wanted is false if the composite has been given back.
func (p *parts) add(i int, x *Hold) (wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given {
		return false
	}
	p.holds[i] = x
	p.b.attach(x, !p.of.quorum)
	return true
}

// missing are the members of which there is no hold that lasts.
func (p *parts) missing() (which []int) {
	for i, x := range p.all() {
		if x == nil || x.h.Err() != nil {
			which = append(which, i)
		}
	}
	return which
}

func (p *parts) all() []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.holds)
}

// take returns the parts, and has every later one refused.
func (p *parts) take() []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = true
	return slices.DeleteFunc(slices.Clone(p.holds), func(x *Hold) bool { return x == nil })
}

// handle is that of the member with that key.
func (p *parts) handle(key any) *session.Handle {
	if _, ok := key.(ownerKey); !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.holds {
		if x != nil && ownerOf(x.h).lock.ownKey == key {
			return x.h
		}
	}
	return nil
}

func (p *parts) owners() Owner {
	var all []string
	for _, x := range p.all() {
		own := ""
		if x != nil {
			own = string(x.Owner())
		}
		all = append(all, own)
	}
	return Owner(strings.Join(all, ","))
}

// token is that of the only Fenced member of a Multi.
func (p *parts) token() (token int64, ok bool) {
	for _, x := range p.all() {
		if x == nil {
			continue
		}
		if t, fenced := x.Token(); fenced {
			if ok {
				return 0, false
			}
			token, ok = t, true
		}
	}
	return token, ok
}

func (p *parts) until() time.Time { return p.b.until(p.all(), p.of.need) }

// outOfTime is for how long a call whose time is up still waits for what it gives back: a server that answers has it by
// then, so that nothing is held when the call returns.
const outOfTime = 50 * time.Millisecond

// giveBack releases what a failed acquisition has got, all at the same time. It waits for that for as long as one call
// may take, and no longer than until (zero: no such bound) and ctx allow; what is not confirmed then is released in the
// background. Close waits for that.
func (p *parts) giveBack(ctx context.Context, until time.Time) {
	p.b.stopReacquiring()
	holds := p.take()
	done := make(chan struct{}, len(holds))
	limit := time.Duration(0)
	for _, x := range holds {
		limit = max(limit, ownerOf(x.h).lock.c.opts.CallTimeout)
		go func() {
			x.discard(ctx)
			done <- struct{}{}
		}()
	}
	p.b.life.End(errs.ErrReleased)
	if !until.IsZero() {
		limit = min(limit, max(0, time.Until(until)))
	}
	late := time.NewTimer(limit + outOfTime)
	defer late.Stop()
	ended := ctx.Done()
	for left := len(holds); left > 0; {
		select {
		case <-done:
			left--
		case <-ended:
			ended = nil
			late.Reset(outOfTime)
		case <-late.C:
			return
		}
	}
}

// discard unlocks what is not wanted.
func (x *Hold) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.client().opts.CallTimeout)
	defer cancel()
	_ = x.Unlock(ctx) // if it fails it goes on by itself
}

func (p *parts) extend(ctx context.Context, d time.Duration) error {
	if err := session.CheckRange("extension", d, session.MinLease); err != nil {
		return errs.Edge("rlock", err)
	}
	if why := p.b.life.Err(); why != nil {
		return fmt.Errorf("rlock: extend %q: %w", p.of.name, why)
	}
	if p.of.quorum {
		for _, x := range p.all() {
			if x == nil {
				continue
			}
			// A restarted server votes after this time. With an extension of an hour it would vote for another holder after 30
			// s, while the holder of before, which cannot reach it, still trusts the vote that the server forgot.
			if most := max(x.h.Holding.Longest(), ownerOf(x.h).lock.c.opts.WatchdogTimeout); d > most {
				return fmt.Errorf("rlock: %w",
					errs.InvalidOption("extension of a Quorum", d,
						fmt.Sprintf("%v to %v, its lease or WatchdogTimeout", session.MinLease, most)))
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures, ok := p.each(ctx, p.all(), func(ctx context.Context, x *Hold) error { return x.Extend(ctx, d) })
	switch {
	case ok:
		return nil
	case p.b.life.Err() != nil:
		return fmt.Errorf("rlock: extend %q: %w", p.of.name, p.b.life.Err())
	}
	return p.of.combined(p.of.name, failures)
}

// each does something with all holds at the same time. It returns as soon as as many as must be held have succeeded,
// when all have ended, or when ctx ends; the others go on. ok: the first of these.
func (p *parts) each(ctx context.Context, holds []*Hold,
	do func(context.Context, *Hold) error) (failed []error, ok bool) {
	done := make(chan error, len(holds))
	n := 0
	for _, x := range holds {
		if x != nil {
			n++
			go func() { done <- do(ctx, x) }()
		}
	}
	succeeded := 0
	for range n {
		select {
		case err := <-done:
			if err == nil {
				succeeded++
			} else {
				failed = append(failed, err)
			}
		case <-ctx.Done():
			if p.of.quorum {
				return append(failed, fmt.Errorf("rlock: %q: %w: %w", p.of.name, errs.ErrUnknownOutcome, context.Cause(ctx))), false
			}
			err := <-done // each ends with ctx by itself
			if err == nil {
				succeeded++
			} else {
				failed = append(failed, err)
			}
		}
		if succeeded >= p.of.need {
			return failed, true
		}
	}
	return failed, false
}

// keep has all parts last until d after the whole was acquired.
func (p *parts) keep(d time.Duration) {
	for _, x := range p.all() {
		if x != nil {
			keep(x.h, p.began.Add(d).Sub(ownerOf(x.h).lock.c.session.Base.Add(x.h.Began)))
		}
	}
}

// begin is Hold.begin of a composite.
func (p *parts) begin(ctx context.Context, d time.Duration) error {
	failures, ok := p.each(ctx, p.all(), func(ctx context.Context, x *Hold) error {
		return x.begin(ctx, p.began.Add(d).Sub(ownerOf(x.h).lock.c.session.Base.Add(x.h.Began)))
	})
	if ok {
		return nil
	}
	return p.of.combined(p.of.name, failures)
}

// unlock is Hold.Unlock of a composite.
func (p *parts) unlock(ctx context.Context) error {
	return p.handles().Release(ctx, p.of.name, &p.b.life, &p.once, func(ctx context.Context) error {
		p.b.stopReacquiring()
		p.b.life.End(errs.ErrReleased) // before anything is sent: no work may go on under a hold that is being released
		return p.release(ctx, p.b.life.Err())
	})
}

// handles are those of the first member's client.
func (p *parts) handles() *session.Handles { return &p.of.members[0].c.handles }

// release gives all parts back. why: what ended the hold.
func (p *parts) release(ctx context.Context, why error) error {
	q := p.of
	unlock := func(ctx context.Context, x *Hold) error { return x.Unlock(ctx) }
	if q.quorum {
		unlock = func(ctx context.Context, x *Hold) error { // goes on when a majority has answered
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*ownerOf(x.h).lock.c.opts.CallTimeout)
			defer cancel()
			return x.Unlock(ctx)
		}
	}
	failed, ok := p.each(ctx, p.take(), unlock)
	if q.quorum {
		q.members[0].c.waiters.Wake(q.queueKey)
	}
	switch {
	case errors.Is(why, errs.ErrLost) && (q.quorum || len(failed) == 0):
		return fmt.Errorf("rlock: unlock %q: %w", p.of.name, why)
	case ok:
		return nil
	}
	return q.combined(p.of.name, failed)
}

// combined is the error of a composite, from those of its members. Of a Quorum it says no more than is true of the
// whole.
func (q *composite) combined(name string, failed []error) error {
	if !q.quorum {
		return errors.Join(failed...)
	}
	lost, unsure := 0, false
	for _, err := range failed {
		if errors.Is(err, errs.ErrLost) {
			lost++
		}
		unsure = unsure || errors.Is(err, errs.ErrUnknownOutcome)
	}
	if lost > len(q.members)-q.need {
		return fmt.Errorf("rlock: %q: %w", name, errs.ErrLost)
	}
	all := make([]error, 0, len(failed))
	for _, err := range failed {
		switch {
		case errors.Is(err, errs.ErrLost): // of one member: the whole is not lost by that
			err = errors.New(err.Error())
		case unsure:
			err = script.Unsure(err)
		}
		all = append(all, err)
	}
	return fmt.Errorf("rlock: %q: fewer than %d of %d members: %w", name, q.need, len(q.members), errors.Join(all...))
}
