package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Lock describes one lock and how to acquire it. It is immutable and holds no state: share it, derive from it, make
// it anew for every use. What is held is a *Hold.
type Lock struct {
	form  form
	terms terms // of Lock and Do
	bad   error // what every call returns
}

// form is what a Lock is on the servers: a single key, or a composite of several.
type form interface {
	Name() string
	acquire(ctx context.Context, t terms) (*Hold, error)
	query(ctx context.Context) (queryReply, error)
	inspect(ctx context.Context) (State, error)
	forceUnlock(ctx context.Context) (bool, error)
	withOwner(ctx context.Context, o Owner) context.Context
}

// terms are how a lock is acquired.
type terms struct {
	wait  time.Duration // forever: only ctx bounds it
	lease time.Duration // 0: renewed until Unlock
	label string
}

const forever time.Duration = -1

// maxLabel is the length of the longest label, in bytes.
const maxLabel = 256

// noEnd is the lease of a lock that never ends: somebody made or changed the key by hand.
const noEnd time.Duration = -1

// Name returns the lock's name, without Options.KeyPrefix.
func (l *Lock) Name() string { return l.form.Name() }

// WithWait returns the same lock whose Lock and Do wait for at most d for somebody else's hold; 0: ask once. Without
// it only ctx bounds the waiting. A negative d is refused by every call on the result.
func (l *Lock) WithWait(d time.Duration) *Lock {
	t := l.terms
	t.wait = d
	return l.with(t, session.CheckWait(d))
}

// WithLease returns the same lock whose holds last for d and are not renewed, unless Extended; at least 10 ms.
// 0: renewed until Unlock, the default.
func (l *Lock) WithLease(d time.Duration) *Lock {
	t := l.terms
	t.lease = d
	return l.with(t, session.CheckLease(d))
}

// WithLabel returns the same lock whose holds carry a label, such as a job's name or a trace id: part of their owner
// on the server, where [Lock.Inspect] and log lines show it to everybody. At most 256 bytes of UTF-8.
func (l *Lock) WithLabel(label string) *Lock {
	t := l.terms
	t.label = label
	var err error
	if len(label) > maxLabel || !utf8.ValidString(label) {
		err = errs.InvalidOption("label", fmt.Sprintf("%.64q", label), fmt.Sprintf("UTF-8 of at most %d bytes", maxLabel))
	}
	return l.with(t, err)
}

// with is the same lock on other terms; bad says why they are refused, the first reason counts.
func (l *Lock) with(t terms, bad error) *Lock {
	m := Lock{l.form, t, l.bad}
	if bad != nil && m.bad == nil {
		m.bad = errs.Edge("rlock", bad)
	}
	return &m
}

// Lock acquires the lock, waiting until it is free, ctx ends or the time of WithWait is over.
//
// On success the hold is renewed until Unlock, or lasts for the time of WithLease. ctx bounds the waiting only: the
// hold outlives it. If ctx carries the owner of this very lock (it is, or comes from, [Hold.Context] of a hold that
// still lasts) the hold is re-entered, at once.
//
// Otherwise nothing is held by this call, and the error is ErrNotAcquired (contended, or ctx ended: then it is joined
// with ctx's error and cause), ErrUnavailable, ErrUnknownOutcome, ErrLost (ctx carries an owner whose hold is over),
// ErrReentry (NonReentrant and Plain; Write under a read hold), ErrNotReplicated, ErrClosed, ErrInvalidName,
// ErrInvalidOption or ErrWrongType. Any other refusal of the server, as for want of a right, comes at once, and wrapped. While
// the server cannot be asked the call goes on trying for as long as it may wait.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	return l.acquire(ctx, l.terms)
}

// TryLock is Lock with its own times: it waits for at most waitTime (0: it asks once, and does not wait) and holds for
// leaseTime (0: renewed until Unlock). waitTime bounds the waiting for somebody else's hold; the first request itself
// has Options.CallTimeout, so a server that does not answer can make the call last that long.
//
// With a waitTime of 0 it stands in no line, but it does not overtake waiters that queue on the server: a Reentrant,
// NonReentrant, Fenced, Spin or Fair lock is acquired only when nobody does. It may overtake those that are in no queue,
// however long they have waited: all that wait for a Plain or ReadWrite lock, but for a writer that is preferred, which new
// readers do not overtake; of the others those that wait for a Spin lock, whose process may not or does not yet subscribe, or
// whose slot is being migrated, and all in a Cluster without sharded channels.
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
