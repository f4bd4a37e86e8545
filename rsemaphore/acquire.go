package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// acquisition is one call of Acquire. It is the wait.Requester of its waiter.
type acquisition struct {
	s      *Semaphore
	n      int
	began  time.Time
	auto   bool
	lease  time.Duration
	waits  bool
	leaves time.Time // when its caller gives up; zero: not known

	p       *permit
	text    string    // how the server knows it, as of standing; "": not made yet
	entry   string    // the same, if it may be in the queue
	rarely  bool      // the entry allows a poll every MaxPoll
	sent    time.Time // the permits are held since then, at the earliest
	written time.Duration
	handed  bool // by a grant, with the lease written
	// unanswered: some try was sent and not answered, and may take permits up to this instant
	unanswered time.Time
	since      time.Time               // the permits may be out since then: nothing that was sent before has made them so
	watched    bool                    // their holders' heartbeats are looked at
	tried      bool                    // some try was sent
	room       [acquireArgs + 2]string // for the arguments of the first try, here to be one piece of memory
}

// Object is what it waits for, and Permits how many, for the debug page.
func (a *acquisition) Object() any    { return described{a.s} }
func (a *acquisition) Permits() int64 { return int64(a.n) }

// poll is how often a process asks for its waiters, at least.
func (c *Client) poll() time.Duration { return min(c.opts.PollCap, wait.MaxPoll) }

// explain translates the end of a wait into the caller's error.
func (a *acquisition) explain(err error, waited time.Duration) error {
	return wait.Ending{
		Package: "rsemaphore", Name: a.s.name, Unsure: !a.unanswered.IsZero(), TakesBack: true,
		Contended: func(g *wait.GaveUp) error {
			return &NotAcquiredError{Name: a.s.name, N: a.n, Lease: g.Left, Waited: waited, Cause: g.Cause,
				Unheard: g.Failure != nil}
		},
	}.Explain(err)
}

func (a *acquisition) run(ctx context.Context, waitTime time.Duration) (*Permit, error) {
	s, c := a.s, a.s.c
	r := wait.Request{Name: s.name, Of: a, Began: a.began, QueueKey: s.queueKey, Manner: s.manner(),
		Channel: s.channel,
		Grants:  s.ownGrantChannel, Taker: a, Reach: c.opts.CallTimeout}
	if !a.waits {
		r.Mode = wait.Yielding
	}
	if waitTime != unlimited {
		r.Until = a.began.Add(waitTime)
	}
	a.leaves = r.Until
	if d, ok := ctx.Deadline(); ok && (a.leaves.IsZero() || d.Before(a.leaves)) {
		a.leaves = d
	}
	a.p = s.newPermit(ctx, a.n, a.lease, a.auto)
	defer a.unwatch()
	var landed <-chan struct{}
	if a.auto {
		landed = c.engine.Announce(s.key)
	}
	if err := c.waiters.Wait(ctx, r); err != nil {
		if a.waits {
			a.p.Depart(a.unanswered, a.entry)
		} else {
			a.p.Abandon(a.unanswered, a.entry)
		}
		return nil, err
	}
	added := a.register()
	if added && s.fenced {
		if err := a.mintOrAbandon(ctx); err != nil {
			return nil, err
		}
	}
	entry := a.entry
	if a.unanswered.IsZero() { // no request is under way that could enter it
		entry = ""
	}
	h, err := a.p.Start(added, a.auto, a.unanswered, entry)
	if err != nil {
		return nil, err
	}
	if landed != nil {
		select {
		case <-landed:
		case <-ctx.Done():
		}
	}
	return newPermitHandle(h), nil
}

// register has the lease of a permit that was granted watched. It reports whether it still runs.
func (a *acquisition) register() (added bool) {
	c := a.s.c
	if a.handed {
		return c.engine.AddHanded(&a.p.Lease, a.sent, a.written, a.lease, a.auto, c.opts.MaxHold)
	}
	return c.engine.Add(&a.p.Lease, a.since, a.sent, a.lease, a.auto, c.opts.MaxHold)
}

// mintOrAbandon draws the permit's fencing token, and gives the permit back if that fails.
func (a *acquisition) mintOrAbandon(ctx context.Context) error {
	err := a.mint(ctx)
	if err == nil {
		return nil
	}
	_ = a.s.c.engine.Remove(&a.p.Lease) // whether it was lost by now or not, it is given back
	until := time.Now()
	if a.unanswered.After(until) {
		until = a.unanswered
	}
	a.p.Abandon(until, a.entry)
	return err
}

