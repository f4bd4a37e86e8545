package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// QueueEntry implements wait.Taker.
func (a *acquisition) QueueEntry(crowd bool) wait.QueueEntry {
	c := a.l.c
	if a.since.IsZero() { // from here on a release may name this owner, before it has asked
		a.since = time.Now()
	}
	poll := min(c.opts.PollCap, wait.MaxPoll)
	first := min(a.lease, c.shortLease())
	if a.contender != nil {
		first = c.firstLease()
	}
	if crowd && a.l.kind.rarely && c.monitor == nil { // with Liveness each heartbeat needs an answer: see refused
		poll = wait.MaxPoll
	}
	return wait.QueueEntry{Owner: a.own.Lease.Owner, Lease: a.asksFor(), Poll: poll,
		Entry: a.l.kind.queueEntry(a, poll, first)}
}

// Taken implements wait.Taker. It refuses to use a grant unconfirmed if replicas are to be asked or a token is to be
// minted, if half of its lease is over, and if its lease is short and is not raised. Asking again confirms such
// a grant, and its lease counts anew.
func (a *acquisition) Taken(g wait.Grant) bool {
	switch {
	case a.l.c.opts.MinReplicas > 0, a.l.kind.confirms:
		return false // the acquire itself confirms: it finds its own field, and mints the token for a holder that is there
	case a.contender == nil && !a.auto && g.Ticket > 0 && g.Lease >= a.lease:
		return false // a lease that is not raised later is to be all there from now on
	case !a.l.c.engine.Trusted(a.l.key, g.Sent):
		return false
	case time.Until(g.Sent.Add(g.Lease)) < g.Lease/2:
		return false
	}
	a.sent, a.written, a.handed = g.Sent, g.Lease, g.Ticket > 0
	a.meets(true)
	return true
}

// ReleaseLater implements wait.Taker.
func (a *acquisition) ReleaseLater(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	if after.After(a.unanswered) {
		a.unanswered = after
	}
	if q := a.contender; q != nil {
		s := &a.l.c.cohorts
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.of.contender == q {
			q.of.seen.unsure = true
		}
	}
}

// Ask implements wait.Taker: it asks the server once.
func (a *acquisition) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	return a.ask(ctx, entry, nil)
}

// requestFailed notes until when a request that failed with err may still take something.
func (a *acquisition) requestFailed(err error, received time.Time) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		a.ReleaseLater(a.runs)
	case script.BrokenOff(err): // it may have left a lock without an end
		a.ReleaseLater(received)
	}
}

// ask asks the server once. joined, if it is not nil, is the tenure that the process of a reader has already: the
// request then asks whether that does for this reader, too.
func (a *acquisition) ask(ctx context.Context, entry *wait.QueueEntry, joined *owner) (wait.Answer, error) {
	c, placeless := a.l.c, false
	timed := script.Timed[acquireReply]{
		Key: a.l.key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			a.sent = sent
			if a.since.IsZero() {
				a.since = sent
			}
			call := a.call(notAfter, entry, joined)
			call.Replicas, call.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
			m, err := c.queued(ctx, &call)
			placeless = len(call.Keys) == 1
			return m, err
		},
		Decode: decodeAcquire,
	}
	r, err := a.try(ctx, entry, &timed)
	received := time.Now()
	from := a.from
	if a.from = nil; from != nil {
		a.settle(from, r, err, received)
	}
	unmet := script.IsUnreplicated(err)
	if err != nil && !unmet {
		a.requestFailed(err, received)
		return wait.Answer{}, err
	}
	if unmet && r.status == acquireGranted {
		return wait.Answer{}, a.takeBack(ctx, err)
	}
	if r.run != 0 {
		c.run.Store(r.run)
	}
	if from != nil && r.status != acquireGranted {
		return a.ask(ctx, entry, nil)
	}
	switch r.status {
	case acquireGranted:
		answer, err := a.granted(received)
		if err == nil {
			a.handed, a.token, a.inQueue = false, r.token, entry != nil && placeless
			a.meets(!r.alone && !r.clear)
			a.window(r.clear, received)
		}
		return answer, err
	case acquireShared:
		if !c.cohorts.enter(joined) { // its last reader has left meanwhile
			return a.ask(ctx, entry, nil)
		}
		a.contender.joined = joined
		a.window(true, received)
		return wait.Answer{Granted: true}, nil
	case acquireLost:
		if a.join != "" {
			return wait.Answer{}, fmt.Errorf("join %s on %q: %w", a.join, a.l.name, errs.ErrLost)
		}
		return wait.Answer{}, fmt.Errorf("re-enter %q: %w", a.l.name, errs.ErrLost)
	case acquireYoung:
		return wait.Answer{}, &youngError{a.l.name, r.left}
	}
	return a.refused(r, received)
}

