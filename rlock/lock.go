package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// Lock describes one lock and how to acquire it. It is immutable and holds no state: share it, derive from it, make
// it anew for every use. What is held is a *Hold.
type Lock struct {
	c                  *Client
	kind               *kind
	name, key, channel string
	keys               []string      // of its scripts: the lock and, where waiters queue, their queue
	grants             string        // channels of grants, without the connection id
	ownKey             any           // an ownerKey, boxed once
	wait               time.Duration // of Lock; forever: only ctx bounds it
	lease              time.Duration // 0: watchdog
	label              string
	backoff            *Backoff   // of a lock that spins
	bad                error      // what every call returns
	of                 *composite // of what a Multi or Quorum lock is made; then c, kind and the keys are not used
}

const forever time.Duration = -1

// MaxLabel is the length of the longest label, in bytes.
const MaxLabel = 256

// NoExpiry is what RemainingLease says of a lock without a lease: somebody set the key by hand.
const NoExpiry time.Duration = -1

// Name returns the lock's name, without Options.KeyPrefix.
func (l *Lock) Name() string { return l.name }

// WithWait returns the same lock whose Lock and Do wait for at most d for somebody else's hold; 0: ask once. Without
// it only ctx bounds the waiting. A negative d is refused by every call on the result.
func (l *Lock) WithWait(d time.Duration) *Lock {
	m := *l
	m.wait = d
	if err := checkWait(d); err != nil && m.bad == nil {
		m.bad = err
	}
	return &m
}

// WithLease returns the same lock whose holds last for d and are not renewed, unless Extended; at least MinLease.
// 0: renewed until Unlock, the default.
func (l *Lock) WithLease(d time.Duration) *Lock {
	m := *l
	m.lease = d
	if err := checkLease(d); err != nil && m.bad == nil {
		m.bad = err
	}
	return &m
}

// WithLabel returns the same lock whose holds carry a label, such as a job's name or a trace id: part of their owner
// on the server, where [Client.Inspect] and log lines show it to everybody. At most MaxLabel bytes of UTF-8.
func (l *Lock) WithLabel(label string) *Lock {
	m := *l
	m.label = label
	if (len(label) > MaxLabel || !utf8.ValidString(label)) && m.bad == nil {
		m.bad = fmt.Errorf("rlock: %w: label is %.64q, must be UTF-8 of at most %d bytes", ErrInvalidOption, label, MaxLabel)
	}
	return &m
}

func checkWait(d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return fmt.Errorf("rlock: %w: waitTime is %v, must be 0 to %v", ErrInvalidOption, d, MaxDuration)
	}
	return nil
}

func checkLease(d time.Duration) error {
	if d != 0 && (d < MinLease || d > MaxDuration) {
		return fmt.Errorf("rlock: %w: leaseTime is %v, must be 0 (renewed) or %v to %v", ErrInvalidOption, d, MinLease, MaxDuration)
	}
	return nil
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
	return l.acquire(ctx, l.wait, l.lease)
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
	if err := errors.Join(checkWait(waitTime), checkLease(leaseTime)); err != nil {
		return nil, err
	}
	return l.acquire(ctx, waitTime, leaseTime)
}

func (l *Lock) acquire(ctx context.Context, waitTime, leaseTime time.Duration) (*Hold, error) {
	switch {
	case l.bad != nil:
		return nil, l.bad
	case l.of != nil:
		return l.of.acquire(ctx, l, waitTime, leaseTime)
	}
	return l.take(ctx, waitTime, leaseTime, leaseTime == 0)
}

// take acquires a lock that is not a composite. auto: the hold is renewed, which a lease of 0 asks for and a part of a
// composite needs until all are there.
func (l *Lock) take(ctx context.Context, waitTime, leaseTime time.Duration, auto bool) (*Hold, error) {
	c := l.c
	if err := c.begin(); err != nil {
		return nil, err
	}
	a := acquisition{l: l, ctx: ctx, began: time.Now(), auto: auto, lease: leaseTime}
	if leaseTime == 0 {
		a.lease = c.opts.WatchdogTimeout
	}
	hold, err := a.run(ctx, waitTime)
	waited := time.Since(a.began)
	if err != nil {
		c.inflight.Leave()
		err = l.explain(a.unsure(err), waited)
		if refused, ok := err.(*NotAcquiredError); ok {
			refused.Ours, refused.Foreign, refused.NoEnd = c.engine.Holds(l.key), a.foreign, a.noEnd
		}
		c.observer.NotAcquired(ctx, l.name, waited, err)
		return nil, err
	}
	c.warnOfEviction()
	c.observer.Acquired(ctx, l.name, waited)
	return hold, nil
}

