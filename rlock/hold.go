package rlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Hold is one acquisition of a lock, the right to act as its holder until Unlock, or until it is lost. It is safe for
// concurrent use and belongs to no goroutine.
//
// Run the work under [Hold.Context], which ends with the hold. A hold that nobody can reach any more, neither it nor
// one of its contexts, is no longer renewed, with a warning in the log: its lease runs out. The garbage collector finds that
// out, which runs every two minutes in a process that is idle: it is renewed until then. What context.AfterFunc runs after one
// of its contexts counts as one of them.
type Hold struct {
	h       *handle
	cleanup runtime.Cleanup
	parts   *parts // of a Multi or Quorum lock: then h is nil
}

// handle is what the watchdog and the owner keep of a Hold; it must not refer to the Hold, whose reachability is what
// tells whether it was forgotten.
type handle struct {
	owner  *owner
	beside *handle // the owner's next; guarded by its mu
	auto   bool
	began  time.Duration // after its client's base

	life session.Life
	part atomic.Pointer[bundle] // of which it is a part

	mu       sync.Mutex
	unlocked bool          // Unlock was called
	answered bool          // and has its result
	released chan struct{} // closed then; made when somebody waits for it
	result   error
}

func newHold(h *handle) *Hold {
	hold := &Hold{h: h}
	hold.cleanup = runtime.AddCleanup(hold, (*handle).forgotten, h)
	return hold
}

// forgotten runs when the Hold and all its contexts are unreachable without an Unlock.
func (h *handle) forgotten() {
	c := h.owner.lock.c
	if h.auto {
		c.engine.Manual(&h.owner.lease)
	}
	h.owner.exit(nil) // counted out, but told when it ends: somebody may wait for its Done
	h.uncount()       // Close need not wait for an Unlock that cannot come
	h.owner.lock.warn("redlatch: a hold was dropped without Unlock; it is no longer renewed", h.owner)
}

func (l *single) warn(msg string, own *owner) {
	args := []any{"name", l.name, "owner", own.lease.Owner}
	if label := Owner(own.lease.Owner).Label(); label != "" {
		args = append(args, "label", label)
	}
	l.c.log.Warn(msg, args...)
}

// end ends the hold and its contexts; the first reason counts.
func (h *handle) end(why error) {
	h.life.End(why)
	if b := h.part.Load(); b != nil {
		b.ended(h)
	}
	if errors.Is(why, ErrLost) { // nothing is held that Close could wait for, whatever ended it before
		h.uncount()
	}
}

// uncount has Close wait for this hold no longer.
func (h *handle) uncount() {
	if h.life.Uncount() {
		h.owner.lock.c.session.Leave()
	}
}

// Context returns a child of parent that ends with the hold: at Unlock with cause ErrReleased, otherwise with ErrLost,
// ErrMaxHold or ErrClosed. It carries the owner of this lock: acquiring the same lock under it re-enters the hold. It
// carries nothing for other locks, so goroutines that share it exclude each other on them.
//
// The context of a hold that is over has ended.
func (x *Hold) Context(parent context.Context) context.Context {
	if own, ok := parent.(*holdContext); ok && own.hold == x {
		parent = own.Context // it refers to the Hold, and the life, which the watchdog knows, to it
	}
	return &holdContext{x.life().Context(parent), x}
}

// Done returns a channel that is closed when the hold is over.
func (x *Hold) Done() <-chan struct{} { return x.life().Done() }

// Err says why the hold is over: ErrReleased, ErrLost (which may be joined with ErrWrongType: compare with errors.Is),
// ErrMaxHold or ErrClosed; nil while it lasts.
func (x *Hold) Err() error { return x.life().Err() }

// Name returns the lock's name.
func (x *Hold) Name() string {
	if x.parts != nil {
		return x.parts.of.name
	}
	return x.h.owner.lock.name
}

// Owner returns the owner as the server knows it. Re-entries share it.
func (x *Hold) Owner() Owner {
	if x.parts != nil {
		return x.parts.owners()
	}
	return Owner(x.h.owner.lease.Owner)
}

