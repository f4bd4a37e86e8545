package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Lock describes one lock and how to acquire it. It is immutable and has no state. Lock values are free: share one, or
// make one for every use. An acquired Lock is represented by a *Hold.
type Lock struct {
	form  form
	terms terms // the options of Lock and Do
	bad   error // returned by every call if the name or an option is invalid; nil: both are valid
}

// form is the part of a Lock that depends on its keys: a single lock on one key, or several locks.
type form interface {
	Name() string
	Kind() string // for log lines and errors
	acquire(ctx context.Context, opts terms) (*Hold, error)
	isLocked(ctx context.Context) (bool, error)
	Inspect(ctx context.Context) (State, error)
	forceUnlock(ctx context.Context) (bool, error)
	withOwner(ctx context.Context, owner Owner) context.Context
	longest(lease time.Duration) time.Duration // the longest lease that the server has for such a hold, or a renewed one
}

// terms are the options of an acquisition.
type terms struct {
	wait  time.Duration // forever: only ctx bounds it
	lease time.Duration // 0: renewed until Unlock
	label string

	isPart bool // of a Multi: the hold is renewed until all members are held, and has the lease from then on
	// beside is the members that the same call holds already; nil: it holds none.
	beside *heldParts
}

// autoRenew reports whether the watchdog renews the hold.
func (t terms) autoRenew() bool { return t.lease == 0 || t.isPart }

const forever time.Duration = -1

// noEnd is the lease of a lock without an expiry: its key was made or changed by hand.
const noEnd time.Duration = -1

// Name returns the lock's name, without Options.KeyPrefix.
func (l *Lock) Name() string { return l.form.Name() }

// WithWait returns the same lock with a time limit: Lock and Do wait at most d for another owner's hold, or send one
// request if d is 0. Without WithWait only ctx bounds the waiting. If d is negative, every call on the result returns
// ErrInvalidOption.
func (l *Lock) WithWait(d time.Duration) *Lock {
	opts := l.terms
	opts.wait = d
	return l.with(opts, session.CheckWait(d))
}

// WithLease returns the same lock, whose holds last for d and are not renewed, unless they are extended. d is at least
// 10 ms. 0 is the default: holds are renewed until Unlock.
//
// A lock that another process hands over, or that a caller of this process leaves to this one, has a short lease at
// first (see [Hold.Until]). Within 10 ms it is raised to d by a renewal. If the process exits or dies before that, the
// lock is free when the short lease is over, and not after d.
func (l *Lock) WithLease(d time.Duration) *Lock {
	opts := l.terms
	opts.lease = d
	return l.with(opts, session.CheckLease(d))
}

// WithLabel returns the same lock with a label for its holds, such as a job's name or a trace id. The label is part of
// the owner on the server, so it lives as long as the hold. [Lock.Inspect] and log lines show it to everybody. It has
// at most 256 bytes of UTF-8.
func (l *Lock) WithLabel(label string) *Lock {
	opts := l.terms
	opts.label = label
	return l.with(opts, session.CheckLabel("label", label))
}

// with returns the same lock with other options. argErr is the reason why they are refused. The first reason counts.
func (l *Lock) with(opts terms, argErr error) *Lock {
	changed := Lock{l.form, opts, l.bad}
	if argErr != nil && changed.bad == nil {
		changed.bad = errs.Edge("rlock", argErr)
	}
	return &changed
}

// Lock acquires the lock. It waits until the lock is free, ctx ends, or the time of WithWait is over.
//
// On success the hold is renewed until Unlock, or lasts for the time of WithLease. ctx bounds the waiting only: the
// hold outlives it. If ctx carries the owner of this lock, because it comes from [Hold.Context] of a hold that still
// lasts, Lock re-enters that hold at once.
//
// On failure this call holds nothing. The error is one of:
//
//   - ErrNotAcquired: another owner held the lock, or ctx ended. If ctx ended, it is joined with ctx's error and cause.
//   - ErrUnavailable or ErrUnknownOutcome: the server did not answer. The call tries again for as long as it may wait.
//   - ErrLost: ctx carries an owner whose hold is over.
//   - ErrReentry: the lock is NonReentrant or Plain and ctx carries its owner, or the call is Write under a read hold.
//   - ErrNotReplicated, ErrClosed, ErrInvalidName, ErrInvalidOption, ErrWrongType, ErrDenied: see there. Any other
//     refusal of the server is returned at once, wrapped.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	if l.bad != nil {
		return nil, l.bad
	}
	return l.form.acquire(ctx, l.terms)
}

// TryLock acquires the lock like Lock, with its own times. It waits at most waitTime for another owner's hold, and
// holds the lock for leaseTime. With a waitTime of 0 the call sends one request, and with a leaseTime of 0 the hold is
// renewed until Unlock. The first request itself is bounded by Options.CallTimeout, so if a server does not answer, the
// call can last that long.
//
// With a waitTime of 0 the call does not queue, but it does not overtake waiters that queue on the server. A lock is
// acquired only if the queue is empty. The call may overtake other waiters, however long they have waited:
//
//   - the first waiter of a Plain lock, if it does not come while the lock is left to it: see [Client.Plain];
//   - waiters of a Spin lock;
//   - waiters of a process that has not subscribed yet, or has no right to;
//   - waiters of a lock whose slot is being migrated.
func (l *Lock) TryLock(ctx context.Context, waitTime, leaseTime time.Duration) (*Hold, error) {
	if err := errors.Join(session.CheckWait(waitTime), session.CheckLease(leaseTime)); err != nil {
		return nil, errs.Edge("rlock", err)
	}
	timed := Lock{l.form, terms{wait: waitTime, lease: leaseTime, label: l.terms.label}, l.bad}
	return timed.Lock(ctx)
}
