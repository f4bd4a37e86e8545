package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Release runs the given release of a handle with that name and life, while ctx, or its successor by toRelease, lasts.
// A later call waits for the result of the first.
func (k *Keeper) Release(ctx context.Context, name string, life *Life, once *session.Once,
	run func(context.Context) error) error {
	ctx, cancel := life.toRelease(ctx)
	defer cancel()
	if !once.Begin() {
		return k.awaitRelease(ctx, name, once)
	}
	err := run(ctx)
	once.Finish(err)
	return err
}

// toRelease returns ctx, or a context with a second of its own if ctx has ended, or ends with this very life. Callers
// with an ended context still release. And the ctx of "defer hold.Unlock(ctx)" inside the work ends as soon as Unlock
// begins, so that Unlock would never get its confirmation ("with its own context" in
// TestRelease_Disturbed_SaysWhatBecameOfIt).
func (l *Life) toRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && !l.endsContext(ctx) {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// awaitRelease waits for the result of the first release of a handle.
func (k *Keeper) awaitRelease(ctx context.Context, name string, once *session.Once) error {
	ok, err := once.Await(ctx)
	if !ok {
		err = k.releaseError(name, fmt.Errorf("%w: another %s of this %s is still in progress: %w",
			errs.ErrUnknownOutcome, k.Verb, k.Noun, err))
	}
	return err
}

// Release ends the handle. The release of a holding's last handle releases the holding; for other handles nothing is
// sent, because the server counts a holding once. The results are:
//
//   - nil: confirmed by the server, or other handles are left.
//   - ErrLost: the holding was over before, or the release found out that it was.
//   - ErrUnavailable and ErrUnknownOutcome: not confirmed while ctx lasted, see toRelease.
//   - Any other refusal of the server, at once.
//
// After the last two the release of the last handle goes on in the background until the lease is over. Later calls
// return the first call's result. The caller first stops the cleanup that would call Dropped.
//
// acquired is the context of the handle's acquisition, for the Observer; nil: not known. The user's value keeps that
// context, and no Handle does: the context of a re-entry refers to the hold that it re-enters, so the watchdog would
// refer to that hold.
func (h *Handle) Release(ctx, acquired context.Context) error {
	holding := h.Holding
	ctx, cancel := h.toRelease(ctx)
	defer cancel()
	if !h.Begin() {
		return holding.keeper.awaitRelease(ctx, holding.Lease.Name, &h.Once)
	}
	event := errs.Event{
		Kind: errs.EventReleasing, Name: holding.Lease.Name, N: holding.permitCount(), Acquisition: acquired,
	}
	if acquired == nil {
		event.Acquisition = context.Background()
	}
	ctx = holding.keeper.Tell(ctx, event)
	err := h.release(ctx)
	holding.keeper.Tell(ctx, errs.Event{Kind: errs.EventReleased, Name: holding.Lease.Name, N: holding.permitCount(),
		Held: time.Since(holding.keeper.Base) - h.Began, Err: err})
	h.Finish(err)
	return err
}

// permitCount returns the number of permits that are held, and 0 for a lock.
func (o *Holding) permitCount() int64 {
	if weighted, ok := o.Lease.Of.(interface{ Permits() int64 }); ok {
		return weighted.Permits()
	}
	return 0
}

// release is the body of Release.
func (h *Handle) release(ctx context.Context) error {
	holding := h.Holding
	defer h.leaveInFlight() // last: a Close that waits for the handle also waits for the pending release
	h.end(errs.ErrReleased) // before anything is sent: no work may go on while the holding is released
	if holding.passTurn(h) {
		return nil
	}
	attempt := releaseAttempt{Holding: holding, endReason: h.Err(), exclusiveUntil: holding.Until()}
	if !holding.removeHandle(h) {
		return attempt.keepForOthers(h)
	}
	over := holding.keeper.Engine.Remove(&holding.Lease) // before the release is sent: see package lease
	if errors.Is(over, errs.ErrMaxHold) {                // the server still has the holding; only its renewal has ended
		over, attempt.endReason, attempt.exclusiveUntil = nil, errs.ErrMaxHold, time.Now().Add(holding.Longest())
	}
	// A request of the acquisition may still be on its way, on another connection, and would acquire anew for an owner
	// that has been released:
	//
	//	acquire, no reply ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ runs: acquires for the released owner
	//	acquire again, granted … release, confirmed
	//
	// So this release is not final even if it is confirmed (TestLateRequest_ClockUnknown_IsTakenBack). A release of a lost
	// holding, which is not sent here, is not final either (TestRelease_OfALostPermit_PendsWhileARequestMayRun).
	after := holding.readUnanswered().mayRunUntil
	final := after.IsZero() || !time.Now().Before(script.LastRun(after))
	var confirmed bool
	var err error
	if over == nil {
		confirmed, err = attempt.sendUntilAnswered(ctx)
	} else {
		confirmed, err = attempt.reportLost()
		holding.notifyEnded()
	}
	if holding.finishRelease() || !confirmed || !final {
		holding.releaseLater(after)
	}
	return err
}

// keepForOthers is the release of a handle while other handles are left.
func (r *releaseAttempt) keepForOthers(handle *Handle) error {
	over := r.keeper.Engine.Over(&r.Lease)
	handle.Manual()
	if over == nil || errors.Is(over, errs.ErrMaxHold) || r.wasReleasedInTime() {
		return nil // the release of the last handle returns ErrLost if it was lost
	}
	_, err := r.reportLost()
	return err
}

// removeHandle counts out a handle whose release begins, and reports whether it is the last. After the last release the
// caller calls finishRelease.
func (o *Holding) removeHandle(handle *Handle) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlinkHandle(handle)
	if o.useCount--; o.useCount == 0 {
		o.phase = phaseReleasing
		if o.endReason == nil {
			o.endReason = errs.ErrReleased
		}
	}
	return o.useCount == 0
}

