package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Batcher is a Taker of which no waiter stands behind another in this process: several can be granted at once, and
// every waiter may have a place of its own in the server's queue. The package comment, under "Batch queues", has the
// protocol.
type Batcher interface {
	Taker
	// AskAll asks for several waiters in one call, in their order; place: also for a place in the server's queue for each
	// that cannot be served. Without places none is to be served after one that was not: no queue keeps their order. It
	// returns a reply for each, which that waiter's Reply reads, or an error for all. What the call says of others it
	// tells Waiters.Served.
	//
	// It is called on any Taker of the local queue, also while that waiter leaves: it uses nothing of a waiter but its
	// QueueEntry.
	AskAll(ctx context.Context, all []QueueEntry, enqueue bool) (replies []any, err error)
	// Reply is what Ask would have returned, had it got the waiter's reply, or err.
	Reply(reply any, err error) (Answer, error)
}

const (
	// maxBatch is how many waiters one call asks for.
	maxBatch = 128
	// hearing is how long a batch waits for the first subscription to grants before it goes without.
	hearing = 50 * time.Millisecond
	// inFlightGrace is how long a waiter that is out of patience awaits the answer to a call that is under way. A server
	// that is well answers long before.
	inFlightGrace = 20 * time.Millisecond
	closingGrace  = 2 * time.Second // the same when the client closes
)

// batchQueue has the waiters of a local queue of Batchers. All is guarded by Waiters.mu.
type batchQueue struct {
	first, last *waiter   // those that were refused, or came while others had been, in the order in which they came
	asking      []*waiter // those to ask for, in order; some may have left
	running     bool      // a goroutine asks for them
	failures    int       // batches in a row that failed
	silentSince time.Time // when the first of these was sent
	hears       bool      // the last batch asked for places
	placeless   bool      // ... and got none
	timer       *time.Timer
	alarms      int       // timers so far: the last is the one that counts
	due         time.Time // when it goes off
	pollAllAt   time.Time // when all are to be asked for

	polled time.Time // when all were last to be asked for
	untold bool      // by the last answer: no grant says when what is out is free
	batchSubscriptions
}

// batchSubscriptions are how a batch queue hears of grants, and of releases.
type batchSubscriptions struct {
	// closed when the subscription to grants that is under way is there, or is not to be had
	hearing        chan struct{}
	refusals       int                // of such subscriptions, in a row
	listenAt       time.Time          // no other is tried before this
	cancelReleases context.CancelFunc // ends the subscription to releases; nil: there is none
}

// outcome is what a batch learned about one waiter.
type outcome struct {
	reply any
	err   error
}

// acquireBatched is contend in a local queue of Batchers. While none of the local queue waits, every request goes out
// at once. From the first that is refused until none waits any more, newcomers stand behind those that do, and one call
// at a time asks for many.
func (w *waiter) acquireBatched(b Batcher) error {
	q := w.q
	w.register(q.hearsGrants(w.r.Grants))
	if !w.joinIfWaiting() {
		if done, err := w.askFirst(); done {
			return err
		}
	}
	for woke := false; ; woke = true {
		if done, err := w.readOutcome(b, woke); done {
			return err
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
		case <-w.waitContext().Done():
			if w.awaitInFlight(b) {
				return nil
			}
			return w.gaveUp()
		}
	}
}

// askFirst sends the request of a waiter that found none waiting, and has it join the queue if it is refused. done: the
// wait is over, with err.
func (w *waiter) askFirst() (done bool, err error) {
	began := time.Now()
	answer, err := w.ask(0)
	switch {
	case err == nil && answer.Granted:
		return true, nil
	case err != nil && !script.NotAnswered(err):
		return true, err
	case w.q.Ended(w.ctx) != nil || w.late():
		return true, w.gaveUp()
	}
	if err != nil {
		w.q.Silence.failed(&w.r, began, err)
	}
	w.join(answer, err)
	return false, nil
}

