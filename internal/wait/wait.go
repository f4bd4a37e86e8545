// Package wait is the one place where anything waits for somebody else's lock, permit or latch.
//
// # The loop
//
// Try; subscribe and have it confirmed; try again; then sleep until a message, a nudge from inside the process, the
// end of the holder's lease, or PollCap, whichever is first; and so on until granted or out of time.
//
//	waiter                         holder
//	try: held
//	                               release, publish        (nobody hears)
//	subscribe, confirmed
//	try: granted                                           without this try: asleep on a free lock
//
// Messages are hints. One that is lost costs at most PollCap; one too many costs a try. Each waiter's place in the
// process is a semaphore: of all that wait for a key in the same manner, one contends on the server, the others stand
// behind it, first come first served.
//
// # Hand-over
//
// With a Taker the contender also stands in a queue on the server, and a release makes it the holder (handover.go).
// Everything above stays true: whatever becomes of grants, it asks at least every PollCap.
package wait

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/semaphore"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Queue is the waiting room of one client.
type Queue struct {
	hub     *pubsub.Hub
	pollCap time.Duration
	woken   func(ctx context.Context, name string, byMessage bool)
	ctx     context.Context // ends when the client or the hub closes, with cause errs.ErrClosed
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	lines    map[string]*line     // by key; see line.next
	denied   map[string]time.Time // by kind of channel: no new SUBSCRIBE before this, the user has no right to
	standing map[string]*waiter   // by owner: those a grant may be meant for
	shared   map[string]*Shared   // by key, as long as anybody waits for the result
	ears     map[string]*ear      // by channel
	gap      time.Time            // when grants were last missed

	// What most waits need and are through with at once, kept for the next.
	freeLines   []*line
	freeWaiters []*waiter
}

// spare bounds what is kept.
const spare = 64

// line is the waiters of one key that wait in one manner; it exists only while there are any. What differs in either
// must not stand behind each other: who waits for one thing while it holds another would wait for itself, and a waiter
// that is out of luck by its manner, as one that polls among those that queue, would keep those behind it from theirs.
type line struct {
	manner  string
	next    *line // of the same key
	turn    *semaphore.Weighted
	members int
	waiting int // members that have been refused what they wait for
	nudge   chan struct{}
	pushed  bool      // the contender hears of releases without a nudge
	freeBy  time.Time // when the holder's lease ends, as the contender last heard; zero if unknown
	failure error     // why the contender could not ask, when it last tried; nil if it was answered

	contender *waiter   // that may be offered what is released; nil if there is none
	heldSince time.Time // since when this process holds the name; zero if not known to
	turns     int       // how often a release may still give it to this process before others
	turnsEnd  time.Time
}

// NewQueue returns a queue. woken is told of every wake-up of a sleeping waiter; it may be nil.
func NewQueue(hub *pubsub.Hub, pollCap time.Duration, woken func(ctx context.Context, name string, byMessage bool)) *Queue {
	q := &Queue{hub: hub, pollCap: pollCap, woken: woken, lines: map[string]*line{}, denied: map[string]time.Time{}, standing: map[string]*waiter{}, shared: map[string]*Shared{}, ears: map[string]*ear{}}
	if q.woken == nil {
		q.woken = func(context.Context, string, bool) {}
	}
	q.ctx, q.cancel = context.WithCancelCause(hub.Context())
	return q
}

// Close ends all waiting with errs.ErrClosed.
func (q *Queue) Close() { q.cancel(errs.ErrClosed) }

// Request is one wait.
type Request struct {
	Name    string // what woken is told
	Line    string // the key whose waiters stand in one line, if their Manner is the same; Name if it is empty
	Manner  string // of waiting
	Channel string // where releases are published
	Own     bool   // Channel is this waiter's alone: it is not kept subscribed afterwards, and MaxPoll bounds its sleep
	// Alone: do not stand in the process's line. For what can never wait for another waiter: a re-entry behind one
	// would be a deadlock.
	Alone bool
	// Yield, with Alone: give up unasked while a waiter in the line of that key waits for what it was refused, which this
	// request would overtake for as long as it is made.
	Yield bool
	// Until bounds the waiting, zero: only ctx does. If it has passed after the first try, that was the only one.
	Until time.Time
	// Try asks once. ctx ends with the caller's patience, but Until does not cut the first try short.
	Try func(ctx context.Context) (Answer, error)
	// Taker, if set, is asked in place of Try, and takes part in the hand-over; not with Alone.
	Taker Taker
	// Grants is where the grants for this process are published.
	Grants string
	// Backoff, if set, is how long to sleep after the n-th try in a row, from 0: the waiter polls, without any
	// subscription.
	Backoff func(n int) time.Duration
}

