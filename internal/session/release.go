package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Once is something that is done once, and has one result for all that ask for it. The zero value is not done.
type Once struct {
	mu             sync.Mutex
	result         error
	done           chan struct{} // closed when there is a result; made when somebody waits for it
	begun, settled bool
}

// Unless runs f, which must not block, unless it has begun.
func (o *Once) Unless(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun {
		f()
	}
}

// Do does it, or waits until ctx ends for the result of whoever does. An error with which the waiting ends is ok == false.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) (err error, ok bool) {
	o.mu.Lock()
	first, settled := !o.begun, o.settled
	o.begun = true
	if !first && !settled && o.done == nil {
		o.done = make(chan struct{})
	}
	done := o.done
	o.mu.Unlock()
	switch {
	case settled:
		return o.result, true
	case first:
		err := f(ctx)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.result, o.settled = err, true
		if o.done != nil {
			close(o.done)
		}
		return err, true
	}
	select {
	case <-done:
		return o.result, true
	case <-ctx.Done():
		return context.Cause(ctx), false
	}
}

// Release is the release of a handle of that name with that life, for as long as ctx lasts; for a second if ctx has ended,
// because releasing is what a caller does last whose context has ended, or if it ends with this very handle.
func (c *Handles) Release(ctx context.Context, name string, life *Life, once *Once, f func(context.Context) error) error {
	if ctx.Err() != nil || life.ends(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
	}
	err, ok := once.Do(ctx, f)
	if !ok {
		err = c.failed(name, fmt.Errorf("%w: another %s of this %s is still under way: %w", errs.ErrUnknownOutcome, c.Verb, c.Noun, err))
	}
	return err
}

// Release ends the handle and, if it is its holding's last, gives that back; otherwise it lowers the count on the server.
//
// nil: confirmed by the server. ErrLost: it was over before, or this is how that was found out. ErrUnavailable and
// ErrUnknownOutcome: not confirmed while ctx lasted, see Handles.Release; any other refusal of the server comes at once. After
// these the release of the last handle goes on in the background until the lease is over. Later calls return the first
// one's result. What the user has of the handle is then not dropped any more: its cleanup is stopped before.
func (h *Handle) Release(ctx context.Context) error {
	o := h.Holding
	return o.of.Release(ctx, o.Lease.Name, &h.Life, &h.Once, func(ctx context.Context) error {
		err := h.release(ctx)
		o.of.Released(ctx, o, time.Since(o.of.Base)-h.Began, err)
		return err
	})
}

// release is the body of Release.
func (h *Handle) release(ctx context.Context) error {
	o, c := h.Holding, h.Holding.of
	defer h.uncount()       // last: a Close that waits for it then waits for what is pending
	h.end(errs.ErrReleased) // before anything is sent: nobody may work under it while it is being given away
	r := release{Holding: o, why: h.Err(), remaining: o.leave(h), until: o.Until()}
	var over error
	if r.remaining > 0 {
		over = c.Engine.Over(&o.Lease)
		h.Manual()
	} else {
		over = c.Engine.Remove(&o.Lease) // before the release is sent: see package lease
	}
	if over == errs.ErrMaxHold { // the server still has it, only renewal and trust have ended
		over, r.why, r.until = nil, errs.ErrMaxHold, time.Now().Add(o.Longest())
	}
	// A request of the acquisition may still be on its way, on another connection, and would acquire anew for an owner that
	// has been released: then this release, even if it is confirmed, is not the last.
	final := !time.Now().Before(o.left().until)
	var confirmed bool
	var err error
	if over == nil {
		confirmed, err = r.run(ctx)
	} else {
		confirmed, err = r.lost()
	}
	if r.remaining == 0 && (o.finish() || !confirmed || !final) {
		o.releaseLater(o.left().until)
	}
	return err
}

// leave counts a handle out whose release begins, and returns how many stay. If none does, finish follows.
func (o *Holding) leave(h *Handle) (remaining int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := &o.handles; *at != nil; at = &(*at).beside {
		if *at == h {
			*at = h.beside
			break
		}
	}
	if o.count--; o.count == 0 {
		o.releasing = true
		if o.ended == nil {
			o.ended = errs.ErrReleased
		}
	}
	return int(o.count)
}

