package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wait"
)

// How a lock on one key is acquired:
//
//  1. take counts the acquisition in (Session.Enter), so that Close waits for it.
//  2. If ctx carries an owner of this very lock, it is a re-entry, which is a count in this process (reenter).
//     Otherwise the acquisition gets a new owner.
//  3. Ask sends the kind's script: owner, lease, and the instant in the server's time until which the reply is wanted.
//     The reply is granted, held (and what is left of the lease), late, lost, young (of a vote) or shared (of a
//     reader), and always has the server's clock. After a late reply the clock is learned anew and the try is repeated
//     once (script.Timed).
//  4. Refused: package wait has the caller wait, and calls Ask again. A release may also grant without another call
//     (Taken).
//  5. Granted: if the reply came after the deadline, the grant is worthless; the owner is released and the acquisition
//     goes on as another. Otherwise register tells the watchdog, before Lock returns. The deadline counts from before
//     the send.
//  6. With MinReplicas the request is followed by WAIT on the same connection. If too few replicas confirm, the grant
//     is taken back.
//
// An acquisition that ends without a grant, after a try that was not answered, has its owner released in the
// background, until the release is answered after the last instant at which the try could still be granted.

// acquire implements form.
func (l *single) acquire(ctx context.Context, opts terms) (*Hold, error) {
	return l.acquireHold(ctx, opts, opts.lease == 0)
}

// longest implements form.
func (l *single) longest(lease time.Duration) time.Duration {
	return max(lease, l.c.opts.WatchdogTimeout)
}

// acquireHold acquires the lock. If auto is set, the watchdog renews the hold: a lease of 0 asks for that, and the
// members of a Multi need it until all are held.
func (l *single) acquireHold(ctx context.Context, opts terms, auto bool) (*Hold, error) {
	client := l.c
	if err := client.session.Enter(); err != nil {
		return nil, err
	}
	ctx = client.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: l.name})
	began := time.Now()
	hold, seen, err := l.acquireByTurnOrAlone(ctx, began, opts, auto)
	waited := time.Since(began)
	if err != nil {
		err = errorContext(l.name, waited, seen.outcomeUnknown).Explain(err)
		var refused *NotAcquiredError
		if errors.As(err, &refused) {
			refused.Ours, refused.NoEnd = client.engine.Holds(l.key), seen.isEndless
			refused.Foreign = seen.holder.isForeign()
			if seen.holder.isOtherKind() {
				refused.Kind = l.kind.conflictingType()
			}
			if !refused.Unheard {
				refused.Holders = l.holders(ctx, waited)
			}
		}
		client.session.Leave()
		client.session.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: l.name, Took: waited, Err: err})
		return nil, err
	}
	client.session.Answered()
	hold.follow(ctx, client)
	client.session.Tell(ctx, errs.Event{Kind: errs.EventAcquired, Name: l.name, Took: waited})
	return hold, nil
}

// refusalInfo is what a call knows, besides its error, that did not acquire the lock.
type refusalInfo struct {
	outcomeUnknown bool // a try that was not answered may have taken the lock
	holder         holder
	isEndless      bool // of the holder, by the last answer
}

// acquireByTurnOrAlone acquires the lock: by a turn of its process where waiters queue, otherwise for itself.
func (l *single) acquireByTurnOrAlone(ctx context.Context, began time.Time, opts terms,
	auto bool) (*Hold, refusalInfo, error) {
	client := l.c
	own, turn, id := ownerIn(ctx, l)
	fresh := own == nil && id == ""
	if !fresh { // before ctx itself: the context of a hold ends with the hold
		if err := l.endedIn(ctx); err != nil {
			return nil, refusalInfo{}, err
		}
	}
	if err := client.waiters.Ended(ctx); err != nil {
		return nil, refusalInfo{}, &wait.GaveUp{Left: -1, Cause: err}
	}
	if fresh && l.kind.sharesTenure != nil && l.kind.sharesTenure(client, opts) {
		one := &struct { // in one piece of memory
			caller    queuedCaller
			contender lockContender
		}{caller: queuedCaller{lock: l, ctx: ctx, began: began, terms: opts, autoRenew: auto}}
		if opts.wait != forever {
			one.caller.waitsUntil = began.Add(opts.wait)
		}
		if hold, last, err := client.cohorts.acquire(&one.caller, &one.contender); !errors.Is(err, errAsked) {
			return hold, last, err
		}
	}
	acquiring := acquisition{lock: l, ctx: ctx, began: began, autoRenew: auto, lease: opts.lease, label: opts.label}
	if opts.lease == 0 {
		acquiring.lease = client.opts.WatchdogTimeout
	}
	hold, err := acquiring.acquireAlone(ctx, opts.wait, own, turn, id)
	acquiring.refusal.outcomeUnknown = !acquiring.unansweredUntil.IsZero()
	return hold, acquiring.refusal, err
}