// Answer is what a try was told.
type Answer struct {
	Granted bool
	Left    time.Duration // until the holder's lease ends; negative if it has none or it is unknown

	// Of a Taker's call:
	Foreign bool      // the holder's release is only published on Request.Channel
	Ticket  int64     // the place in the server's queue; 0: none
	Sent    time.Time // when the call that was answered was sent
	Renamed bool      // the owner is another one now, also beside an error

	// Channel, if set, is where releases are published for this waiter from now on, also beside an error.
	Channel string
}

// Wait returns nil when a try was granted; *GaveUp when ctx, Until or the queue ended first; or the first error of Try
// that asking again cannot mend.
func (q *Queue) Wait(ctx context.Context, r Request) error {
	if err := q.ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	if r.Yield && q.waiting(r.Line) {
		return &GaveUp{Left: -1}
	}
	w := q.enter(r, ctx)
	defer w.leave()
	if !r.Alone {
		if !w.line.turn.TryAcquire(1) {
			if err := w.line.turn.Acquire(w.patience(), 1); err != nil {
				return w.gaveUp()
			}
		}
		w.head = true
	}
	err := w.contend()
	w.granted = err == nil
	return err
}

func (q *Queue) ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	return errs.Ended(ctx)
}

// waiter is one call of Wait.
type waiter struct {
	q    *Queue
	r    Request
	ctx  context.Context // the caller's
	slow context.Context // ctx, Until and the queue's end together; made when first needed
	stop []func()
	line *line
	head bool
	sub  *pubsub.Subscription

	known   time.Duration // of the holder's lease, when last heard; negative: unknown
	failure error
	heard   bool // some try was answered
	refused bool // with no, and so it counts in line.waiting
	// refusals of a subscription in a row that may soon be had
	refusals int
	granted  bool
	asked    bool // what queued says, for the waiter itself
	// placeless: when last asked there was no place in the server's queue to be had
	placeless bool

	// Of the hand-over. Guarded by Queue.mu from stand on:
	standing *Standing
	nudge    chan struct{}
	ear      *ear
	grant    *Grant
	ticket   int64     // the place that the newest answer named
	held     time.Time // when the call was sent that was so answered
	offered  time.Time // a release names us until then
	queued   bool      // a call went out that may have put us into the server's queue
	byTurn   bool      // granted inside the process
}

// patience is the context that ends when any reason to stop waiting does.
func (w *waiter) patience() context.Context {
	if w.slow == nil {
		ctx, cancel := context.WithCancelCause(w.ctx)
		unlink := context.AfterFunc(w.q.ctx, func() { cancel(errs.ErrClosed) })
		w.stop = append(w.stop, func() { unlink(); cancel(nil) })
		if !w.r.Until.IsZero() {
			var cancelTimer context.CancelFunc
			ctx, cancelTimer = context.WithDeadlineCause(ctx, w.r.Until, errTimeUp)
			w.stop = append(w.stop, cancelTimer)
		}
		w.slow = ctx
	}
	return w.slow
}

var errTimeUp = errors.New("waitTime is over")

func (w *waiter) gaveUp() error {
	g := &GaveUp{Left: w.known, Failure: w.failure, Cause: w.q.ended(w.ctx)}
	if w.line != nil {
		w.q.mu.Lock()
		if !w.line.freeBy.IsZero() {
			g.Left = max(0, time.Until(w.line.freeBy))
		}
		if !w.head { // never asked itself: what the contender knows is all there is to know
			g.Failure = w.line.failure
		}
		w.q.mu.Unlock()
	}
	return g
}

func (w *waiter) leave() {
	for _, stop := range w.stop {
		stop()
	}
	switch {
	case w.sub == nil:
	case w.r.Own:
		w.sub.Discard()
	default:
		w.sub.Close()
	}
	w.exit()
}