// Token returns the hold's fencing token; false if the lock is not a Fenced one.
func (x *Hold) Token() (token int64, ok bool) {
	if x.parts != nil {
		return x.parts.token()
	}
	token = x.h.owner.token
	return token, token != 0
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. It moves on with every
// confirmed renewal, and back when it is found out that somebody has shortened the lease on the server; after the hold is
// over it says nothing. A lock that was handed over has a short lease at first (four
// PollCaps of 10 s at most, four CallTimeouts or a second, whichever is most), which is raised to the full one after a third
// of it, also that of WithLease.
func (x *Hold) Until() time.Time {
	if x.parts != nil {
		return x.parts.until()
	}
	return x.h.owner.lock.c.engine.Until(&x.h.owner.lease)
}

// Extend makes the hold last for at least d from now, at least 10 ms; it never shortens it. nil: confirmed by the
// server. ErrLost: the hold is over and this is how it was found out, or it was before; ErrMaxHold, ErrClosed, ErrReleased
// likewise. ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until is as it was. ErrInvalidOption: d is out of bounds,
// and nothing was sent.
func (x *Hold) Extend(ctx context.Context, d time.Duration) error {
	if err := session.CheckRange("extension", d, session.MinLease); err != nil {
		return errs.Edge("rlock", err)
	}
	if why := x.Err(); why != nil {
		return fmt.Errorf("rlock: extend %q: %w", x.Name(), why)
	}
	if x.parts != nil {
		return x.parts.extend(ctx, d)
	}
	own := x.h.owner
	confirmed, err := own.lock.c.engine.Extend(ctx, &own.lease, d)
	switch {
	case errors.Is(err, ErrLost):
		return fmt.Errorf("rlock: extend %q: %w", x.Name(), err)
	case err != nil:
		return fmt.Errorf("rlock: %w", err)
	case !confirmed:
		return fmt.Errorf("rlock: extend %q: %w", x.Name(), own.why())
	}
	return nil
}

// Unlock ends the hold and releases the lock, or lowers its count if other holds of the same owner last. It may be
// called from any goroutine and with a ctx that has ended.
//
// nil: released, confirmed by the server. ErrLost: the hold was over before, somebody else may have had the lock.
// ErrUnavailable or ErrUnknownOutcome: not confirmed while ctx lasted (1 s if it had ended at the call, or comes from
// this hold's Context, which Unlock ends); the release goes on in the background until the lease is over. Any other
// refusal of the server, as for want of a right, comes at once, and the release goes on likewise. In every
// case the hold's contexts have ended and it is not renewed any more. Later calls return the first one's result.
func (x *Hold) Unlock(ctx context.Context) error {
	if x.parts != nil {
		return x.parts.unlock(ctx, x)
	}
	h := x.h
	h.mu.Lock()
	first := !h.unlocked
	h.unlocked = true
	var released chan struct{}
	if !first {
		if h.answered {
			h.mu.Unlock()
			return h.result
		}
		if h.released == nil {
			h.released = make(chan struct{})
		}
		released = h.released
	}
	h.mu.Unlock()
	ctx, cancel := x.releaseContext(ctx)
	defer cancel()
	if first {
		x.cleanup.Stop()
		err := h.release(ctx)
		h.mu.Lock()
		h.result, h.answered = err, true
		if h.released != nil {
			close(h.released)
		}
		h.mu.Unlock()
		h.owner.lock.c.observer.Released(ctx, h.owner.lock.name, time.Since(h.owner.lock.c.base)-h.began, err)
		return err
	}
	select {
	case <-released:
		return h.result
	case <-ctx.Done():
		return fmt.Errorf("rlock: unlock %q: %w: another Unlock of this hold is still under way: %w", h.owner.lock.name, ErrUnknownOutcome, context.Cause(ctx))
	}
}

// UnlockAfter is Unlock for work that must not be done again too soon: the lock stays taken until d after it was acquired,
// however early the work is done. So a job that takes a moment is not run again by a machine that comes a little later, or
// whose clock is behind (ShedLock's lockAtLeastFor). If d is over it is Unlock.
//
// Otherwise the hold ends, and the server is left to end the lock when d is over: this process need not last until then.
// Nobody is told when that happens; waiters look when it is due. The result is Unlock's: nil says that the server
// confirmed it. ErrUnavailable or ErrUnknownOutcome: the lock stays taken for d or for the lease it had, whichever comes
// about; this goes on in the background. Of several holds of one owner the longest d counts, from the last Unlock on.
// d is at most a hundred years, whatever the lease and MaxHold; ErrInvalidOption otherwise, and nothing is done.
func (x *Hold) UnlockAfter(ctx context.Context, d time.Duration) error {
	if err := session.CheckRange("minimum hold", d, 0); err != nil {
		return errs.Edge("rlock", err)
	}
	if x.parts != nil {
		x.parts.keep(d)
	} else {
		x.h.keep(d)
	}
	return x.Unlock(ctx)
}

// keep has the owner's lock last until d after this handle's acquisition, unless Unlock was called.
func (h *handle) keep(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.unlocked {
		h.owner.mu.Lock()
		h.owner.keep = max(h.owner.keep, h.began+d)
		h.owner.mu.Unlock()
	}
}

// releaseContext gives a caller whose context has ended a second of its own: releasing is what such callers do last.
// A context of this very hold is about to end, because Unlock ends it.
func (x *Hold) releaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && ctx.Value(lifeKey{x.life()}) == nil {
		return ctx, noCancel
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// lifeKey finds out whether a context ends with a hold, also where Detach has hidden whose it is.
type lifeKey struct{ of *session.Life }

func noCancel() {}

// life is whether the hold lasts, and the contexts that end with it.
func (x *Hold) life() *session.Life {
	if x.parts != nil {
		return &x.parts.b.life
	}
	return &x.h.life
}

// release is the body of the first Unlock.
func (h *handle) release(ctx context.Context) error {
	own := h.owner
	l, c := own.lock, own.lock.c
	h.end(ErrReleased) // before anything is sent: nobody may work under the hold while it is being given away
	why := h.life.Err()
	remaining := own.exit(h)
	defer func() {
		if remaining == 0 && own.finish() {
			c.owe(own, own.doubt.entry, own.doubt.until)
		}
	}()
	until := c.engine.Until(&own.lease)
	defer h.uncount()
	held := false
	if remaining > 0 {
		held = c.engine.Live(&own.lease)
		if h.auto {
			c.engine.Manual(&own.lease)
		}
	} else {
		held = c.engine.Remove(&own.lease) // before the release is sent: see package lease
	}
	if why == ErrMaxHold { // the lock is still there, only renewal and trust have ended
		held, until = true, time.Now().Add(own.longest())
	}
	if !held && remaining > 0 && own.through() {
		return nil // the last of its holds is being unlocked, or was: that Unlock says whether the lock was lost
	}
	if !held {
		// Lost, and the caller need not wait to hear it. The server may still have the field for the margin that we
		// left: give it back early.
		if remaining == 0 {
			c.owe(own, own.doubt.entry, own.doubt.until)
		}
		if why == ErrReleased || why == ErrClosed {
			why = ErrLost
		}
		return fmt.Errorf("rlock: unlock %q: %w", l.name, why)
	}
	if d := own.doubt; remaining == 0 && time.Now().Before(d.until) {
		// A request of the acquisition may still be on its way, on another connection, and would take the lock anew
		// for an owner that is through with it. Owed after this release, which would otherwise find it done.
		defer c.owe(own, d.entry, d.until)
	}
	unsure := false
	sctx := ctx // the first try needs no bound of its own, and makes no timer
	for n := 0; ; n++ {
		if n == 1 {
			var cancel context.CancelFunc
			sctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		status, named, err := h.send(sctx, n, remaining)
		switch {
		case err == nil && status == releaseGone && remaining > 0 && own.through():
			return nil
		case err == nil && status == releaseGone && !unsure:
			if remaining > 0 {
				c.engine.Lost(&own.lease, ErrLost)
			}
			if why == ErrMaxHold {
				return fmt.Errorf("rlock: unlock %q: %w: %w", l.name, ErrLost, why)
			}
			return fmt.Errorf("rlock: unlock %q: %w", l.name, ErrLost)
		case err == nil:
			// releaseGone after a try of unknown outcome is that try's work: nobody could take the lock before until
			if remaining == 0 && !named {
				c.queue.Wake(l.key)
			}
			return nil
		case errors.Is(err, ErrWrongType): // what the watchdog would have found out, too
			if remaining > 0 {
				c.engine.Lost(&own.lease, errs.ErrOverwritten)
			}
			return fmt.Errorf("rlock: unlock %q: %w: %w", l.name, ErrLost, err)
		case !script.Retryable(err):
			if remaining > 0 {
				return fmt.Errorf("rlock: %w", err) // the count only informs
			}
			c.owe(own, own.doubt.entry, own.doubt.until)
			return fmt.Errorf("rlock: the release goes on in the background: %w", err)
		}
		unsure = unsure || errors.Is(err, ErrUnknownOutcome)
		if gone := c.hub.Context().Err() != nil; gone || sctx.Err() != nil || !script.Pause(sctx, script.Backoff(n)) {
			if gone {
				err = fmt.Errorf("%w: hub: %w", err, ErrClosed)
			}
			if remaining == 0 {
				c.owe(own, own.doubt.entry, own.doubt.until)
			}
			if unsure {
				err = script.Unsure(err)
			}
			return fmt.Errorf("rlock: the release goes on in the background: %w", err)
		}
	}
}

// send sends the release for the n-th time. The first time a waiter of this process may be named as the next holder;
// after that it might be a second run, which no waiter could count its lease from.
func (h *handle) send(ctx context.Context, n, remaining int) (status releaseStatus, named bool, err error) {
	own := h.owner
	l, c := own.lock, own.lock.c
	if remaining == 0 && own.rest() > 0 {
		status, err = own.giveUp(ctx, own.doubt.entry)
		return status, false, err
	}
	if n == 0 && remaining == 0 && l.hands() {
		if o := c.queue.Offer(l.key, time.Now().Add(c.opts.CallTimeout)); o != nil {
			status, err = l.runPass(ctx, own.lease.Owner, own.doubt.entry, o)
			return status, true, err
		}
	}
	status, err = l.runRelease(ctx, own.lease.Owner, remaining, own.doubt.entry)
	return status, false, err
}
