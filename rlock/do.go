package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Do acquires the lock as Lock does, runs fn under the hold's context, and unlocks.
//
// The ctx of fn ends if the hold is lost; fn should return then. If the lock was not acquired, or ctx ended during the
// acquisition, fn does not run, and the error is Lock's. Otherwise it is fn's error joined with Unlock's: if ErrLost is
// among them, the lock was not held until fn returned. If fn panics, Do unlocks and the panic goes on.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	if ended := errs.Ended(ctx); ended != nil {
		hold.discard(ctx)
		return fmt.Errorf("rlock: %q: %w: %w", l.Name(), errs.ErrNotAcquired, ended)
	}
	return hold.do(ctx, fn, hold.Unlock)
}

// DoOnce runs fn at most once in a period, over all processes that call DoOnce with this lock: a scheduled job that
// several machines have. It does not wait for another call's fn, and is not re-entrant. While another call holds the
// lock and has not begun, it sends up to six requests, within 62 ms or five round trips, whichever is longer.
//
//   - ran is false without an error: another call runs its fn, or has begun less than period ago, or ctx carries a hold
//     of this lock.
//   - ran is false with an error: fn did not run. The error is an error of [Lock.TryLock] with a waitTime of 0, or the
//     server did not confirm the period. The lock is then released.
//   - ran is true: the error is fn's, joined with the error of [Hold.UnlockAfter]. After ErrLost the lock may be free
//     before the period is over, and another process may have run the job meanwhile.
//
// The period begins at the acquisition, and lasts whatever fn returns, even if fn panics or takes longer. The server
// has confirmed it before fn runs. So a failed job does not run again in its period, nor does the job of a process that
// died. fn may find that its ctx has ended meanwhile.
//
// For a job at fixed times choose a period below the time between two of them, by more than the differences between the
// machines' clocks and start delays. At least 1 ms, at most a hundred years; otherwise the error is ErrInvalidOption.
// The job runs at most once under the limits of the lock: see "What is not guaranteed" in the package comment.
func (l *Lock) DoOnce(ctx context.Context, period time.Duration,
	fn func(ctx context.Context) error) (ran bool, err error) {
	if err := session.CheckRange("period", period, time.Millisecond); err != nil {
		return false, errs.Edge("rlock", err)
	}
	hold, begun, err := l.acquireOnce(ctx)
	if begun || err != nil {
		return false, err
	}
	if err := hold.begin(ctx, period); err != nil {
		if script.NotAnswered(err) { // the server will not answer the release either, so the caller does not wait for it
			hold.client().session.Finish(func() { hold.discard(ctx) })
		} else {
			hold.discard(ctx)
		}
		return false, fmt.Errorf("rlock: begin %q: %w", l.Name(), err)
	}
	return true, hold.do(ctx, fn, func(ctx context.Context) error { return hold.UnlockAfter(ctx, period) })
}

// acquireOnce acquires the lock for DoOnce, or reports that another call has begun. A holder that has not begun may
// give up, because its ctx ends, and then no call would run fn:
//
//	A                                B
//	acquires
//	                                 is refused
//	ctx ends before the period
//	is confirmed: releases
//	                                 returns ran=false for a job that did not run
//
// So B tries again while the holder's lease does not show that its period has begun: while the lease is not longer than
// the longest lease of this lock. A's release takes a round trip. B tries up to five times more, at intervals that add
// up to 62 ms or to five round trips, whichever is longer.
func (l *Lock) acquireOnce(ctx context.Context) (hold *Hold, begun bool, err error) {
	for attempt := 0; ; attempt++ {
		sentAt := time.Now()
		hold, err = l.TryLock(Detach(ctx), 0, l.terms.lease)
		var refused *NotAcquiredError
		if !errors.As(err, &refused) || ctx.Err() != nil {
			return hold, false, err
		}
		if attempt == 5 || refused.Foreign || refused.NoEnd || refused.Lease > l.form.longest(l.terms.lease) {
			return nil, true, nil
		}
		if !script.Pause(ctx, max(script.Backoff(attempt), time.Since(sentAt))) {
			refused.Cause = errs.Ended(ctx)
			return nil, false, refused
		}
	}
}

// begin makes the server keep the lock until minimum after its acquisition, even if the process dies. Once sent, the
// call is not cancelled: another DoOnce that found the lock taken may have returned because this one runs.
func (x *Hold) begin(ctx context.Context, minimum time.Duration) error {
	if ended := errs.Ended(ctx); ended != nil {
		return fmt.Errorf("%w: %w", errs.ErrNotAcquired, ended)
	}
	if x.parts != nil {
		return x.parts.begin(ctx, minimum)
	}
	holding := ownerOf(x.h)
	client := holding.lock.c
	x.h.Bar()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.opts.CallTimeout)
	defer cancel()
	remaining := x.h.Began + minimum - time.Since(client.session.Base)
	return holding.lock.runKeepAtLeast(ctx, holding.Lease.Owner, max(remaining, time.Millisecond))
}

// do runs fn under the hold, and then ends the hold.
func (x *Hold) do(ctx context.Context, fn, end func(ctx context.Context) error) (err error) {
	defer func() {
		if endErr := end(ctx); endErr != nil {
			err = errors.Join(err, endErr)
		}
	}()
	return fn(x.Context(ctx))
}
