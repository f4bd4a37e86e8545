package wait

import (
	"context"
	"time"
)

// call is a Caller in Waiters.calls, for people who look.
type listedCall struct {
	Links[*listedCall]
	caller *Caller
}

// Waiting is a call as it was at one moment.
type Waiting struct {
	Name  string
	Of    any
	Began time.Time
	// Until is when it gives up; zero: when its ctx is cancelled, if at all.
	Until time.Time
	// Refused: another had what it waits for, when it, or the one in front of it, asked last. Not known of a request
	// that stands in no local queue.
	Refused bool
	// Before is how many of this process stand before it in the same local queue.
	Before int
	// Ticket is its place in the queue on the server, as of the last answer: a number that grows with each that comes; 0:
	// it has none, or it is not known.
	Ticket int64
	// Failure is why the one in front could not ask, when it tried last; nil if it was answered.
	Failure error
}

// Waits returns the first most calls that wait whose names match, those that came first, and how many there are that
// match. It is for people who look: it goes through all of them, and keeps the queue from others meanwhile. match must
// not call the queue.
func (q *Waiters) Waits(most int, match func(name string) bool) (first []Waiting, all int) {
	before := map[*localQueue]int{}
	var contexts []context.Context
	q.mu.Lock()
	for listed := q.calls.first; listed != nil; listed = listed.behind {
		caller, ahead := listed.caller, 0
		if queue := caller.localQueue; queue != nil && caller.request.Mode != Paced && all < most {
			ahead = before[queue]
			before[queue]++
		}
		if !match(caller.request.Name) {
			continue
		}
		if all++; all > most {
			continue
		}
		first, contexts = append(first, caller.snapshot(ahead)), append(contexts, caller.ctx)
	}
	q.mu.Unlock()
	for i, ctx := range contexts { // without mu: it may be anybody's code
		if end, ok := ctx.Deadline(); ok && (first[i].Until.IsZero() || end.Before(first[i].Until)) {
			first[i].Until = end
		}
	}
	return first, all
}

// waiting says for what the caller waits, behind so many of its local queue. Called with mu held.
func (w *Caller) snapshot(before int) Waiting {
	snapshot := Waiting{
		Name:   w.request.Name,
		Of:     w.request.Of,
		Began:  w.request.Began,
		Until:  w.request.Until,
		Before: before,
		Ticket: w.ticket,
	}
	if queue := w.localQueue; queue != nil {
		snapshot.Refused, snapshot.Failure = queue.refusedCount > 0, queue.lastErr
		if w.request.Mode == Turn && queue.contender != nil {
			snapshot.Ticket = queue.contender.ticket
		}
	}
	return snapshot
}

// Count returns how many calls wait: those in local queues of which a member was refused what it waits for. handOvers
// is how many waits have ended because a release named the waiter, since the queue was made. It looks at every call.
func (q *Waiters) Count() (waiting int, handOvers int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for listed := q.calls.first; listed != nil; listed = listed.behind {
		if queue := listed.caller.localQueue; queue != nil && queue.refusedCount > 0 {
			waiting++
		}
	}
	return waiting, q.handOvers
}