// unsure keeps an error from saying that nothing has happened, if a try before the last may have taken the lock.
func (a *acquisition) unsure(err error) error {
	var g *wait.GaveUp
	if errors.As(err, &g) && g.Failure != nil && !a.abandoned.IsZero() {
		g.Failure = script.Unsure(g.Failure)
	}
	return err
}

// explain turns what ended a wait into what the caller is told.
func (l *Lock) explain(err error, waited time.Duration) error {
	var g *wait.GaveUp
	switch {
	case !errors.As(err, &g):
		return fmt.Errorf("rlock: %w", err)
	case errors.Is(g.Cause, ErrClosed):
		return fmt.Errorf("rlock: %q: %w", l.name, g.Cause)
	case g.Failure != nil && g.Cause != nil:
		return fmt.Errorf("rlock: %w: %w", g.Failure, g.Cause)
	case g.Failure != nil:
		return fmt.Errorf("rlock: %w", g.Failure)
	}
	return &NotAcquiredError{Name: l.name, HolderLease: g.Left, Waited: waited, cause: g.Cause}
}

// acquisition is one call of Lock.
type acquisition struct {
	l     *Lock
	ctx   context.Context // the caller's
	began time.Time
	auto  bool
	lease time.Duration

	own   *owner
	want  int
	join  Owner     // of another process, to be joined
	sent  time.Time // of the try that was granted
	since time.Time // the owner may hold the lock from here on: before that the server said that it does not
	// abandoned: some try was sent and not answered, and may take the lock up to this instant
	abandoned time.Time
	handed    bool          // by the server, from its queue
	written   time.Duration // and with this lease
	entry     string        // in the queue on the server, once it was asked for
	token     int64         // fencing token
	inQueue   bool          // granted by a call that could not take it out of the queue
	under     *owner        // of the write hold under which it reads
	patient   bool          // it waits
	watched   bool          // and the holder's heartbeats are looked at
	foreign   bool          // when it was last heard of, the holder was none of ours
	noEnd     bool          // and the lock had no end
}

func (a *acquisition) newOwner() *owner {
	own := a.l.newOwner(a.ctx, a.lease)
	own.under = a.under
	return own
}

func (a *acquisition) run(ctx context.Context, waitTime time.Duration) (hold *Hold, err error) {
	l := a.l
	r := wait.Request{Name: l.name, Line: l.key, Manner: l.kind.manner, Channel: l.channel, Taker: a}
	if waitTime != forever {
		r.Until = a.began.Add(waitTime)
	}
	a.patient = waitTime != 0
	defer func() {
		if a.watched {
			l.c.monitor.unwatch(l)
		}
	}()
	own, id := ownerIn(ctx, l)
	own, a.under, err = l.meet(own)
	if err != nil {
		return nil, err
	}
	if own != nil {
		if l.kind.once {
			return nil, fmt.Errorf("%w: %q", ErrReentry, l.name)
		}
		want, err := own.enter()
		if err != nil {
			return nil, fmt.Errorf("re-enter %q: %w", l.name, err)
		}
		a.own, a.want, r.Alone = own, want, true
		l.c.engine.Longest(&own.lease, a.lease)
		if err := l.c.queue.Wait(ctx, r); err != nil {
			err = l.lost(&own.lease, err)
			a.retreat()
			return nil, err
		}
		if a.auto && !l.c.engine.Auto(&own.lease, a.lease) || !l.c.engine.Confirmed(&own.lease, a.sent, a.lease) {
			a.retreat()
			return nil, fmt.Errorf("re-enter %q: %w", l.name, own.why())
		}
		return own.handle(a.auto), nil
	}
	if id != "" && a.under == nil {
		if !lease.Ours(string(id)) {
			return nil, fmt.Errorf("%w: owner is %.128q, must be an owner of this library", ErrInvalidOption, id)
		}
		if !l.kind.joinable {
			return nil, fmt.Errorf("%w: owner is %q, of another process: only Reentrant locks can be joined", ErrInvalidOption, id)
		}
		a.join = id
	}
	a.own, a.want, r.Alone = a.newOwner(), 1, waitTime == 0 || a.join != "" || l.kind.crowd
	a.entry = a.place()
	if l.backoff != nil {
		r.Backoff = l.backoff.after
	}
	if !l.hands() {
		r.Channel, r.Own = l.kind.channel(l.key, a.own.lease.Owner), l.kind.own
		r.Taker, r.Try = nil, func(ctx context.Context) (wait.Answer, error) { return a.Ask(ctx, nil) }
	} else if !r.Alone {
		r.Grants = l.grants + l.c.id
	}
	if err := l.c.queue.Wait(ctx, r); err != nil {
		if l.kind.leaves && a.entry != "" && !a.sent.IsZero() {
			a.Owe(time.Time{}) // its place in the queue
		}
		if a.under != nil {
			err = l.lost(&a.under.lease, err)
		} else if a.join != "" && errors.Is(err, ErrWrongType) {
			err = fmt.Errorf("join %s on %q: %w: %w", a.join, l.name, ErrLost, err)
		}
		a.undo()
		return nil, err
	}
	added := false
	if a.handed {
		added = l.c.engine.AddHanded(&a.own.lease, a.sent, a.written, a.lease, a.auto, l.c.opts.MaxHold)
	} else {
		added = l.c.engine.Add(&a.own.lease, a.since, a.sent, a.lease, a.auto, l.c.opts.MaxHold)
	}
	if !added {
		// Only a stall of this very machine since try looked; the server's lease may have some time left.
		a.abandoned = time.Now()
		a.undo()
		return nil, fmt.Errorf("%w: %q was granted, but its lease was over before it could be used", ErrUnavailable, l.name)
	}
	if l.c.inflight.Closed() {
		// Close ran while we were being granted, and has not seen this hold.
		a.own.end(ErrClosed)
		l.c.engine.Remove(&a.own.lease)
		a.abandoned = time.Now()
		a.undo()
		return nil, ErrClosed
	}
	a.own.token = a.token
	if !a.abandoned.IsZero() || a.inQueue {
		a.own.doubt = &doubt{a.abandoned, a.entry}
	}
	return a.own.handle(a.auto), nil
}

