package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Batcher is a Taker in whose line none stands behind another: what is waited for can be had by several at once, and
// every waiter may have a place of its own in the server's queue. The package comment, under "Crowds", has the
// protocol.
type Batcher interface {
	Taker
	// AskAll asks for several waiters in one call, in their order; place: also for a place in the server's queue for each
	// that cannot be served. Without places none is to be served after one that was not: no queue keeps their order. It
	// returns a reply for each, which that waiter's Reply reads, or an error for all. What the call says of others it
	// tells Queue.Served.
	//
	// It is called on any Taker of the line, also while that waiter leaves: it uses nothing of a waiter but its Standing.
	AskAll(ctx context.Context, all []Standing, place bool) (replies []any, err error)
	// Reply is what Ask would have returned, had it got the waiter's reply, or err.
	Reply(reply any, err error) (Answer, error)
}

const (
	// mostAsked is how many waiters one call asks for.
	mostAsked = 128
	// hearing is how long a batch waits for the first subscription to grants before it goes without.
	hearing = 50 * time.Millisecond
	// lastMoment is how long a waiter that is out of patience awaits the answer to a call that is under way. A server that
	// is well answers long before.
	lastMoment    = 20 * time.Millisecond
	closingMoment = 2 * time.Second // the same when the client closes
)

// crowd are the waiters of a line of Batchers. All is guarded by Queue.mu.
type crowd struct {
	first, last *waiter   // those that were refused, or came while others had been, in the order in which they came
	asking      []*waiter // those to ask for, in order; some may have left
	driven      bool      // a goroutine asks for them
	failures    int       // batches in a row that failed
	hears       bool      // the last batch asked for places
	placeless   bool      // ... and got none
	timer       *time.Timer
	alarms      int       // timers so far: the last is the one that counts
	due         time.Time // when it goes off
	sweepAt     time.Time // when all are to be asked for

	asked     time.Time // when a call that asked for some was last answered
	rechecked time.Time // when the question of recheckOne was sent that has no answer yet; zero: none has
	crowdHearing
}

// crowdHearing is how a crowd hears of grants, and of releases.
type crowdHearing struct {
	hearing   chan struct{}      // closed when the subscription to grants that is under way is there, or is not to be had
	refusals  int                // of such subscriptions, in a row
	listenAt  time.Time          // no other is tried before this
	overheard context.CancelFunc // ends the subscription to releases; nil: there is none
}

// outcome is what a batch learned about one waiter.
type outcome struct {
	reply any
	err   error
}

// contendAmong is contend in a line of Batchers. While none of the line waits, every request goes out at once. From
// the first that is refused until none waits any more, newcomers stand behind those that do, and one call at a time
// asks for many.
func (w *waiter) contendAmong(b Batcher) error {
	q := w.q
	w.stand(q.hearsGrants(w.r.Grants))
	if !w.joinBehind() {
		began := time.Now()
		answer, err := w.ask(0)
		switch {
		case err == nil && answer.Granted:
			return nil
		case err != nil && !script.NotAnswered(err):
			return err
		case q.Ended(w.ctx) != nil || w.late():
			return w.gaveUp()
		}
		if err != nil {
			q.Silence.failed(&w.r, began, err)
		}
		w.join(answer, err)
	}
	for woke := false; ; woke = true {
		o := w.takeOutcome()
		if woke && o == nil {
			q.woken(w.ctx, w.r.Name, true)
		}
		if o != nil {
			answer, err := w.reply(b, o)
			switch {
			case err == nil && answer.Granted:
				return nil
			case err != nil && !script.NotAnswered(err):
				return err
			}
		}
		used, doubt := w.taken()
		if used {
			return nil
		}
		w.idle(doubt)
		if w.failure == nil { // it was refused, or stands behind others
			w.waits()
		}
		select {
		case <-w.wakeup:
		case <-w.patience().Done():
			if w.seeThrough(b) {
				return nil
			}
			return w.gaveUp()
		}
	}
}