// errorContext says how the error of an acquisition is made from that of its wait. unsure: a try that was not answered
// may have taken the lock. It is the one place where rlock does so, for single locks, Multi and Quorum.
func errorContext(name string, waited time.Duration, unsure bool) wait.Ending {
	return wait.Ending{Package: "rlock", Name: name, Unsure: unsure, TakesBack: true,
		Contended: func(gaveUp *wait.GaveUp) error {
			return &NotAcquiredError{Name: name, Lease: gaveUp.Left, Waited: waited, Cause: gaveUp.Cause,
				Unheard: gaveUp.Failure != nil}
		}}
}

// acquisition asks for one lock, for a call of Lock or for a tenure.
type acquisition struct {
	lock       *single
	ctx        context.Context // the caller's
	began      time.Time
	lease      time.Duration
	shortLease time.Duration // the lease that is asked for, if it is raised to lease later; 0: lease
	label      string
	autoRenew  bool // it is renewed

	own       *owner
	joinOwner Owner          // of another process, to be joined
	writeHold *owner         // of the write hold under which it reads
	contender *lockContender // whose it is; nil: it is for a call of its own

	// What it has sent.
	sentAt          time.Time // of the try that was granted, or the last
	possibleSince   time.Time // the owner may hold the lock from here on: before that the server said that it does not
	lastRunAt       time.Time // until when the last try may run, if it was not answered
	unansweredUntil time.Time // until when some try that was sent and not answered may take the lock
	sendCount       int32     // how many
	replaced        *owner    // whose hold the next one takes over: see transfer.go
	argsRoom        [6]string // for the arguments of the first, here to be one piece of memory

	// What it was granted.
	writtenLease time.Duration // the lease that the server wrote when it handed the lock over
	token        int64         // fencing token
	handedOver   bool          // by the server, from its queue
	transferred  bool          // by another owner of this process
	stillQueued  bool          // by a call that could not take it out of the queue

	// What it has while it waits.
	entry     string    // in the queue on the server, once it was asked for
	leavesAt  time.Time // when its caller gives up; zero: not known
	refusal   refusalInfo
	canWait   bool // it waits
	monitored bool // the holder's heartbeats are looked at
}

// requestedLease is the lease for which it asks.
func (a *acquisition) requestedLease() time.Duration { return cmp.Or(a.shortLease, a.lease) }

func (a *acquisition) newOwner() *owner {
	own := a.lock.newOwner(a.ctx, a.lease, a.label)
	own.writeHold = a.writeHold
	if a.contender != nil {
		own.Follow(a.lock.kind.concurrentTurns)
	}
	return own
}

func (a *acquisition) acquireAlone(ctx context.Context, waitTime time.Duration, own *owner, turn int32,
	id Owner) (hold *Hold, err error) {
	lock := a.lock
	request := wait.Request{Name: lock.name, Of: lock, Began: a.began, QueueKey: lock.key, Manner: lock.kind.title,
		Channel: lock.channel, Taker: a}
	if waitTime != forever {
		request.Until = a.began.Add(waitTime)
	}
	a.canWait = waitTime != 0
	a.leavesAt = request.Until
	if deadline, ok := ctx.Deadline(); ok && (a.leavesAt.IsZero() || deadline.Before(a.leavesAt)) {
		a.leavesAt = deadline
	}
	defer a.stopMonitoring()
	again, under, err := lock.resolve(own, turn)
	if a.writeHold = under; again != nil && again != own {
		turn = again.Turn()
	}
	own = again
	switch {
	case err != nil:
		return nil, err
	case own != nil:
		return lock.reenter(ctx, own, turn, a.autoRenew, a.lease)
	case id != "" && a.writeHold == nil:
		if err := lock.joinable(id); err != nil {
			return nil, err
		}
		a.joinOwner = id
	}
	a.own = a.newOwner()
	alone := waitTime == 0 || a.joinOwner != "" || a.writeHold != nil
	a.entry = a.newEntry()
	if backoff := lock.backoff; backoff != nil {
		request.Backoff = backoff.after
	}
	if lock.kind.request != nil {
		lock.kind.request(lock, a.own.Lease.Owner, &request)
	}
	if alone {
		request.Mode = wait.Alone
	}
	if !lock.handsOver() {
		request.Taker, request.Try = nil, func(ctx context.Context) (wait.Answer, error) { return a.Ask(ctx, nil) }
	} else if !alone {
		request.Grants = lock.grantChannel()
	}
	if err = lock.c.waiters.Wait(ctx, request); err != nil {
		return nil, a.giveUp(err)
	}
	return a.makeHold()
}

