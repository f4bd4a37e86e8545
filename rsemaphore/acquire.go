package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// acquisition is one call of Acquire. It is the wait.Batcher of its waiter.
type acquisition struct {
	s     *Semaphore
	n     int
	began time.Time
	auto  bool
	lease time.Duration
	waits bool

	p       *permit
	entry   string    // in the queue
	sent    time.Time // the permits are held since then, at the earliest
	written time.Duration
	handed  bool // by a grant, with the lease written
	// unanswered: some try was sent and not answered, and may take permits up to this instant
	unanswered time.Time
}

// poll is how often a process asks for its waiters, at least.
func (c *Client) poll() time.Duration { return min(c.opts.PollCap, wait.MaxPoll) }

// explain translates the end of a wait into the caller's error.
func (a *acquisition) explain(err error, waited time.Duration) error {
	return wait.Ending{
		Package: "rsemaphore", Name: a.s.name, Unsure: !a.unanswered.IsZero(),
		Contended: func(g *wait.GaveUp) error {
			return &NotAcquiredError{Name: a.s.name, n: a.n, Lease: g.Left, Waited: waited, cause: g.Cause}
		},
	}.Explain(err)
}

func (a *acquisition) run(ctx context.Context, waitTime time.Duration) (*Permit, error) {
	s, c := a.s, a.s.c
	r := wait.Request{Name: s.name, Line: s.line(), Manner: s.manner(), Channel: s.channel, Taker: a, Alone: !a.waits, Yield: !a.waits, Reach: c.opts.CallTimeout}
	if s.grants != "" {
		r.Grants = s.grants + c.session.ID
	}
	if waitTime != unlimited {
		r.Until = a.began.Add(waitTime)
	}
	a.p = s.newPermit(ctx, a.n, a.lease)
	if err := c.queue.Wait(ctx, r); err != nil {
		a.p.Abandon(a.unanswered, a.entry)
		return nil, err
	}
	var added bool
	if a.handed {
		added = c.engine.AddHanded(&a.p.Lease, a.sent, a.written, a.lease, a.auto, c.opts.MaxHold)
	} else {
		added = c.engine.Add(&a.p.Lease, a.sent, a.sent, a.lease, a.auto, c.opts.MaxHold)
	}
	entry := a.entry
	if a.unanswered.IsZero() { // no request is under way that could enter it
		entry = ""
	}
	h, err := a.p.Start(added, a.auto, a.unanswered, entry)
	if err != nil {
		return nil, err
	}
	return newPermitHandle(h), nil
}

// standing is how the server knows the waiter.
func (a *acquisition) standing() wait.Standing {
	c := a.s.c
	// The lease that a hand-over writes is short: a waiter that turns out to be cut off keeps permits from nobody for long. It
	// leaves time for a renewal that gets no answer, and another.
	first := min(a.lease, max(4*c.poll(), 4*c.opts.CallTimeout, time.Second))
	entry := strings.Join([]string{a.p.base(), decimal(int64(a.n)), script.Millis(first), script.Millis(5 * c.poll() / 2), c.session.ID, a.s.label}, " ")
	return wait.Standing{Owner: a.p.base(), Entry: entry, Lease: a.lease}
}

// Stand implements wait.Taker.
func (a *acquisition) Stand() wait.Standing {
	s := a.standing()
	a.entry = s.Entry
	return s
}

// Taken implements wait.Taker. It refuses to use a grant unconfirmed if replicas are to be asked, if half of its lease is over, and if
// nobody will raise its lease. Asking again confirms such a grant, and its lease counts anew.
func (a *acquisition) Taken(g wait.Grant) bool {
	switch {
	case a.s.c.opts.MinReplicas > 0:
		return false
	case !a.auto && g.Lease >= a.lease:
		return false // a lease that nobody raises later is to be all there from now on
	case time.Until(g.Sent.Add(g.Lease)) < g.Lease/2:
		return false
	}
	a.sent, a.written, a.handed = g.Sent, g.Lease, true
	return true
}

// ReleaseLater implements wait.Taker.
func (a *acquisition) ReleaseLater(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	a.mayRun(after)
}

// told is what the server said about one acquisition.
type told struct {
	acquireReply
	sent, received time.Time
	asked          int64
	unmet          error // too few replicas have confirmed it
}