// try makes the call: shared with those of other free locks if many are under way, and otherwise, or if the lock turns
// out not to be free, alone.
func (a *acquisition) try(ctx context.Context, entry *wait.QueueEntry,
	alone *script.Timed[acquireReply]) (acquireReply, error) {
	c := a.l.c
	if entry == nil && a.join == "" && a.under == nil && a.from == nil {
		coalesce := c.enterCoalescer(a.l.kind)
		defer c.leaveCoalescer(a.l.kind)
		if coalesce && c.waiters.Members(a.l.key) <= 1 { // where others wait it is not free
			if done, err := a.askShared(ctx); done || err != nil {
				return acquireReply{status: acquireGranted, alone: true}, err
			}
		}
	}
	r, err := alone.Run(ctx, c.runner)
	a.runs = a.sent.Add(alone.Runs)
	return r, err
}

// granted is the answer to a try that was granted.
func (a *acquisition) granted(received time.Time) (wait.Answer, error) {
	l := a.l
	switch {
	case !received.Before(a.sent.Add(a.asksFor() - lease.Margin(a.asksFor()))):
		// A reply slower than the lease is worthless.
		return a.renamed(received),
			fmt.Errorf("%w: %q: the grant took longer than its lease of %v", errs.ErrUnavailable, l.name, a.asksFor())
	case !l.c.engine.Trusted(l.key, a.since):
		// Another waiter may have seen it for long enough to take it away.
		return a.renamed(received),
			fmt.Errorf("%w: %q: the grant was not known of before a heartbeat was due", errs.ErrUnavailable, l.name)
	}
	return wait.Answer{Granted: true}, nil
}

// refused is the answer to a try that found another holder.
func (a *acquisition) refused(r acquireReply, received time.Time) (wait.Answer, error) {
	l := a.l
	if !l.c.engine.Trusted(l.key, a.since) {
		// Since its last answer this owner may have been handed the lock, and lost it to a takeover. The process that took
		// over must not see the same owner again.
		return a.renamed(received),
			fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", errs.ErrUnavailable, l.name)
	}
	a.since = a.sent
	a.sees(seen{holder: r.holder, noEnd: r.left < 0})
	if l.c.monitor != nil && a.patient && !a.watched {
		a.watched = true
		l.c.monitor.watch(l)
	}
	// A string that is another program's is released without a word.
	published := r.holder.foreign() && !r.holder.other() && !l.kind.hears
	return wait.Answer{Left: r.left, Foreign: published, Unpublished: r.holder.other(), Ticket: r.ticket, Sent: a.sent,
		Soon: a.soon(received)}, nil
}

// sees keeps what an answer said of the holder, for those that give up.
func (a *acquisition) sees(now seen) {
	if a.contender == nil {
		a.seen = now
		return
	}
	s, y := &a.l.c.cohorts, a.contender.of
	s.mu.Lock()
	defer s.mu.Unlock()
	now.unsure = y.seen.unsure
	y.seen = now
	if a.l.kind.together {
		y.until = 0 // others come first
	}
}

// meets notes whether others may wait on the server for what was granted.
func (a *acquisition) meets(others bool) {
	if a.contender != nil {
		a.contender.othersWaited = others
	}
}

// soon is when to ask again because an earlier try, whose caller left before the reply, may have been granted since; 0:
// none may.
//
//	the first caller: asks, leaves      another goroutine goes on       server
//	                                    asks: held  ------------------>
//	                                                                    the lock is released; the queue is empty
//	                                                                    the first request runs: granted
//	                                    asks once more: granted
func (a *acquisition) soon(now time.Time) time.Duration {
	q := a.contender
	if q == nil || !now.Before(script.LastRun(a.unanswered)) {
		return 0
	}
	q.again++
	return script.Backoff(min(2*q.again, 4))
}