// reenter acquires for an owner that holds the lock. The server counts it once, however often it is re-entered, so a
// re-entry is a count in this process. Only one with a lease of its own asks: the server is to confirm that lease. It
// never waits, because its own owner has what others wait for (TestReentry_LocalWaiter_IsNotBehindIt).
func (l *single) reenter(ctx context.Context, own *owner, turn int32, auto bool, d time.Duration) (*Hold, error) {
	if !l.kind.reentry.reenters() {
		return nil, fmt.Errorf("%w: %q", ErrReentry, l.name)
	}
	if err := own.Enter(turn); err != nil {
		return nil, fmt.Errorf("re-enter %q: %w", l.name, err)
	}
	engine := l.c.engine
	why := engine.Over(&own.Lease)
	switch {
	case why != nil:
	case auto && engine.Auto(&own.Lease, d):
	case auto:
		why = own.Why()
	default:
		own.Bar(turn) // who is next was promised nothing of d
		bounded, cancel := l.c.session.Bounded(ctx)
		defer cancel()
		var confirmed bool
		if confirmed, why = engine.Extend(bounded, &own.Lease, d); !confirmed && why == nil {
			why = own.Why()
		}
	}
	if why != nil {
		// It may be the last one there: the outer hold was unlocked meanwhile, which kept the lock for it. So it has to
		// release.
		own.Retreat(time.Time{})
		if ended := errs.Ended(ctx); ended != nil && errs.IsCut(why) {
			// The lease of the outer hold may have become longer, and nothing else has happened.
			return nil, &wait.GaveUp{Left: -1, Failure: why, Cause: ended}
		}
		return nil, fmt.Errorf("re-enter %q: %w", l.name, why)
	}
	return newHold(own.Handle(auto)), nil
}

// joinable says why an owner of another process cannot be joined, if so.
func (l *single) joinable(id Owner) error {
	if !id.ours() {
		return fmt.Errorf("%w: owner is %.128q, must be an owner of this library", errs.ErrInvalidOption, id)
	}
	if !l.kind.reentry.joins() {
		return fmt.Errorf("%w: owner is %q, of another process: only Reentrant locks can be joined",
			errs.ErrInvalidOption, id)
	}
	return nil
}

// stopMonitoring undoes what an acquisition is known for while it waits.
func (a *acquisition) stopMonitoring() {
	if a.monitored {
		a.lock.c.monitor.unwatch(a.lock)
	}
	a.monitored = false
}

// giveUp ends an acquisition whose wait ended with err.
func (a *acquisition) giveUp(err error) error {
	lock := a.lock
	if lock.kind.enqueuesWhenRefused && a.entry != "" && !a.sentAt.IsZero() {
		a.ReleaseLater(time.Time{}) // its place in the queue
	}
	if a.writeHold != nil {
		err = lock.endLostHold(&a.writeHold.Lease, err)
	} else if a.joinOwner != "" && errors.Is(err, errs.ErrWrongType) {
		err = fmt.Errorf("join %s on %q: %w: %w", a.joinOwner, lock.name, errs.ErrLost, err)
	}
	if lock.kind.enqueuesWhenRefused && a.canWait {
		a.own.Depart(a.unansweredUntil, a.entry)
	} else {
		a.own.Abandon(a.unansweredUntil, a.entry)
	}
	return err
}

// makeHold has what was granted renewed, and makes its handle.
func (a *acquisition) makeHold() (*Hold, error) {
	if err := a.startRenewal(); err != nil {
		return nil, err
	}
	return newHold(a.own.Handle(a.autoRenew)), nil
}

// startRenewal has what was granted renewed.
func (a *acquisition) startRenewal() error {
	lock, own := a.lock, a.own
	engine, maxHold := lock.c.engine, lock.c.opts.MaxHold
	if !a.unansweredUntil.IsZero() {
		own.Lease.Unanswered()
	}
	var added bool
	switch {
	case a.handedOver:
		added = engine.AddHanded(&own.Lease, a.sentAt, a.writtenLease, a.lease, a.autoRenew, maxHold)
	case a.shortLease > 0:
		added = engine.AddShort(&own.Lease, a.possibleSince, a.sentAt, a.shortLease, a.lease, a.autoRenew, maxHold)
	default:
		added = engine.Add(&own.Lease, a.possibleSince, a.sentAt, a.lease, a.autoRenew, maxHold)
	}
	own.token = a.token
	// A release does not always end the acquisition: its first request was not answered, the second was granted, and the
	// hold is released; the first, on another connection, arrives only now and takes the lock for an owner that is done
	// with it. So the release is sent once more after the last instant at which that request may run
	// ("a try of unknown outcome says so, and is taken back" in internal/contract).
	if a.unansweredUntil.IsZero() && !a.stillQueued { // then the grant has taken it out of the queue
		a.entry = ""
	}
	return own.Keep(added, a.unansweredUntil, a.entry)
}

// endLostHold returns err, the error of an acquisition that relied on a hold in use. If err says that this hold is
// over, lost ends the hold, and returns the error as the loss that it is.
func (l *single) endLostHold(c *lease.Lease, err error) error {
	switch {
	case errors.Is(err, errs.ErrWrongType):
		l.c.engine.Lost(c, errs.ErrOverwritten)
		return fmt.Errorf("re-enter %q: %w: %w", l.name, errs.ErrLost, err)
	case errors.Is(err, errs.ErrLost):
		l.c.engine.Lost(c, errs.ErrLost)
	}
	return err
}
