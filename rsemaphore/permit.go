package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Permit is one acquisition of a semaphore: the right to be one of those, or as many of those as N says, until Release,
// or until it is lost. It is safe for concurrent use and belongs to no goroutine.
//
// Run the work under [Permit.Context], which ends with the permit. A permit that nobody can reach any more, neither it
// nor one of its contexts, is no longer renewed, with a warning in the log: its lease runs out. The garbage collector finds
// that out, which runs every two minutes in a process that is idle: it is renewed until then. One with a leaseTime of
// its own may be left to it on purpose: a permit of a minute that nobody releases is one start a minute.
type Permit struct {
	p       *permit
	cleanup runtime.Cleanup
}

// permit is what the watchdog keeps of a Permit; it must not refer to the Permit, whose reachability is what tells
// whether it was forgotten.
type permit struct {
	s     *Semaphore
	n     int
	lease lease.Lease // its owner is all the ids in one
	auto  bool
	began time.Time

	// doubt: some request of its acquisition was never answered and may run until this instant, on the server also
	// after the release. Set before the handle is made.
	doubt time.Time

	life session.Life

	mu       sync.Mutex
	dropped  bool          // nobody can call Release any more
	given    bool          // Release was called
	finished bool          // Release has ended, or there will be no handle to call it on
	again    bool          // a late reply has said, while Release was under way, that permits had been taken
	released chan struct{} // closed when result is set
	result   error
}

func (s *Semaphore) newPermit(ctx context.Context, n int, d time.Duration, auto bool) *permit {
	p := &permit{s: s, n: n, auto: auto, released: make(chan struct{})}
	ids := s.c.newIDs(n)
	p.lease = lease.Lease{Name: s.name, Key: s.key, More: &[]string{s.permits, s.notes}, Owner: ids,
		Renew: renewScript, Untracked: true, Ctx: ctx, Of: p, Longest: d,
		Ended: p.ended}
	return p
}

// ended is the watchdog's word that the permit is over. It may come again: a permit that Close has ended stays with the
// watchdog until Release, and can be lost before that.
func (p *permit) ended(why error) {
	if p.lease.Tell() {
		p.s.c.observer.Ended(p.lease.Values(), p.s.name, why)
	}
	p.end(why)
}

// Shown is how logs call a permit.
func (p *permit) Shown() string {
	first := idText(p.lease.Owner[:idSize])
	if p.n > 1 {
		return fmt.Sprintf("%s and %d more", first, p.n-1)
	}
	return first
}

// ids are the raw ids.
func (p *permit) ids() []string {
	ids := make([]string, p.n)
	for i := range ids {
		ids[i] = p.lease.Owner[i*idSize : (i+1)*idSize]
	}
	return ids
}

// handle makes the handle of a permit that is registered, and counted in by begin.
func (p *permit) handle(doubt time.Time) *Permit {
	p.mu.Lock()
	p.doubt, p.began = doubt, time.Now()
	p.mu.Unlock()
	p.life.Count()
	if errors.Is(p.life.Err(), ErrLost) { // between the grant and here
		p.uncount()
	}
	x := &Permit{p: p}
	x.cleanup = runtime.AddCleanup(x, (*permit).forgotten, p)
	return x
}

// forgotten runs when the Permit and all its contexts are unreachable without a Release. One that is never renewed may
// be left to its lease.
func (p *permit) forgotten() {
	live := p.life.Err() == nil
	p.mu.Lock()
	p.dropped = true
	p.mu.Unlock()
	if p.auto {
		p.s.c.engine.Manual(&p.lease) // it stays until its lease is over: somebody may wait for its Done
	}
	p.uncount() // Close need not wait for a Release that cannot come
	if !p.auto || !live {
		return
	}
	args := []any{"name", p.s.name, "permit", p.Shown()}
	if p.s.label != "" {
		args = append(args, "label", p.s.label)
	}
	p.s.c.log.Warn("redlatch: a permit was dropped without Release; it is no longer renewed", args...)
}

// InUse implements session.Holder.
func (p *permit) InUse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dropped
}

// end ends the permit and its contexts; the first reason counts.
func (p *permit) end(why error) {
	p.life.End(why)
	if errors.Is(why, ErrLost) { // nothing is held that Close could wait for, whatever ended it before
		p.uncount()
	}
}