// lost ends the hold in use if err, of an acquisition that relied on it, says that it is over, and returns err as the loss
// that it is.
func (l *Lock) lost(c *lease.Lease, err error) error {
	switch {
	case errors.Is(err, ErrWrongType):
		l.c.engine.Lost(c, errs.ErrOverwritten)
		return fmt.Errorf("re-enter %q: %w: %w", l.name, ErrLost, err)
	case errors.Is(err, ErrLost):
		l.c.engine.Lost(c, ErrLost)
	}
	return err
}

// hands reports whether waiters queue on the server and releases hand the lock over to them.
func (l *Lock) hands() bool { return l.kind.handover && l.c.handover }

// retreat counts a failed re-entry out. The count on the server may be one too high then, until it is next set. But
// every hold that was there when it was tried may have been released meanwhile, each leaving the lock to it:
//
//	re-entry: counted in, request lost      Unlock of the outer hold: one is left, so the lock is kept
//	re-entry: given up                      nobody is left to release it
func (a *acquisition) retreat() {
	if a.own.exit(nil) == 0 {
		a.l.c.engine.Remove(&a.own.lease)
		a.l.c.owe(a.own, a.entry, a.abandoned)
	}
}

// Stand implements wait.Taker.
func (a *acquisition) Stand() wait.Standing {
	c := a.l.c
	if a.since.IsZero() { // from here on a release may name this owner, before it has asked
		a.since = time.Now()
	}
	poll := min(c.opts.PollCap, wait.MaxPoll)
	// The lease that a hand-over writes is short: a waiter that turns out to be cut off keeps nobody out for long.
	// It leaves time for a renewal that gets no answer, and another.
	first := min(a.lease, max(4*poll, 4*c.opts.CallTimeout, time.Second))
	a.entry = fmt.Sprintf("%s %d %d", a.own.lease.Owner, first.Milliseconds(), (5 * poll / 2).Milliseconds())
	return wait.Standing{Owner: a.own.lease.Owner, Entry: a.entry, Lease: a.lease}
}

// Taken implements wait.Taker: a grant with replicas to be asked for or a token to be had, one that is half over, and a
// short lease that is not renewed are confirmed by asking, which counts the lease anew.
func (a *acquisition) Taken(g wait.Grant) bool {
	switch {
	case a.l.c.opts.MinReplicas > 0, a.l.kind.fenced:
		return false
	case !a.auto && g.Ticket > 0 && g.Lease >= a.lease:
		return false // a lease that nobody raises later is to be all there from now on
	case !a.l.c.engine.Trusted(a.l.key, g.Sent):
		return false
	case time.Until(g.Sent.Add(g.Lease)) < g.Lease/2:
		return false
	}
	a.sent, a.written, a.handed = g.Sent, g.Lease, g.Ticket > 0
	return true
}