// Ask implements wait.Taker.
func (a *acquisition) Ask(ctx context.Context, standing *wait.Standing) (wait.Answer, error) {
	own := a.standing()
	var last time.Time
	p := a.p
	replies, err := a.s.askAll(ctx, []wait.Standing{own}, standing != nil, &last, func(r acquireReply) {
		// The retrier gives back what a try granted after its caller had given up on it, too, but it may have asked before the
		// server ran the request.
		a.s.served(r.served, last)
		if r.status == acquireDone && r.asked[0] == askedGranted {
			p.Late()
		}
	})
	if err != nil {
		p.unheard.Store(!errors.Is(err, ErrUnavailable))
		switch {
		case errors.Is(err, ErrUnknownOutcome):
			a.mayRun(last.Add(a.s.c.opts.CallTimeout))
		case script.BrokenOff(err):
			a.mayRun(time.Now())
		}
		return wait.Answer{}, err
	}
	return a.Told(replies[0], nil)
}

// AskAll implements wait.Batcher.
func (a *acquisition) AskAll(ctx context.Context, all []wait.Standing, place bool) ([]any, error) {
	var last time.Time
	replies, err := a.s.askAll(ctx, all, place, &last, nil)
	if err != nil {
		return nil, &unansweredError{err, last, time.Now()}
	}
	return replies, nil
}

// unansweredError is the error of a call for several, with its times.
type unansweredError struct {
	error
	sent, received time.Time
}

func (e *unansweredError) Unwrap() error { return e.error }

// askAll asks for several acquisitions in one call. sent is when it was last sent.
func (s *Semaphore) askAll(ctx context.Context, all []wait.Standing, place bool, sent *time.Time, late func(acquireReply)) ([]any, error) {
	c := s.c
	call := timed(s.key, c.runner.Attempt, func(at time.Time, notAfter int64) exchange[acquireReply] {
		*sent = at
		x := s.acquireExchange(all, place, notAfter)
		if late != nil {
			x = x.late(late)
		}
		x.Replicas, x.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
		return x
	})
	r, err := call.Run(ctx, c.runner)
	t := told{acquireReply: r, sent: *sent, received: time.Now()}
	switch {
	case errors.Is(err, ErrNotReplicated) && r.status == acquireDone:
		t.unmet = err
	case errors.Is(err, ErrNotReplicated): // nothing that replicas need have
	case err != nil:
		if ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			c.queue.AskAgain(s.line()) // it may have served others of this process, whom nobody tells
		}
		return nil, err
	}
	s.served(r.served, *sent)
	replies := make([]any, len(all))
	for i := range all {
		own := t
		if r.status == acquireDone {
			own.asked = r.asked[i]
		}
		replies[i] = &own
	}
	return replies, nil
}

// Told implements wait.Batcher.
func (a *acquisition) Told(reply any, err error) (wait.Answer, error) {
	s, c := a.s, a.s.c
	if err != nil {
		var u *unansweredError
		if errors.As(err, &u) {
			switch {
			case errors.Is(err, ErrUnknownOutcome):
				a.mayRun(u.sent.Add(c.opts.CallTimeout))
			case script.BrokenOff(err):
				a.mayRun(u.received)
			}
			err = u.error
		}
		return wait.Answer{}, err
	}
	r := reply.(*told)
	switch {
	case r.status == acquireMismatch:
		return wait.Answer{}, capacityMismatch(s.name, r.capacity, s.capacity)
	case r.asked == askedTooMany:
		if a.n > s.capacity && r.capacity == int64(s.capacity) {
			return wait.Answer{}, s.badN(a.n, s.capacity)
		}
		return wait.Answer{}, capacityMismatch(s.name, r.capacity, a.n)
	case r.asked == askedGranted && r.unmet != nil:
		if _, e := a.p.release(context.Background(), a.entry); e != nil {
			a.mayRun(time.Now()) // Abandon goes on with it
		}
		return wait.Answer{}, r.unmet
	case r.asked == askedGranted && !r.received.Before(r.sent.Add(a.lease-lease.Margin(a.lease))):
		// A reply slower than the lease is worthless. Its ids are spent: ids of what has been released are never used again.
		a.mayRun(r.received)
		a.p.Abandon(a.unanswered, a.entry)
		a.p, a.entry = s.newPermit(a.p.Lease.Ctx, a.n, a.lease), ""
		return wait.Answer{Renamed: true}, fmt.Errorf("%w: %q: the grant took longer than its lease of %v", ErrUnavailable, s.name, a.lease)
	case r.asked == askedGranted:
		a.sent, a.handed = r.sent, false
		return wait.Answer{Granted: true}, nil
	}
	return wait.Answer{Left: r.left, Foreign: r.foreign, Ticket: r.asked, Sent: r.sent}, nil
}

// mayRun notes that a request which was not answered may take permits up to that instant.
func (a *acquisition) mayRun(until time.Time) {
	if until.After(a.unanswered) {
		a.unanswered = until
	}
}
