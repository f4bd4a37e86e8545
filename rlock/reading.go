package rlock

import "time"

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
// A fixed lease, a label and MaxHold are of one hold, so these readers, and those under a write hold, have owners and
// places of their own, and so has one that does not wait while another asks.
const (
	leastWindow = 2 * time.Millisecond
	mostWindow  = 10 * time.Millisecond
)

// joins has a reader join the tenure of its process, if it may without a call. Called with mu held.
func (s *tenancies) joins(y *tenancy) bool {
	if y.own == nil || s.now() >= y.until {
		return false
	}
	if w := s.of[tenancyKey{y.l.key, rwWrite}]; w != nil && w.asks != nil {
		return false
	}
	return s.enter(y.own)
}

// enter counts a reader in among those of own. It reports false if that is over.
func (s *tenancies) enter(own *owner) bool {
	c := own.lock.c
	if c.engine.Over(&own.Lease) != nil {
		return false
	}
	if err := own.Enter(own.Turn()); err != nil {
		return false
	}
	if !c.engine.Auto(&own.Lease, c.opts.WatchdogTimeout) {
		c.session.Finish(func() { own.Retreat(time.Time{}) }) // it may be the last, and tell the tenancy: mu is held
		return false
	}
	return true
}

// giveAll has all readers in line join the tenure that was granted. Called with mu held.
func (s *tenancies) giveAll(y *tenancy) {
	if y.l == nil || !y.l.kind.together {
		return
	}
	for y.first != nil && s.enter(y.own) {
		s.give(y, y.first, 0)
	}
	if y.first != nil { // it is over
		s.next(y)
	}
}

// under is the tenure under which a reader asks; nil: none.
func (s *tenancies) under(a *acquisition) *owner {
	if a.asks == nil || !a.l.kind.together {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	y := a.of
	if y.asks == nil || &y.asks.a != a || y.own == nil || !y.own.Lasts() || a.l.c.engine.Over(&y.own.Lease) != nil {
		return nil
	}
	return y.own
}

// window notes for how long others may join what was granted to a reader by the call that it sent last. It is four
// round trips: a reader of four then waits for an answer, however far the server is, and a writer waits little longer.
func (a *acquisition) window(unclaimed bool, received time.Time) {
	if a.asks != nil && a.l.kind.together && unclaimed {
		a.admit = a.sent.Add(min(max(4*received.Sub(a.sent), leastWindow), mostWindow)).Sub(a.l.c.tenancies.base)
	}
}
