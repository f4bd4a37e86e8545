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
	// spareTenancies bounds how many are kept for the next locks.
	spareTenancies = 64
)

// tenancies are those of a client.
type tenancies struct {
	mu     sync.Mutex
	base   time.Time
	of     map[tenancyKey]*tenancy // of locks that callers wait for
	free   []*tenancy              // for the next: most locks are held for a moment
	passed int64                   // turns that followed another
}

type tenancyKey struct {
	key  string
	kind *kind // Reentrant and Fenced locks of one name have each their own, and wait for each other on the server
}

// tenancy is what a client has of one lock that callers wait for: it holds it (own), or it asks (asks); for reading, it
// may ask while it holds. Guarded by tenancies.mu. A lock that is held, and has no waiter here, has none,
// unless it is for reading: it must cost little, and the watchdog's map finds its owner (attach).
type tenancy struct {
	l       *single
	callers wait.List[*caller] // those that wait for their turns
	turns   int32              // how many may follow the one that runs; negative: any number. Kept during a transfer
	until   time.Duration      // after tenancies.base; none begins later, or none joins those that read
	own     *owner
	asks    *asking
	seen    seen // by the request, for callers that give up
}

func (y *tenancy) key() tenancyKey { return tenancyKey{y.l.key, y.l.kind} }

// waits reports whether callers wait, and not only for the end of a client that was closed.
func (y *tenancy) waits() bool {
	return y.callers.First() != nil && y.l.c.waiters.Ended(context.Background()) == nil
}

// caller is one call that waits for its turn. Guarded by tenancies.mu from join on.
type caller struct {
	wait.Links[*caller]
	l        *single
	ctx      context.Context
	began    time.Time
	until    time.Time // when it gives up; zero: only ctx says
	terms    terms
	auto     bool
	y        *tenancy // in whose line it is; nil: in none
	w        *wait.Caller
	reported bool          // an observer was told that it waits
	left     bool          // it gave up while it was asked for beside others: see reading.go
	own      *owner        // it has the turn
	by       time.Duration // and takes it by then; 0: it is the first of the tenure
	seen     seen
	err      error
}

// lease is what the caller was promised, in full.
func (x *caller) lease() time.Duration { return cmp.Or(x.terms.lease, x.l.c.opts.WatchdogTimeout) }

// asking is one request for a tenure.
type asking struct {
	a    acquisition
	asks asks
	w    *wait.Caller // nil: it was granted
	x    *caller      // on whose terms, if they are those of a caller
	once bool         // it is one try, for a caller that does not wait
}

// handOn is the release of a tenure that is made with the request for the next.
type handOn struct {
	own  *owner
	done chan handedOn
}

type handedOn struct {
	status releaseStatus
	err    error
}