// Owe implements wait.Taker.
func (a *acquisition) Owe(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	if after.After(a.abandoned) {
		a.abandoned = after
	}
}

// Ask implements wait.Taker: it asks the server once.
func (a *acquisition) Ask(ctx context.Context, standing *wait.Standing) (wait.Answer, error) {
	l, c := a.l, a.l.c
	for again := false; ; again = true {
		a.sent = time.Now()
		if a.since.IsZero() {
			a.since = a.sent
		}
		end := a.sent.Add(c.opts.CallTimeout) // when we shall have given up on this try
		if d, ok := ctx.Deadline(); ok && d.Before(end) {
			end = d
		}
		call := a.call(c.runner.Clock.At(l.key, end), standing)
		call.Replicas, call.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
		m, err := c.queued(ctx, &call)
		received := time.Now()
		unmet := errors.Is(err, ErrNotReplicated)
		if err != nil && !unmet {
			switch {
			case errors.Is(err, ErrUnknownOutcome):
				a.abandoned = a.sent.Add(c.opts.CallTimeout)
			case script.BrokenOff(err): // a lock without an end, it may be
				a.Owe(received)
			}
			return wait.Answer{}, err
		}
		r, bad := decodeAcquire(m)
		if bad != nil {
			return wait.Answer{}, bad
		}
		if unmet && r.status == acquireGranted {
			return wait.Answer{}, a.takeBack(ctx, err)
		}
		if r.status == acquireLate {
			// The estimate of the server's clock was off, by a failover or a step of the clock, or the request took
			// too long to get there. The first can be mended here.
			c.runner.Clock.Relearn(l.key, r.server, a.sent, received)
			if again {
				return wait.Answer{}, fmt.Errorf("%w: %q: the request reached the server too late", ErrUnavailable, l.name)
			}
			continue
		}
		c.runner.Clock.Learn(l.key, r.server, a.sent, received)
		if r.run != 0 {
			c.run.Store(r.run)
		}
		switch r.status {
		case acquireGranted:
			if a.want == 1 && !received.Before(a.sent.Add(a.lease-lease.Margin(a.lease))) {
				// A reply slower than the lease is worthless.
				return a.renamed(received), fmt.Errorf("%w: %q: the grant took longer than its lease of %v", ErrUnavailable, l.name, a.lease)
			}
			if a.want == 1 && !c.engine.Trusted(l.key, a.since) {
				// Somebody may have seen it for long enough to take it away.
				return a.renamed(received), fmt.Errorf("%w: %q: the grant was not known of before a heartbeat was due", ErrUnavailable, l.name)
			}
			a.handed, a.token = false, r.token
			a.inQueue = standing != nil && len(call.Keys) == 1
			return wait.Answer{Granted: true}, nil
		case acquireLost:
			if a.join != "" {
				return wait.Answer{}, fmt.Errorf("join %s on %q: %w", a.join, l.name, ErrLost)
			}
			return wait.Answer{}, fmt.Errorf("re-enter %q: %w", l.name, ErrLost)
		case acquireYoung:
			return wait.Answer{}, &youngError{l.name, r.left}
		}
		if !c.engine.Trusted(l.key, a.since) {
			// It may have been handed the lock, and had it taken away, since it was last heard. Who saw that must not
			// meet the same owner again.
			return a.renamed(received), fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", ErrUnavailable, l.name)
		}
		a.since = a.sent
		a.foreign, a.noEnd = r.foreign, r.left < 0
		if c.monitor != nil && a.patient && !a.watched {
			a.watched = true
			c.monitor.watch(l)
		}
		return wait.Answer{Left: r.left, Foreign: r.foreign, Ticket: r.ticket, Sent: a.sent}, nil
	}
}

// renamed gives back a grant that came too late, and goes on as another owner: ids of what has been released are never
// used again.
func (a *acquisition) renamed(received time.Time) wait.Answer {
	a.abandoned = received
	a.undo()
	a.own, a.entry, a.since = a.newOwner(), a.place(), time.Time{}
	answer := wait.Answer{Renamed: true}
	if a.l.kind.own {
		answer.Channel = a.l.kind.channel(a.l.key, a.own.lease.Owner)
	}
	return answer
}

// place is what to ask with of a kind whose refused tries leave something behind; "" of others, and of one that asks once.
func (a *acquisition) place() string {
	if a.l.kind.leaves && a.patient {
		return millis(a.l.c.patience())
	}
	return ""
}