// queueEntry is how the server knows the waiter.
func (a *acquisition) queueEntry() wait.QueueEntry {
	if c := a.s.c; a.text == "" {
		// The lease that a hand-over writes is short: a waiter that turns out to be cut off keeps permits from others for a
		// short time only. It leaves time for a renewal that gets no answer, and another.
		first := min(a.lease, max(4*c.poll(), 4*c.opts.CallTimeout, time.Second))
		entry := wait.Entry{Mode: wait.EntryPermits, Amount: a.n, First: first, Stale: 5 * c.poll() / 2,
			LeavesAt: c.runner.Clock.Leaves(a.s.key, a.leaves), Process: c.session.ID, Rest: a.p.base() + a.s.label}
		if a.rarely {
			entry.Stale = 5 * wait.MaxPoll / 2
		}
		a.text = entry.Text()
	}
	e := wait.QueueEntry{Owner: a.p.base(), Entry: a.text, Lease: a.lease}
	if a.rarely {
		e.Poll = wait.MaxPoll
	}
	return e
}

// QueueEntry implements wait.Taker.
func (a *acquisition) QueueEntry(crowd bool) wait.QueueEntry {
	if a.text == "" { // with Liveness each heartbeat needs an answer: see answer
		a.rarely = crowd && a.s.c.live.monitor == nil
	}
	s := a.queueEntry()
	a.entry = s.Entry
	return s
}

// Taken implements wait.Taker. It refuses to use a grant unconfirmed if replicas are to be asked, if half of its lease
// is over, and if its caller asked for a lease of its own: what a hand-over writes is short, that lease is to be there
// in full when the call returns, and a process that exits then raises nothing. Asking again confirms such a grant, and
// its lease counts anew. For a lease of its own that is one call more, which the waiters of the process share. To have
// the hand-over write it in full would cost no call, but a waiter that is cut off would keep the permits from everybody
// for as long.
func (a *acquisition) Taken(g wait.Grant) bool {
	switch {
	case a.s.c.opts.MinReplicas > 0:
		return false
	case !a.auto:
		return false
	case !a.trusted(g.Sent):
		return false
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

// requestReply is what the server said to a call for one or several acquisitions, with the times of the call.
type requestReply struct {
	acquireReply
	sent, received time.Time
	lastRun        time.Time // without a reply: it may run until then
	unmet          error     // too few replicas have confirmed it
}

// Ask implements wait.Taker.
func (a *acquisition) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	s := a.s
	if entry == nil && s.plain(a.n) {
		coalesce := s.c.coalescer.Enter()
		defer s.c.coalescer.Leave()
		if coalesce {
			if answer, done, err := a.askShared(ctx); done || err != nil {
				return answer, err
			}
		}
	}
	own := [1]wait.QueueEntry{a.queueEntry()}
	r, err := s.request(ctx, own[:], entry != nil, a)
	if err != nil {
		a.p.unheard.Store(!errors.Is(err, errs.ErrUnavailable))
	}
	return a.answer(&r, 0, err)
}

// RequestAll implements wait.Requester.
func (a *acquisition) RequestAll(ctx context.Context, all []wait.QueueEntry, enqueue bool) (replies any, err error) {
	r, err := a.s.request(ctx, all, enqueue, nil)
	return &r, err
}

// Reply implements wait.Requester.
func (a *acquisition) Reply(replies any, i int, err error) (wait.Answer, error) {
	return a.answer(replies.(*requestReply), i, err)
}

// request makes a call for one or several acquisitions. own: for this one alone.
func (s *Semaphore) request(ctx context.Context, all []wait.QueueEntry, enqueue bool,
	own *acquisition) (r requestReply, err error) {
	c := s.c
	var sent time.Time
	timed := script.Timed[acquireReply]{
		Key: s.key,
		Send: func(ctx context.Context, at time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sent = at
			var room []string
			if own != nil && !own.tried { // a try that is given up may still read its own
				own.tried, room = true, own.room[:0]
			}
			call := s.acquireCall(all, enqueue, notAfter, room)
			if own != nil {
				call.Late = own.late(at, enqueue)
			}
			call.Replicas, call.ReplicasWait = c.opts.MinReplicas, c.opts.ReplicaTimeout
			return c.runner.Attempt(ctx, call)
		},
		Decode: func(m rueidis.RedisMessage) (acquireReply, error) { return s.decodeAcquire(m, len(all)) },
	}
	reply, err := timed.Run(ctx, c.runner)
	r = requestReply{acquireReply: reply, sent: sent, received: time.Now(), lastRun: sent.Add(timed.Runs)}
	if script.IsUnreplicated(err) {
		if r.status == acquireDone { // otherwise there is nothing that replicas need have
			r.unmet = err
		}
		err = nil
	}
	switch {
	case err == nil:
		s.served(r.served, sent)
	case ctx.Err() == nil && !errors.Is(err, errs.ErrUnavailable):
		c.waiters.PollAll(s.queueKey) // it may have served others of this process, which get no message
	}
	return r, err
}

// late takes in the reply to a try that was sent at sent and given up; place: it asked for a place in the queue. The
// retrier gives back what it got, too, but may have asked before the server ran the request.
func (a *acquisition) late(sent time.Time, enqueue bool) func(rueidis.RedisResult) {
	s, p := a.s, a.p
	return func(res rueidis.RedisResult) {
		m, err := res.ToMessage()
		if err != nil {
			return
		}
		if r, err := s.decodeAcquire(m, 1); err == nil {
			s.served(r.served, sent)
			if r.of(0) == askedGranted || enqueue {
				p.Late()
			}
		}
	}
}

// failed takes in the error of a call that may run until runs.
func (a *acquisition) failed(err error, runs, received time.Time) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		a.mayRun(runs)
	case script.BrokenOff(err):
		a.mayRun(received)
	}
}