func (w *waiter) contend() error {
	taker := w.r.Taker
	if w.line == nil {
		taker = nil
	}
	switch {
	case w.r.Backoff != nil:
	case taker == nil:
		// Subscribed before the first try, where that costs nothing, the try after the subscription is saved.
		w.attach(w.q.hub.TrySubscribe(w.r.Channel))
	default:
		if err := w.hope(); err != nil {
			return err
		}
	}
	failures := 0
	for n := 0; ; n++ {
		if w.standing != nil && w.taken() {
			return nil
		}
		ctx := w.ctx
		if n > 0 {
			ctx = w.patience()
		}
		if w.sub != nil {
			w.sub.Drain()
		}
		var answer Answer
		var err error
		began := time.Now()
		switch {
		case taker != nil:
			answer, err = taker.Ask(ctx, w.asking())
			w.learn(answer, err)
		case w.r.Taker != nil:
			answer, err = w.r.Taker.Ask(ctx, nil)
		default:
			answer, err = w.r.Try(ctx)
		}
		w.move(answer.Channel)
		switch {
		case err == nil && answer.Granted:
			return nil
		case err == nil:
			w.heard, failures = true, 0
			w.note(answer.Left, nil)
		case !script.Retryable(err):
			return err
		default:
			// A try that our own patience cut short says nothing about the server. The server is told when that ends, and
			// may refuse what comes later by its clock before our timer goes off: no other try would fit in either.
			if end, ok := ctx.Deadline(); !w.heard || ctx.Err() == nil && !(ok && time.Until(end) <= time.Since(began)) {
				w.note(-1, err)
			}
			failures++
		}
		if w.q.ended(w.ctx) != nil || !w.r.Until.IsZero() && !time.Now().Before(w.r.Until) {
			return w.gaveUp()
		}
		switch {
		case failures > 0:
			if !script.Pause(w.patience(), min(script.Backoff(failures), w.q.pollCap)) {
				return w.gaveUp()
			}
		case w.r.Backoff != nil:
			if !w.sleep(min(w.r.Backoff(n), w.q.pollCap)) {
				return w.gaveUp()
			}
		case taker != nil && !w.hears() && w.heed():
			// the next try asks for a place in the queue, if grants are heard by now
		case (taker == nil || answer.Foreign) && w.sub == nil && w.subscribe():
			// try again at once: see the package comment
		default:
			d := w.doze()
			if w.refusals > 0 {
				d = min(d, script.Backoff(w.refusals))
			}
			if !w.sleep(d) {
				return w.gaveUp()
			}
		}
	}
}

// hope waits for a moment where this process holds the lock: its release will name us, which saves asking for a place
// in the server's queue.
func (w *waiter) hope() error {
	q := w.q
	q.mu.Lock()
	since := w.line.heldSince
	hears := q.ears[w.r.Grants] != nil
	q.mu.Unlock()
	rest := moment - time.Since(since)
	if since.IsZero() || rest <= 0 {
		if hears {
			w.stand(true)
		}
		return nil
	}
	over := false
	w.stand(hears)
	if !hears {
		hears, over = w.listen()
		w.stand(hears)
	}
	if !over && !w.sleep(rest) {
		return w.gaveUp()
	}
	return nil
}

// hears reports whether the waiter is known as one that is told of a grant.
func (w *waiter) hears() bool { return w.standing != nil && w.standing.hears }

// heed listens for grants, and reports whether to ask again at once: they are heard, or there is no time to sleep.
func (w *waiter) heed() bool {
	w.stand(false) // nameable meanwhile
	hears, over := w.listen()
	w.stand(hears)
	return hears || over
}

// asking returns what to ask for a place in the server's queue with, nil for one that hears no grants, and notes that
// it is about to be asked for.
func (w *waiter) asking() *Standing {
	if !w.hears() {
		return nil
	}
	if !w.asked {
		w.asked = true
		w.q.mu.Lock()
		w.queued = true
		w.q.mu.Unlock()
	}
	return w.standing
}

