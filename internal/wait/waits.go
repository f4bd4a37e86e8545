package wait

import (
	"context"
	"time"
)

// Group is what is known to all calls of this process that wait for one thing in one manner. Its zero value knows
// nothing.
type Group struct { // guarded by Waiters.mu
	refused int       // requests that were refused what they wait for
	freeBy  time.Time // when the holder's lease ends, by the last answer; zero if unknown
	failure error     // why the server could not be asked, when that was last tried; nil if it answered
	asker   *waiter   // of a group of calls, one waits for all
}

// Call is one call that waits, for those who look. The exported fields are set before it is listed.
type Call struct {
	Name  string
	Of    any // what is waited for
	Began time.Time
	// Until is when it gives up; zero: when its Ctx is cancelled, if at all.
	Until time.Time
	Ctx   context.Context

	group        *Group  // nil: it is in no group
	each         bool    // the calls of its group do not wait for each other
	waiter       *waiter // its own; nil: that of its group
	listed       bool
	reported     bool // Waiters.waits was called
	links[*Call]      // in Waiters.calls
}

// Tell tells, once for a call, that it begins to wait, however often it stands in the local queue before it has what it
// waits for. The goroutine that makes the call, or asks for it, calls it.
func (q *Waiters) Tell(c *Call) {
	if !c.reported {
		c.reported = true
		q.waits(c.Ctx, c.Name)
	}
}

// Waiting is a Call as it was at one moment.
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

// List adds a call of a group for which a request with that Group waits, or will. by, if it is not zero, is until when
// this process itself holds what it waits for.
func (q *Waiters) List(c *Call, g *Group, by time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.group = g
	if !by.IsZero() {
		g.refused, g.freeBy, g.failure = max(g.refused, 1), by, nil
	}
	q.list(c)
}

// Unlist takes out a call that is listed.
func (q *Waiters) Unlist(c *Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.listed {
		q.unlist(c)
	}
}

// GaveUp is the error of a call of the group that ends without a grant.
func (q *Waiters) GaveUp(ctx context.Context, g *Group) *GaveUp {
	e := &GaveUp{Left: -1, Cause: q.Ended(ctx)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.Failure = g.failure; !g.freeBy.IsZero() {
		e.Left = max(0, time.Until(g.freeBy))
	}
	return e
}

// Context ends with the queue, with cause errs.ErrClosed.
func (q *Waiters) Context() context.Context { return q.ctx }

func (q *Waiters) list(c *Call) {
	c.listed = true
	q.calls.add(c)
}

func (q *Waiters) unlist(c *Call) {
	c.listed = false
	q.calls.remove(c)
}

// Waits returns the first most calls that wait whose names match, those that came first, and how many there are that
// match. It is for people who look: it goes through all of them, and keeps the queue from others meanwhile. match must
// not call the queue.
func (q *Waiters) Waits(most int, match func(name string) bool) (first []Waiting, all int) {
	before := map[*Group]int{}
	var contexts []context.Context
	q.mu.Lock()
	for c := q.calls.first; c != nil; c = c.behind {
		n, g := 0, c.group
		if g != nil && all < most {
			n = before[g]
			before[g]++
		}
		if !match(c.Name) {
			continue
		}
		if all++; all > most {
			continue
		}
		first, contexts = append(first, c.waiting(n)), append(contexts, c.Ctx)
	}
	q.mu.Unlock()
	for i, ctx := range contexts { // without mu: it may be anybody's code
		if end, ok := ctx.Deadline(); ok && (first[i].Until.IsZero() || end.Before(first[i].Until)) {
			first[i].Until = end
		}
	}
	return first, all
}

// waiting says for what c waits, behind so many of its group. Called with mu held.
func (c *Call) waiting(before int) Waiting {
	x := Waiting{Name: c.Name, Of: c.Of, Began: c.Began, Until: c.Until, Before: before}
	w := c.waiter
	if g := c.group; g != nil {
		x.Refused, x.Failure = g.refused > 0, g.failure
		if w == nil {
			w = g.asker
		}
	}
	if w != nil {
		x.Ticket = w.ticket
	}
	if c.each {
		x.Before = 0
	}
	return x
}

// Count returns how many calls wait: those of groups of which one was refused what it waits for. handOvers is how many
// waits have ended because a release named the waiter, since the queue was made. It looks at every call.
func (q *Waiters) Count() (waiting int, handOvers int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := q.calls.first; c != nil; c = c.behind {
		if c.group != nil && c.group.refused > 0 {
			waiting++
		}
	}
	return waiting, q.handOvers
}
