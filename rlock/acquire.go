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

// A lock on one key is acquired in these steps:
//
//  1. acquire counts the acquisition in (Session.Enter), so that Close waits for it.
//  2. If ctx carries an owner of this very lock, the call is a re-entry, which is a count in this process (reenter).
//     Otherwise the acquisition gets a new owner.
//  3. Ask sends the kind's script with the owner, the lease, and the instant in the server's time until which the reply
//     is wanted. The reply is granted, held (with the rest of the lease), late, lost, young (of a vote) or shared (of a
//     reader). It always has the server's clock. After a late reply the clock is read anew, and the request is repeated
//     once (script.Timed).
//  4. Refused: package wait makes the caller wait, and calls Ask again. A release may also grant the lock without
//     another request (Taken).
//  5. Granted: if the reply came after the deadline, the grant is worthless. Its owner is then released, and the
//     acquisition continues with another owner. Otherwise makeHold registers the hold with the watchdog before Lock
//     returns. The deadline counts from before the send.
//  6. With MinReplicas the request is followed by WAIT on the same connection. If too few replicas confirm, the grant
//     is released.
//
// An acquisition may end without a grant after a request without a reply. Its owner is then released in the background.
// The release is final when its reply comes after the last instant at which that request could still be granted.

// longest implements form.
func (l *single) longest(lease time.Duration) time.Duration {
	return max(lease, l.c.opts.WatchdogTimeout)
}

// acquire implements form. A kind whose waiters queue gets the lock by a turn of the process's tenure, other kinds by
// requests of their own.
func (l *single) acquire(ctx context.Context, opts terms) (*Hold, error) {
	client, began := l.c, time.Now()
	if err := client.session.Enter(); err != nil {
		return nil, err
	}
	ctx = client.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: l.name})
	carried, err := ownerIn(ctx, l) // before ctx, because the context of a hold ends with the hold
	if ended := client.waiters.Ended(ctx); err == nil && ended != nil {
		err = &wait.GaveUp{Left: -1, Cause: ended}
	}
	var hold *Hold
	var seen refusalInfo
	switch shares := l.kind.waiting.sharesTenure; {
	case err != nil:
	case carried.id == "" && shares != nil && shares(client, opts):
		hold, seen, err = client.cohorts.acquire(ctx, l, began, opts)
	default:
		hold, seen, err = l.acquireAlone(ctx, began, opts, carried)
	}
	waited := time.Since(began)
	if seen.watch != nil {
		err = seen.watch.end(err)
	}
	if err != nil {
		err = l.explain(ctx, err, seen, waited)
		client.session.Leave()
		client.session.Tell(ctx,
			errs.Event{Kind: errs.EventNotAcquired, Name: l.name, Took: waited, Waited: seen.waited, Err: err})
		return nil, err
	}
	client.session.Answered()
	hold.follow(ctx, client)
	client.session.Tell(ctx, errs.Event{Kind: errs.EventAcquired, Name: l.name, Took: waited, Waited: seen.waited})
	return hold, nil
}

// explain makes the caller's error from that of its wait.
func (l *single) explain(ctx context.Context, err error, seen refusalInfo, waited time.Duration) error {
	if isAnswered(err) {
		return err
	}
	err = errorContext(l.name, waited, seen.outcomeUnknown).Explain(err)
	var refused *NotAcquiredError
	if errors.As(err, &refused) {
		refused.Ours, refused.NoEnd = l.c.engine.Holds(l.key), seen.isEndless
		refused.Foreign = seen.holder.isForeign()
		if seen.holder.isOtherKind() {
			refused.Kind = l.kind.conflictingType()
		}
		if !refused.Unheard {
			refused.Holders = l.holders(ctx, waited)
		}
	}
	return err
}

// refusalInfo is what a call knows of the requests that were refused to it, besides its error.
type refusalInfo struct {
	waited         bool           // the call waited for others
	watch          *deadlockWatch // of the wait; nil: none
	outcomeUnknown bool           // a request without a reply may have taken the lock
	holder         holder
	isEndless      bool // the holder's lease had no end, by the last reply
}

// errorContext returns the data from which the wait error of an acquisition becomes the caller's error. outcomeUnknown
// says that a request without a reply may have taken the lock. rlock makes these errors here only, for single locks,
// Multi and Quorum.
func errorContext(name string, waited time.Duration, outcomeUnknown bool) wait.Ending {
	return wait.Ending{Package: "rlock", Name: name, Unsure: outcomeUnknown, TakesBack: true,
		Contended: func(gaveUp *wait.GaveUp) error {
			return &NotAcquiredError{Name: name, Lease: gaveUp.Left, Waited: waited, Cause: gaveUp.Cause,
				Unheard: gaveUp.Failure != nil}
		}}
}

