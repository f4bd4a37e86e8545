package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// How a caller waits for its turn, takes it, and gives it to the next: see cohort.go.

// give gives a caller its turn. Called with mu held.
func (s *cohorts) give(y *cohort, x *caller, by time.Duration) {
	x.serve(y.own, by, nil)
	if y.callers.First() == nil && !y.l.kind.together {
		s.drop(y)
	}
}

// serve ends the wait of a caller: it has its turn, or an error. Called with mu held.
func (x *caller) serve(own *owner, by time.Duration, err error) {
	if x.y != nil {
		x.y.part(x)
	}
	x.own, x.by, x.err = own, by, err
	x.wait.Wake()
}

// await waits until the caller has its turn, or an error, or is out of patience.
func (s *cohorts) await(x *caller) (gaveUp error) {
	s.mu.Lock()
	if x.own == nil && x.err == nil {
		s.mu.Unlock()
		gaveUp = x.wait.Await()
		s.mu.Lock()
		x.reported = true
	}
	defer s.mu.Unlock()
	x.wait.Leave()
	x.wait = nil
	y := x.y
	switch {
	case x.own != nil || x.err != nil:
		return x.err
	case y == nil:
		x.left = true
		return gaveUp
	}
	y.part(x)
	switch q := y.contender; {
	case y.callers.First() != nil:
	case q == nil:
		s.drop(y)
	case q.wait != nil:
		q.wait.Wake() // it withdraws the request
	}
	return gaveUp
}

// take makes the hold of a caller that has its turn. It returns neither if the turn cannot be used: the caller waits
// on, as the first.
//
//	A                               B                        server
//	Unlock: gives B its turn
//	                                (the machine is paused)
//	                                                         the lease ends; another process holds the lock
//	                                wakes: takes its turn
//
// So B looks at the clock by itself (rule 2).
func (s *cohorts) take(x *caller) (*Hold, error) {
	c, own := x.l.c, x.own
	if err := c.waiters.Ended(x.ctx); err != nil {
		own.Decline()
		return nil, &wait.GaveUp{Left: -1, Cause: err}
	}
	if x.by != 0 {
		if s.now() >= x.by || !c.engine.Lasting(&own.Lease) {
			own.Decline()
			return nil, nil
		}
	}
	h, err := own.Take(x.auto)
	if err != nil {
		own.Decline()
		return nil, nil
	}
	return newHold(h), nil
}

// Next implements session.Follower: a turn has ended, and another caller has the tenure if it may.
func (o *owner) Next(known bool) bool {
	c := o.lock.c
	s := &c.cohorts
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.cohortOf(o)
	if y == nil || !y.waits() || o.keep.Load() != 0 || !c.engine.Lasting(&o.Lease) {
		return false
	}
	if y.turns == 0 || s.now() >= y.until {
		return false
	}
	y.turns--
	x := y.callers.First()
	if known || !s.suits(o, x) {
		s.transfer(y)
		return true
	}
	s.passed++
	s.give(y, x, y.until)
	return true
}

// Gone implements session.Follower.
func (o *owner) Gone() {
	s := &o.lock.c.cohorts
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone(o)
}

// gone is Gone, called with mu held.
func (s *cohorts) gone(o *owner) {
	if y := s.cohortOf(o); y != nil {
		y.own = nil
		if y.contender == nil {
			s.next(y)
		}
	}
}

// release ends a tenure on the server. If callers wait, the call asks for the next tenure, too.
func (s *cohorts) release(ctx context.Context, o *owner) (releaseStatus, error) {
	l := o.lock
	s.mu.Lock()
	y := s.cohortOf(o)
	if y != nil && (!y.waits() || l.kind.together) { // readers have asked already
		s.gone(o)
		y = nil
	}
	if y == nil {
		s.mu.Unlock()
		return l.runRelease(ctx, o.Lease.Owner, o.Entry())
	}
	y.own = nil
	q := y.begin(y.callers.First(), nil)
	q.forAnyone()
	q.after, q.released = o, make(chan released, 1)
	s.run(q)
	s.mu.Unlock()
	select {
	case r := <-q.released:
		return r.status, r.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: release of %q: %w", errs.ErrUnknownOutcome, l.name, errs.Cut(errs.Ended(ctx)))
	}
}
