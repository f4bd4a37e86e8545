package rlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wait"
)

// The process is the party on the server, and its callers share what it has there (lock cohorting: Dice, Marathe and
// Shavit, PPoPP 2012). For each lock whose waiters queue, a client has one tenure at a time: one owner, one lease, one
// place in the server's queue. Callers wait for their turns in one line inside the process, and come and go there
// without a word to the server.
//
//	                 refused: a goroutine waits in the server's queue
//	                  +-----+
//	                  |     v         granted
//	first caller --> asking ---------------------> held: turns follow each other, without a call
//	                  |  ^                          |        |
//	   last one leaves|  |   bound, and callers wait|        | last turn ends
//	                  v  +--------------------------+        v
//	           withdrawing    one call releases, and       released
//	                          queues the next tenure
//
//	caller A            caller B            server
//	asks  -------------------------------->  granted: the process's owner is X
//	works, as X
//	                    waits here
//	Unlock: its turn
//	is over; no call
//	                    works, as X
//	                    Unlock  ---------->  X is released
//
// The rules:
//
//  1. A turn is one caller's. Contexts and handles carry it, not only the owner: what a goroutine kept of an earlier
//     turn re-enters nothing, and gets ErrLost, though the owner still holds the lock.
//  2. The one who takes a turn looks at the clock, not only the one who gives it. If its context has ended, if less
//     than a quarter of the lease is trusted, or if turns may begin no more, the tenure ends and another is asked for.
//  3. Turns follow each other for 20 ms from the grant on. If others waited on the server then, or that is not known,
//     as many follow as callers waited here, and 32 at most. No message has to say that another process waits, so no
//     message is needed that could be lost: when a bound is reached the tenure ends by one call, which releases it and
//     puts the next into the server's queue, behind those that wait. If none does, that call grants the lock anew.
//  4. The terms of a caller (lease, label, MaxHold) are settled when it has its turn: see transfer.go. So a request
//     belongs to the process, and not to the caller with whose terms it began.
//  5. Whatever ends a tenure ends the turn that runs. Callers that wait stay, and another tenure is asked for.
//  6. The first request is made on the goroutine of the first caller, and ends with its patience. Once it is refused a
//     goroutine of the process makes the requests, and all callers wait for their turns. The last caller that leaves
//     withdraws the request. Each reply is read, so what is granted meanwhile is released as soon as that is known. A
//     caller that comes before that goes on with the request.
//  7. The call that names the next tenure is a request of that tenure: until its answer, or its not-after, no answer to
//     a release of that owner is final.
//
// A loss (DEL, FLUSHALL) is seen by tracking, by a renewal, or at the end of the tenure, so turns may begin for 20 ms
// after it.

const (
	// tenureTime and mostTurns bound how long a lock stays within a process.
	tenureTime = 20 * time.Millisecond
	mostTurns  = 32
	// spareCohorts bounds how many are kept for the next locks.
	spareCohorts = 64
)

// cohorts are those of a client.
type cohorts struct {
	mu     sync.Mutex
	base   time.Time
	of     map[cohortKey]*cohort // of locks that callers wait for
	free   []*cohort             // for the next: most locks are held for a moment
	passed int64                 // turns that followed another
}

type cohortKey struct {
	key  string
	kind *kind // Reentrant and Fenced locks of one name have each their own, and wait for each other on the server
}

// cohort is the callers of a client for one lock, with what the client has of the lock: it holds the lock (own), or
// requests it (contender); for reading, both may be the case. Guarded by cohorts.mu. A lock that is held, and has no
// waiter here, has no cohort, unless it is for reading: it must cost little, and the watchdog's map finds its owner
// (attach).
type cohort struct {
	l         *single
	callers   wait.List[*caller] // that wait for their turns
	turns     int32              // how many may follow; negative: any number. Kept during a transfer
	until     time.Duration      // after cohorts.base; none begins later, or none joins those that read
	own       *owner
	contender *contender
	seen      seen // by the contender, for callers that give up
}

func (y *cohort) key() cohortKey { return cohortKey{y.l.key, y.l.kind} }

// waits reports whether callers wait, and not only for the end of a client that was closed.
func (y *cohort) waits() bool {
	return y.callers.First() != nil && y.l.c.waiters.Ended(context.Background()) == nil
}

