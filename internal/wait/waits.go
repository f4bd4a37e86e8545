package wait

import (
	"context"
	"time"
)

// Waiting is one call of Wait that is under way, as it was at one moment.
type Waiting struct {
	Name  string
	Of    any
	Began time.Time
	// Until is when it gives up; zero: when its ctx is cancelled, if at all.
	Until time.Time
	// Refused: somebody else had what it waits for, when it, or the one in front of it, asked last. Not known of a request that
	// stands in no line.
	Refused bool
	// Before is how many of this process stand before it in the same line.
	Before int
	// Ticket is its place in the queue on the server, as of the last answer: a number that grows with each that comes; 0: it has
	// none, or it is not known.
	Ticket int64
	// Failure is why the one in front could not ask, when it tried last; nil if it was answered.
	Failure error
}

// list and unlist keep the calls of Wait in the order in which they came. Called with mu held.
func (q *Queue) list(w *waiter) {
	if w.older = q.newest; w.older == nil {
		q.oldest = w
	} else {
		w.older.newer = w
	}
	q.newest = w
}

func (q *Queue) unlist(w *waiter) {
	if w.older == nil {
		q.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		q.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer = nil, nil
}

// Waits returns the first most calls of Wait under way whose names match, those that came first, and how many there are that match.
// It is for people who look: it goes through all of them, and keeps the queue from others meanwhile. match must
// not call the queue.
func (q *Queue) Waits(most int, match func(name string) bool) (first []Waiting, all int) {
	before := map[*line]int{}
	var contexts []context.Context
	q.mu.Lock()
	for w := q.oldest; w != nil; w = w.newer {
		n := 0
		if l := w.line; l != nil && all < most {
			n = before[l]
			before[l]++
		}
		if !match(w.r.Name) {
			continue
		}
		if all++; all > most {
			continue
		}
		x := Waiting{Name: w.r.Name, Of: w.r.Of, Began: w.r.Began, Until: w.r.Until, Ticket: w.ticket, Before: n}
		if w.line != nil {
			x.Refused, x.Failure = w.line.waiting > 0, w.line.failure
		}
		if w.r.Each {
			x.Before = 0
		}
		first, contexts = append(first, x), append(contexts, w.ctx)
	}
	q.mu.Unlock()
	for i, ctx := range contexts { // without mu: it may be anybody's code
		if end, ok := ctx.Deadline(); ok && (first[i].Until.IsZero() || end.Before(first[i].Until)) {
			first[i].Until = end
		}
	}
	return first, all
}
