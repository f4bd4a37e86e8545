package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Multi describes several locks as one: acquired all or none, valid only while all are held, released together. It is
// Redisson's RMultiLock. The locks may be of any kind and of several clients and servers. For everybody else they are
// the single locks that they are.
//
// The returned lock has its own WithWait, WithLease and WithLabel. Those of its members are not used, except a member's
// label if the returned lock has none. One deadline counts for all. Acquiring under a hold's context re-enters what
// that context carries: a hold of the Multi, or of any member. Opposite orders cannot deadlock, because all processes
// acquire by key; if keys on several servers are equal, by the servers' addresses, so all processes must know the
// servers by the same addresses. A lock that is held already when a Multi is acquired under its context stays held
// meanwhile; that order is the caller's.
//
//   - Lock and TryLock: on failure nothing is held. What a server does not confirm in time is released in the
//     background, which Close waits for. A *NotAcquiredError names the member that another owner held. With a waitTime
//     of 0 each member is asked once, until the first that is held.
//   - Err, Done and Context of the Hold end when any member is lost, with that reason. The others stay held, and
//     renewed, until Unlock, because nothing releases a lock under running work.
//   - Until is that of the member that ends first. Extend and Unlock act on all members at the same time; their errors
//     are joined. UnlockAfter counts from when all members were held.
//   - Owner is the members' owners, joined by commas; pass it to [Lock.WithOwner] of the same Multi. Token is that of
//     the Fenced member, if there is exactly one.
//   - IsLocked reports whether one or more members are held. The Lease of its State is the
//     time until all are free. ForceUnlock takes all of them from their holders.
//
// A lock that is given twice counts once. Multi returns ErrInvalidOption for two kinds, or both sides of a ReadWrite
// lock, on one key, because they would wait for each other; for nil; for no locks at all; and for locks that are a
// Multi or Quorum themselves. If two clients reach one server by different addresses, Multi may not notice it: the same
// key through both waits for itself.
//
// Cost: one script call acquires all members if they are free, are Reentrant, NonReentrant or Spin locks of one client,
// and in a Cluster, also one that a proxy hides, of one slot. Otherwise, and if one of them is held, each takes one
// call or more, one after the other, with the place in each queue that a single lock has. The first ones are held
// meanwhile, and renewed whatever the lease. Unlock is one call for each, at the same time.
func Multi(locks ...*Lock) (*Lock, error) {
	if len(locks) == 0 {
		return nil, fmt.Errorf("rlock: %w: multi: no locks, must be one or more", errs.ErrInvalidOption)
	}
	given, err := membersOf("multi", locks)
	if err != nil {
		return nil, err
	}
	type lockID struct {
		server rueidis.Client
		key    string
	}
	seen := map[lockID]*single{}
	members := make([]member, 0, len(given))
	for _, l := range given {
		at := lockID{l.c.session.Hub.Client(), l.key}
		switch other := seen[at]; {
		case other == nil:
			seen[at] = l.single
			members = append(members, l)
		case other.kind != l.kind:
			return nil, fmt.Errorf("rlock: %w: multi: %q is there as %s and as %s, which would wait for each other",
				errs.ErrInvalidOption, l.name, other.kind.title, l.kind.title)
		}
	}
	// By key first, and by server only if keys are equal: otherwise every order would depend on all processes knowing the
	// servers by the same addresses.
	slices.SortStableFunc(members, func(a, b member) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.c.address(), b.c.address())
	})
	return newComposite("multi", members, len(members)), nil
}

// address names the server: the first of its nodes' addresses.
func (c *Client) address() string {
	return slices.Min(slices.Collect(maps.Keys(c.session.Hub.Client().Nodes())))
}

