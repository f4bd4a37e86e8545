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
func (l *single) acquire(ctx context.Context, t terms) (*Hold, error) {
	return l.take(ctx, t, t.lease == 0)
}

// longest implements form.
func (l *single) longest(lease time.Duration) time.Duration {
	return max(lease, l.c.opts.WatchdogTimeout)
}

// take acquires the lock. If auto is set, the watchdog renews the hold: a lease of 0 asks for that, and the members
// of a Multi need it until all are held.
func (l *single) take(ctx context.Context, t terms, auto bool) (*Hold, error) {
	c := l.c
	if err := c.session.Enter(); err != nil {
		return nil, err
	}
	ctx = c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: l.name})
	began := time.Now()
	hold, seen, err := l.acquired(ctx, began, t, auto)
	waited := time.Since(began)
	if err != nil {
		err = ending(l.name, waited, seen.unsure).Explain(err)
		var refused *NotAcquiredError
		if errors.As(err, &refused) {
			refused.Ours, refused.NoEnd = c.engine.Holds(l.key), seen.noEnd
			refused.Foreign = seen.holder.foreign()
			if seen.holder.other() {
				refused.Kind = l.kind.otherwise()
			}
			if !refused.Unheard {
				refused.Holders = l.holders(ctx, waited)
			}
		}
		c.session.Leave()
		c.session.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: l.name, Took: waited, Err: err})
		return nil, err
	}
	c.session.Answered()
	hold.follow(ctx, c)
	c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquired, Name: l.name, Took: waited})
	return hold, nil
}

// seen is what a call knows, besides its error, that did not acquire the lock.
type seen struct {
	unsure bool // a try that was not answered may have taken the lock
	holder holder
	noEnd  bool // of the holder, by the last answer
}

// acquired acquires the lock: by a turn of its process where waiters queue, otherwise for itself.
func (l *single) acquired(ctx context.Context, began time.Time, t terms, auto bool) (*Hold, seen, error) {
	c := l.c
	own, turn, id := ownerIn(ctx, l)
	fresh := own == nil && id == ""
	if !fresh { // before ctx itself: the context of a hold ends with the hold
		if err := l.endedIn(ctx); err != nil {
			return nil, seen{}, err
		}
	}
	if err := c.waiters.Ended(ctx); err != nil {
		return nil, seen{}, &wait.GaveUp{Left: -1, Cause: err}
	}
	if fresh && l.kind.tenures != nil && l.kind.tenures(c, t) {
		one := &struct { // in one piece of memory
			caller
			contender
		}{caller: caller{l: l, ctx: ctx, began: began, terms: t, auto: auto}}
		if t.wait != forever {
			one.until = began.Add(t.wait)
		}
		if h, last, err := c.cohorts.acquire(&one.caller, &one.contender); !errors.Is(err, errAsked) {
			return h, last, err
		}
	}
	a := acquisition{l: l, ctx: ctx, began: began, auto: auto, lease: t.lease, label: t.label}
	if t.lease == 0 {
		a.lease = c.opts.WatchdogTimeout
	}
	hold, err := a.run(ctx, t.wait, own, turn, id)
	a.seen.unsure = !a.unanswered.IsZero()
	return hold, a.seen, err
}

// ending says how the error of an acquisition is made from that of its wait. unsure: a try that was not answered may
// have taken the lock. It is the one place where rlock does so, for single locks, Multi and Quorum.
func ending(name string, waited time.Duration, unsure bool) wait.Ending {
	return wait.Ending{Package: "rlock", Name: name, Unsure: unsure, TakesBack: true,
		Contended: func(g *wait.GaveUp) error {
			return &NotAcquiredError{Name: name, Lease: g.Left, Waited: waited, Cause: g.Cause, Unheard: g.Failure != nil}
		}}
}