// learn takes in what an Ask said of our place in the server's queue.
func (w *waiter) learn(a Answer, err error) {
	if w.standing == nil {
		return
	}
	if err == nil {
		w.placeless = a.Ticket == 0
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	switch {
	case a.Renamed:
		w.unstand()
	case err == nil && a.Ticket > 0 && a.Ticket >= w.ticket && a.Sent.After(w.held):
		w.ticket, w.held = a.Ticket, a.Sent
	}
}

// move leaves the channel of an owner that is another one now.
func (w *waiter) move(channel string) {
	if channel == "" || channel == w.r.Channel {
		return
	}
	w.r.Channel = channel
	if w.sub != nil {
		w.sub.Discard()
		w.sub = nil
	}
}

func (w *waiter) attach(sub *pubsub.Subscription, ok bool) {
	if !ok {
		return
	}
	w.sub = sub
	if w.line != nil {
		w.q.mu.Lock()
		w.line.pushed = true
		w.q.mu.Unlock()
	}
}

// note keeps what the last try found, for those behind us too: the rest of the holder's lease, or why the server
// could not be asked.
func (w *waiter) note(left time.Duration, failure error) {
	w.failure = failure
	if failure == nil {
		w.known = left
	}
	if w.line == nil {
		return
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	w.line.failure = failure
	if failure == nil {
		if !w.refused {
			w.refused = true
			w.line.waiting++
		}
		w.line.freeBy = time.Time{}
		if left >= 0 {
			w.line.freeBy = time.Now().Add(left)
		}
	}
}

// deniedPause is how long a channel whose kind the user has no right to is not asked for again, by any waiter of the client.
const deniedPause = 30 * time.Second

// kindOf is the prefix of a channel, which says what it is for, and by which rights are given. That of a latch ends with a
// brace only.
func kindOf(channel string) string {
	if end := strings.IndexAny(channel, ":{"); end >= 0 {
		return channel[:end]
	}
	return channel
}

// denies reports whether the server will give the same answer for long: the user has no right, or there is no such command.
// Any other refusal, as by a server that is loading or has lost its place in a Cluster, is asked again soon.
func denies(err error) bool {
	var re *rueidis.RedisError
	return errors.As(err, &re) && (strings.HasPrefix(re.Error(), "NOPERM") || strings.HasPrefix(re.Error(), "ERR unknown command"))
}

// subscribe subscribes to releases, and reports whether to try again at once: it stands, or there is no time to sleep.
func (w *waiter) subscribe() bool {
	sub, over := w.subscription(w.r.Channel)
	w.attach(sub, sub != nil)
	return sub != nil || over
}

// subscription subscribes, for as long as the waiter would sleep otherwise: a server that does not confirm must not keep
// us from polling, nor from what a nudge or the end of the holder's lease is a reason for. over: that has come, and the
// next thing is a try. If there is no subscription to be had the waiter polls; it is no error.
func (w *waiter) subscription(channel string) (sub *pubsub.Subscription, over bool) {
	q := w.q
	q.mu.Lock()
	denied := time.Now().Before(q.denied[kindOf(channel)])
	q.mu.Unlock()
	if denied {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(w.patience(), w.doze())
	defer cancel()
	nudged := make(chan bool, 1)
	go func() {
		select {
		case <-w.nudges():
			cancel()
			nudged <- true
		case <-w.nudge:
			cancel()
			nudged <- true
		case <-ctx.Done():
			nudged <- false
		}
	}()
	sub, err := q.hub.Subscribe(ctx, channel)
	ended := ctx.Err() != nil
	cancel()
	byNudge := <-nudged
	switch {
	case err == nil:
		ended, w.refusals = false, 0
	case ended:
	case denies(err):
		q.mu.Lock()
		q.denied[kindOf(channel)] = time.Now().Add(deniedPause)
		q.mu.Unlock()
	default:
		w.refusals++
	}
	if over = (ended || byNudge) && w.patience().Err() == nil; over {
		q.woken(w.ctx, w.r.Name, byNudge)
	}
	return sub, over
}

// nudges is where those are told who have nothing else.
func (w *waiter) nudges() <-chan struct{} {
	if w.line == nil {
		return nil
	}
	return w.line.nudge
}

// doze is how long to sleep when nothing happens.
func (w *waiter) doze() time.Duration {
	d := w.q.pollCap
	if w.standing != nil || w.r.Own { // in a queue on the server, ours or Redisson's
		d = min(d, MaxPoll)
	}
	if w.hears() && w.placeless { // its slot is being migrated, and nobody is told of a release meanwhile
		d /= placelessPolls
	}
	if w.known >= 0 {
		// a little after the lease: the server counts in whole milliseconds, and all waiters of all processes know
		// the same instant
		d = min(d, w.known+time.Millisecond+rand.N(time.Millisecond+w.known/50))
	}
	d -= rand.N(d/10 + 1)
	if w.known >= 0 && w.known < d {
		d = w.known + time.Millisecond
	}
	return d
}

// placelessPolls is how often a waiter asks in a PollCap while the server's queue cannot be used.
const placelessPolls = 20

// sleep waits for a reason to try again, for d at most; false: out of patience.
func (w *waiter) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	var pushed <-chan struct{}
	if w.sub != nil {
		pushed = w.sub.Ready()
	}
	select {
	case <-t.C:
		w.q.woken(w.ctx, w.r.Name, false)
	case <-pushed:
		w.q.woken(w.ctx, w.r.Name, true)
	case <-w.nudges():
		w.q.woken(w.ctx, w.r.Name, true)
	case <-w.nudge:
		w.q.woken(w.ctx, w.r.Name, true)
	case <-w.patience().Done():
		return false
	}
	return true
}

// enter makes the waiter, and puts it into its line.
func (q *Queue) enter(r Request, ctx context.Context) (w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.Line == "" {
		r.Line = r.Name
	}
	if n := len(q.freeWaiters); n > 0 {
		w, q.freeWaiters = q.freeWaiters[n-1], q.freeWaiters[:n-1]
	} else {
		w = &waiter{}
	}
	w.q, w.r, w.ctx, w.known = q, r, ctx, -1
	if r.Alone {
		return w
	}
	l := q.lines[r.Line]
	for l != nil && l.manner != r.Manner {
		l = l.next
	}
	if l == nil {
		if n := len(q.freeLines); n > 0 {
			l, q.freeLines = q.freeLines[n-1], q.freeLines[:n-1]
		} else {
			l = &line{turn: semaphore.NewWeighted(1), nudge: make(chan struct{}, 1)}
		}
		l.manner, l.next = r.Manner, q.lines[r.Line]
		q.lines[r.Line] = l
	}
	l.members++
	w.line = l
	return w
}

// exit leaves the line, and whatever may be left of us on the server to the Taker. The waiter is no more after this.
func (w *waiter) exit() {
	q, l, r := w.q, w.line, w.r
	owes, after := false, time.Time{}
	q.mu.Lock()
	if l != nil {
		after, owes = w.settled(w.granted)
		if w.head {
			l.pushed = false
			l.turn.Release(1)
		}
		if w.refused {
			l.waiting--
		}
		if l.members--; l.members == 0 {
			q.remove(r.Line, l)
			if len(q.freeLines) < spare {
				drain(l.nudge)
				*l = line{turn: l.turn, nudge: l.nudge}
				q.freeLines = append(q.freeLines, l)
			}
		}
	}
	if len(q.freeWaiters) < spare {
		drain(w.nudge)
		*w = waiter{nudge: w.nudge}
		q.freeWaiters = append(q.freeWaiters, w)
	}
	q.mu.Unlock()
	if owes {
		r.Taker.Owe(after)
	}
}

// remove takes a line that is empty from those of its key. Called with mu held.
func (q *Queue) remove(key string, l *line) {
	before := q.lines[key]
	switch {
	case before != l:
		for before.next != l {
			before = before.next
		}
		before.next = l.next
	case l.next != nil:
		q.lines[key] = l.next
	default:
		delete(q.lines, key)
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// Nudge wakes the waiters of this process that contend in the lines of a key, one of each manner, unless they hear of the
// release anyway: the process has just released what they wait for.
func (q *Queue) Nudge(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.lines[key]; l != nil; l = l.next {
		l.heldSince = time.Time{}
		if w := l.contender; w != nil {
			if w.ticket == 0 || !w.standing.hears {
				w.wake()
			}
		} else if !l.pushed {
			l.wake()
		}
	}
}

// wake is called with mu held.
func (l *line) wake() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// Wake has the waiters of this process that contend in the lines of a key ask again, also those that hear of releases:
// for somebody who has just come.
func (q *Queue) Wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.lines[key]; l != nil; l = l.next {
		l.wake()
	}
}

// Members is how many requests stand in the lines of a key, the contenders included.
func (q *Queue) Members(key string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.lines[key]; l != nil; l = l.next {
		n += l.members
	}
	return n
}

// waiting reports whether anybody in the lines of a key has been refused what it waits for.
func (q *Queue) waiting(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.lines[key]; l != nil; l = l.next {
		if l.waiting > 0 {
			return true
		}
	}
	return false
}

// Census is what a Queue keeps, in numbers: nothing when nobody waits.
type Census struct {
	Lines   int // keys that somebody waits for, or contends for
	Waiting int // keys of which somebody has been refused what it waits for
	Shared  int // results that somebody shares
}

// Census is for tests.
func (q *Queue) Census() Census {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := Census{Lines: len(q.lines), Shared: len(q.shared)}
	for _, l := range q.lines {
		for ; l != nil; l = l.next {
			if l.waiting > 0 {
				n.Waiting++
				break
			}
		}
	}
	return n
}
