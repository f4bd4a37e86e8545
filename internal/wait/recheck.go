package wait

import (
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Rechecker is a Taker for which the server can be asked, together with other waiters of the process, whether anything
// has changed since its last answer. Such a question is a small part of a call, and the waiter sleeps on meanwhile, so
// it takes the place of most polls where many wait, each for something else:
//
//	waiters                                          server
//	1 to 64: each sleeps for a PollCap
//	a question for all of them ---------------->     all is as it was, but for 7: each place is stamped
//	1 to 6, 8 to 64 sleep for another PollCap
//	7 asks by itself ------------------------->      is granted, refused, given another place
//
// Where an answer is lost or late the waiter asks by itself a PollCap later. A grant ends the sleep at any moment: the
// question changes nothing that a grant depends on. An answer that comes after the wait has ended is not read.
type Rechecker interface {
	// Recheck has the server asked whether what is waited for is still another's, and the waiter still has the place with
	// this ticket, which is stamped then. It neither blocks nor calls the Waiters, and calls answered, once, unless it
	// returns false: then that cannot be found out so. left is how long it is until enough leases are over for the waiter;
	// negative: not known.
	Recheck(s QueueEntry, ticket int64, answered func(same bool, left time.Duration)) bool
}

const (
	// recheckFrom is how many waiters of a process must have places on the server for their polls to be made together.
	recheckFrom = 64
	// askEvery is how often a waiter asks by itself all the same: that moves the end of the server's queue on, and learns
	// who the holder is, and for how long.
	askEvery = 20 * time.Second
	// askAmongEvery is the same for a waiter of a batch queue, whose questions together do both of these.
	askAmongEvery = time.Minute
)

// recheck has the server asked whether all is as it was, in place of a poll, during the sleep.
func (w *waiter) recheck() bool {
	r, ok := w.taker().(Rechecker)
	if !ok || w.rechecked != nil || !w.hears() || w.placeless || w.failure != nil || w.refusals > 0 ||
		time.Since(w.asked) > askEvery {
		return false // refused to listen to the holder's releases, it polls more often
	}
	if left := w.left(); left >= 0 && left < w.q.pollCap {
		return false // the holder's lease is about to end, or has ended
	}
	w.q.mu.Lock()
	few, s, ticket := len(w.q.byOwner) < recheckFrom, *w.entry, w.ticket
	w.q.mu.Unlock()
	if few || ticket == 0 {
		return false
	}
	sent, rechecked := time.Now(), make(chan time.Time, 1)
	if !r.Recheck(s, ticket, func(same bool, _ time.Duration) {
		if !same {
			sent = time.Time{}
		}
		rechecked <- sent
	}) {
		return false
	}
	w.rechecked = rechecked
	return true
}

// same takes in the answer to such a question that was sent at sent; zero: the waiter is to ask by itself.
func (w *waiter) same(sent time.Time) bool {
	w.rechecked = nil
	if sent.IsZero() {
		return false
	}
	w.learn(Answer{Ticket: w.ticket, Sent: sent}, nil)
	return true
}

// recheckOne has the server asked whether all is as it was, in place of a poll, for a batch queue of one waiter that
// has a place and nothing to take in. Called with mu held. Where that is not answered before its next alarm, the waiter
// is asked for as ever.
func (q *Waiters) recheckOne(c *batchQueue) bool {
	w, now := c.first, time.Now()
	if w != c.last || c.running || c.failures > 0 || !c.hears || c.placeless || !c.rechecked.IsZero() ||
		now.Sub(c.asked) > askAmongEvery {
		return false
	}
	if w.wanted || w.grant != nil || w.ticket == 0 || !w.ready() || len(q.byOwner) < recheckFrom {
		return false
	}
	r, ok := w.r.Taker.(Rechecker)
	ticket := w.ticket
	if !ok || !r.Recheck(*w.entry, ticket, func(same bool, left time.Duration) {
		q.recheckedOne(c, w, ticket, now, same, left)
	}) {
		return false
	}
	c.rechecked = now
	return true
}

// recheckedOne takes in the answer to the question that recheckOne sent at sent.
func (q *Waiters) recheckedOne(c *batchQueue, w *waiter, ticket int64, sent time.Time, same bool, left time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.rechecked != sent { // of before an alarm
		return
	}
	c.rechecked = time.Time{}
	switch {
	case w.is != among || w.ticket != ticket || q.ctx.Err() != nil:
	case !same:
		q.enqueue(c, w)
		q.startAsking(c)
	default:
		if sent.After(w.held) {
			w.held = sent // the grant of that ticket comes later
		}
		if left >= 0 {
			q.alarmBy(c, time.Now().Add(script.Expiry(left)))
		}
	}
}
