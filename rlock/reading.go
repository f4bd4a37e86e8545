package rlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Readers have their turns together. The tenure of a process is one owner, the same for all its readers, so what a
// reader costs does not grow with the readers.
//
//	reader 1                   reader 2                 the server
//	asks at t            ----------------------------->  granted, no writer waits
//	holds as X until t + window others join X unasked
//	                           joins X: no call
//	                                                     writer W queues
//	                           at t + window + 1:
//	                           asks as Y, under X  ----> W waits: Y is queued, and X takes no more readers
//	unlocks: one is left
//	                           (the last) unlocks ---->  X is released, W is served, then Y
//
// The callers that join X without a call:
//
//   - who was in line when X was granted, or confirmed: it waited for that very answer, and joins before any of the
//     others runs. The first may be through before the second is there, and X released
//     (TestReaders_Waiting_AreAdmittedTogether);
//   - who comes before the window is over, unless a writer of this process asks. The window is counted from the send of
//     the last call that was answered "no writer waits". So a writer that queues is passed for at most the window, and
//     no message has to say so. Counted from the answer's arrival it would last for as long as that was delayed. A
//     grant that came by message opens no window: it does not say who else waits.
//
// Afterwards one reader asks, under X: if no writer waits, X does for it, too, and the window begins anew. Otherwise it
// is queued with an owner of its own, Y, which is the process's next tenure.
//
// X is released by its last reader. A reader that comes between the decision to release and the request finds the count
// at 0 and asks (session.Holding.Enter): it never joins what is being given back
// (TestReader_ComesAsTheLastLeaves_HoldsTheLock).
//
// # Readers with holds of their own
//
// A fixed lease, a label and MaxHold are of one hold, so these readers have owners of their own. They wait in the same
// line, and their process has one place in the server's queue for all. The first of them asks for itself, if no request
// is under way. The others wait for an owner of the process, X, and one call then lets all of them read beside X:
//
//		readers 1 … k, with leases                         server
//		wait, in one place of the process        ------->  X is queued, and handed the lock
//		"beside X: Y1 … Yk, each with its lease" ------->  if X reads, they read
//		work, each as its own Y
//		X is released, if no other reader has it ------->
//
//	  - X does not read any more (its lease has ended, or it was forced out): nothing is done, and all wait again.
//	  - The reply is lost: the same, and Y1 … Yk have pending releases until the call cannot run any more.
//	  - Reader 3 leaves meanwhile: Y3 is released when the reply is there.
//	  - It runs twice: all read, and are let in again; their ends are only raised. X is released after the reply only.
//	  - A writer queues meanwhile: it waits for X in any case, and for these readers as for those that joined X.
//
// Readers under a write hold, and such of these that do not wait, ask alone.
const (
	leastWindow = 2 * time.Millisecond
	mostWindow  = 10 * time.Millisecond
	// mostBeside bounds how many readers one call lets in.
	mostBeside = 128
)

// shares reports whether a reader on these terms can have the hold of others.
func (t terms) shares(c *Client) bool { return t.lease == 0 && t.label == "" && c.opts.MaxHold == 0 }

// shares reports whether the caller is a reader that can have the hold of others.
func (x *caller) shares() bool { return x.l.kind.together && x.terms.shares(x.l.c) }

// joins has a reader join the tenure of its process, if it may without a call. Called with mu held.
func (s *cohorts) joins(y *cohort) bool {
	if y.own == nil || s.now() >= y.until {
		return false
	}
	if w := s.of[cohortKey{y.l.key, rwWrite}]; w != nil && w.contender != nil {
		return false
	}
	return s.enter(y.own)
}

// enter counts a reader in among those of own. It reports false if that is over.
func (s *cohorts) enter(own *owner) bool {
	c := own.lock.c
	if c.engine.Over(&own.Lease) != nil {
		return false
	}
	if err := own.Enter(own.Turn()); err != nil {
		return false
	}
	if !c.engine.Auto(&own.Lease, c.opts.WatchdogTimeout) {
		c.session.Finish(func() { own.Retreat(time.Time{}) }) // it may be the last, and tell the cohort: mu is held
		return false
	}
	return true
}

// read has all readers in line read: by the tenure that was granted, of which one reader is counted in, or beside it.
// shared: those that share a hold can have it. Called with mu held.
func (s *cohorts) read(y *cohort, own *owner, shared bool) {
	var beside []*caller
	entered, over := 1, false // the one that is counted in is the first reader's
	for x := y.callers.First(); x != nil && !over; {
		next := x.Behind()
		switch {
		case !(shared && x.shares() && own.hasLabel("")):
			if len(beside) < mostBeside {
				y.part(x)
				beside = append(beside, x)
			}
		case entered == 1 || s.enter(own):
			entered++
			s.give(y, x, 0)
		default:
			over = true
		}
		x = next
	}
	switch {
	case len(beside) > 0 && (entered == 1 || own.Enter(own.Turn()) == nil):
		own.lock.c.session.Finish(func() { s.readBeside(own, beside) })
	case len(beside) > 0:
		s.rejoin(beside)
	}
	if y.callers.First() != nil && y.contender == nil { // it is over, or they are too many for one call
		s.next(y)
	}
}