// readOutcome takes in what a call for many learned about w since the last time, if anything. woke: w was woken since.
// done: the wait is over, with err.
func (w *waiter) readOutcome(b Batcher, woke bool) (done bool, err error) {
	o := w.takeOutcome()
	if o == nil {
		if woke {
			w.q.woken(w.ctx, w.r.Name, true)
		}
		return false, nil
	}
	answer, err := w.reply(b, o)
	switch {
	case err == nil && answer.Granted:
		return true, nil
	case err != nil && !script.NotAnswered(err):
		return true, err
	}
	return false, nil
}

// awaitInFlight has a waiter whose time is over await the answer to the call that asks for it, for a moment. An
// answer that it does not see would leave a release pending until the call can surely run no more, and a Close that
// waits for that ("Close while it is being granted leaves nothing" in internal/contract). It reports whether the answer
// was a grant.
func (w *waiter) awaitInFlight(b Batcher) bool {
	moment := inFlightGrace
	if w.q.ctx.Err() != nil { // no caller's time is up, and Close waits in any case
		moment = max(moment, min(w.r.Reach, closingGrace))
	}
	t := time.NewTimer(moment)
	defer t.Stop()
	for {
		w.q.mu.Lock()
		o, asked := w.outcome, w.does == inFlight
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
		w.register(w.q.hearsGrants(w.r.Grants))
	}
	switch {
	case err == nil && answer.Granted:
	case err == nil && answer.Again:
		w.q.mu.Lock()
		w.q.enqueue(w.localQueue.batchQueue, w) // idle starts the goroutine that asks
		w.q.mu.Unlock()
	case err == nil:
		w.everAnswered = true
		w.note(answer.Left, nil)
		w.q.mu.Lock()
		c := w.localQueue.batchQueue
		c.placeless, c.untold = c.hears && answer.Ticket == 0, answer.Foreign
		w.q.mu.Unlock()
		w.subscribeReleases(answer.Foreign)
	case script.NotAnswered(err):
		w.note(-1, err)
	}
	return answer, err
}

// joinIfWaiting stands the waiter behind those of its local queue that wait; false: there are none.
func (w *waiter) joinIfWaiting() bool {
	q, c := w.q, w.localQueue.batchQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.first == nil {
		return false
	}
	q.addWaiter(c, w)
	q.enqueue(c, w)
	q.startAsking(c)
	return true
}

// join has the waiter, which was refused, or could not ask, wait with the others.
func (w *waiter) join(a Answer, err error) {
	if err == nil && a.Foreign {
		w.subscribeReleases(true)
	}
	if a.Renamed {
		w.register(w.q.hearsGrants(w.r.Grants))
	}
	q, c := w.q, w.localQueue.batchQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addWaiter(c, w)
	c.untold = c.untold || a.Foreign
	if err != nil && c.failures == 0 {
		c.failures, c.silentSince = 1, w.silentSince // the next request is not to follow at once
	}
	if err != nil || a.Ticket == 0 && !w.entry.hears {
		q.enqueue(c, w)
		q.startAsking(c)
	}
}

func (q *Waiters) addWaiter(c *batchQueue, w *waiter) {
	w.is, w.before = among, c.last
	if c.last != nil {
		c.last.behind = w
	} else {
		c.first = w
		c.polled = time.Now()
		c.pollAllAt = c.polled.Add(q.pollInterval(c))
	}
	c.last = w
	q.alarmBy(c, c.pollAllAt)
}

// removeWaiter takes a waiter out that leaves.
func (q *Waiters) removeWaiter(c *batchQueue, w *waiter) {
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
		c.stop()
	case w.granted && w.before == nil && (!c.hears || c.placeless):
		q.pollAll(c) // all before it were served: there may be enough for those behind
	}
}

// unused reports whether no waiter ever joined the batch queue, and no timer was made for it, so that nothing refers to
// it but its local queue.
func (c *batchQueue) unused() bool {
	return c.pollAllAt.IsZero() && c.alarms == 0 && c.cancelReleases == nil
}

// stop ends what only a batch queue with waiters needs.
func (c *batchQueue) stop() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.cancelReleases != nil {
		c.cancelReleases()
		c.cancelReleases = nil
	}
	c.asking, c.failures, c.placeless, c.untold = nil, 0, false, false
}