// collect acquires all members of a Multi:
//
//  1. The members are sorted by key; each key of a rueidis client is there once.
//  2. If all are of one client and one slot, on the layout of RLock, and none is re-entered or waited for inside the
//     process, one script asks for all. If any is held, it replies which, and takes none. A member that is free but
//     queued for is handed to the first in its queue, as by acquire.lua, and counts as held.
//  3. If that is refused and there is time, the members are acquired one after the other in that order, each with its
//     ordinary wait, all under one deadline, each renewed as soon as it is there. If one is lost meanwhile, all are
//     given back, and it starts over. A call that is out of time waits 50 ms for what it gives back; the rest goes on
//     in the background.
//  4. When all are there, those with a fixed lease are extended if they have lost more than a tenth of it, and renewed
//     no more.
func (q *composite) collect(ctx context.Context, terms terms) (*Hold, error) {
	waitTime := terms.wait
	t := &together{q: q, members: q.labelled(terms.label), began: time.Now(), auto: terms.lease == 0, lease: terms.lease,
		waits: waitTime != 0}
	if t.possible(ctx) {
		hold, err := t.run(ctx, waitTime)
		if !errors.Is(err, errOneByOne) {
			return hold, err
		}
	}
	end := t.began.Add(waitTime)
	switch waitTime {
	case forever:
		t.until = time.Time{}
	case 0: // what is asked once has the time of one call
		t.until = t.began.Add(t.members[0].c.opts.CallTimeout)
	default:
		t.until = end
	}
	for n := 0; ; n++ {
		p, lost, err := t.assemble(ctx, func() time.Duration {
			if waitTime == forever {
				return forever
			}
			return max(0, time.Until(end))
		})
		switch {
		case err == nil:
			p.began = time.Now()
			return &Hold{parts: p}, nil
		case !lost, waitTime != forever && !time.Now().Before(end), ctx.Err() != nil, !script.Pause(ctx, script.Backoff(n)):
			return nil, err
		}
	}
}

// assemble acquires the members one after the other. lost: one was lost while others were acquired.
//
// They are renewed meanwhile, even if a lease was asked for. Otherwise, if the wait is longer than that lease, the
// first ones are free again, and another's, when the last is granted
// (TestMulti_LeaseShorterThanTheWait_MakesNoSecondHolder).
func (t *together) assemble(ctx context.Context, left func() time.Duration) (p *parts, lost bool, err error) {
	p = newParts(t.q)
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	wctx := p.b.life.Context(all) // ends the waiting when a member is lost
	for i, m := range t.members {
		x, e := m.take(wctx, terms{wait: left(), lease: t.lease, label: m.label}, true, true)
		if e == nil {
			p.add(i, x)
		}
		if p.b.life.Err() != nil {
			break
		}
		if e != nil {
			p.giveBack(ctx, t.until)
			var contended *NotAcquiredError
			if errors.As(e, &contended) {
				contended.Waited = time.Since(t.began)
			}
			return nil, false, e
		}
	}
	if p.b.life.Err() == nil && !t.auto {
		err = t.applyLease(wctx, p)
	}
	why := p.b.life.Err()
	if why == nil && err == nil && time.Now().Before(p.until()) {
		return p, false, nil
	}
	name := t.q.name
	for i, x := range p.all() {
		if x != nil && x.Err() != nil {
			name = t.members[i].name
		}
	}
	p.giveBack(ctx, t.until)
	if why == nil && err != nil {
		return nil, false, err
	}
	lost, err = t.ended(ctx, name, why)
	return nil, lost, err
}

// ended is the error of a hold that ended before all of it was acquired, with its member of that name. lost: acquiring
// it again may help.
func (t *together) ended(ctx context.Context, name string, why error) (lost bool, err error) {
	switch {
	case errors.Is(why, errs.ErrClosed):
		return false, fmt.Errorf("rlock: %q: %w", name, errs.ErrClosed)
	case errors.Is(why, errs.ErrMaxHold):
		return false, fmt.Errorf("rlock: %q: %w before all of %q were acquired", name, errs.ErrMaxHold, t.q.name)
	}
	e := &NotAcquiredError{Name: name, Lease: -1, Waited: time.Since(t.began), Cause: errLostMeanwhile}
	if ctx.Err() != nil {
		e.Cause = fmt.Errorf("%w: %w", e.Cause, context.Cause(ctx))
	}
	return true, e
}

var errLostMeanwhile = errors.New("lost while others were acquired")