// unlinkHandle removes the handle from the list. Called with mu held.
func (o *Holding) unlinkHandle(handle *Handle) {
	for at := &o.handleList; *at != nil; at = &(*at).nextHandle {
		if *at == handle {
			*at = handle.nextHandle
			return
		}
	}
}

// wasReleasedInTime reports whether the last handle was released before the holding was over.
func (o *Holding) wasReleasedInTime() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Is(o.endReason, errs.ErrReleased)
}

// finishRelease ends the last release, and reports whether Late was called for a grant during it. Late itself releases
// later grants.
func (o *Holding) finishRelease() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	again = o.phase == phaseLateGrant
	o.phase = phaseHeld
	return again
}

// releaseLater releases the holding in the background until its lease is over. A reply to a release that was sent
// before finalFrom is not final, because a request may still be granted.
func (o *Holding) releaseLater(finalFrom time.Time) {
	resource := o.Lease.Of.(Resource)
	pending := Pending{Name: o.Lease.Name, Owner: cmp.Or(o.Granted, o.Lease.Owner), Of: o, BatchKey: resource.BatchKey(),
		Release: func(ctx context.Context) error {
			_, err := resource.Send(ctx, true)
			return resendError(err)
		},
		ReleaseAll: func(ctx context.Context, all []*Holding) error {
			return resendError(resource.SendAll(ctx, all))
		}}
	o.keeper.releaseLater(pending, finalFrom, o.Longest())
}

// Depart is Abandon for a caller that has waited. It returns after the first attempt to release the remains, or after
// 10 ms. Callers that give up come back, and without the wait as soon as they like. A crowd of them would fill the
// queues on the server with entries that are not wanted any more, and the server would serve callers that left long
// ago. With the wait each caller has one entry at a time.
func (o *Holding) Depart(mayRunUntil time.Time, queueEntry string) {
	o.Abandon(mayRunUntil, queueEntry)
	if !mayRunUntil.IsZero() {
		o.keeper.Retrier.Await(cmp.Or(o.Granted, o.Lease.Owner), departTimeout)
	}
}

// departTimeout bounds how long a caller stays after its patience to release its remains. A server under normal load
// answers long before.
const departTimeout = 10 * time.Millisecond