// enqueue puts a waiter among those to ask for.
func (q *Waiters) enqueue(c *batchQueue, w *waiter) {
	if !w.wanted && w.is != gone {
		w.wanted = true
		c.asking = append(c.asking, w)
	}
}

// idle says that a waiter has taken in what there was, and waits for more. doubt: it has a grant about which the server
// is to be asked, once.
func (w *waiter) idle(doubt bool) {
	q, c := w.q, w.localQueue.batchQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.does == busy {
		w.does = idle
	}
	if doubt && (w.grant == nil || w.grant != w.doubted) && w.does != inFlight {
		w.doubted = w.grant
		q.enqueue(c, w)
	}
	if w.wanted {
		q.startAsking(c)
	}
}

// pollAll has all waiters of a batch queue asked for. Those that have no place in the server's queue are served in
// their order: asking for the first of them will do, and more if all of these are served.
func (q *Waiters) pollAll(c *batchQueue) {
	n := 0
	c.polled = time.Now()
	for w := c.first; w != nil && (n < maxBatch || c.hears && !c.placeless); w = w.behind {
		q.enqueue(c, w)
		n++
	}
	q.startAsking(c)
}

// startAsking starts the goroutine that asks, unless it runs.
func (q *Waiters) startAsking(c *batchQueue) {
	if !c.running && len(c.asking) > 0 && q.ctx.Err() == nil {
		c.running = true
		go q.ask(c)
	}
}

// ask asks for the waiters of a batch queue, many in a call, one call at a time, until all are answered.
func (q *Waiters) ask(c *batchQueue) {
	for {
		q.mu.Lock()
		failures, since := c.failures, c.silentSince
		q.mu.Unlock()
		pause := time.Duration(0)
		if failures > 0 {
			pause = q.retryIn(failures, since)
		}
		if pause > 0 {
			script.Pause(q.ctx, pause)
		}
		q.awaitGrants(c)
		batch, all, enqueue := q.batch(c)
		if len(batch) == 0 {
			return
		}
		first, began := batch[0].r, time.Now() // the waiter may leave meanwhile
		replies, err := first.Taker.(Batcher).AskAll(context.WithoutCancel(q.ctx), all, enqueue)
		switch {
		case err == nil:
			q.Silence.answered(&first)
		case script.NotAnswered(err):
			q.Silence.failed(&first, began, err)
		}
		q.answered(c, batch, all, began, replies, err)
	}
}

// batch takes out those that the next call asks for. It returns none, and ask ends, if none is left to ask
// for, or the one that is left has yet to take in the last outcome: that waiter has ask started again (idle).
func (q *Waiters) batch(c *batchQueue) (batch []*waiter, all []QueueEntry, enqueue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(c.asking) > 0 && c.first != nil && q.ctx.Err() == nil {
		e := q.grantSubs[c.first.r.Grants]
		enqueue = e != nil
		if enqueue && !c.placeless {
			batch = c.take()
		} else {
			batch = q.takeFirst(c)
		}
		for _, w := range batch {
			w.hear(e)
			w.queued = w.queued || enqueue
			all = append(all, *w.entry)
		}
	}
	if len(batch) == 0 {
		c.running = false
		return nil, nil, false
	}
	c.hears = enqueue
	return batch, all, enqueue
}

// ready reports whether a batch may ask for the waiter, which has taken in all that it got.
func (w *waiter) ready() bool { return w.outcome == nil && w.does == idle && w.entry != nil }

// take takes those to ask for next, in the order in which they came to be asked for.
func (c *batchQueue) take() (batch []*waiter) {
	var rest []*waiter
	for i, w := range c.asking {
		if len(batch) == maxBatch {
			rest = append(rest, c.asking[i:]...)
			break
		}
		switch {
		case w.is == gone:
		case !w.ready():
			rest = append(rest, w)
		default:
			w.wanted, w.does = false, inFlight
			batch = append(batch, w)
		}
	}
	c.asking = rest
	return batch
}