// takeBack releases a grant that too few replicas have, and returns err.
func (a *acquisition) takeBack(ctx context.Context, err error) error {
	l := a.l
	if a.want == 1 {
		if _, e := l.runRelease(ctx, a.own.lease.Owner, 0, a.entry); e != nil {
			a.abandoned = time.Now() // undo goes on with it
		}
	}
	return err
}

func (a *acquisition) call(notAfter int64, standing *wait.Standing) script.Call {
	if a.join != "" {
		return joinCall(a.l.key, string(a.join), a.own.lease.Owner, a.lease, notAfter, a.late())
	}
	entry := ""
	switch {
	case standing != nil:
		entry = standing.Entry
	case a.l.kind.leaves:
		entry = a.entry
	}
	under := ""
	if a.under != nil {
		under = a.under.lease.Owner
	}
	call := a.l.kind.acquire(a.l, acquireRequest{a.own.lease.Owner, a.want, a.lease, notAfter, entry, under})
	call.Late = a.late()
	return call
}

// late gives back what a try granted after we had given up on it. The retrier does so too, but may have looked
// before the server ran the request.
func (a *acquisition) late() func(rueidis.RedisResult) {
	if a.want > 1 {
		return nil // the owner is ours and is released with its hold
	}
	l, own, entry := a.l, a.own, a.entry
	return func(res rueidis.RedisResult) {
		m, err := res.ToMessage()
		if err != nil {
			return
		}
		if r, err := decodeAcquire(m); err == nil && r.status == acquireGranted && own.unwanted() {
			l.c.owe(own, entry, time.Time{})
		}
	}
}

// undo releases, in the background, whatever the tries of a failed acquisition may have taken.
func (a *acquisition) undo() {
	a.own.end(ErrNotAcquired)
	if !a.abandoned.IsZero() {
		a.l.c.owe(a.own, a.entry, a.abandoned)
	}
}

// owe has an owner released in the background until its lease is over, and its entry taken out of the queue. An answer
// before after is not final.
func (c *Client) owe(own *owner, entry string, after time.Time) {
	l := own.lock
	c.retrier.Add(&session.Pending{
		Name:  l.name,
		After: after,
		Until: time.Now().Add(max(own.longest(), c.opts.CallTimeout)),
		Release: func(ctx context.Context) error {
			_, err := own.giveUp(ctx, entry)
			if err == nil {
				c.queue.Nudge(l.key)
			}
			if errors.Is(err, ErrWrongType) {
				return nil // nothing of the owner is left
			}
			return err // also a refusal: the right that is missing may be given
		},
	})
}

// IsLocked reports whether anybody holds the lock. Like all questions it is asked until it is answered, ctx ends or four
// CallTimeouts are over, and fails with ErrUnavailable, ErrUnknownOutcome, ErrClosed, ErrInvalidName, ErrInvalidOption,
// ErrWrongType or what else the server answers.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	if l.of != nil {
		left, err := l.of.left(ctx, l)
		return left != 0, err
	}
	q, err := l.query(ctx, "")
	return q.owners > 0, err
}

// IsHeldBy reports whether the owner that ctx carries (see [Hold.Context]) holds the lock, by the server's word. It is
// false for a ctx that carries none of this lock.
func (l *Lock) IsHeldBy(ctx context.Context) (bool, error) {
	n, err := l.HoldCount(ctx)
	return n > 0, err
}

// HoldCount is how often the owner that ctx carries holds the lock, by the server's word; 0 if it does not. While
// other goroutines of the same owner are locking or unlocking it may be one off.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	if l.of != nil {
		return l.of.holdCount(ctx, l)
	}
	own, id := ownerIn(ctx, l)
	if own != nil {
		id = ""
		if own, _, _ = l.meet(own); own != nil {
			id = Owner(own.lease.Owner)
		}
	}
	q, err := l.query(ctx, string(id))
	if id == "" {
		q.count = 0
	}
	return int(q.count), err
}

// RemainingLease is how long the present lease still lasts if nobody renews it: 0 if nobody holds the lock, NoExpiry
// if it has no end. Errors as of IsLocked.
func (l *Lock) RemainingLease(ctx context.Context) (time.Duration, error) {
	if l.of != nil {
		return l.of.left(ctx, l)
	}
	q, err := l.query(ctx, "")
	return q.left, err
}

func (l *Lock) query(ctx context.Context, owner string) (queryReply, error) {
	return ask(ctx, l, func(ctx context.Context) (queryReply, error) { return l.runQuery(ctx, owner) })
}