// caller is one call that waits for its turn. Guarded by cohorts.mu from join on.
type caller struct {
	wait.Links[*caller]
	l        *single
	ctx      context.Context
	began    time.Time
	until    time.Time // when it gives up; zero: only ctx says
	terms    terms
	auto     bool
	y        *cohort // in whose line it is; nil: in none
	wait     *wait.Caller
	reported bool          // an observer was told that it waits
	left     bool          // it gave up while it was asked for beside others: see reading.go
	own      *owner        // it has the turn
	by       time.Duration // and takes it by then; 0: it is the first of the tenure
	seen     seen
	err      error
}

// lease is what the caller was promised, in full.
func (x *caller) lease() time.Duration { return cmp.Or(x.terms.lease, x.l.c.opts.WatchdogTimeout) }

// contender is one request for a tenure, with an owner of its own.
type contender struct {
	acquisition
	of     *cohort
	wait   *wait.Caller // nil: it was granted
	caller *caller      // on whose terms, if they are those of a caller

	after        *owner        // of the last tenure, which the first request releases
	released     chan released // receives the result of that
	again        int           // how often it asked again soon
	othersWaited bool          // others may have waited when it was granted
	// Of readers:
	joined *owner        // the tenure that does for this one: it asked under it
	admit  time.Duration // after cohorts.base: until when others may join what was granted
}

// released is the result of a release of a tenure that is made with the request for the next.
type released struct {
	status releaseStatus
	err    error
}

// acquire waits for a turn, and makes its hold. room is for the request of the first caller, to be one piece of memory
// with it.
func (s *cohorts) acquire(x *caller, room *contender) (h *Hold, last seen, err error) {
	for front := false; ; front = true {
		if err = s.takeTurn(x, room, front); err != nil {
			return nil, x.seen, err
		}
		if h, err = s.take(x); h != nil || err != nil {
			return h, x.seen, err
		}
		room = nil
	}
}

// takeTurn waits until x has its turn, first of those that wait if front.
func (s *cohorts) takeTurn(x *caller, room *contender, front bool) error {
	s.mu.Lock()
	y := s.of[cohortKey{x.l.key, x.l.kind}]
	if y == nil {
		y = s.attach(x.l)
	}
	if y == nil {
		y = s.open(x.l)
	}
	switch {
	case y.contender == nil && x.shares() && s.joins(y):
		x.own, x.by, x.err = y.own, 0, nil
		s.mu.Unlock()
		return nil
	case y.contender == nil && (y.own == nil || x.l.kind.together):
		q := y.begin(x, room)
		y.join(x, false)
		q.enter(x.ctx)
		s.mu.Unlock()
		s.askHere(x, q)
	case x.terms.wait == 0:
		s.mu.Unlock()
		return errAsked
	default:
		y.join(x, front)
		s.mu.Unlock()
		if !x.l.c.clustered { // in a Cluster a channel serves one key
			x.l.c.waiters.Listen(x.l.grantsHere())
		}
	}
	return s.await(x)
}

// errAsked: another caller asks at this moment, so one that does not wait asks for itself.
var errAsked = errors.New("another caller asks")

// open makes the cohort of a lock. Called with mu held.
func (s *cohorts) open(l *single) (y *cohort) {
	if n := len(s.free); n > 0 {
		y, s.free = s.free[n-1], s.free[:n-1]
	} else {
		y = &cohort{}
	}
	if s.of == nil {
		s.of = map[cohortKey]*cohort{}
	}
	y.l = l
	s.of[y.key()] = y
	return y
}

// tenure is how long the callers of this process follow each other.
func (l *single) tenure() time.Duration {
	if l.kind.tenure != nil {
		return l.kind.tenure(l)
	}
	return tenureTime
}

