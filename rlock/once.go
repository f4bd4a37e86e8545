package rlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// Bounds of a Once.
const (
	maxAnswer      = 1 << 20 // bytes
	maxFingerprint = 1 << 10 // bytes
)

// OnceOptions are the settings of a Once. The zero value has the defaults.
type OnceOptions struct {
	// Keep is how long an answer is returned to callers with the same key. At least 1 ms. Defaults to 24 h. It counts from
	// when the answer is stored, with the options of the caller that ran fn: all callers should have the same.
	Keep time.Duration
	// Stale is for how long after Keep the old answer is returned while one caller renews it: that caller runs fn, and all
	// others get the old answer at once. Callers of all processes get the new answer as soon as it is stored. At least 1
	// ms. Defaults to 0: after Keep callers wait for the new answer.
	Stale time.Duration
}

// Once runs a function once for each key, in all processes, and returns its answer to all callers: for requests with an
// idempotency key, and for values that are dear to compute. It is immutable, has no state, and is free to make.
//
//	states of a key        Do of the first caller       Do of all others
//	no answer              runs fn                      wait for its answer, or run fn if it failed
//	an answer              returns it                   return it
//	an old answer (Stale)  runs fn                      return the old answer
//
// One caller at a time has the right to run fn for a key: a hold of a Fenced lock, which is renewed. One script stores
// the answer and releases the lock, if that owner still holds it. So a run that has lost its lock never stores its
// answer, however late it ends. The limits are those of a lock: see "What is not guaranteed" in the package comment. If
// a failover of the server forgets an answer, or a run, fn runs again. fn passes its token to what it writes to.
//
// A call that runs fn costs two requests, a call that gets an answer at most one. A waiting call gets it by a message,
// if it has at most 16 KiB. A key that is asked for again is read through rueidis' client-side cache, where there is
// one, and then costs no request. The callers of a process that wait for a key share their requests.
type Once struct {
	c    *Client
	name string
	opts OnceOptions
	wait time.Duration
	bad  error // returned by every call if the name or an option is invalid; nil: both are valid
}

// Once describes the answers of that name. Each key has its own answer, under name:key. The name contains none of
// ":{}"; otherwise every call returns ErrInvalidName. If an option is out of bounds every call returns
// ErrInvalidOption.
func (c *Client) Once(name string, opts OnceOptions) *Once {
	once := &Once{c: c, name: name, opts: opts, wait: forever}
	err := session.Check(
		session.Duration{Name: "Keep", Value: &once.opts.Keep, Least: time.Millisecond, Most: session.MaxDuration,
			Default: 24 * time.Hour},
		session.Duration{Name: "Stale", Value: &once.opts.Stale, Least: time.Millisecond, Most: session.MaxDuration},
	)
	if name == "" || strings.ContainsAny(name, ":{}") {
		err = fmt.Errorf("%w: %.64q is the name of a Once, and must have none of \":{}\", and at least one byte",
			errs.ErrInvalidName, name)
	}
	once.bad = c.session.Error(err)
	return once
}

// Name returns the name, without Options.KeyPrefix and key.
func (o *Once) Name() string { return o.name }

// WithWait returns the same Once with a time limit: Do waits at most d for the run of another caller, or sends one
// request if d is 0. Without WithWait only ctx bounds the waiting. If d is negative, every call on the result returns
// ErrInvalidOption.
func (o *Once) WithWait(d time.Duration) *Once {
	changed := *o
	changed.wait = d
	if err := session.CheckWait(d); err != nil && changed.bad == nil {
		changed.bad = o.c.session.Error(err)
	}
	return &changed
}

// Do returns the answer of a key. If there is none, it runs fn, or waits for the caller that runs fn for the same key,
// in any process. replayed: the answer is that of another call. ctx and WithWait bound the waiting for others.
//
// The ctx of fn ends if the hold is lost, and with the ctx of Do; fn should return then. token is greater than those of
// all earlier runs of the key. If fn returns an error or panics, nothing is stored, and the next caller runs its own
// fn. fn must not call Do with the same key (ErrReentry). fingerprint says for which request the answer is, such as a
// hash of its body; at most 1 KiB. An answer has at most 1 MiB. Without an answer the error is one of:
//
//   - ErrMismatch: the answer is for another fingerprint.
//   - fn's own error, joined with the error of the release, if that failed, too.
//   - ErrNotAcquired: another caller was running fn for as long as this call was willing to wait.
//   - ErrLost: fn ran, and lost its lock before the answer was stored. Another caller may have run fn meanwhile.
//   - ErrUnknownOutcome or ErrUnavailable: as of [Lock.Lock]; or, after fn ran, the answer may have been stored, or may
//     be stored until the lease is over.
//   - ErrNotReplicated: as of [Lock.Lock]; or, after fn ran, the answer is stored and others get it, but too few
//     replicas have confirmed it, so a failover may forget it.
//   - ErrInvalidOption: fingerprint or answer is too long. Nothing was stored. And the other errors of [Lock.Lock].
//
// After an error Do may be called again with the same arguments, and returns the answer if there is one.
func (o *Once) Do(ctx context.Context, key, fingerprint string,
	fn func(ctx context.Context, token int64) ([]byte, error)) (answer []byte, replayed bool, err error) {
	lock, bad := o.lock(key)
	if bad == nil && (len(fingerprint) > maxFingerprint) {
		bad = errs.InvalidOption("fingerprint", fmt.Sprintf("%.32q… of %d bytes", fingerprint, len(fingerprint)),
			fmt.Sprintf("of at most %d bytes", maxFingerprint))
	}
	if err := o.c.session.Usable(o.bad, bad); err != nil {
		return nil, false, err
	}
	hold, text, err := o.acquire(ctx, lock)
	switch {
	case err != nil:
		return nil, false, err
	case hold == nil:
		return replay(lock, text, fingerprint)
	}
	if ended := errs.Ended(ctx); ended != nil {
		hold.discard(ctx)
		return nil, false, fmt.Errorf("rlock: %q: %w: %w", lock.name, errs.ErrNotAcquired, ended)
	}
	answer, err = o.run(ctx, hold, fingerprint, fn)
	return answer, false, err
}