// applyLease gives the parts the lease that was asked for, now that all are there: what has lost more than a tenth of
// it gets it anew, and none is renewed any more.
func (t *together) applyLease(caller context.Context, p *parts) error {
	ctx, holds := caller, p.all()
	failed := make([]error, len(holds))
	if !t.until.IsZero() {
		end := time.Now().Add(ownerOf(holds[0].h).lock.c.opts.CallTimeout) // one call is not begun for nothing
		if t.until.After(end) {
			end = t.until
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	var wg sync.WaitGroup
	for i, x := range holds {
		if time.Until(x.Until()) < t.lease-lease.Margin(t.lease)-t.lease/10 {
			wg.Go(func() { failed[i] = x.Extend(ctx, t.lease) })
		}
	}
	wg.Wait()
	for _, x := range holds {
		x.h.Manual()
	}
	err := errors.Join(failed...)
	if cause := errs.Ended(caller); cause != nil && errs.IsCut(err) {
		return &NotAcquiredError{Name: t.q.name, Lease: -1, Waited: time.Since(t.began), Cause: cause, Unheard: true}
	}
	return err
}

// together is one acquisition of a Multi, at first by one script.
type together struct {
	q       *composite
	members []member
	began   time.Time
	auto    bool
	lease   time.Duration // 0: that of each client's watchdog
	waits   bool
	until   time.Time // when giving back what was got is not waited for any more; zero: only ctx says

	c          *Client
	owners     []*owner
	since      time.Time // see acquisition
	sent       time.Time
	unanswered time.Time // see acquisition
	unsure     bool      // some attempt may have run that is not answered for
	blocked    *single   // that another owner held when last asked

	contexts []context.Context // of the members' acquisitions, for the observer
}

// errOneByOne ends an attempt to acquire all members by one script, because one of them has to be waited for or one
// script cannot have them all now.
var errOneByOne = errors.New("to be acquired one after the other")

// possible reports whether one script may do. Where goroutines of this process stand in line for a member it would be
// refused, or overtake them.
func (t *together) possible(ctx context.Context) bool {
	first := t.members[0]
	t.c = first.c
	slot := keyname.Slot(first.key)
	for _, m := range t.members {
		if m.c != t.c || votingKinds[m.kind] == nil || m.kind == fencing {
			return false
		}
		if t.c.runner.Apart() && keyname.Slot(m.key) != slot {
			return false
		}
		if ctx.Value(m.ownKey) != nil || t.waits && t.c.waiting(m.key) > 0 {
			return false
		}
	}
	return true
}

// run acquires all members by one script; errOneByOne: that does not do.
func (t *together) run(ctx context.Context, waitTime time.Duration) (hold *Hold, err error) {
	c := t.c
	entered := 0
	for range t.members { // each hold is counted for itself
		if err = c.session.Enter(); err != nil {
			break
		}
		entered++
	}
	if err == nil {
		if t.lease == 0 {
			t.lease = c.opts.WatchdogTimeout
			defer func() { t.lease = 0 }()
		}
		hold, err = t.ask(ctx, waitTime)
	}
	if err == nil {
		c.session.Answered()
		for i, m := range t.members {
			c.session.Tell(t.context(ctx, i),
				errs.Event{Kind: errs.EventAcquired, Name: m.name, Took: time.Since(t.began)})
		}
		return hold, nil
	}
	for range entered {
		c.session.Leave()
	}
	if errors.Is(err, errOneByOne) {
		return nil, err
	}
	name := t.q.name
	if t.blocked != nil {
		name = t.blocked.name
	}
	waited := time.Since(t.began)
	err = ending(name, waited, t.unsure).Explain(err)
	for i, m := range t.members {
		c.session.Tell(t.context(ctx, i), errs.Event{Kind: errs.EventNotAcquired, Name: m.name, Took: waited, Err: err})
	}
	return nil, err
}

// context is that of the i-th member's acquisition. They begin when the script has ended: until then it is not known
// whether it acquires the members, or each of them acquires itself.
func (t *together) context(ctx context.Context, i int) context.Context {
	if t.c.opts.Observer == nil {
		return ctx
	}
	for len(t.contexts) <= i {
		m := t.members[len(t.contexts)]
		t.contexts = append(t.contexts, t.c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: m.name}))
	}
	return t.contexts[i]
}

func (t *together) ask(ctx context.Context, waitTime time.Duration) (*Hold, error) {
	c := t.c
	t.renew(ctx)
	r := wait.Request{Name: t.q.name, Of: t.q, Began: t.began, Mode: wait.Alone, Try: t.try, Backoff: script.Backoff}
	if waitTime != forever {
		r.Until = t.began.Add(waitTime)
	}
	if err := c.waiters.Wait(ctx, r); err != nil {
		t.abandon(t.unanswered)
		return nil, err
	}
	for i, own := range t.owners {
		own.Lease.Ctx = t.context(ctx, i)
		if !c.engine.Add(&own.Lease, t.since, t.sent, t.lease, t.auto, c.opts.MaxHold) {
			t.drop(errs.ErrNotAcquired)
			return nil, own.Expired()
		}
	}
	if c.session.Closed() { // it has not seen these holds
		t.drop(errs.ErrClosed)
		return nil, errs.ErrClosed
	}
	p := newParts(t.q)
	for i, own := range t.owners {
		x := newHold(own.First(t.auto, t.unanswered, ""))
		x.follow(own.Lease.Ctx, c) //nolint:contextcheck // each hold has the context of its own lease
		p.add(i, x)
	}
	p.began = time.Now()
	return &Hold{parts: p}, nil
}