// acquisition is the requests for one lock, for one call of Lock or for one tenure.
type acquisition struct {
	lock      *single
	ctx       context.Context // of the caller
	began     time.Time
	wanted    holdTerms
	own       *owner
	joinOwner Owner          // an owner of another process, which this acquisition joins; "": none
	writeHold *owner         // the write hold under which the caller reads; nil: none
	contender *lockContender // the contender that this acquisition is part of; nil: the acquisition of one call

	// The requests.
	times     requestTimes
	sendCount int32     // the number of requests
	replaced  *owner    // the next request takes over the hold of this owner: see transfer.go; nil: none
	argsRoom  [6]string // memory for the arguments of the first request
	grant     grantInfo

	// The wait.
	entry      string    // the entry in the server's queue; "": no request had one
	leavesAt   time.Time // the caller gives up at this instant; zero: not known
	refusal    refusalInfo
	canWait    bool // the caller waits after a refusal
	waited     bool // the caller has waited for others
	isAnswered bool // the wait ended with an answer: the server has neither hold nor entry of the owner
	beside     *heldParts
	watch      *deadlockWatch // nil: the caller does not wait, or carries no hold
	monitored  bool           // the monitor reads the heartbeats of the lock's holders
}

// holdTerms are the terms of the hold that an acquisition requests.
type holdTerms struct {
	lease      time.Duration
	shortLease time.Duration // the lease of the request, which the watchdog raises to lease; 0: lease
	label      string
	autoRenew  bool // the watchdog renews the hold
}

// holdTerms returns the terms of the hold that a caller was promised.
func (c *Client) holdTerms(opts terms) holdTerms {
	return holdTerms{lease: cmp.Or(opts.lease, c.opts.WatchdogTimeout), label: opts.label, autoRenew: opts.autoRenew()}
}

// requestedLease returns the lease of the request.
func (t *holdTerms) requestedLease() time.Duration { return cmp.Or(t.shortLease, t.lease) }

// requestTimes are the instants of an acquisition's requests, which say when the server may grant or may have granted
// the lock.
type requestTimes struct {
	sentAt          time.Time // the send of the granted request, or of the last request
	possibleSince   time.Time // the server last denied before this that the owner holds the lock
	lastRunAt       time.Time // the last request may run until this, if it got no reply
	unansweredUntil time.Time // requests without a reply may take the lock until this; zero: none
}

// sent records the send of a request.
func (t *requestTimes) sent(at time.Time) {
	t.sentAt = at
	if t.possibleSince.IsZero() {
		t.possibleSince = at
	}
}

// grantInfo is what an acquisition knows of its grant.
type grantInfo struct {
	writtenLease time.Duration // the lease that a release wrote when it handed the lock over; 0: no release did
	token        int64         // fencing token
	transferred  bool          // another owner of this process transferred its hold
	stillQueued  bool          // the granting call could not remove the queue entry
}

func (a *acquisition) newOwner() *owner {
	own := a.lock.newOwner(a.ctx, a.wanted.lease, a.wanted.label)
	own.writeHold = a.writeHold
	if a.contender != nil {
		own.Follow(a.lock.kind.waiting.concurrentTurns)
	}
	return own
}

// acquireAlone acquires the lock by requests of its own, under the owner that the caller's context carries.
func (l *single) acquireAlone(ctx context.Context, began time.Time, opts terms,
	carried carriedOwner) (*Hold, refusalInfo, error) {
	acquiring := acquisition{lock: l, ctx: ctx, began: began, wanted: l.c.holdTerms(opts), beside: opts.beside}
	hold, err := acquiring.acquire(ctx, opts.wait, carried)
	acquiring.refusal.outcomeUnknown = !acquiring.times.unansweredUntil.IsZero()
	acquiring.refusal.waited, acquiring.refusal.watch = acquiring.waited, acquiring.watch
	return hold, acquiring.refusal, err
}