// lock returns the lock of a key, and the reason why the key cannot be used; nil: it can. The lock has a key that no
// lock of the user has, so all waiters in its queue can be given an answer.
func (o *Once) lock(key string) (*single, error) {
	name := o.name + ":" + key
	own, bad := o.c.session.Key(name)
	if key == "" {
		bad = fmt.Errorf("%w: the key of Once %.64q is empty", errs.ErrInvalidName, o.name)
	}
	lockKey := keyname.Suffix(own, onceEnding)
	lock := o.c.singleOn(lockKey, name, kindOnce, ownerKey{client: o.c, name: lockKey})
	return &lock, bad
}

// acquire returns the answer of a key, or acquires the right to make it.
//
// A reply or a message with an answer may come late, and reach a caller that began after the answer's time was over.
// That caller makes a request:
//
//	process 1                    server                     process 2
//	                             queued <------------------ caller A
//	store ---------------------> the answer, to A's process
//	                             the answer's time is over
//	                                                        caller B: waits beside A
//	                             (the message is late) ---> A returns the answer; B requests
func (o *Once) acquire(ctx context.Context, lock *single) (hold *Hold, text string, err error) {
	began, waitTime := time.Now(), o.wait
	for {
		if text, ok := o.localAnswer(ctx, lock); ok {
			return nil, text, nil
		}
		hold, err = lock.acquire(ctx, terms{wait: waitTime})
		var published *wait.Published
		if !errors.As(err, &published) {
			return hold, "", err
		}
		o.c.answered.add(lock.key)
		lasts := published.Lasts
		if lasts <= 0 {
			lasts = o.opts.Keep + o.opts.Stale
		}
		if !began.After(published.Since.Add(lasts)) {
			return nil, published.Result, nil
		}
		if o.wait != forever {
			waitTime = max(0, o.wait-time.Since(began))
		}
	}
}

// replay returns a stored answer to a caller with that fingerprint.
func replay(lock *single, text, fingerprint string) (answer []byte, replayed bool, err error) {
	stored, answerText, ok := cutAnswer(text)
	switch {
	case !ok:
		err = script.Unexpected("once", text, nil)
	case stored != fingerprint:
		err = fmt.Errorf("%w: %q has an answer for fingerprint %.64q, not %.64q", errs.ErrMismatch, lock.name, stored,
			fingerprint)
	default:
		return []byte(answerText), true, nil
	}
	return nil, false, lock.c.session.Error(err)
}

// run runs fn under a hold, and stores its answer with the release.
func (o *Once) run(ctx context.Context, hold *Hold, fingerprint string,
	fn func(ctx context.Context, token int64) ([]byte, error)) (answer []byte, err error) {
	own, isDone := ownerOf(hold.h), false
	defer func() {
		if !isDone { // fn has panicked, or ended its goroutine
			_ = hold.Unlock(ctx)
		}
	}()
	answer, err = fn(hold.Context(ctx), own.token)
	isDone = true
	if err == nil && len(answer) > maxAnswer {
		err = o.c.session.Error(errs.InvalidOption("answer", fmt.Sprintf("of %d bytes", len(answer)),
			fmt.Sprintf("of at most %d bytes", maxAnswer)))
	}
	if err != nil {
		return nil, errors.Join(err, hold.Unlock(ctx))
	}
	run := own.once
	run.answer.Store(&onceAnswer{fingerprint: fingerprint, answer: string(answer), stale: o.opts.Stale,
		keep: o.opts.Keep + o.opts.Stale})
	switch err = hold.Unlock(ctx); {
	case err == nil && !run.isStored.Load(): // an earlier store got no reply, and the lease was over before the next
		err = o.c.session.Error(fmt.Errorf("%q: %w", hold.Name(), errs.ErrLost))
	case errors.Is(err, errs.ErrLost):
		run.answer.Store(nil) // the release in the background stores nothing
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// OnceState is the server's state of a key of a Once at one moment.
type OnceState struct {
	// Run is the lock of the key: the caller that runs fn, the processes that wait, and the last token.
	Run State
	// Answered: there is an answer. Bytes is its length, and Fingerprint is that of its request.
	Answered    bool
	Bytes       int64
	Fingerprint string
	// Fresh is how long the answer is returned to all callers. If it is 0, the answer is old, and the next caller renews
	// it. Left is how long the answer is stored. Both are negative if it has no end, because it was changed by hand.
	Fresh, Left time.Duration
}

// Inspect returns the state of a key. It changes nothing. The result is meant for people. The cost and the errors are
// those of [Lock.Inspect], and one call more.
func (o *Once) Inspect(ctx context.Context, key string) (state OnceState, err error) {
	lock, bad := o.lock(key)
	if err := o.c.session.Usable(o.bad, bad); err != nil {
		return OnceState{}, err
	}
	if state.Run, err = lock.Inspect(ctx); err != nil {
		return state, err
	}
	_, err = session.Ask(ctx, o.c.session, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, lock.readAnswerState(ctx, &state)
	})
	return state, err
}
