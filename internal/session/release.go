package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Once is something that is done once and has one result for all callers. In the zero value nothing was done yet.
type Once struct {
	mu              sync.Mutex
	result          error
	done            chan struct{} // closed when there is a result; made when a caller waits for it
	begun, finished bool
}

// Unless runs f unless it has begun. f must not block.
func (o *Once) Unless(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun {
		f()
	}
}

// begin reports whether nothing was done yet. Then the caller does it, and gives the result to finish.
func (o *Once) begin() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, o.begun = !o.begun, true
	return first
}

// finish gives the result. It is called once, after a begin that reported true.
func (o *Once) finish(result error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result, o.finished = result, true
	if o.done != nil {
		close(o.done)
	}
}

// await waits until ctx ends for the result. ok is false if ctx ended before that; err is then its cause.
func (o *Once) await(ctx context.Context) (ok bool, err error) {
	o.mu.Lock()
	finished, result := o.finished, o.result
	if o.done == nil && !finished {
		o.done = make(chan struct{})
	}
	done := o.done
	o.mu.Unlock()
	if finished {
		return true, result
	}
	select {
	case <-done:
		return true, o.result
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Do runs f if it is the first call; otherwise it waits until ctx ends for the result of the first. ok is false if ctx
// ended before that; err is then its cause.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) (ok bool, err error) {
	if !o.begin() {
		return o.await(ctx)
	}
	err = f(ctx)
	o.finish(err)
	return true, err
}

// Close is Do for a Close: a later call waits for the first until its own ctx ends, and returns the first's result.
func (o *Once) Close(ctx context.Context, f func(context.Context) error) error {
	ok, err := o.Do(ctx, f)
	if !ok {
		return fmt.Errorf("close: an earlier call of Close is still under way: %w", err)
	}
	return err
}

// Release runs f, the release of a handle of that name with that life, while ctx, or its successor by toRelease, lasts.
// A later call waits for the result of the first.
func (c *Handles) Release(ctx context.Context, name string, life *Life, once *Once,
	f func(context.Context) error) error {
	ctx, cancel := life.toRelease(ctx)
	defer cancel()
	if !once.begin() {
		return c.awaitRelease(ctx, name, once)
	}
	err := f(ctx)
	once.finish(err)
	return err
}

// toRelease returns ctx, and a context with a second of its own if ctx has ended, or ends with this very life. A caller
// whose context has ended releases last. And "defer hold.Unlock(ctx)" inside the work has the context that Unlock ends
// first: it would never see its confirmation ("with its own context" in TestRelease_Disturbed_SaysWhatBecameOfIt).
func (l *Life) toRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && !l.ends(ctx) {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// awaitRelease waits for the result of the first release of a handle.
func (c *Handles) awaitRelease(ctx context.Context, name string, once *Once) error {
	ok, err := once.await(ctx)
	if !ok {
		err = c.failed(name, fmt.Errorf("%w: another %s of this %s is still under way: %w", errs.ErrUnknownOutcome, c.Verb,
			c.Noun, err))
	}
	return err
}

// Release ends the handle and, if it is its holding's last, gives that back; otherwise nothing is sent, because the
// server counts a holding once.
//
// nil: confirmed by the server, or others stay. ErrLost: it was over before, or this is how that was found out.
// ErrUnavailable and ErrUnknownOutcome: not confirmed while ctx lasted, see toRelease; any other refusal of the
// server comes at once. After these the release of the last handle goes on in the background until the lease is over.
// Later calls return the first one's result. The caller first stops the cleanup that would call Dropped.
//
// acquired is the context of the handle's acquisition, for the Observer; nil: not known. The user's handle keeps that
// context, and no Handle does: the context of a re-entry refers to the hold that it re-enters, so the watchdog would
// refer to that hold.
func (h *Handle) Release(ctx, acquired context.Context) error {
	o := h.Holding
	ctx, cancel := h.toRelease(ctx)
	defer cancel()
	if !h.begin() {
		return o.of.awaitRelease(ctx, o.Lease.Name, &h.Once)
	}
	e := errs.Event{Kind: errs.EventReleasing, Name: o.Lease.Name, N: o.permits(), Acquisition: acquired}
	if acquired == nil {
		e.Acquisition = context.Background()
	}
	ctx = o.of.Tell(ctx, e)
	err := h.release(ctx)
	o.of.Tell(ctx, errs.Event{Kind: errs.EventReleased, Name: o.Lease.Name, N: o.permits(),
		Held: time.Since(o.of.Base) - h.Began, Err: err})
	h.finish(err)
	return err
}

// permits is how many permits are held; 0 of a lock.
func (o *Holding) permits() int64 {
	if p, ok := o.Lease.Of.(interface{ Permits() int64 }); ok {
		return p.Permits()
	}
	return 0
}

// release is the body of Release.
func (h *Handle) release(ctx context.Context) error {
	o, c := h.Holding, h.Holding.of
	defer h.uncount()       // last: a Close that waits for it then waits for what is pending
	h.end(errs.ErrReleased) // before anything is sent: no work may go on under it while it is being released
	if o.pass(h) {
		return nil
	}
	r := release{Holding: o, why: h.Err(), until: o.Until()}
	if !o.leave(h) {
		return r.stays(h)
	}
	over := c.Engine.Remove(&o.Lease)     // before the release is sent: see package lease
	if errors.Is(over, errs.ErrMaxHold) { // the server still has it, only renewal and trust have ended
		over, r.why, r.until = nil, errs.ErrMaxHold, time.Now().Add(o.Longest())
	}
	// A request of the acquisition may still be on its way, on another connection, and would acquire anew for an owner
	// that has been released:
	//
	//	acquire, no reply ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ runs: takes it for an owner that is through
	//	acquire again, granted … release, confirmed
	//
	// So this release, even if it is confirmed, is not the last
	// (TestLateRequest_ClockUnknown_IsTakenBack), nor is there one that is not sent, of
	// what was lost (TestRelease_OfALostPermit_PendsWhileARequestMayRun).
	after := o.left().until
	final := after.IsZero() || !time.Now().Before(script.LastRun(after))
	var confirmed bool
	var err error
	if over == nil {
		confirmed, err = r.run(ctx)
	} else {
		confirmed, err = r.lost()
		o.gone()
	}
	if o.finish() || !confirmed || !final {
		o.releaseLater(after)
	}
	return err
}

// stays is the release of a handle when others stay.
func (r *release) stays(h *Handle) error {
	over := r.of.Engine.Over(&r.Lease)
	h.Manual()
	if over == nil || errors.Is(over, errs.ErrMaxHold) || r.released() {
		return nil // the release of the last handle says whether it was lost
	}
	_, err := r.lost()
	return err
}

// leave counts out a handle whose release begins, and reports whether it is the last. Then the caller calls finish
// later.
func (o *Holding) leave(h *Handle) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlink(h)
	if o.count--; o.count == 0 {
		o.phase = releasing
		if o.ended == nil {
			o.ended = errs.ErrReleased
		}
	}
	return o.count == 0
}

// unlink is called with mu held.
func (o *Holding) unlink(h *Handle) {
	for at := &o.handles; *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			return
		}
	}
}