// seeThrough has a waiter that is out of patience await the answer to the call that asks for it, for a moment. An
// answer that it does not see would leave a release pending until the call can surely run no more, and a Close that
// waits for that (TestCloseWhilePermitsAreBeingGrantedLeavesNothing in rsemaphore). It reports whether the answer was a
// grant.
func (w *waiter) seeThrough(b Batcher) bool {
	moment := lastMoment
	if w.q.ctx.Err() != nil { // no caller's time is up, and Close waits in any case
		moment = max(moment, min(w.r.Reach, closingMoment))
	}
	t := time.NewTimer(moment)
	defer t.Stop()
	for {
		w.q.mu.Lock()
		o, asked := w.outcome, w.does == flying
		if w.outcome = nil; !asked {
			w.does = busy // no other call asks for it
		}
		w.q.mu.Unlock()
		if o != nil {
			answer, err := w.reply(b, o)
			return err == nil && answer.Granted
		}
		if !asked {
			return false
		}
		select {
		case <-w.wakeup:
		case <-t.C:
			return false
		}
	}
}

// takeOutcome takes in what the last batch learned. Until idle no batch asks for the waiter: what it takes in may end
// its wait.
func (w *waiter) takeOutcome() *outcome {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	o := w.outcome
	if w.outcome = nil; o != nil {
		w.does = busy
	}
	return o
}

// late reports whether the time to wait is over.
func (w *waiter) late() bool { return !w.r.Until.IsZero() && !time.Now().Before(w.r.Until) }

// reply takes in what a batch learned about the waiter.
func (w *waiter) reply(b Batcher, o *outcome) (Answer, error) {
	answer, err := b.Reply(o.reply, o.err)
	w.learn(answer, err)
	if answer.Renamed {
		w.stand(w.q.hearsGrants(w.r.Grants))
	}
	switch {
	case err == nil && answer.Granted:
	case err == nil && answer.Again:
		w.q.mu.Lock()
		w.q.wants(w.line.crowd, w) // idle drives
		w.q.mu.Unlock()
	case err == nil:
		w.heard = true
		w.note(answer.Left, nil)
		w.q.mu.Lock()
		c := w.line.crowd
		c.placeless = c.hears && answer.Ticket == 0
		w.q.mu.Unlock()
		w.overhear(answer.Foreign)
	case script.NotAnswered(err):
		w.note(-1, err)
	}
	return answer, err
}

// joinBehind stands the waiter behind those of its line that wait; false: there are none.
func (w *waiter) joinBehind() bool {
	q, c := w.q, w.line.crowd
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.first == nil {
		return false
	}
	q.joins(c, w)
	q.wants(c, w)
	q.drive(c)
	return true
}

// join has the waiter, which was refused, or could not ask, wait with the others.
func (w *waiter) join(a Answer, err error) {
	if err == nil && a.Foreign {
		w.overhear(true)
	}
	if a.Renamed {
		w.stand(w.q.hearsGrants(w.r.Grants))
	}
	q, c := w.q, w.line.crowd
	q.mu.Lock()
	defer q.mu.Unlock()
	q.joins(c, w)
	if err != nil && c.failures == 0 {
		c.failures = 1 // the next request is not to follow at once
	}
	if err != nil || a.Ticket == 0 && !w.standing.hears {
		q.wants(c, w)
		q.drive(c)
	}
}

func (q *Queue) joins(c *crowd, w *waiter) {
	w.is, w.before = among, c.last
	if c.last != nil {
		c.last.behind = w
	} else {
		c.first = w
		c.sweepAt = time.Now().Add(q.sweepTime(c))
	}
	c.last = w
	q.alarmBy(c, c.sweepAt)
}

// parts takes a waiter out that leaves.
func (q *Queue) parts(c *crowd, w *waiter) {
	joined := w.is == among
	if w.is = gone; !joined {
		return
	}
	if w.before != nil {
		w.before.behind = w.behind
	} else {
		c.first = w.behind
	}
	if w.behind != nil {
		w.behind.before = w.before
	} else {
		c.last = w.before
	}
	switch {
	case c.first == nil:
		c.still()
	case w.granted && w.before == nil && (!c.hears || c.placeless):
		q.sweep(c) // all before it were served: there may be enough for those behind
	}
}

// unused reports whether no waiter ever joined the crowd, and no timer was made for it, so that nothing refers to it
// but its line.
func (c *crowd) unused() bool { return c.sweepAt.IsZero() && c.alarms == 0 && c.overheard == nil }

// still ends what only a crowd with waiters needs.
func (c *crowd) still() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.overheard != nil {
		c.overheard()
		c.overheard = nil
	}
	c.asking, c.failures, c.placeless = nil, 0, false
}

