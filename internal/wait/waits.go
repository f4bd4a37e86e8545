package wait

import (
	"context"
	"slices"
	"time"
)

// listedCall is the element of Waiters.calls that belongs to a Caller.
type listedCall struct {
	Links[*listedCall]
	caller *Caller
}

// Waiting describes a waiting call at one moment.
type Waiting struct {
	Name   string
	Object any // Request.Object
	Began  time.Time
	// Until is when the call gives up; zero: when its ctx is cancelled, if ever.
	Until time.Time
	// Refused: the server refused the last request of the call, or of its contender. It is not known of a call in no
	// local queue.
	Refused bool
	// Before is how many calls of this process stand before the call in its local queue.
	Before int
	// Ticket is the call's place in the server's queue, by the last reply. Later entries have higher tickets. 0: the call
	// has no entry, or its ticket is not known.
	Ticket int64
	// Failure is the error of the contender's last request; nil if the server replied.
	Failure error
}

// Waits returns the first limit waiting calls with a matching name, by arrival, and the number of all calls that match.
// It is for inspection by people: it takes O(calls log calls) with mu held. match must not call the Waiters.
func (q *Waiters) Waits(limit int, match func(name string) bool) (first []Waiting, all int) {
	type line struct {
		queue *localQueue
		flow  string
	}
	seen := map[line]int{}
	var contexts []context.Context
	q.mu.Lock()
	var callers []*Caller
	for listed := q.calls.first; listed != nil; listed = listed.behind {
		callers = append(callers, listed.caller)
	}
	// The first caller of a cohort enters after its first request, and others may have come meanwhile.
	slices.SortStableFunc(callers, func(a, b *Caller) int { return a.request.Began.Compare(b.request.Began) })
	for _, caller := range callers {
		ahead := 0
		if queue := caller.localQueue; queue != nil && all < limit {
			own := line{queue, caller.request.Flow}
			ahead = seen[own]
			seen[own]++
		}
		if !match(caller.request.Name) {
			continue
		}
		if all++; all > limit {
			continue
		}
		first, contexts = append(first, caller.snapshot(ahead)), append(contexts, caller.ctx)
	}
	q.mu.Unlock()
	for i, ctx := range contexts { // without mu, because a ctx may be code of the user
		first[i].Until = EndsAt(ctx, first[i].Until)
	}
	return first, all
}

// EndsAt returns the earlier of two instants: the deadline of ctx, and limit, unless limit is zero. It returns zero if
// there is neither.
func EndsAt(ctx context.Context, limit time.Time) time.Time {
	if deadline, ok := ctx.Deadline(); ok && (limit.IsZero() || deadline.Before(limit)) {
		return deadline
	}
	return limit
}

// snapshot describes the call, which stands behind before calls of its local queue. Called with mu held.
func (w *Caller) snapshot(before int) Waiting {
	snapshot := Waiting{
		Name:   w.request.Name,
		Object: w.request.Object,
		Began:  w.request.Began,
		Until:  w.request.Until,
		Before: before,
		Ticket: w.place.ticket,
	}
	if queue := w.localQueue; queue != nil {
		snapshot.Refused, snapshot.Failure = queue.refusedCount > 0, queue.lastErr
		if w.request.Mode == Turn && queue.contender != nil {
			snapshot.Ticket = queue.contender.place.ticket
		}
	}
	return snapshot
}

// Count returns the number of waiting calls, and the number of waits that a grant has ended so far. A call counts as
// waiting if a member of its local queue was refused. Count takes O(calls).
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