// acquisition asks for one lock, for a call of Lock or for a tenure.
type acquisition struct {
	l     *single
	ctx   context.Context // the caller's
	began time.Time
	lease time.Duration
	short time.Duration // the lease that is asked for, if it is raised to lease later; 0: lease
	label string
	auto  bool // it is renewed

	own       *owner
	join      Owner      // of another process, to be joined
	under     *owner     // of the write hold under which it reads
	contender *contender // whose it is; nil: it is for a call of its own

	// What it has sent.
	sent       time.Time // of the try that was granted, or the last
	since      time.Time // the owner may hold the lock from here on: before that the server said that it does not
	runs       time.Time // until when the last try may run, if it was not answered
	unanswered time.Time // until when some try that was sent and not answered may take the lock
	sends      int32     // how many
	from       *owner    // whose hold the next one takes over: see transfer.go
	room       [6]string // for the arguments of the first, here to be one piece of memory

	// What it was granted.
	written time.Duration // the lease that the server wrote when it handed the lock over
	token   int64         // fencing token
	handed  bool          // by the server, from its queue
	moved   bool          // by another owner of this process
	inQueue bool          // by a call that could not take it out of the queue

	// What it has while it waits.
	entry   string    // in the queue on the server, once it was asked for
	leaves  time.Time // when its caller gives up; zero: not known
	seen    seen
	patient bool // it waits
	watched bool // the holder's heartbeats are looked at
}

// asksFor is the lease for which it asks.
func (a *acquisition) asksFor() time.Duration { return cmp.Or(a.short, a.lease) }

func (a *acquisition) newOwner() *owner {
	own := a.l.newOwner(a.ctx, a.lease, a.label)
	own.under = a.under
	if a.contender != nil {
		own.Follow(a.l.kind.together)
	}
	return own
}

func (a *acquisition) run(ctx context.Context, waitTime time.Duration, own *owner, turn int32,
	id Owner) (hold *Hold, err error) {
	l := a.l
	r := wait.Request{Name: l.name, Of: l, Began: a.began, QueueKey: l.key, Manner: l.kind.title, Channel: l.channel,
		Taker: a}
	if waitTime != forever {
		r.Until = a.began.Add(waitTime)
	}
	a.patient = waitTime != 0
	a.leaves = r.Until
	if d, ok := ctx.Deadline(); ok && (a.leaves.IsZero() || d.Before(a.leaves)) {
		a.leaves = d
	}
	defer a.waited()
	again, under, err := l.resolve(own, turn)
	if a.under = under; again != nil && again != own {
		turn = again.Turn()
	}
	own = again
	switch {
	case err != nil:
		return nil, err
	case own != nil:
		return l.reenter(ctx, own, turn, a.auto, a.lease)
	case id != "" && a.under == nil:
		if err := l.joinable(id); err != nil {
			return nil, err
		}
		a.join = id
	}
	a.own = a.newOwner()
	alone := waitTime == 0 || a.join != "" || a.under != nil
	a.entry = a.newEntry()
	if b := l.backoff; b != nil {
		r.Backoff = b.after
	}
	if l.kind.request != nil {
		l.kind.request(l, a.own.Lease.Owner, &r)
	}
	if alone {
		r.Mode = wait.Alone
	}
	if !l.hands() {
		r.Taker, r.Try = nil, func(ctx context.Context) (wait.Answer, error) { return a.Ask(ctx, nil) }
	} else if !alone {
		r.Grants = l.grantsHere()
	}
	if err = l.c.waiters.Wait(ctx, r); err != nil {
		return nil, a.failed(err)
	}
	return a.register()
}