// wants puts a waiter among those to ask for.
func (q *Queue) wants(c *crowd, w *waiter) {
	if !w.wanted && w.is != gone {
		w.wanted = true
		c.asking = append(c.asking, w)
	}
}

// idle says that a waiter has taken in what there was, and waits for more. doubt: it has a grant about which the server
// is to be asked, once.
func (w *waiter) idle(doubt bool) {
	q, c := w.q, w.line.crowd
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.does == busy {
		w.does = idle
	}
	if doubt && (w.grant == nil || w.grant != w.doubted) && w.does != flying {
		w.doubted = w.grant
		q.wants(c, w)
	}
	if w.wanted {
		q.drive(c)
	}
}

// sweep has all waiters of a crowd asked for. Those that have no place in the server's queue are served in their order:
// asking for the first of them will do, and more if all of these are served.
func (q *Queue) sweep(c *crowd) {
	n := 0
	for w := c.first; w != nil && (n < mostAsked || c.hears && !c.placeless); w = w.behind {
		q.wants(c, w)
		n++
	}
	q.drive(c)
}

// drive starts the goroutine that asks, unless it runs.
func (q *Queue) drive(c *crowd) {
	if !c.driven && len(c.asking) > 0 && q.ctx.Err() == nil {
		c.driven = true
		go q.ask(c)
	}
}

// ask asks for the waiters of a crowd, many in a call, one call at a time, until all are answered.
func (q *Queue) ask(c *crowd) {
	for {
		q.mu.Lock()
		pause := min(script.Backoff(c.failures), q.pollCap)
		if c.failures == 0 {
			pause = 0
		}
		q.mu.Unlock()
		if pause > 0 {
			script.Pause(q.ctx, pause)
		}
		q.awaitGrants(c)
		batch, all, place := q.batch(c)
		if len(batch) == 0 {
			return
		}
		first, began := batch[0].r, time.Now() // the waiter may leave meanwhile
		replies, err := first.Taker.(Batcher).AskAll(context.WithoutCancel(q.ctx), all, place)
		switch {
		case err == nil:
			q.Silence.answered(&first)
		case script.NotAnswered(err):
			q.Silence.failed(&first, began, err)
		}
		q.answered(c, batch, all, replies, err)
	}
}

// batch takes out those that the next call asks for. It returns none, and the driver ends, if none is left to ask
// for, or the one that is left has yet to take in the last outcome: that waiter has the driving started again (idle).
func (q *Queue) batch(c *crowd) (batch []*waiter, all []Standing, place bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(c.asking) > 0 && c.first != nil && q.ctx.Err() == nil {
		e := q.grantSubs[c.first.r.Grants]
		place = e != nil
		if place && !c.placeless {
			batch = c.take()
		} else {
			batch = q.takeFirst(c)
		}
		for _, w := range batch {
			w.hear(e)
			w.queued = w.queued || place
			all = append(all, *w.standing)
		}
	}
	if len(batch) == 0 {
		c.driven = false
		return nil, nil, false
	}
	c.hears = place
	return batch, all, place
}

// ready reports whether a batch may ask for the waiter, which has taken in all that it got.
func (w *waiter) ready() bool { return w.outcome == nil && w.does == idle && w.standing != nil }

// take takes those to ask for next, in the order in which they came to be asked for.
func (c *crowd) take() (batch []*waiter) {
	var rest []*waiter
	for i, w := range c.asking {
		if len(batch) == mostAsked {
			rest = append(rest, c.asking[i:]...)
			break
		}
		switch {
		case w.is == gone:
		case !w.ready():
			rest = append(rest, w)
		default:
			w.wanted, w.does = false, flying
			batch = append(batch, w)
		}
	}
	c.asking = rest
	return batch
}

// takeFirst takes the first in line, whichever was to be asked for: no queue on the server keeps their order, so only a
// call that begins with the first does. It takes none behind one that is not ready.
func (q *Queue) takeFirst(c *crowd) (batch []*waiter) {
	for _, w := range c.asking {
		w.wanted = false
	}
	c.asking = nil
	for w := c.first; w != nil && len(batch) < mostAsked; w = w.behind {
		if !w.ready() {
			q.wants(c, w)
			break
		}
		w.does = flying
		batch = append(batch, w)
	}
	return batch
}

