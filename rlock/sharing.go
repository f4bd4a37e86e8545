package rlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/wait"
)

// The readers of one process share one read hold: to the server they are one owner, the same for all. So what a reader costs does not
// grow with the readers, and a process has one place in the queue for all that wait.
//
//	reader 1                   reader 2                 the server
//	asks at t            ----------------------------->  granted, no writer waits
//	holds as X until t + window others share X unasked
//	                           shares X: no call
//	                                                     writer W queues
//	                           at t + window + 1:
//	                           asks as Y, under X  ----> W waits: Y is queued; X is not renewed for newcomers
//	unlocks: one is left
//	                           (the last) unlocks ---->  X is released, W is served, then Y
//
// Who may share X without a call:
//
//   - who came before X was granted, or confirmed: it waited for that very answer (TestReadersThatWaitAreLetInTogether);
//   - who comes before the window is over. The window is counted from the send of the last call that was answered "no writer
//     waits". So a writer that queues is passed for at most the window, and no message has to say so. Counted from the answer's
//     arrival it would last for as long as that was delayed. A grant that came by message opens no window: it does not say
//     who else waits.
//
// Afterwards one reader asks, under X: if no writer waits, X does for it, too, and the window begins anew. Otherwise it is
// queued with an owner of its own, Y, which is the next to be shared, and X drains.
//
// X is released by its last holder. Whoever comes between the decision to release and the request finds the count at 0 and asks
// (session.Holding.Enter): it never shares a hold that is being given back
// (TestAReaderThatComesWhileTheLastOneLeavesHoldsTheLock).
//
// A fixed lease, a label and MaxHold are of one hold, so these readers, and those under a write hold, have owners and places of
// their own.
const (
	leastWindow = 2 * time.Millisecond
	mostWindow  = 10 * time.Millisecond
)

// sharing is what is known of the read holds of a client that are shared.
type sharing struct {
	mu sync.Mutex
	of map[string]*readers // by key, as long as there is something to know
}

type readers struct {
	own     *owner                // of the newest hold; nil: there is none
	opened  time.Time             // when its last confirmation was known
	admit   time.Time             // until when newcomers share it
	waiting int                   // writers of this process that wait
	behind  map[*acquisition]bool // readers that wait and have not asked
}

// edit has f change what is known of a key.
func (s *sharing) edit(key string, f func(r *readers)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[key]
	if r == nil {
		r = &readers{}
	}
	f(r)
	switch {
	case r.own == nil && r.waiting == 0 && len(r.behind) == 0:
		delete(s.of, key)
	case s.of == nil:
		s.of = map[string]*readers{key: r}
	default:
		s.of[key] = r
	}
}

// find returns the owner whose hold one that came at that time may share; nil: there is none.
func (s *sharing) find(key string, came time.Time) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[key]
	if r == nil || r.own == nil {
		return nil
	}
	if came.Before(r.opened) || r.waiting == 0 && time.Now().Before(r.admit) {
		return r.own
	}
	return nil
}

// current returns the owner of the newest hold; nil: there is none.
func (s *sharing) current(key string) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[key]; r != nil {
		return r.own
	}
	return nil
}

// open makes own's hold the one to share: it was granted or confirmed. All readers that wait behind the one that asked share it from
// now on, before any of them runs: the first may be through before the second is there.
//
//	contender                          the next, in line behind it        a writer
//	granted, X                                                            waits
//	works for a moment, unlocks: if
//	it were the last, X would be
//	released here
//	                                   finds no hold, asks: has to wait
//	                                   for that writer, though its phase
//	                                   had begun
func (s *sharing) open(key string, own *owner, admit time.Time) {
	s.edit(key, func(r *readers) {
		r.own, r.opened, r.admit = own, time.Now(), admit
		for a := range r.behind {
			if a.share(own) {
				delete(r.behind, a)
			}
		}
	})
}

// enlist says that a reader is going to stand behind those that ask.
func (s *sharing) enlist(a *acquisition) {
	s.edit(a.l.key, func(r *readers) {
		if r.behind == nil {
			r.behind = map[*acquisition]bool{}
		}
		r.behind[a] = true
	})
}

// leave says that it does so no more: it asks, or has given up. It reports whether it shares a hold.
func (s *sharing) leave(a *acquisition) (shares bool) {
	s.edit(a.l.key, func(r *readers) {
		delete(r.behind, a)
		shares = a.joined != nil
	})
	return shares
}

// close ends the window: somebody comes first.
func (s *sharing) close(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[key]; r != nil {
		r.admit = time.Time{}
	}
}

// drop forgets a hold that is released.
func (s *sharing) drop(key string, own *owner) {
	s.edit(key, func(r *readers) {
		if r.own == own {
			r.own = nil
		}
	})
}

// writers counts writers of this process that wait.
func (s *sharing) writers(key string, n int) {
	s.edit(key, func(r *readers) { r.waiting += n })
}

// share has the acquisition share the hold of own, which may be nil. It reports whether that is still to be had. For one that
// stands behind others it is called with sharing.mu held.
func (a *acquisition) share(own *owner) bool {
	e := a.l.c.engine
	if own == nil || e.Over(&own.Lease) != nil {
		return false
	}
	if _, err := own.Enter(own.Turn()); err != nil {
		return false
	}
	if !e.Auto(&own.Lease, a.lease) {
		own.Retreat(time.Time{})
		return false
	}
	a.joined = own
	return true
}

// beside is the owner under which the acquisition asks; nil: none.
func (a *acquisition) beside() *owner {
	if !a.shares {
		return nil
	}
	own := a.l.c.sharing.current(a.l.key)
	if own == nil || !own.Lasts() || a.l.c.engine.Over(&own.Lease) != nil {
		return nil
	}
	return own
}

// window notes for how long others may share what was granted to the acquisition by the call that it sent last. It is four round
// trips: a reader of four then waits for an answer, however far the server is, and a writer waits little longer.
func (a *acquisition) window(clear bool, received time.Time) {
	if a.reading == nil {
		return
	}
	a.admit = time.Time{}
	if clear {
		a.admit = a.sent.Add(min(max(4*received.Sub(a.sent), leastWindow), mostWindow))
	}
}

// shared takes in that the hold of own does for the acquisition, whose own owner has nothing on the server. If own's last holder
// has left meanwhile it asks once more, for itself alone.
func (a *acquisition) shared(ctx context.Context, standing *wait.Standing, own *owner, received time.Time) (wait.Answer, error) {
	if !a.share(own) {
		a.shares = false
		answer, err := a.ask(ctx, standing)
		a.shares = true
		return answer, err
	}
	a.window(true, received)
	a.l.c.sharing.open(a.l.key, own, a.admit)
	return wait.Answer{Granted: true}, nil
}

// keptOut notes that somebody comes first.
func (a *acquisition) keptOut() {
	switch {
	case a.l.kind.side == reader:
		a.l.c.sharing.close(a.l.key)
	case a.l.kind.side == writer && a.patient && !a.waits:
		a.waits = true
		a.l.c.sharing.writers(a.l.key, 1)
	}
}
