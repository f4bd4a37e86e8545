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
// The ctx of fn ends if the hold is lost; fn should return then. If the lock was not acquired, or ctx ended as it was,
// fn does not run, and the error is Lock's. Otherwise it is fn's error joined with Unlock's: if ErrLost is among them,
// the lock was not held until fn returned. If fn panics, Do unlocks and the panic goes on.
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

// DoOnce runs fn at most once in a period, over all processes that call DoOnce with this lock: a job of a schedule that
// several machines have. ran is false, without an error, if another call runs its fn, or has begun less than period
// ago. DoOnce is not re-entrant: under a hold of the same lock it returns ran=false.
//
// It does not wait for another's fn. A call that has the lock and has not begun may give up, because its ctx ends, and
// then no call runs fn: so where the holder's lease does not show that its period has begun (it is longer than this
// lock's lease), DoOnce asks up to five times more, at intervals that add up to 62 ms or to five round trips, whichever
// is longer.
//
// The period begins when the lock is acquired, and lasts whatever fn returns, even if it panics or takes longer. So a
// job that failed is not run again in its period, nor is one whose process died while it ran: the server has confirmed
// the period before fn runs. fn may find that its ctx has ended meanwhile.
//
// For a job that is due at fixed times choose less than the time between two of them, by more than the machines' clocks
// and the delays of their starts differ: with a period of a whole hour, an hourly job that began late would have its
// next run refused. At least 1 ms, at most a hundred years; otherwise the error is ErrInvalidOption.
//
// If ran is true, the error is fn's, joined with that of [Hold.UnlockAfter]. After ErrLost the lock may be free before
// the period is over, and another process may have run the job meanwhile. The job runs at most once under the same
// limits as the lock: see "What is not guaranteed" in the package comment. If ran is false, it is that of a TryLock
// with a waitTime of 0 for another reason than that the lock is held, or says why the server did not confirm the
// period: nothing was run then, and the lock is released.
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
		if script.NotAnswered(err) { // the release will not be, either
			hold.client().session.Finish(func() { hold.discard(ctx) })
		} else {
			hold.discard(ctx)
		}
		return false, fmt.Errorf("rlock: begin %q: %w", l.Name(), err)
	}
	return true, hold.do(ctx, fn, func(ctx context.Context) error { return hold.UnlockAfter(ctx, period) })
}

// acquireOnce acquires the lock for DoOnce, or says that another has begun. Two calls, A and B: A acquires, B is
// refused, the ctx of A ends and A releases what it has not begun. If B took A for one that runs, neither would. What A
// does then takes it a round trip.
func (l *Lock) acquireOnce(ctx context.Context) (hold *Hold, begun bool, err error) {
	for n := 0; ; n++ {
		asked := time.Now()
		hold, err = l.acquire(Detach(ctx), terms{lease: l.terms.lease, label: l.terms.label})
		var refused *NotAcquiredError
		if !errors.As(err, &refused) || ctx.Err() != nil {
			return hold, false, err
		}
		if n == 5 || refused.Foreign || refused.NoEnd || refused.Lease > l.form.longest(l.terms.lease) {
			return nil, true, nil
		}
		if !script.Pause(ctx, max(script.Backoff(n), time.Since(asked))) {
			refused.cause = errs.Ended(ctx)
			return nil, false, refused
		}
	}
}

// begin has the server keep the lock until d after it was acquired, whatever becomes of the process. A call that has
// begun is not cancelled: another that found the lock taken may have said that this one runs.
func (x *Hold) begin(ctx context.Context, d time.Duration) error {
	if ended := errs.Ended(ctx); ended != nil {
		return fmt.Errorf("%w: %w", errs.ErrNotAcquired, ended)
	}
	if x.parts != nil {
		return x.parts.begin(ctx, d)
	}
	own := ownerOf(x.h)
	c := own.lock.c
	x.h.Bar()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.CallTimeout)
	defer cancel()
	rest := x.h.Began + d - time.Since(c.session.Base)
	return own.lock.runBegin(ctx, own.Lease.Owner, max(rest, time.Millisecond))
}

// do runs fn under the hold, and ends that.
func (x *Hold) do(ctx context.Context, fn, end func(ctx context.Context) error) (err error) {
	defer func() {
		if e := end(ctx); e != nil {
			err = errors.Join(err, e)
		}
	}()
	return fn(x.Context(ctx))
}