// takeFirst takes the first in the local queue, whichever was to be asked for: no queue on the server keeps their
// order, so only a call that begins with the first does. It takes none behind one that is not ready.
func (q *Waiters) takeFirst(c *batchQueue) (batch []*waiter) {
	for _, w := range c.asking {
		w.wanted = false
	}
	c.asking = nil
	for w := c.first; w != nil && len(batch) < maxBatch; w = w.behind {
		if !w.ready() {
			q.enqueue(c, w)
			break
		}
		w.does = inFlight
		batch = append(batch, w)
	}
	return batch
}

// answered hands the outcomes of a batch to its waiters. After a failure they are asked for again, in one call, before
// those that came later: an outage costs a process one request at a time however many wait.
func (q *Waiters) answered(c *batchQueue, batch []*waiter, all []QueueEntry, sent time.Time, replies []any,
	err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := err != nil && script.NotAnswered(err)
	if again {
		if c.failures++; c.failures == 1 {
			c.silentSince = sent
		}
	} else {
		c.failures = 0
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

// pollInterval is how long after one pollAll the next is due. Entries in the server's queue of processes that send no
// call are passed over after two and a half polls; any call of a process keeps all of its entries.
func (q *Waiters) pollInterval(c *batchQueue) time.Duration {
	d := min(q.pollCap, MaxPoll)
	if c.placeless {
		d /= placelessPolls
	}
	return d - rand.N(d/10+1)
}

// alarmBy has the timer of the batch queue go off at an instant at the latest.
func (q *Waiters) alarmBy(c *batchQueue, at time.Time) {
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
func (q *Waiters) alarm(c *batchQueue, n int) {
	q.mu.Lock()
	if c.timer == nil || c.alarms != n || c.first == nil {
		q.mu.Unlock()
		return
	}
	c.timer = nil
	w := c.first
	ctx, name := w.ctx, w.r.Name
	asks := true
	if now := time.Now(); now.Before(c.pollAllAt) {
		q.enqueue(c, w)
		q.startAsking(c)
	} else {
		c.pollAllAt = now.Add(q.pollInterval(c))
		if asks = !q.sleepOn(c); asks {
			q.pollAll(c)
		}
	}
	q.alarmBy(c, c.pollAllAt)
	q.mu.Unlock()
	if asks {
		q.woken(ctx, name, false)
	}
}

// eachBatchQueue calls f, with mu held, for every batch queue of a key that has waiters.
func (q *Waiters) eachBatchQueue(key string, f func(*batchQueue)) {
	for l := q.localQueues[key]; l != nil; l = l.next {
		if l.batchQueue != nil {
			f(l.batchQueue)
		}
	}
}

// Served takes in what a call of this process learned of waiters for a key besides those that it asked for: they were
// served by it. grants: each counts from the send of that call. due: how long after now to ask for the first in the
// local queue, which is this process's, because then enough leases end for it; negative: not known, or it is another's.
func (q *Waiters) Served(key string, grants []Grant, due time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range grants {
		if w := q.byOwner[g.Owner]; w == nil {
			q.unclaimed(g.Owner)
		} else if w.grant == nil || w.grant.Ticket != 0 {
			w.grant = &g
			signal(w.wakeup)
		}
	}
	if due >= 0 {
		q.eachBatchQueue(key, func(c *batchQueue) { q.alarmBy(c, time.Now().Add(script.Expiry(due))) })
	}
}

// pollBy is called when there is a reason to ask for a waiter of a batch queue in a while. 0: now, and for this very
// one. Otherwise leases end then for which the first in the local queue waits.
func (q *Waiters) pollBy(w *waiter, in time.Duration) {
	c := w.localQueue.batchQueue
	if in > 0 {
		q.alarmBy(c, time.Now().Add(script.Expiry(in)))
	} else if w.is == among {
		q.enqueue(c, w)
		q.startAsking(c)
	}
}

// AskAgain has all waiters for a key asked for: a call that may have served some of them was not answered, and no one
// else tells them.
func (q *Waiters) AskAgain(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.eachBatchQueue(key, q.pollAll)
}
