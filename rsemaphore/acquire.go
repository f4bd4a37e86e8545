package rsemaphore

import (
	"cmp"
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

// acquisition is one call of Acquire, and the wait.Requester of its waiter.
type acquisition struct {
	s      *Semaphore
	n      int
	auto   bool
	lease  time.Duration
	waits  bool
	waited bool      // the call has waited for others
	leaves time.Time // when the caller gives up; zero: not known

	p       *permit
	text    string        // of the entry in the server's queue; "": not made yet
	entry   string        // text, if the entry may be in the queue
	poll    time.Duration // the longest time between two requests that the entry allows; 0: as Client.poll
	sent    time.Time     // the permits are held since then, at the earliest
	written time.Duration // the permits were handed over, with this lease; 0: they were not
	// unanswered is the last instant at which a request without a reply may take permits.
	unanswered time.Time
	since      time.Time // no request sent earlier has taken the permits
	watched    bool      // the monitor watches the heartbeats of the permits' holders
}

// Object returns the semaphore, and Permits how many permits the call waits for. Both are for the debug page.
func (a *acquisition) Object() any    { return described{a.s} }
func (a *acquisition) Permits() int64 { return int64(a.n) }

// BeginWait implements wait.Watcher.
func (a *acquisition) BeginWait(*wait.Caller) { a.waited = true }

// poll returns the longest time between two requests of a process for its waiters.
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

func (a *acquisition) run(ctx context.Context, began time.Time, waitTime time.Duration) (*Permit, error) {
	s, c := a.s, a.s.c
	r := wait.Request{Name: s.name, Object: a, Began: began, QueueKey: s.queueKey, QueueClass: s.queueClass(),
		Flow:    s.share.flow(),
		Channel: s.channel,
		Grants:  s.ownGrantChannel, Taker: a, Watcher: a, MaxRunTime: c.opts.CallTimeout}
	if !a.waits {
		r.Mode = wait.Yielding
	}
	if waitTime != unlimited {
		r.Until = began.Add(waitTime)
	}
	a.leaves = wait.EndsAt(ctx, r.Until)
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
	if a.unanswered.IsZero() { // no request is under way that could add the entry to the queue
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

// register adds the lease of a granted permit to the watchdog, and reports whether the lease still runs.
func (a *acquisition) register() (added bool) {
	c := a.s.c
	if a.written > 0 {
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
	_ = a.s.c.engine.Remove(&a.p.Lease) // the permit is released, lost or not
	until := time.Now()
	if a.unanswered.After(until) {
		until = a.unanswered
	}
	a.p.Abandon(until, a.entry)
	return err
}

// queueEntry returns the waiter's entry in the server's queue.
func (a *acquisition) queueEntry() wait.QueueEntry {
	if s, c := a.s, a.s.c; a.text == "" {
		// A hand-over writes a short lease, so that a waiter that is cut off keeps permits from others for a short time only.
		// The lease leaves time for a renewal without a reply, and for another renewal.
		first := min(a.lease, max(4*c.poll(), 4*c.opts.CallTimeout, time.Second))
		mode, shared := s.share.entry()
		entry := wait.Entry{Mode: mode, Amount: a.n, First: first, Stale: 5 * cmp.Or(a.poll, c.poll()) / 2,
			LeavesAt: c.runner.Clock.Leaves(a.s.key, a.leaves), Process: c.keeper.ID, Rest: a.p.base() + shared + a.s.label}
		a.text = entry.Text()
	}
	return wait.QueueEntry{Owner: a.p.base(), Entry: a.text, Lease: a.lease, Poll: a.poll}
}

// QueueEntry implements wait.Taker.
func (a *acquisition) QueueEntry(crowd bool) wait.QueueEntry {
	if a.text == "" {
		a.poll = 0
		if crowd && a.s.c.monitor == nil { // with Liveness each heartbeat needs a reply: see answer
			a.poll = wait.MaxPoll
		}
	}
	s := a.queueEntry()
	a.entry = s.Entry
	return s
}

// Taken implements wait.Taker. Taken refuses a grant that has to be confirmed by a request: if replicas have to confirm
// it, if half of its lease is over, and if the caller asked for a lease of its own. A hand-over writes a short lease.
// The caller's lease has to be there in full when the call returns, because a process that exits then raises no lease.
// A request confirms the grant, and its lease counts anew. For a lease of its own that is one more call, which the
// waiters of the process share. If the hand-over wrote the caller's lease in full, it would save that call, but a
// waiter that is cut off would keep the permits from all others for as long.
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
	a.sent, a.written = g.Sent, g.Lease
	return true
}

// ReleaseLater implements wait.Taker.
func (a *acquisition) ReleaseLater(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	a.mayRun(after)
}

// requestReply is the server's reply to a call for one or several acquisitions, with the times of the call.
type requestReply struct {
	acquireReply
	sent, received time.Time
	lastRun        time.Time // without a reply: the last instant at which the call may run
	unmet          error     // too few replicas have confirmed the grant
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

// request makes a call for one or several acquisitions. own is the acquisition if the call is for it alone.
func (s *Semaphore) request(ctx context.Context, all []wait.QueueEntry, enqueue bool,
	own *acquisition) (r requestReply, err error) {
	c := s.c
	var sent time.Time
	timed := script.Timed[acquireReply]{
		Key: s.key,
		Send: func(ctx context.Context, at time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sent = at
			call := s.acquireCall(all, enqueue, notAfter)
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
		if r.status == acquireDone { // otherwise the call wrote nothing
			r.unmet = err
		}
		err = nil
	}
	switch {
	case err == nil:
		s.served(r.served, sent)
	case ctx.Err() == nil && !errors.Is(err, errs.ErrUnavailable):
		c.waiters.PollAll(s.queueKey) // the call may have served other waiters of this process, which get no message
	}
	return r, err
}

// late reads the reply to a request that was sent at sent and given up. enqueue: the request enqueued the waiter. The
// retrier releases the permits, too, but its release may have run before the request.
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

// failed records the error of a call that may run until the instant runs.
func (a *acquisition) failed(err error, runs, received time.Time) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		a.mayRun(runs)
	case script.BrokenOff(err):
		a.mayRun(received)
	}
}

// answer reads the reply to the i-th acquisition of a call, or the call's error.
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
			a.mayRun(time.Now()) // Abandon repeats the release
		}
		return wait.Answer{}, r.unmet
	case asked == askedGranted && !r.received.Before(r.sent.Add(a.lease-lease.Margin(a.lease))):
		// A reply slower than the lease is worthless. The acquisition needs new ids, because ids that were released are never
		// used again.
		return a.renamed(r.received),
			fmt.Errorf("%w: %q: the grant took longer than its lease of %v", errs.ErrUnavailable, s.name, a.lease)
	case asked == askedAgain:
		return wait.Answer{Left: -1, Retry: true}, nil
	case !a.trusted(a.since):
		// Since its last reply the acquisition may have been served, and another process that saw the permits for long enough
		// may have taken them over, or be about to. That process must not see the same ids again.
		return a.renamed(r.received),
			fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", errs.ErrUnavailable, s.name)
	case asked == askedGranted:
		a.sent, a.written = r.sent, 0
		return wait.Answer{Granted: true}, nil
	}
	a.since = r.sent
	a.watch()
	answer := wait.Answer{Left: r.left, Ticket: asked, Sent: r.sent}
	if r.foreign {
		answer.Release = wait.OnChannel
	}
	return answer, nil
}

// renamed gives the acquisition new ids, and releases the permits that it may hold under the old ids.
func (a *acquisition) renamed(received time.Time) wait.Answer {
	a.mayRun(received)
	a.p.Abandon(a.unanswered, a.entry)
	a.p, a.entry, a.text, a.since = a.s.newPermit(a.p.Lease.Ctx, a.n, a.lease, a.auto), "", "", time.Time{}
	return wait.Answer{OwnerReplaced: true}
}

// mayRun records that a request without a reply may take permits until that instant.
func (a *acquisition) mayRun(until time.Time) {
	if until.After(a.unanswered) {
		a.unanswered = until
	}
}