// renew makes new owners: those of a grant that was given back are spent.
func (t *together) renew(ctx context.Context) {
	t.owners, t.since = make([]*owner, len(t.members)), time.Time{}
	for i, m := range t.members {
		t.owners[i] = m.newOwner(ctx, t.lease, m.label)
	}
}

// drop gives back what was granted, and may be registered in part.
func (t *together) drop(why error) {
	for _, own := range t.owners {
		own.End(why)
		_ = t.c.engine.Remove(&own.Lease) // it has ended already, just above
	}
	t.abandon(time.Now())
}

// abandon releases, in the background, what requests may still take, up to until.
func (t *together) abandon(until time.Time) {
	for _, own := range t.owners {
		own.Abandon(until, "")
	}
}

// try asks the server once. It is acquisition.Ask for several locks.
func (t *together) try(ctx context.Context) (wait.Answer, error) {
	c := t.c
	timed := script.Timed[severalReply]{
		Key: t.members[0].key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			t.sent = sent
			if t.since.IsZero() {
				t.since = sent
			}
			return c.runner.Attempt(ctx, t.call(notAfter))
		},
		Decode: func(m rueidis.RedisMessage) (severalReply, error) { return decodeSeveral(m, len(t.members)) },
	}
	r, err := timed.Run(ctx, c.runner)
	received := time.Now()
	unmet := script.IsUnreplicated(err)
	if err != nil && !unmet {
		var re *rueidis.RedisError
		switch {
		case errors.As(err, &re) && re.IsTryAgain(), script.AcrossSlots(err):
			return wait.Answer{}, errOneByOne
		case errors.Is(err, errs.ErrUnknownOutcome):
			t.unsure = true
			if runs := t.sent.Add(timed.Runs); runs.After(t.unanswered) {
				t.unanswered = runs
			}
		case script.BrokenOff(err) && received.After(t.unanswered):
			t.unanswered = received
		}
		return wait.Answer{}, err
	}
	if r.status == acquireHeld {
		if t.waits {
			return wait.Answer{}, errOneByOne
		}
		t.blocked = t.members[r.which-1].single
		return wait.Answer{Left: r.left}, nil
	}
	trusted := !slices.ContainsFunc(t.members, func(m member) bool { return !c.engine.Trusted(m.key, t.since) })
	if unmet || !trusted || !received.Before(t.sent.Add(t.lease-lease.Margin(t.lease))) {
		if !unmet {
			err, t.unsure = fmt.Errorf("%w: %q: the grant took longer than its lease of %v, or than heartbeats are trusted",
				errs.ErrUnavailable, t.q.name, t.lease), true
		}
		t.takeBack(ctx)
		t.renew(ctx)
		return wait.Answer{}, err
	}
	return wait.Answer{Granted: true}, nil
}

// takeBack releases a grant that is no use, and has what cannot be confirmed now, or may come later, released in the
// background.
func (t *together) takeBack(ctx context.Context) {
	var wg sync.WaitGroup
	for _, own := range t.owners {
		own.End(errs.ErrNotAcquired)
		wg.Go(func() {
			until := t.unanswered
			if _, err := own.lock.runRelease(ctx, own.Lease.Owner, ""); err != nil && until.IsZero() {
				until = time.Now()
			}
			own.Abandon(until, "")
		})
	}
	wg.Wait()
	t.unanswered = time.Time{}
}

// call is the request. The owners of an attempt that is given up are not wanted if it is granted after all.
func (t *together) call(notAfter int64) script.Call {
	c, owners := t.c, t.owners
	call := severalCall(c, severalRequest{owners, t.lease, notAfter})
	call.Replicas, call.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
	call.Late = func(res rueidis.RedisResult) {
		m, err := res.ToMessage()
		if err != nil {
			return
		}
		if r, err := decodeSeveral(m, len(owners)); err != nil || r.status != acquireGranted {
			return
		}
		for _, own := range owners {
			own.Late()
		}
	}
	return call
}