// reenter acquires for an owner that holds the lock. The server counts it once, however often it is re-entered, so a
// re-entry is a count in this process. Only one with a lease of its own asks: the server is to confirm that lease. It
// never waits, because its own owner has what others wait for (TestReentry_LocalWaiter_IsNotBehindIt).
func (l *single) reenter(ctx context.Context, own *owner, turn int32, auto bool, d time.Duration) (*Hold, error) {
	if !l.kind.entry.reenters() {
		return nil, fmt.Errorf("%w: %q", ErrReentry, l.name)
	}
	if err := own.Enter(turn); err != nil {
		return nil, fmt.Errorf("re-enter %q: %w", l.name, err)
	}
	e := l.c.engine
	why := e.Over(&own.Lease)
	switch {
	case why != nil:
	case auto && e.Auto(&own.Lease, d):
	case auto:
		why = own.Why()
	default:
		own.Bar(turn) // who is next was promised nothing of d
		bounded, cancel := l.c.session.Bounded(ctx)
		defer cancel()
		var confirmed bool
		if confirmed, why = e.Extend(bounded, &own.Lease, d); !confirmed && why == nil {
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
	if !l.kind.entry.joins() {
		return fmt.Errorf("%w: owner is %q, of another process: only Reentrant locks can be joined",
			errs.ErrInvalidOption, id)
	}
	return nil
}

// waited undoes what an acquisition is known for while it waits.
func (a *acquisition) waited() {
	if a.watched {
		a.l.c.monitor.unwatch(a.l)
	}
	a.watched = false
}

// failed ends an acquisition whose wait ended with err.
func (a *acquisition) failed(err error) error {
	l := a.l
	if l.kind.leaves && a.entry != "" && !a.sent.IsZero() {
		a.ReleaseLater(time.Time{}) // its place in the queue
	}
	if a.under != nil {
		err = l.lost(&a.under.Lease, err)
	} else if a.join != "" && errors.Is(err, errs.ErrWrongType) {
		err = fmt.Errorf("join %s on %q: %w: %w", a.join, l.name, errs.ErrLost, err)
	}
	if l.kind.leaves && a.patient {
		a.own.Depart(a.unanswered, a.entry)
	} else {
		a.own.Abandon(a.unanswered, a.entry)
	}
	return err
}

// register has what was granted renewed, and makes its handle.
func (a *acquisition) register() (*Hold, error) {
	if err := a.keep(); err != nil {
		return nil, err
	}
	return newHold(a.own.Handle(a.auto)), nil
}

// keep has what was granted renewed.
func (a *acquisition) keep() error {
	l, own := a.l, a.own
	e, maxHold := l.c.engine, l.c.opts.MaxHold
	if !a.unanswered.IsZero() {
		own.Lease.Unanswered()
	}
	var added bool
	switch {
	case a.handed:
		added = e.AddHanded(&own.Lease, a.sent, a.written, a.lease, a.auto, maxHold)
	case a.short > 0:
		added = e.AddShort(&own.Lease, a.since, a.sent, a.short, a.lease, a.auto, maxHold)
	default:
		added = e.Add(&own.Lease, a.since, a.sent, a.lease, a.auto, maxHold)
	}
	own.token = a.token
	// A release does not always end the acquisition: its first request was not answered, the second was granted, and the
	// hold is released; the first, on another connection, arrives only now and takes the lock for an owner that is done
	// with it. So the release is sent once more after the last instant at which that request may run
	// ("a try of unknown outcome says so, and is taken back" in internal/contract).
	if a.unanswered.IsZero() && !a.inQueue { // then the grant has taken it out of the queue
		a.entry = ""
	}
	return own.Keep(added, a.unanswered, a.entry)
}

// lost returns err, the error of an acquisition that relied on a hold in use. If err says that this hold is over, lost
// ends the hold, and returns the error as the loss that it is.
func (l *single) lost(c *lease.Lease, err error) error {
	switch {
	case errors.Is(err, errs.ErrWrongType):
		l.c.engine.Lost(c, errs.ErrOverwritten)
		return fmt.Errorf("re-enter %q: %w: %w", l.name, errs.ErrLost, err)
	case errors.Is(err, errs.ErrLost):
		l.c.engine.Lost(c, errs.ErrLost)
	}
	return err
}