// answered hands the outcomes of a batch to its waiters. After a failure they are asked for again, in one call, before
// those that came later: an outage costs a process one request at a time however many wait.
func (q *Queue) answered(c *crowd, batch []*waiter, all []Standing, replies []any, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := err != nil && script.NotAnswered(err)
	if again {
		c.failures++
	} else {
		c.failures, c.asked = 0, time.Now()
	}
	var retry []*waiter
	for i, w := range batch {
		w.does = idle
		if w.is == gone {
			q.unclaimed(all[i].Owner) // it may have a place now, or what it asked for
			continue
		}
		w.outcome = &outcome{err: err}
		if err == nil {
			w.outcome.reply = replies[i]
		}
		if again && !w.wanted {
			w.wanted = true
			retry = append(retry, w)
		}
		signal(w.wakeup)
	}
	if again {
		c.asking = append(retry, c.asking...)
	}
}

// sweepTime is how long after one sweep the next is due. Entries in the server's queue that no process vouches for are
// passed over after two and a half polls; any call of the process vouches for all of its entries.
func (q *Queue) sweepTime(c *crowd) time.Duration {
	d := min(q.pollCap, MaxPoll)
	if c.placeless {
		d /= placelessPolls
	}
	return d - rand.N(d/10+1)
}

// alarmBy has the crowd's timer go off at an instant at the latest.
func (q *Queue) alarmBy(c *crowd, at time.Time) {
	if c.timer != nil {
		if !at.Before(c.due) {
			return
		}
		c.timer.Stop()
	}
	c.due = at
	c.alarms++
	n := c.alarms
	c.timer = time.AfterFunc(time.Until(at), func() { q.alarm(c, n) })
}

// alarm asks for all waiters if that is due; otherwise for the first: leases end that it waits for, and a call that
// asks has the server serve all.
func (q *Queue) alarm(c *crowd, n int) {
	q.mu.Lock()
	if c.timer == nil || c.alarms != n || c.first == nil {
		q.mu.Unlock()
		return
	}
	c.timer = nil
	w := c.first
	ctx, name := w.ctx, w.r.Name
	now, together := time.Now(), q.recheckOne(c)
	if !together {
		c.rechecked = time.Time{}
	}
	switch sweeps := !now.Before(c.sweepAt); {
	case sweeps:
		c.sweepAt = now.Add(q.sweepTime(c))
		if !together {
			q.sweep(c)
		}
	case !together:
		q.wants(c, w)
		q.drive(c)
	}
	q.alarmBy(c, c.sweepAt)
	q.mu.Unlock()
	if !together {
		q.woken(ctx, name, false)
	}
}

// crowds calls f, with mu held, for every crowd of a key that has waiters.
func (q *Queue) crowds(key string, f func(*crowd)) {
	for l := q.lines[key]; l != nil; l = l.next {
		if l.crowd != nil {
			f(l.crowd)
		}
	}
}

// Served takes in what a call of this process learned of waiters for a key besides those that it asked for: they were
// served by it. grants: each counts from the send of that call. due: how long after now to ask for the first in line,
// which is this process's, because then enough leases end for it; negative: not known, or it is another's.
func (q *Queue) Served(key string, grants []Grant, due time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range grants {
		if w := q.standing[g.Owner]; w == nil {
			q.unclaimed(g.Owner)
		} else if w.grant == nil || w.grant.Ticket != 0 {
			w.grant = &g
			signal(w.wakeup)
		}
	}
	if due >= 0 {
		q.crowds(key, func(c *crowd) { q.alarmBy(c, time.Now().Add(script.Expiry(due))) })
	}
}

// look is called when there is a reason to ask for a waiter of a crowd in a while. 0: now, and for this very one.
// Otherwise leases end then for which the first in line waits.
func (q *Queue) look(w *waiter, in time.Duration) {
	c := w.line.crowd
	if in > 0 {
		q.alarmBy(c, time.Now().Add(script.Expiry(in)))
	} else if w.is == among {
		q.wants(c, w)
		q.drive(c)
	}
}

// AskAgain has all waiters for a key asked for: a call that may have served some of them was not answered, and no one
// else tells them.
func (q *Queue) AskAgain(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.crowds(key, q.sweep)
}