// released reports whether Release of the last handle was called in time.
func (o *Holding) released() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Is(o.ended, errs.ErrReleased)
}

// finish ends the last release, and reports whether Late heard of a grant during it. Late gives later ones back
// itself.
func (o *Holding) finish() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	again = o.phase == overtaken
	o.phase = kept
	return again
}

// releaseLater has it released in the background until its lease is over. The answer to what was sent before after is
// not final.
func (o *Holding) releaseLater(after time.Time) {
	p := Pending{Name: o.Lease.Name, Owner: cmp.Or(o.Granted, o.Lease.Owner), Of: o,
		Release: func(ctx context.Context) error {
			_, err := o.Lease.Of.(Resource).Send(ctx, true)
			return final(err)
		}}
	if several, ok := o.Lease.Of.(Several); ok {
		if p.BatchKey = several.BatchKey(); p.BatchKey != nil {
			p.ReleaseAll = func(ctx context.Context, all []*Holding) error { return final(several.SendAll(ctx, all)) }
		}
	}
	o.of.releaseLater(p, after, o.Longest())
}

// Depart is Abandon for a caller that has waited. It returns when what is left behind has been asked back for the first
// time, or after 10 ms. Callers that give up come back, and without that as soon as they like: a crowd of them would
// fill the queues on the server with what is not wanted any more, and have the server answer callers that have left
// long ago. As it is each has one thing there at a time.
func (o *Holding) Depart(until time.Time, entry string) {
	o.Abandon(until, entry)
	if !until.IsZero() {
		o.of.Retrier.Await(cmp.Or(o.Granted, o.Lease.Owner), departure)
	}
}