// answer takes in what a call said of the i-th acquisition for which it requested, or its error.
func (a *acquisition) answer(r *requestReply, i int, err error) (wait.Answer, error) {
	s, asked := a.s, r.of(i)
	a.asks(r.sent)
	switch {
	case err != nil:
		a.failed(err, r.lastRun, r.received)
		return wait.Answer{}, err
	case r.status == acquireMismatch:
		return wait.Answer{}, capacityMismatch(s.name, r.capacity, s.capacity)
	case asked == askedTooMany:
		if a.n > s.capacity && r.capacity == int64(s.capacity) {
			return wait.Answer{}, s.badN(a.n, s.capacity)
		}
		return wait.Answer{}, capacityMismatch(s.name, r.capacity, a.n)
	case asked == askedGranted && r.unmet != nil:
		if _, e := a.p.release(context.Background(), a.entry); e != nil {
			a.mayRun(time.Now()) // Abandon goes on with it
		}
		return wait.Answer{}, r.unmet
	case asked == askedGranted && !r.received.Before(r.sent.Add(a.lease-lease.Margin(a.lease))):
		// A reply slower than the lease is worthless. Its ids are spent: ids of what has been released are never used again.
		return a.renamed(r.received),
			fmt.Errorf("%w: %q: the grant took longer than its lease of %v", errs.ErrUnavailable, s.name, a.lease)
	case asked == askedAgain:
		return wait.Answer{Left: -1, Again: true}, nil
	case !a.trusted(a.since):
		// Since its last answer it may have been served, and another that saw that for long enough may have taken it over, or
		// is about to. It must not see the same ids again.
		return a.renamed(r.received),
			fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", errs.ErrUnavailable, s.name)
	case asked == askedGranted:
		a.sent, a.handed = r.sent, false
		return wait.Answer{Granted: true}, nil
	}
	a.since = r.sent
	a.watch()
	return wait.Answer{Left: r.left, Foreign: r.foreign, Ticket: asked, Sent: r.sent}, nil
}

// renamed has the acquisition go on under other ids. What it may have had under these is given back.
func (a *acquisition) renamed(received time.Time) wait.Answer {
	a.mayRun(received)
	a.p.Abandon(a.unanswered, a.entry)
	a.p, a.entry, a.text, a.since = a.s.newPermit(a.p.Lease.Ctx, a.n, a.lease, a.auto), "", "", time.Time{}
	return wait.Answer{Renamed: true}
}

// mayRun notes that a request which was not answered may take permits up to that instant.
func (a *acquisition) mayRun(until time.Time) {
	if until.After(a.unanswered) {
		a.unanswered = until
	}
}