// acquire waits for a turn, and makes its hold. room is for the request of the first caller, to be one piece of memory
// with it.
func (s *tenancies) acquire(x *caller, room *asking) (h *Hold, last seen, err error) {
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
func (s *tenancies) takeTurn(x *caller, room *asking, front bool) error {
	s.mu.Lock()
	y := s.of[tenancyKey{x.l.key, x.l.kind}]
	if y == nil {
		y = s.attach(x.l)
	}
	if y == nil {
		y = s.open(x.l)
	}
	switch {
	case y.asks == nil && x.shares() && s.joins(y):
		x.own, x.by, x.err = y.own, 0, nil
		s.mu.Unlock()
		return nil
	case y.asks == nil && (y.own == nil || x.l.kind.together):
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

// open makes the tenancy of a lock. Called with mu held.
func (s *tenancies) open(l *single) (y *tenancy) {
	if n := len(s.free); n > 0 {
		y, s.free = s.free[n-1], s.free[:n-1]
	} else {
		y = &tenancy{}
	}
	if s.of == nil {
		s.of = map[tenancyKey]*tenancy{}
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

// attach makes the tenancy of a lock that this process holds, and has no waiter for; nil: it does not hold it. Called
// with mu held.
//
// An owner that is on its way out is either found, and tells the tenancy when it is (release, Gone), or is not found
// any more: the session takes it out of the watchdog before it sends the release, and ends a holding before it calls
// Gone, which waits for mu.
func (s *tenancies) attach(l *single) *tenancy {
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
func (y *tenancy) has(own *owner, turns int32, until time.Duration) {
	y.asks, y.own, y.turns, y.until = nil, own, turns, until
	own.until = until
}

// tenancyOf is the tenancy of which own is the tenure; nil: there is none. Called with mu held.
func (s *tenancies) tenancyOf(own *owner) *tenancy {
	y := s.of[tenancyKey{own.lock.key, own.lock.kind}]
	if y == nil || y.own != own {
		return nil
	}
	return y
}

// drop ends a tenancy without waiters. Called with mu held.
func (s *tenancies) drop(y *tenancy) {
	if own := y.own; own != nil && y.turns >= 0 { // others wait on the server, and callers come later than they
		own.BarNext()
	}
	delete(s.of, y.key())
	*y = tenancy{}
	if len(s.free) < spareTenancies {
		s.free = append(s.free, y)
	}
}

// join puts a caller into the line: behind the others, or before them.
func (y *tenancy) join(x *caller, front bool) {
	x.y, x.own, x.err = y, nil, nil
	y.callers.Add(x, front)
	if x.w != nil { // a reader that left the line for a call which did not let it in
		return
	}
	l := x.l
	r := wait.Request{Name: l.name, Of: l, Began: x.began, Until: x.until, QueueKey: l.key, Manner: l.kind.title,
		Mode: wait.Turn, Reported: x.reported}
	if y.own != nil && !l.kind.together {
		r.FreeBy = l.c.engine.Until(&y.own.Lease)
	}
	x.w = l.c.waiters.Enter(x.ctx, r)
}

// part takes a caller out of the line.
func (y *tenancy) part(x *caller) {
	y.callers.Remove(x)
	x.y, x.seen = nil, y.seen
}

// begin makes the request for the first in the line. It asks when run, or askHere, is called.
func (y *tenancy) begin(x *caller, q *asking) *asking {
	if q == nil {
		q = &asking{}
	}
	y.seen = seen{}
	q.x, q.once = x, x.terms.wait == 0
	q.asks = asks{of: y}
	q.a = acquisition{l: x.l, ctx: x.ctx, began: time.Now(), auto: x.auto, lease: x.lease(), label: x.terms.label,
		asks: &q.asks}
	q.a.patient = !q.once
	q.a.once = x.l.kind.together
	q.a.own = q.a.newOwner()
	y.asks = q
	return q
}

// enter begins the wait of the request. A request that is made once has no place in the server's queue.
func (q *asking) enter(ctx context.Context) {
	l := q.a.l
	r := wait.Request{Name: l.name, Of: l, Began: q.a.began, QueueKey: l.key, Manner: l.kind.title, Channel: l.channel,
		Mode: wait.Cohort, Taker: &q.a}
	if !q.once {
		r.Grants = l.grantsHere()
	}
	q.w = l.c.waiters.Enter(ctx, r)
}

// askHere makes the first request on the goroutine of the first caller. If it is refused, another goroutine goes on.
func (s *tenancies) askHere(x *caller, q *asking) {
	done, err := q.w.Try(x.until)
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
func (s *tenancies) run(q *asking) {
	ctx := context.WithoutCancel(q.a.ctx)
	if q.w == nil {
		q.enter(ctx)
	}
	q.a.l.c.session.Finish(func() { s.finish(q, q.w.Contend(ctx)) })
}

// forAnyone has the request be on the terms that all callers can be given. Not called while an Ask is under way.
func (q *asking) forAnyone() {
	c := q.a.l.c
	q.x, q.a.lease, q.a.short, q.a.auto = nil, c.opts.WatchdogTimeout, c.firstLease(), true
	c.engine.Longest(&q.a.own.Lease, q.a.lease)
}

// next asks for the next tenure, if anybody waits for it. Called with mu held.
func (s *tenancies) next(y *tenancy) {
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

// goesOn returns errWithdrawn if no caller waits for the request. A request that ends another owner is made all the
// same. After the caller has left on whose terms the request began, the request is on the terms of all.
func (s *tenancies) goesOn(a *acquisition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := a.of.asks
	switch {
	case a.after != nil || a.from != nil:
	case a.of.callers.First() == nil:
		return errWithdrawn
	case q.x != nil && q.x.y != a.of:
		q.forAnyone()
	}
	return nil
}

// finish takes in how the wait of a request has ended.
func (s *tenancies) finish(q *asking, err error) {
	if err != nil {
		s.failed(q, err)
		return
	}
	if q.a.handed { // with the first lease, whoever asked
		q.forAnyone()
	}
	y, own := q.a.of, q.a.own
	s.mu.Lock()
	q.w.Leave()
	q.w = nil
	s.mu.Unlock()
	q.a.waited()
	if q.a.joined != nil {
		own = q.a.joined
		q.a.own.Abandon(q.a.unanswered, q.a.entry)
	} else {
		err = q.a.keep()
	}
	s.mu.Lock()
	if err == nil && y.callers.First() != nil {
		s.granted(q, own)
		s.mu.Unlock()
		return
	}
	y.asks = nil // not to be used, or all have left
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
func (s *tenancies) failed(q *asking, err error) {
	y, withdrawn := q.a.of, errors.Is(err, errWithdrawn)
	s.mu.Lock()
	if withdrawn && y.waits() && !q.once {
		s.run(q)
		s.mu.Unlock()
		return
	}
	y.asks = nil
	for x := y.callers.First(); x != nil && !withdrawn; x = y.callers.First() {
		x.serve(nil, 0, err)
	}
	s.next(y)
	s.mu.Unlock()
	q.w.Leave()
	q.a.waited()
	_ = q.a.failed(err) // for what it gives back: no caller waits for the error
}

// granted gives the tenure to the callers in line. Called with mu held.
func (s *tenancies) granted(q *asking, own *owner) {
	y := q.a.of
	x := y.callers.First()
	if q.a.l.kind.together && x == q.x && !x.shares() {
		y.asks = nil
		x.serve(own, 0, nil)
		s.next(y)
		return
	}
	turns, until := int32(-1), s.now()+q.a.l.tenure()
	switch {
	case q.a.l.kind.together:
		until = q.a.admit
	case q.a.moved: // the tenure goes on
		turns, until = y.turns, y.until
		s.passed++
	case q.a.othersWaited:
		turns = min(y.callers.Len()-1, mostTurns)
	}
	y.has(own, turns, until)
	switch {
	case q.a.l.kind.together:
		s.read(y, own, q.x == nil || q.x.shares())
	case x == q.x, s.suits(own, x): // or it was asked for on the terms of x
		s.give(y, x, 0)
	default:
		s.transfer(y)
	}
}

// now is after base, and never 0.
func (s *tenancies) now() time.Duration { return time.Since(s.base) + 1 }

// count returns how many turns followed another.
func (s *tenancies) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed
}