// askAfter is the first Ask of a request that follows a tenure: one call releases that, and names this owner, which is
// granted the lock or put into the queue. Where that cannot be, because the process hears no grants yet, or does not
// know the server's time, and for writers, whose turn among readers the release decides, these are two calls.
func (q *contender) askAfter(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	from, l, sent := q.after, q.l, time.Now()
	q.after = nil
	end := sent.Add(l.c.opts.CallTimeout)
	notAfter := l.c.runner.Clock.At(l.key, end)
	if entry == nil || notAfter == 0 || !l.kind.names {
		status, err := l.runRelease(ctx, from.Lease.Owner, from.Entry())
		q.released <- released{status: status, err: err}
		return q.ask(ctx, entry, nil)
	}
	r, err := l.sendRelease(ctx,
		releaseRequest{owner: from.Lease.Owner, entry: from.Entry(), next: entry, notAfter: notAfter,
			turns: from.Turn() + 1})
	q.released <- released{status: r.status, err: err}
	q.sent = sent
	switch {
	case err != nil:
		if errors.Is(err, errs.ErrUnknownOutcome) {
			q.ReleaseLater(end)
		}
		if !script.NotAnswered(err) {
			return q.ask(ctx, entry, nil)
		}
		return wait.Answer{}, err
	case r.outcome == 1 && (l.kind.confirms || l.c.opts.MinReplicas > 0): // see Taken
		q.since = sent
	case r.outcome == 1:
		answer, err := q.granted(time.Now())
		q.handed, q.othersWaited = false, r.ticket != 0
		return answer, err
	case r.outcome == 2:
		q.since = sent
		return wait.Answer{Left: -1, Ticket: r.ticket, Sent: sent}, nil
	}
	return q.ask(ctx, entry, nil)
}

// renamed gives back a grant that came too late, and goes on as another owner: the id of what was released is never
// used again.
func (a *acquisition) renamed(received time.Time) wait.Answer {
	a.unanswered = received
	a.own.Abandon(a.unanswered, a.entry)
	a.own, a.entry, a.since = a.newOwner(), a.newEntry(), time.Time{}
	answer := wait.Answer{Renamed: true}
	if a.l.kind.leaves {
		answer.Channel = a.l.kind.channel(a.l.key, a.own.Lease.Owner)
	}
	return answer
}

// newEntry is the entry to ask with, for a kind whose refused tries leave something on the server; "" for other kinds,
// and for an acquisition that asks once.
func (a *acquisition) newEntry() string {
	if a.l.kind.leaves && a.patient {
		return script.Millis(a.l.c.patience())
	}
	return ""
}

// takeBack releases a grant that too few replicas have, and returns err.
func (a *acquisition) takeBack(ctx context.Context, err error) error {
	l := a.l
	if _, e := l.runRelease(ctx, a.own.Lease.Owner, a.entry); e != nil {
		a.unanswered = time.Now() // Abandon goes on with it
	}
	return err
}

func (a *acquisition) call(notAfter int64, entry *wait.QueueEntry, joined *owner) script.Call {
	if a.join != "" {
		call := joinCall(a.l, string(a.join), a.own.Lease.Owner, a.lease, notAfter)
		call.Late = a.late(entry)
		return call
	}
	text := ""
	switch {
	case entry != nil:
		text = entry.Entry
	case a.l.kind.leaves:
		text = a.entry
	}
	under := ""
	if a.under != nil {
		under = a.under.Lease.Owner
	}
	r := acquireRequest{owner: a.own.Lease.Owner, lease: a.asksFor(), ms: a.l.c.millis(a.asksFor()),
		notAfter: notAfter, entry: text, under: under}
	if a.from != nil {
		r.from, r.entry = a.from.Lease.Owner, ""
	}
	if a.sends++; a.sends == 1 { // a try that is given up may still read its own
		r.room = a.room[:0]
	}
	if a.l.kind.leaves && entry != nil {
		r.leaves = a.l.c.runner.Clock.Leaves(a.l.key, a.leaves)
	}
	if joined != nil {
		r.joined = joined.Lease.Owner
	}
	call := a.l.kind.acquire(a.l, r)
	call.Late = a.late(entry)
	return call
}

// late gives back what a try got after the acquisition had given up on it: the lock, or a place in its queue. The
// retrier does so, too, but it may have asked before the server ran the request.
func (a *acquisition) late(entry *wait.QueueEntry) func(rueidis.RedisResult) {
	own, queued, q := a.own, entry != nil || a.entry != "", a.l.c.waiters
	return func(res rueidis.RedisResult) {
		m, err := res.ToMessage()
		if err != nil {
			return
		}
		if r, err := decodeAcquire(m); err == nil && (r.status == acquireGranted || r.status == acquireHeld && queued) {
			q.Nudge(own.Lease.Owner) // the request of a tenure goes on, and finds it
			own.Late()
		}
	}
}