// attach makes the cohort of a lock that this process holds, and has no waiter for; nil: it does not hold it. Called
// with mu held.
//
// An owner that is on its way out is either found, and tells the cohort when it is (release, Gone), or is not found
// any more: the session takes it out of the watchdog before it sends the release, and ends a holding before it calls
// Gone, which waits for mu.
func (s *cohorts) attach(l *single) *cohort {
	if l.kind.together {
		return nil
	}
	held := l.c.engine.First(l.key, func(e *lease.Lease) bool {
		own, ok := e.Of.(*owner)
		return ok && own.Follows() && own.lock.kind == l.kind
	})
	if held == nil || !held.Of.(*owner).Lasts() {
		return nil
	}
	y := s.open(l)
	y.has(held.Of.(*owner), -1, held.Of.(*owner).until)
	return y
}

// has says that own is that of the tenure. Called with mu held.
func (y *cohort) has(own *owner, turns int32, until time.Duration) {
	y.contender, y.own, y.turns, y.until = nil, own, turns, until
	own.until = until
}

// cohortOf is the cohort of which own is the tenure; nil: there is none. Called with mu held.
func (s *cohorts) cohortOf(own *owner) *cohort {
	y := s.of[cohortKey{own.lock.key, own.lock.kind}]
	if y == nil || y.own != own {
		return nil
	}
	return y
}

// drop ends a cohort without waiters. Called with mu held.
func (s *cohorts) drop(y *cohort) {
	if own := y.own; own != nil && y.turns >= 0 { // others wait on the server, and callers come later than they
		own.BarNext()
	}
	delete(s.of, y.key())
	*y = cohort{}
	if len(s.free) < spareCohorts {
		s.free = append(s.free, y)
	}
}

// join puts a caller into the line: behind the others, or before them.
func (y *cohort) join(x *caller, front bool) {
	x.y, x.own, x.err = y, nil, nil
	y.callers.Add(x, front)
	if x.wait != nil { // a reader that left the line for a call which did not let it in
		return
	}
	l := x.l
	r := wait.Request{Name: l.name, Of: l, Began: x.began, Until: x.until, QueueKey: l.key, Manner: l.kind.title,
		Mode: wait.Turn, Reported: x.reported}
	if y.own != nil && !l.kind.together {
		r.FreeBy = l.c.engine.Until(&y.own.Lease)
	}
	x.wait = l.c.waiters.Enter(x.ctx, r)
}

// part takes a caller out of the line.
func (y *cohort) part(x *caller) {
	y.callers.Remove(x)
	x.y, x.seen = nil, y.seen
}

// begin makes the request for the first in the line. It asks when run, or askHere, is called.
func (y *cohort) begin(x *caller, q *contender) *contender {
	if q == nil {
		q = &contender{}
	}
	y.seen = seen{}
	q.of, q.caller = y, x
	q.acquisition = acquisition{l: x.l, ctx: x.ctx, began: time.Now(), auto: x.auto, lease: x.lease(),
		label: x.terms.label, contender: q}
	q.patient = x.terms.wait != 0
	q.own = q.newOwner()
	y.contender = q
	return q
}

// enter begins the wait of the request. A request that is made once has no place in the server's queue.
func (q *contender) enter(ctx context.Context) {
	l := q.l
	r := wait.Request{Name: l.name, Of: l, Began: q.began, QueueKey: l.key, Manner: l.kind.title, Channel: l.channel,
		Mode: wait.Cohort, Taker: q}
	if q.patient {
		r.Grants = l.grantsHere()
	}
	q.wait = l.c.waiters.Enter(ctx, r)
}

// askHere makes the first request on the goroutine of the first caller. If it is refused, another goroutine goes on.
func (s *cohorts) askHere(x *caller, q *contender) {
	done, err := q.wait.Try(x.until)
	switch {
	case !done:
		s.run(q)
	case wait.DidGiveUp(err):
		s.mu.Lock()
		x.serve(nil, 0, err)
		s.mu.Unlock()
		s.failed(q, errWithdrawn)
	default:
		s.finish(q, err)
	}
}

// run has a goroutine ask, for whoever is first in line when it is granted.
func (s *cohorts) run(q *contender) {
	ctx := context.WithoutCancel(q.ctx)
	if q.wait == nil {
		q.enter(ctx)
	}
	q.l.c.session.Finish(func() { s.finish(q, q.wait.Contend(ctx)) })
}