// uncount has Close wait for this permit no longer.
func (p *permit) uncount() {
	if p.life.Uncount() {
		p.s.c.session.Leave()
	}
}

// late is told that a request which its caller had given up on has taken permits. They are given back if nobody will
// do it otherwise: not of a permit in use, and not beside a Release under way, which would find them gone.
func (p *permit) late() {
	p.mu.Lock()
	p.again = p.given
	owe := p.finished || !p.given && errors.Is(p.life.Err(), ErrLost)
	p.mu.Unlock()
	if owe {
		p.owe(time.Time{})
	}
}

// finish ends the part of the handle: from now on, late replies are dealt with as they come.
func (p *permit) finish() {
	p.mu.Lock()
	p.finished = true
	again := p.again
	p.mu.Unlock()
	if again {
		p.owe(time.Time{})
	}
}

// longest is for how long from now the server may have the permit, whatever is done.
func (p *permit) longest() time.Duration { return p.s.c.engine.Longest(&p.lease, 0) }

// owe has the permit released in the background until its lease is over. An answer before after is not final.
func (p *permit) owe(after time.Time) {
	s, ids := p.s, p.lease.Owner
	s.c.retrier.Add(&session.Pending{
		Name:  s.name,
		After: after,
		Until: time.Now().Add(max(p.longest(), s.c.opts.CallTimeout)),
		Release: func(ctx context.Context) error {
			_, err := s.runRelease(ctx, ids, false)
			if err == nil {
				s.c.queue.Wake(s.line())
			}
			if errors.Is(err, ErrWrongType) {
				return nil // nothing of it is left
			}
			return err // also a refusal: the right that is missing may be given
		},
	})
}

// permitContext refers to the Permit, which therefore counts as in use for as long as any of its contexts does.
type permitContext struct {
	context.Context
	permit *Permit
}

// Context returns a child of parent that ends with the permit: at Release with cause ErrReleased, otherwise with
// ErrLost, ErrMaxHold or ErrClosed. The context of a permit that is over has ended.
func (x *Permit) Context(parent context.Context) context.Context {
	if own, ok := parent.(*permitContext); ok && own.permit == x {
		parent = own.Context // it refers to the Permit, and the life, which the watchdog knows, to it
	}
	return &permitContext{x.p.life.Context(parent), x}
}

// Value tells Release that ctx comes from its own permit.
func (x *permitContext) Value(key any) any {
	if key == permitKey(x.permit.p) {
		return true
	}
	return x.Context.Value(key)
}

type permitKey *permit

// Done returns a channel that is closed when the permit is over.
func (x *Permit) Done() <-chan struct{} { return x.p.life.Done() }

// Err says why the permit is over: ErrReleased, ErrLost (which may be joined with ErrWrongType: compare with errors.Is),
// ErrMaxHold or ErrClosed; nil while it lasts.
func (x *Permit) Err() error { return x.p.life.Err() }

// Name returns the semaphore's name.
func (x *Permit) Name() string { return x.p.s.name }

// N is how many permits these are.
func (x *Permit) N() int { return x.p.n }