// ReleaseLater releases the server's grants of a name in the background. It stops when longest from now has passed,
// because the lease there is over then. The server refuses requests after the instant lastGrant in its clock, and may
// grant them until then. So the first attempt that is sent after the last such request, and is answered, is the last
// attempt.
//
//	waiter                            server
//	names its end, 398.0
//	398.0: leaves, releases     --->  nothing is there
//	                                  398.7, which is 398 in its clock: grants a request that named 398
//	399.0: releases             --->  releases the grant
func (k *Keeper) ReleaseLater(name string, lastGrant time.Time, longest time.Duration,
	send func(context.Context) error) {
	k.releaseLater(Pending{Name: name, Release: func(ctx context.Context) error {
		return resendError(send(ctx))
	}}, lastGrant, longest)
}

// releaseLater is ReleaseLater for a pending release without times. The owner may turn out to have more than was known:
// see Retrier.Kick.
func (k *Keeper) releaseLater(pending Pending, lastGrant time.Time, longest time.Duration) {
	pending.After = script.LastRun(lastGrant)
	pending.Until = time.Now().Add(max(longest, k.CallTimeout))
	k.Retrier.Add(&pending)
}

// resendError returns the error after which a release in the background is sent again. A refusal is one, too, because
// the user may be given the missing right.
func resendError(err error) error {
	if errors.Is(err, errs.ErrWrongType) {
		return nil // the server has nothing of the owner any more
	}
	return err
}

// releaseAttempt is one release under way.
type releaseAttempt struct {
	*Holding
	endReason      error     // the reason why the handle is over
	exclusiveUntil time.Time // no other owner can hold it before
	outcomeUnknown bool      // an attempt was sent and not answered
}

// reportLost returns the result of a release of a holding that is over by the local clock. The caller does not wait for
// the server. For the lease's margin the server may still have the holding, so it is released in the background.
func (r *releaseAttempt) reportLost() (confirmed bool, err error) {
	reason := r.endReason
	if !errors.Is(reason, errs.ErrLost) {
		reason = errs.ErrLost
	}
	return false, r.keeper.releaseError(r.Lease.Name, reason)
}

// sendUntilAnswered sends the release until it is answered, ctx ends or the lease is over. confirmed reports that the
// server has nothing of the holding any more.
func (r *releaseAttempt) sendUntilAnswered(ctx context.Context) (confirmed bool, err error) {
	resource := r.Lease.Of.(Resource)
	for n := 0; ; n++ {
		if n == 1 { // the first attempt needs no deadline of its own, and makes no timer
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.exclusiveUntil)
			defer cancel()
		}
		gone, err := resource.Send(ctx, n > 0)
		switch {
		case err == nil:
			return true, r.replyResult(gone)
		case errors.Is(err, errs.ErrWrongType): // the watchdog would have found the same
			return true, r.keeper.releaseError(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, err))
		case !script.NotAnswered(err):
			return false, r.pendingResult(err)
		}
		r.outcomeUnknown = r.outcomeUnknown || errors.Is(err, errs.ErrUnknownOutcome)
		closed := r.keeper.Inner.Context().Err() != nil
		if closed || ctx.Err() != nil || !script.Pause(ctx, script.Backoff(n)) {
			if closed {
				err = fmt.Errorf("%w: hub: %w", err, errs.ErrClosed)
			}
			if r.outcomeUnknown {
				err = script.Unsure(err)
			}
			return false, r.pendingResult(err)
		}
	}
}

// replyResult returns the result of a release that the server has answered. If the holding was gone after an attempt of
// unknown outcome, that attempt has released it: no other owner could have it before exclusiveUntil.
func (r *releaseAttempt) replyResult(gone bool) error {
	switch {
	case !gone, r.outcomeUnknown:
		return nil
	case errors.Is(r.endReason, errs.ErrMaxHold):
		return r.keeper.releaseError(r.Lease.Name, fmt.Errorf("%w: %w", errs.ErrLost, r.endReason))
	}
	return r.keeper.releaseError(r.Lease.Name, errs.ErrLost)
}

// pendingResult returns the result of a release that was not confirmed. It goes on in the background.
func (r *releaseAttempt) pendingResult(err error) error {
	return r.keeper.Error(fmt.Errorf("the release continues in the background: %w", err))
}