// departure is how long after its patience a caller returns at most because of what it leaves behind. A server that is
// well answers long before.
const departure = 10 * time.Millisecond

// ReleaseLater has send release, in the background, what the server has of a name, or until longest from now, when the
// lease there is over. Requests that the server refuses after the instant after may still take it, so the first try
// that is sent when none of them runs any more, and is answered, is the last.
//
//	waiter                            server
//	names its end, 398.0
//	398.0: leaves, releases     --->  nothing is there
//	                                  398.7, which is 398 in its clock: a request that named 398 takes it
//	399.0: releases             --->  takes it back
func (s *Session) ReleaseLater(name string, after time.Time, longest time.Duration, send func(context.Context) error) {
	s.releaseLater(Pending{Name: name, Release: func(ctx context.Context) error {
		return final(send(ctx))
	}}, after, longest)
}

// releaseLater is ReleaseLater of a release that has all but its times. What its owner has may turn out to be more: see
// Retrier.Kick.
func (s *Session) releaseLater(p Pending, after time.Time, longest time.Duration) {
	p.After = script.LastRun(after)
	p.Until = time.Now().Add(max(longest, s.CallTimeout))
	s.Retrier.Add(&p)
}

// final is the error of a release in the background after which it is to be sent again: also a refusal, because the
// right that is missing may be given.
func final(err error) error {
	if errors.Is(err, errs.ErrWrongType) {
		return nil // nothing of the owner is left
	}
	return err
}

// release is one release under way.
type release struct {
	*Holding
	why    error     // the handle is over
	until  time.Time // no one else can have it before
	unsure bool      // a try was sent and not answered
}

// lost is the outcome of a release of what is over by the local clock. The caller does not wait for the server. The
// server may still have it for as long as the margin, so it is released in the background.
func (r *release) lost() (confirmed bool, err error) {
	why := r.why
	if !errors.Is(why, errs.ErrLost) {
		why = errs.ErrLost
	}
	return false, r.of.failed(r.Lease.Name, why)
}

// run sends the release until it is answered, ctx ends or the lease is over. confirmed: nothing of it is left on the
// server.
func (r *release) run(ctx context.Context) (confirmed bool, err error) {
	resource := r.Lease.Of.(Resource)
	for n := 0; ; n++ {
		if n == 1 { // the first try needs no bound of its own, and makes no timer
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.until)
			defer cancel()
		}
		gone, err := resource.Send(ctx, n > 0)
		switch {
		case err == nil:
			return true, r.answered(gone)
		case errors.Is(err, errs.ErrWrongType): // what the watchdog would have found out, too
			return true, r.of.failed(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, err))
		case !script.NotAnswered(err):
			return false, r.pending(err)
		}
		r.unsure = r.unsure || errors.Is(err, errs.ErrUnknownOutcome)
		closed := r.of.Inner.Context().Err() != nil
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

// answered is the result of a release that the server has answered. If it was gone after a try of unknown outcome, that
// try has released it: no one else could have it before until.
func (r *release) answered(gone bool) error {
	switch {
	case !gone, r.unsure:
		return nil
	case errors.Is(r.why, errs.ErrMaxHold):
		return r.of.failed(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, r.why))
	}
	return r.of.failed(r.Lease.Name, errs.ErrLost)
}

// pending is the result of a release that was not confirmed. It goes on in the background.
func (r *release) pending(err error) error {
	return r.of.Error(fmt.Errorf("the release goes on in the background: %w", err))
}