// IDs returns their ids, N of them, each 32 hexadecimal digits: what [Semaphore.ReleaseIDs] and Redisson take.
func (x *Permit) IDs() []string {
	ids := x.p.ids()
	for i, raw := range ids {
		ids[i] = idText(raw)
	}
	return ids
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. It moves on with every
// confirmed renewal; after the permit is over it says nothing.
func (x *Permit) Until() time.Time { return x.p.s.c.engine.Until(&x.p.lease) }

// Extend makes the permit last for at least d from now, at least 10 ms; it never shortens it. nil: confirmed by the
// server. ErrLost: the permit is over and this is how it was found out, or it was before; ErrReleased after Release.
// ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until is as it was.
func (x *Permit) Extend(ctx context.Context, d time.Duration) error {
	p, s := x.p, x.p.s
	if err := session.CheckRange("extension", d, session.MinLease); err != nil {
		return errs.Edge("rsemaphore", err)
	}
	if why := x.Err(); why != nil {
		return fmt.Errorf("rsemaphore: extend %q: %w", s.name, why)
	}
	confirmed, err := s.c.engine.Extend(ctx, &p.lease, d)
	switch {
	case confirmed:
		return nil
	case err == nil:
		if err = x.Err(); err == nil {
			err = ErrLost
		}
	case !errors.Is(err, ErrLost):
		return fmt.Errorf("rsemaphore: %w", err)
	}
	return fmt.Errorf("rsemaphore: extend %q: %w", s.name, err)
}

// Release ends the permit and gives it back, all of it. It may be called from any goroutine and with a ctx that has
// ended.
//
// nil: given back, confirmed by the server. ErrLost: it was over before, in whole or in part; somebody else may have
// had it. ErrUnavailable or ErrUnknownOutcome: not confirmed while ctx lasted (1 s if it had ended at the call, or comes
// from this permit's Context, which Release ends); the release goes on in the background until the lease is over. Any
// other refusal of the server, as for want of a right, comes at once, and the release goes on likewise. In
// every case the permit's contexts have ended and it is not renewed any more. Later calls return the first one's
// result.
func (x *Permit) Release(ctx context.Context) error {
	p := x.p
	p.mu.Lock()
	first := !p.given
	p.given = true
	p.mu.Unlock()
	if ctx.Err() != nil || ctx.Value(permitKey(p)) != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
	}
	if first {
		x.cleanup.Stop()
		err := p.release(ctx)
		p.finish()
		p.mu.Lock()
		p.result = err
		p.mu.Unlock()
		close(p.released)
		p.s.c.observer.Released(ctx, p.s.name, p.n, time.Since(p.began), err)
		return err
	}
	select {
	case <-p.released:
		return p.result
	case <-ctx.Done():
		return fmt.Errorf("rsemaphore: release %q: %w: another Release of this permit is still under way: %w", p.s.name, ErrUnknownOutcome, context.Cause(ctx))
	}
}

// release is the body of the first Release.
func (p *permit) release(ctx context.Context) error {
	s, c := p.s, p.s.c
	p.end(ErrReleased) // before anything is sent: nobody may work under the permit while it is being given away
	why := p.life.Err()
	until := c.engine.Until(&p.lease)
	defer p.uncount()
	held := c.engine.Remove(&p.lease) // before the release is sent: see package lease
	if why == ErrMaxHold {            // the permit is still there, only renewal and trust have ended
		held, until = true, time.Now().Add(p.longest())
	}
	if !held {
		// Lost, and the caller need not wait to hear it. The server may still have some of it: give that back early.
		p.owe(time.Time{})
		if !errors.Is(why, ErrLost) {
			why = ErrLost
		}
		return fmt.Errorf("rsemaphore: release %q: %w", s.name, why)
	}
	if time.Now().Before(p.doubt) {
		// A request of the acquisition may still be on its way, on another connection, and would take permits anew for
		// a handle that is through with them. Owed after this release, which would otherwise find it done.
		defer p.owe(p.doubt)
	}
	unsure := false
	sctx := ctx // the first try needs no bound of its own, and makes no timer
	for n := 0; ; n++ {
		if n == 1 {
			var cancel context.CancelFunc
			sctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		held, err := s.runRelease(sctx, p.lease.Owner, false)
		switch {
		case err == nil:
			c.queue.Wake(s.line())
			// fewer after a try of unknown outcome is that try's work: nobody could take them before until
			if held == int64(p.n) || unsure {
				return nil
			}
			if why == ErrMaxHold {
				return fmt.Errorf("rsemaphore: release %q: %w: %w", s.name, ErrLost, why)
			}
			return fmt.Errorf("rsemaphore: release %q: %w", s.name, ErrLost)
		case errors.Is(err, ErrWrongType): // what the watchdog would have found out, too
			return fmt.Errorf("rsemaphore: release %q: %w: %w", s.name, ErrLost, err)
		case !script.Retryable(err):
			p.owe(time.Time{})
			return fmt.Errorf("rsemaphore: the release goes on in the background: %w", err)
		}
		unsure = unsure || errors.Is(err, ErrUnknownOutcome)
		if gone := c.hub.Context().Err() != nil; gone || sctx.Err() != nil || !script.Pause(sctx, script.Backoff(n)) {
			if gone {
				err = fmt.Errorf("%w: hub: %w", err, ErrClosed)
			}
			p.owe(time.Time{})
			if unsure {
				err = script.Unsure(err)
			}
			return fmt.Errorf("rsemaphore: the release goes on in the background: %w", err)
		}
	}
}
