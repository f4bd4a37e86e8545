package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// How a caller waits for its turn, takes it, and gives it to the next: see tenancy.go.

// give gives a caller its turn. Called with mu held.
func (s *tenancies) give(y *tenancy, x *caller, by time.Duration) {
	y.part(x)
	x.own, x.by = y.own, by
	x.wake()
	if y.first == nil && !y.l.kind.together {
		s.drop(y)
	}
}

func (x *caller) wake() {
	if x.came != nil {
		select {
		case x.came <- struct{}{}:
		default:
		}
	}
}

// await waits until the caller has its turn, or an error, or is out of patience.
func (s *tenancies) await(x *caller) error {
	c := x.l.c
	s.mu.Lock()
	if x.own != nil || x.err != nil {
		s.mu.Unlock()
		c.waiters.Unlist(&x.call) // its turn came after it had joined, and before it was listed
		return x.err
	}
	if x.came == nil {
		x.came = make(chan struct{}, 1)
	}
	s.mu.Unlock()
	defer c.waiters.Unlist(&x.call)
	c.waiters.Tell(&x.call)
	var late <-chan time.Time
	if !x.call.Until.IsZero() {
		t := time.NewTimer(time.Until(x.call.Until))
		defer t.Stop()
		late = t.C
	}
	var gaveUp error
	for came := true; came; {
		select {
		case <-x.came: // perhaps that of an earlier turn, which was seen without it
		case <-late:
			came = false
		case <-x.call.Ctx.Done():
			came = false
		case <-c.waiters.Context().Done():
			came = false
		}
		s.mu.Lock()
		if known := x.known; !came { // a reader may be put into another line meanwhile
			s.mu.Unlock()
			gaveUp = c.waiters.GaveUp(x.call.Ctx, &known.group)
			s.mu.Lock()
		}
		if x.own != nil || x.err != nil {
			s.mu.Unlock()
			c.session.Tell(x.call.Ctx, errs.Event{Kind: errs.EventWoken, Name: x.l.name, ByMessage: true})
			return x.err
		}
		if came {
			s.mu.Unlock()
		}
	}
	defer s.mu.Unlock()
	y := x.y
	if y == nil {
		x.left = true
		return gaveUp
	}
	y.part(x)
	switch q := y.asks; {
	case q != nil && y.first == nil: // the first caller, while it asks for itself, is in the line
		q.cancel()
	case y.first == nil:
		s.drop(y)
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
func (s *tenancies) take(x *caller) (*Hold, error) {
	c, own := x.l.c, x.own
	if err := c.waiters.Ended(x.call.Ctx); err != nil {
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
	s := &c.tenancies
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.tenancyOf(o)
	if y == nil || y.first == nil || o.keep.Load() != 0 || !c.engine.Lasting(&o.Lease) {
		return false
	}
	if y.turns == 0 || s.now() >= y.until {
		return false
	}
	y.turns--
	if known || !s.suits(o, y.first) {
		s.transfer(y)
		return true
	}
	s.passed++
	s.give(y, y.first, y.until)
	return true
}

// Gone implements session.Follower.
func (o *owner) Gone() {
	s := &o.lock.c.tenancies
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone(o)
}

// gone is Gone, called with mu held.
func (s *tenancies) gone(o *owner) {
	if y := s.tenancyOf(o); y != nil {
		y.own = nil
		if y.asks == nil {
			s.next(y)
		}
	}
}

// release ends a tenure on the server. If callers wait, the call asks for the next tenure, too.
func (s *tenancies) release(ctx context.Context, o *owner) (releaseStatus, error) {
	l := o.lock
	s.mu.Lock()
	y := s.tenancyOf(o)
	if y != nil && (y.first == nil || l.kind.together) { // readers have asked already
		s.gone(o)
		y = nil
	}
	if y == nil {
		s.mu.Unlock()
		return l.runRelease(ctx, o.Lease.Owner, o.Entry())
	}
	y.own = nil
	q := y.begin(y.first, nil)
	h := &handOn{own: o, done: make(chan handedOn, 1)}
	q.a.after = h
	s.run(q)
	s.mu.Unlock()
	select {
	case r := <-h.done:
		if r.unsent {
			return l.runRelease(ctx, o.Lease.Owner, o.Entry())
		}
		return r.status, r.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: release of %q: %w", errs.ErrUnknownOutcome, l.name, errs.Cut(errs.Ended(ctx)))
	}
}
