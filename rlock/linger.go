package rlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// WithLinger returns the same lock, which stays with this process for d after an Unlock, unless another caller waits
// for it: the next Lock of the process has it without a call, a hundred times as fast. It is for work with affinity,
// such as one worker that locks the same name for each item of its own queue. d is at most 20 ms; 0 is the default:
// Unlock releases the lock.
//
// The price:
//
//   - A process that comes meanwhile waits for what is left of d, and for 20 ms from the grant on at most, whatever
//     callers of this process do. If others waited when the lock was granted it does not linger, so where processes
//     contend all is as without it.
//   - Unlock returns before the server has confirmed it, and TryLock and IsLocked of others find the lock taken.
//   - A process that dies meanwhile leaves the lock to its lease.
//   - A loss that the process does not know of yet, such as a DEL, is found at the end of those 20 ms.
//
// What cannot be another caller's does not linger: holds with a lease or label of their own, those whose Owner was
// asked for, that were extended, or ended by UnlockAfter, and all with Options.MaxHold. Close releases what lingers. If
// d is out of bounds, or the lock is neither Reentrant nor NonReentrant, every call on the result returns
// ErrInvalidOption.
func (l *Lock) WithLinger(d time.Duration) *Lock {
	s, ok := l.form.(*single)
	switch {
	case d < 0 || d > tenureTime:
		return l.with(l.terms, errs.InvalidOption("linger", d, "0 to 20ms"))
	case d > 0 && (!ok || !s.kind.lingers):
		return l.with(l.terms, errs.InvalidOption("linger", d, "0: only Reentrant and NonReentrant locks linger"))
	case !ok || d == s.linger():
		return l
	}
	s.c.tenancies.linger.used.Store(true)
	m := *s
	m.rare = &rare{linger: d}
	x := m.asLock(l.bad)
	x.terms = l.terms
	return x
}

// lingering is what a client knows of tenures that linger: they are idle, which is to say that no caller has a turn,
// and none waits.
//
//	this process                              another process
//	Unlock: no waiter, idle from t on
//	                                          asks: held; queues
//	Lock: a turn, without a call
//	Unlock: idle again
//	t + d, or 20 ms after the grant:
//	releases  ------------------------------> is granted
//	Lock: asks, behind the other; is granted
//	with the other in the queue, or by it:
//	does not linger
type lingering struct {
	used   atomic.Bool // some lock of the client lingers
	closed bool        // guarded by tenancies.mu: the client closes
}

// resume begins a turn of a tenure that lingers. It returns neither if there is none that can be used.
func (s *tenancies) resume(ctx context.Context, l *single, t terms, auto, part bool) (*Hold, error) {
	s.mu.Lock()
	y := s.of[tenancyKey{l.key, l.kind}]
	if y == nil || y.idle == 0 {
		s.mu.Unlock()
		return nil, nil
	}
	x := caller{l: l, terms: t, auto: auto, part: part, call: wait.Call{Name: l.name, Ctx: ctx}}
	if x.personal() {
		s.surrender(y)
		s.mu.Unlock()
		return nil, nil
	}
	s.wakeUp(y, &x)
	s.mu.Unlock()
	return s.take(&x)
}

// wakeUp gives a caller a turn of a tenure that is idle. Called with mu held.
func (s *tenancies) wakeUp(y *tenancy, x *caller) {
	x.own, x.by, x.err = y.own, y.until, nil
	y.idle, y.linger = 0, x.l.linger()
}

// lingers makes a tenure idle whose turn has ended, if it may be. Called with mu held.
func (s *tenancies) lingers(y *tenancy) bool {
	if y.linger == 0 || s.linger.closed || s.now() >= y.until {
		return false
	}
	y.idle = s.now()
	if !y.armed {
		s.arm(y)
	}
	return true
}

// arm has a tenure that is idle end in time. One timer is under way at most, and looks again if there were turns since.
// Called with mu held.
func (s *tenancies) arm(y *tenancy) {
	own := y.own
	y.armed = true
	time.AfterFunc(min(y.idle+y.linger, y.until)-s.now(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if y.own != own { // over, and y may be another's
			return
		}
		y.armed = false
		switch {
		case y.idle == 0:
		case s.now() >= min(y.idle+y.linger, y.until):
			s.surrender(y)
		default:
			s.arm(y)
		}
	})
}

// surrender ends a tenure that is idle. Called with mu held.
func (s *tenancies) surrender(y *tenancy) {
	own := y.own
	own.tenancy, y.own, y.idle, y.armed = nil, nil, 0, false
	s.drop(y)
	own.lock.c.session.Finish(own.Decline)
}

// closes releases what lingers; nothing does any more.
func (s *tenancies) closes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linger.closed = true
	for _, y := range s.of {
		if y.idle != 0 {
			s.surrender(y)
		}
	}
}