// acquire re-enters or joins the carried owner, or waits for the lock as a new owner.
func (a *acquisition) acquire(ctx context.Context, waitTime time.Duration,
	carried carriedOwner) (hold *Hold, err error) {
	lock := a.lock
	request := wait.Request{Name: lock.name, Object: lock, Began: a.began, QueueKey: lock.key, QueueClass: lock.kind.title,
		Channel: lock.channel, Taker: a, Watcher: a}
	if waitTime != forever {
		request.Until = a.began.Add(waitTime)
	}
	a.canWait = waitTime != 0
	a.leavesAt = wait.EndsAt(ctx, request.Until)
	defer a.stopMonitoring()
	again, under, err := lock.resolve(carried.own, carried.turn)
	a.writeHold = under
	switch {
	case err != nil:
		return nil, err
	case again != nil:
		turn := carried.turn
		if again != carried.own {
			turn = again.Turn()
		}
		return lock.reenter(ctx, again, turn, a.wanted.autoRenew, a.wanted.lease)
	case carried.id != "" && a.writeHold == nil:
		if err := lock.joinable(carried.id); err != nil {
			return nil, err
		}
		a.joinOwner = carried.id
	}
	a.own = a.newOwner()
	alone := waitTime == 0 || a.joinOwner != "" || a.writeHold != nil
	a.entry = a.newEntry()
	if backoff := lock.backoff; backoff != nil {
		request.Backoff = backoff.after
	}
	if lock.kind.waiting.request != nil {
		lock.kind.waiting.request(a, &request)
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

// BeginWait implements wait.Watcher.
func (a *acquisition) BeginWait(caller *wait.Caller) {
	a.waited, a.watch = true, a.lock.watchForDeadlock(a.ctx, a.began, a.beside, caller)
}

// reenter acquires the lock for an owner that holds it. The server counts the owner once, however often the owner is
// re-entered, so a re-entry is a count in this process. Only a re-entry with a lease of its own sends a request,
// because the server must confirm that lease. A re-entry never waits, because its own owner holds the lock that others
// wait for (TestReentry_LocalWaiter_IsNotBehindIt).
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
		own.Bar(turn) // the next caller was not promised the lease d
		bounded, cancel := l.c.session.Bounded(ctx)
		defer cancel()
		var confirmed bool
		if confirmed, why = engine.Extend(bounded, &own.Lease, d); !confirmed && why == nil {
			why = own.Why()
		}
	}
	if why != nil {
		// The outer hold may have been unlocked meanwhile, which kept the lock for this re-entry. Then the re-entry has to
		// release the lock.
		own.Retreat(time.Time{})
		if ended := errs.Ended(ctx); ended != nil && errs.IsCut(why) {
			// At most the lease of the outer hold has become longer.
			return nil, &wait.GaveUp{Left: -1, Failure: why, Cause: ended}
		}
		return nil, fmt.Errorf("re-enter %q: %w", l.name, why)
	}
	return newHold(own.Handle(auto)), nil
}

// joinable returns nil if the lock can join an owner of another process, and otherwise the reason why not.
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

// stopMonitoring ends the monitor's checks for this acquisition.
func (a *acquisition) stopMonitoring() {
	if a.monitored {
		a.lock.c.monitor.unwatch(a.lock)
	}
	a.monitored = false
}

// giveUp ends an acquisition whose wait ended with err, and returns the caller's error.
func (a *acquisition) giveUp(err error) error {
	lock := a.lock
	if lock.kind.waiting.enqueuesWhenRefused && a.entry != "" && !a.times.sentAt.IsZero() {
		a.ReleaseLater(time.Time{}) // so that the release removes the queue entry
	}
	if a.writeHold != nil {
		err = lock.endLostHold(&a.writeHold.Lease, err)
	} else if a.joinOwner != "" && errors.Is(err, errs.ErrWrongType) {
		err = fmt.Errorf("join %s on %q: %w: %w", a.joinOwner, lock.name, errs.ErrLost, err)
	}
	if lock.kind.waiting.enqueuesWhenRefused && a.canWait {
		a.own.Depart(a.times.unansweredUntil, a.entry)
	} else {
		a.own.Abandon(a.times.unansweredUntil, a.entry)
	}
	return err
}

// makeHold starts the renewal of the granted hold, and returns its handle.
func (a *acquisition) makeHold() (*Hold, error) {
	if err := a.startRenewal(); err != nil {
		return nil, err
	}
	return newHold(a.own.Handle(a.wanted.autoRenew)), nil
}

// startRenewal registers the granted hold with the watchdog.
func (a *acquisition) startRenewal() error {
	own, wanted, times, engine := a.own, &a.wanted, &a.times, a.lock.c.engine
	maxHold := a.lock.c.opts.MaxHold
	if !times.unansweredUntil.IsZero() {
		own.Lease.Unanswered()
	}
	var added bool
	switch {
	case a.grant.writtenLease > 0:
		added = engine.AddHanded(&own.Lease, times.sentAt, a.grant.writtenLease, wanted.lease, wanted.autoRenew, maxHold)
	case wanted.shortLease > 0:
		added = engine.AddShort(&own.Lease, times.possibleSince, times.sentAt, wanted.shortLease, wanted.lease,
			wanted.autoRenew, maxHold)
	default:
		added = engine.Add(&own.Lease, times.possibleSince, times.sentAt, wanted.lease, wanted.autoRenew, maxHold)
	}
	own.token = a.grant.token
	// One release may not be enough: request 1 gets no reply, request 2 is granted, the hold is released, and only then
	// request 1 arrives on another connection. It takes the lock for an owner that was released. So the release is sent
	// once more after the last instant at which request 1 may run
	// ("a try of unknown outcome says so, and is taken back" in internal/contract).
	if times.unansweredUntil.IsZero() && !a.grant.stillQueued { // the grant has removed the entry
		a.entry = ""
	}
	return own.Keep(added, times.unansweredUntil, a.entry)
}

// endLostHold returns err, the error of an acquisition that relied on a hold in use. If err says that this hold has
// ended, endLostHold ends the hold in this process, and returns the error as a loss.
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