// readBeside has readers read as owners of their own, beside one that reads and is counted in for this call.
func (s *cohorts) readBeside(own *owner, readers []*caller) {
	l, c := own.lock, own.lock.c
	all := make([]*owner, len(readers))
	shortest := readers[0].lease()
	for i, x := range readers {
		all[i] = l.newOwner(x.ctx, x.lease(), x.terms.label)
		shortest = min(shortest, x.lease())
	}
	var sent time.Time
	timed := script.Timed[acquireReply]{
		Key: l.key,
		Send: func(ctx context.Context, at time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sent = at
			call := besideCall(l, own, all, readers, notAfter)
			call.Replicas, call.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
			call.Late = func(rueidis.RedisResult) {
				for _, y := range all {
					y.Late()
				}
			}
			return c.runner.Attempt(ctx, call)
		},
		Decode: decodeAcquire,
	}
	// Its reply is read even if the first reader leaves; the request has that reader's values, such as its span.
	r, err := timed.Run(context.WithoutCancel(readers[0].ctx), c.runner)
	received := time.Now()
	var until time.Time // they may read by then; zero: they do not
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		until = sent.Add(timed.Runs)
	case script.IsUnreplicated(err), !c.engine.Trusted(l.key, sent),
		!received.Before(sent.Add(shortest - lease.Margin(shortest))):
		until = received
	}
	if err == nil && r.status == acquireGranted && until.IsZero() {
		for i, x := range readers {
			s.letIn(x, all[i], sent)
		}
	} else {
		for _, y := range all {
			y.Abandon(until, "")
		}
		s.mu.Lock()
		s.rejoin(readers)
		s.mu.Unlock()
	}
	own.Decline()
}

// letIn gives a reader the hold that it was granted, or has that released if it has left.
func (s *cohorts) letIn(x *caller, own *owner, sent time.Time) {
	c := own.lock.c
	err := own.Keep(c.engine.Add(&own.Lease, sent, sent, x.lease(), x.auto, c.opts.MaxHold), time.Time{}, "")
	s.mu.Lock()
	left := x.left
	if !left && err == nil {
		x.serve(own, 0, nil)
	} else if !left {
		s.rejoin([]*caller{x})
	}
	s.mu.Unlock()
	if left && err == nil {
		own.Decline()
	}
}

// rejoin puts readers back into the line, before those that came later. Called with mu held.
func (s *cohorts) rejoin(readers []*caller) {
	l := readers[0].l
	y := s.of[cohortKey{l.key, l.kind}]
	if y == nil {
		y = s.open(l)
		y.seen = readers[0].seen
	}
	for _, x := range slices.Backward(readers) {
		if !x.left {
			y.join(x, true)
		}
	}
	if y.contender == nil {
		s.next(y)
	}
}

// under is the tenure under which a reader asks; nil: none.
func (s *cohorts) under(q *contender) *owner {
	if !q.l.kind.together || q.caller != nil && !q.caller.shares() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := q.of.own; own != nil && own.Lasts() && q.l.c.engine.Over(&own.Lease) == nil {
		return own
	}
	return nil
}

// window notes for how long others may join what was granted to a reader by the call that it sent last. It is four
// round trips: a reader of four then waits for an answer, however far the server is, and a writer waits little longer.
func (a *acquisition) window(unclaimed bool, received time.Time) {
	if a.contender != nil && a.l.kind.together && unclaimed {
		a.contender.admit = a.sent.Add(min(max(4*received.Sub(a.sent), leastWindow), mostWindow)).Sub(a.l.c.cohorts.base)
	}
}

// besideCall has readers read beside one of their process.
func besideCall(l *single, beside *owner, all []*owner, readers []*caller, notAfter int64) script.Call {
	c := l.c
	keys, args := slices.Clone(l.keys), make([]string, 0, 8+2*len(all))
	args = append(args, beside.Lease.Owner, l.c.watchdogMillis, strconv.FormatInt(notAfter, 10), l.channel, "", "",
		c.publish, l.grants, "")
	for i, own := range all {
		keys = append(keys, timeoutKey(l.key, own.Lease.Owner, 1))
		args = append(args, own.Lease.Owner, c.millis(readers[i].lease()))
	}
	return script.Call{Script: rwReadScript, Keys: keys, Args: args}
}