// forAnyone has the request be on the terms that all callers can be given. Not called while an Ask is under way.
func (q *contender) forAnyone() {
	c := q.l.c
	q.caller, q.lease, q.short, q.auto = nil, c.opts.WatchdogTimeout, c.firstLease(), true
	c.engine.Longest(&q.own.Lease, q.lease)
}

// next asks for the next tenure, if anybody waits for it. Called with mu held.
func (s *cohorts) next(y *cohort) {
	switch {
	case y.waits():
		q := y.begin(y.callers.First(), nil)
		q.forAnyone()
		s.run(q)
	case y.own == nil && y.callers.First() == nil:
		s.drop(y)
	}
}

// errWithdrawn: no caller waits for the request any more.
var errWithdrawn = errors.New("no caller waits")

// Ask implements wait.Taker. It returns errWithdrawn if no caller waits for the request. A request that ends another
// owner is made all the same. After the caller has left on whose terms the request began, the request is on the terms
// of all.
func (q *contender) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	s, y := &q.l.c.cohorts, q.of
	s.mu.Lock()
	isWanted := y.callers.First() != nil
	hasLeft := q.caller != nil && q.caller.y != y
	s.mu.Unlock()
	switch {
	case q.after != nil:
		return q.askAfter(ctx, entry)
	case q.from != nil:
	case !isWanted:
		return wait.Answer{}, errWithdrawn
	case hasLeft:
		q.forAnyone()
	}
	return q.ask(ctx, entry, s.under(q))
}

// finish takes in how the wait of a request has ended.
func (s *cohorts) finish(q *contender, err error) {
	if err != nil {
		s.failed(q, err)
		return
	}
	if q.handed { // with the first lease, whoever asked
		q.forAnyone()
	}
	y, own := q.of, q.own
	s.mu.Lock()
	q.wait.Leave()
	q.wait = nil
	s.mu.Unlock()
	q.waited()
	if q.joined != nil {
		own = q.joined
		q.own.Abandon(q.unanswered, q.entry)
	} else {
		err = q.keep()
	}
	s.mu.Lock()
	if err == nil && y.callers.First() != nil {
		s.granted(q, own)
		s.mu.Unlock()
		return
	}
	y.contender = nil // not to be used, or all have left
	s.next(y)
	s.mu.Unlock()
	if err == nil {
		own.Decline()
	}
}

// failed is finish of a request that was not granted.
//
//	last caller          the goroutine that asks               another caller
//	leaves: wakes it
//	                                                           comes: joins the line
//	                     wakes: goes on for that caller
//
// So the process keeps its place in the server's queue though there was a moment without callers.
func (s *cohorts) failed(q *contender, err error) {
	y, withdrawn := q.of, errors.Is(err, errWithdrawn)
	s.mu.Lock()
	if withdrawn && y.waits() && q.patient {
		s.run(q)
		s.mu.Unlock()
		return
	}
	y.contender = nil
	for x := y.callers.First(); x != nil && !withdrawn; x = y.callers.First() {
		x.serve(nil, 0, err)
	}
	s.next(y)
	s.mu.Unlock()
	q.wait.Leave()
	q.waited()
	_ = q.failed(err) // for what it gives back: no caller waits for the error
}

// granted gives the tenure to the callers in line. Called with mu held.
func (s *cohorts) granted(q *contender, own *owner) {
	y := q.of
	x := y.callers.First()
	if q.l.kind.together && x == q.caller && !x.shares() {
		y.contender = nil
		x.serve(own, 0, nil)
		s.next(y)
		return
	}
	turns, until := int32(-1), s.now()+q.l.tenure()
	switch {
	case q.l.kind.together:
		until = q.admit
	case q.moved: // the tenure goes on
		turns, until = y.turns, y.until
		s.passed++
	case q.othersWaited:
		turns = min(y.callers.Len()-1, mostTurns)
	}
	y.has(own, turns, until)
	switch {
	case q.l.kind.together:
		s.read(y, own, q.caller == nil || q.caller.shares())
	case x == q.caller, s.suits(own, x): // or it was asked for on the terms of x
		s.give(y, x, 0)
	default:
		s.transfer(y)
	}
}

// now is after base, and never 0.
func (s *cohorts) now() time.Duration { return time.Since(s.base) + 1 }

// count returns how many turns followed another.
func (s *cohorts) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed
}