// released reports whether the last handle has been given to Release, in good time.
func (o *Holding) released() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended == errs.ErrReleased
}

// finish ends the last release, and reports whether a grant came to light in between. From now on Late deals with them.
func (o *Holding) finish() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releasing = false
	return o.again
}

// releaseLater has it released in the background until its lease is over. An answer before after is not final.
func (o *Holding) releaseLater(after time.Time) {
	o.of.ReleaseLater(o.Lease.Name, after, o.Longest(), func(ctx context.Context) error {
		_, err := o.Lease.Of.(Resource).Send(ctx, 0, true)
		return err
	})
}

// ReleaseLater has send release, in the background, what the server has of a name, until it is answered after after, or
// until longest from now, when the lease there is over.
func (s *Session) ReleaseLater(name string, after time.Time, longest time.Duration, send func(context.Context) error) {
	s.Retrier.Add(&Pending{
		Name:  name,
		After: after,
		Until: time.Now().Add(max(longest, s.CallTimeout)),
		Release: func(ctx context.Context) error {
			err := send(ctx)
			if errors.Is(err, errs.ErrWrongType) {
				return nil // nothing of the owner is left
			}
			return err // also a refusal: the right that is missing may be given
		},
	})
}

// release is one release under way.
type release struct {
	*Holding
	why       error     // the handle is over
	remaining int       // handles that stay
	until     time.Time // nobody else can have it before
	unsure    bool      // a try was sent and not answered
}

// lost is the outcome of a release of what is over by the local clock. The caller need not wait to hear it; the server may
// still have it for the margin that we left, so that it is given back early.
func (r *release) lost() (confirmed bool, err error) {
	if r.remaining > 0 && r.released() {
		return true, nil // the last handle is being released, or was: that release says whether it was lost
	}
	why := r.why
	if !errors.Is(why, errs.ErrLost) {
		why = errs.ErrLost
	}
	return false, r.of.failed(r.Lease.Name, why)
}

// run sends the release until it is answered, ctx ends or the lease is over. confirmed: nothing of it is left on the server.
func (r *release) run(ctx context.Context) (confirmed bool, err error) {
	resource := r.Lease.Of.(Resource)
	for n := 0; ; n++ {
		if n == 1 { // the first try needs no bound of its own, and makes no timer
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.until)
			defer cancel()
		}
		gone, err := resource.Send(ctx, r.remaining, n > 0)
		switch {
		case err == nil:
			return true, r.answered(gone)
		case errors.Is(err, errs.ErrWrongType): // what the watchdog would have found out, too
			r.tell(errs.ErrOverwritten)
			return true, r.of.failed(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, err))
		case !script.Retryable(err):
			return false, r.pending(err)
		}
		r.unsure = r.unsure || errors.Is(err, errs.ErrUnknownOutcome)
		closed := r.of.Hub.Context().Err() != nil
		if closed || ctx.Err() != nil || !script.Pause(ctx, script.Backoff(n)) {
			if closed {
				err = fmt.Errorf("%w: hub: %w", err, errs.ErrClosed)
			}
			if r.unsure {
				err = script.Unsure(err)
			}
			return false, r.pending(err)
		}
	}
}

// answered is what a release says that the server has answered. gone after a try of unknown outcome is that try's work:
// nobody else could have it before until.
func (r *release) answered(gone bool) error {
	switch {
	case !gone, r.unsure, r.remaining > 0 && r.released():
		return nil
	case r.why == errs.ErrMaxHold:
		return r.of.failed(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, r.why))
	}
	r.tell(errs.ErrLost)
	return r.of.failed(r.Lease.Name, errs.ErrLost)
}

// tell tells the handles that stay of a loss.
func (r *release) tell(why error) {
	if r.remaining > 0 {
		r.of.Engine.Lost(&r.Lease, why)
	}
}

// pending is what a release says that was not confirmed. That of the last handle goes on; the count of those that stay only
// informs.
func (r *release) pending(err error) error {
	if r.remaining > 0 {
		return r.of.Error(err)
	}
	return r.of.Error(fmt.Errorf("the release goes on in the background: %w", err))
}
