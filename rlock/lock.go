package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Lock describes one lock and how to acquire it. It is immutable and has no state. Lock values are free: share one, or
// make one for every use. A Lock that is held is a *Hold.
type Lock struct {
	form  form
	terms terms // of Lock and Do
	bad   error // what every call returns
}

// form is what a Lock is on the servers: a single key, or a composite of several.
type form interface {
	Name() string
	Kind() string // what it is, to people
	acquire(ctx context.Context, t terms) (*Hold, error)
	isLocked(ctx context.Context) (bool, error)
	Inspect(ctx context.Context) (State, error)
	forceUnlock(ctx context.Context) (bool, error)
	withOwner(ctx context.Context, o Owner) context.Context
	longest(lease time.Duration) time.Duration // that the server has a hold of that lease, or one that is renewed
}

// terms are how a lock is acquired.
type terms struct {
	wait  time.Duration // forever: only ctx bounds it
	lease time.Duration // 0: renewed until Unlock
	label string
}

const forever time.Duration = -1

// noEnd is the lease of a lock that never ends: the key was made or changed by hand.
const noEnd time.Duration = -1

// Name returns the lock's name, without Options.KeyPrefix.
func (l *Lock) Name() string { return l.form.Name() }

// WithWait returns the same lock, whose Lock and Do wait at most d for another owner's hold; 0: they ask once. Without
// it only ctx bounds the waiting. If d is negative, every call on the result returns ErrInvalidOption.
func (l *Lock) WithWait(d time.Duration) *Lock {
	t := l.terms
	t.wait = d
	return l.with(t, session.CheckWait(d))
}

// WithLease returns the same lock, whose holds last for d and are not renewed, unless they are extended. d is at least
// 10 ms. 0 is the default: holds are renewed until Unlock.
func (l *Lock) WithLease(d time.Duration) *Lock {
	t := l.terms
	t.lease = d
	return l.with(t, session.CheckLease(d))
}

// WithLabel returns the same lock, whose holds carry a label, such as a job's name or a trace id. The label is part of
// the owner on the server, so it lives as long as the hold. [Lock.Inspect] and log lines show it to everybody. It has
// at most 256 bytes of UTF-8.
func (l *Lock) WithLabel(label string) *Lock {
	t := l.terms
	t.label = label
	return l.with(t, session.CheckLabel("label", label))
}

// with is the same lock on other terms; bad says why they are refused, the first reason counts.
func (l *Lock) with(t terms, bad error) *Lock {
	m := Lock{l.form, t, l.bad}
	if bad != nil && m.bad == nil {
		m.bad = errs.Edge("rlock", bad)
	}
	return &m
}

// Lock acquires the lock. It waits until the lock is free, ctx ends, or the time of WithWait is over.
//
// On success the hold is renewed until Unlock, or lasts for the time of WithLease. ctx bounds the waiting only: the
// hold outlives it. If ctx carries the owner of this very lock, that is, if it comes from [Hold.Context] of a hold that
// still lasts, Lock re-enters that hold at once.
//
// On failure this call holds nothing. The error is one of:
//
//   - ErrNotAcquired: another owner held the lock, or ctx ended. If ctx ended, it is joined with ctx's error and cause.
//   - ErrUnavailable or ErrUnknownOutcome: the server could not be asked. The call tries again for as long as it may
//     wait.
//   - ErrLost: ctx carries an owner whose hold is over.
//   - ErrReentry: the lock is NonReentrant or Plain and ctx carries its owner, or the call is Write under a read hold.
//   - ErrNotReplicated, ErrClosed, ErrInvalidName, ErrInvalidOption, ErrWrongType, ErrDenied: see there. Any other
//     refusal of the server is returned at once, wrapped.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	return l.acquire(ctx, l.terms)
}

// TryLock acquires the lock like Lock, with its own times. It waits at most waitTime for another owner's hold (0: it
// asks once), and holds the lock for leaseTime (0: until Unlock, renewed). The first request itself is bounded by
// Options.CallTimeout, so if a server does not answer, the call can last that long.
//
// With a waitTime of 0 the call does not queue, but it does not overtake waiters that queue on the server: it acquires
// a Reentrant, NonReentrant, Fenced, Spin, Fair or ReadWrite lock only if the queue is empty. It may overtake waiters
// that are in no queue, however long they have waited:
//
//   - all waiters of a Plain lock;
//   - waiters of a Spin lock;
//   - waiters of a process that has not subscribed yet, or has no right to;
//   - waiters of a lock whose slot is being migrated.
func (l *Lock) TryLock(ctx context.Context, waitTime, leaseTime time.Duration) (*Hold, error) {
	if err := errors.Join(session.CheckWait(waitTime), session.CheckLease(leaseTime)); err != nil {
		return nil, errs.Edge("rlock", err)
	}
	return l.acquire(ctx, terms{waitTime, leaseTime, l.terms.label})
}

func (l *Lock) acquire(ctx context.Context, t terms) (*Hold, error) {
	if l.bad != nil {
		return nil, l.bad
	}
	return l.form.acquire(ctx, t)
}
