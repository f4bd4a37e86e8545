package rsemaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// line is where the process's waiters of this semaphore stand.
func (s *CountingSemaphore) line() string { return "counting:" + s.key }

func (s *CountingSemaphore) acquire(ctx context.Context, n int, until time.Time, once bool) error {
	if err := cmp.Or(s.bad, checkRange("permits", int64(n), 1, maxPermits)); err != nil {
		return s.c.session.Error(err)
	}
	if err := s.c.session.Enter(); err != nil {
		return err
	}
	defer s.c.session.Leave()
	ctx = s.c.observer.Acquiring(ctx, s.name, n)
	began := time.Now()
	a := &claimant{s: s, n: n}
	r := wait.Request{Name: s.name, Of: s, Began: began, Line: s.line(), Channel: s.channel, Taker: a, Alone: once, Yield: once, Until: until, Reach: s.c.opts.CallTimeout}
	if s.grants != "" {
		r.Grants = s.grants + s.c.session.ID
	}
	err := s.c.queue.Wait(ctx, r)
	waited := time.Since(began)
	if err != nil {
		if a.owes {
			s.withdraw(a.Stand().Entry, a.unanswered)
		}
		err = a.explain(err, waited)
		s.c.observer.NotAcquired(ctx, s.name, n, waited, err)
		return err
	}
	s.c.session.Answered()
	s.c.observer.Acquired(ctx, s.name, n, waited)
	return nil
}

// claimant is one call of Acquire. It is the wait.Batcher of its waiter.
//
// Its first request goes out by itself and is sent once: what it is granted is marked nowhere. All later ones are batches that may be made
// again, as long as the server keeps their marks (see lib/given.lua).
type claimant struct {
	s    *CountingSemaphore
	n    int
	base string
	owes bool // a withdrawal
	lost bool // nobody can find out what became of a request
	// doubtful is when the first request was sent that may have been granted without an answer; unanswered: none of them runs later.
	doubtful, unanswered time.Time
}

// lent is for how long what was given may be claimed.
func (s *CountingSemaphore) lent() time.Duration {
	return max(4*s.c.poll(), 4*s.c.opts.CallTimeout, time.Second)
}

// kept is for how long a claim may be made again, or withdrawn. It outlasts what commonly keeps a process from its server: after it
// nobody knows what became of a claim.
func (s *CountingSemaphore) kept() time.Duration { return max(s.lent(), 5*time.Second) }

// Stand implements wait.Taker.
func (a *claimant) Stand() wait.Standing {
	c := a.s.c
	if a.base == "" {
		a.base = c.newOwner(a.n)[:baseSize]
	}
	entry := strings.Join([]string{a.base, decimal(int64(a.n)), script.Millis(a.s.lent()), script.Millis(5 * c.poll() / 2), c.session.ID, ""}, " ")
	return wait.Standing{Owner: a.base, Entry: entry, Lease: a.s.lent()}
}

// Taken implements wait.Taker. What it is told of is only lent, so it is never used: the waiter is asked for, and that is the claim.
func (a *claimant) Taken(wait.Grant) bool { return false }

// ReleaseLater implements wait.Taker.
func (a *claimant) ReleaseLater(after time.Time) {
	a.owes = true
	a.mayRun(after)
}

func (a *claimant) mayRun(until time.Time) {
	if until.After(a.unanswered) {
		a.unanswered = until
	}
}

// explain translates the end of a wait into the caller's error.
func (a *claimant) explain(err error, waited time.Duration) error {
	return wait.Ending{Package: "rsemaphore", Name: a.s.name, Unsure: !a.doubtful.IsZero(), Contended: func(g *wait.GaveUp) error {
		if a.lost {
			return fmt.Errorf("rsemaphore: %w", errLongAgo(a.s.key))
		}
		return &NotAcquiredError{Name: a.s.name, n: a.n, Lease: -1, Waited: waited, cause: g.Cause}
	}}.Explain(err)
}

// claimReply is that of counting_acquire.lua.
type claimReply struct {
	status, server int64
	asked          []int64
	served         served
}

// Clock implements script.Reply.
func (r claimReply) Clock() (server int64, late bool) { return r.server, r.status == countingLate }

// acquireExchange asks for several. kept 0: it is sent once.
func (s *CountingSemaphore) acquireExchange(all []wait.Standing, place bool, kept time.Duration, notAfter int64) exchange[claimReply] {
	args := append(s.self(), decimal(notAfter), flag(place), script.Millis(kept))
	for _, a := range all {
		args = append(args, a.Entry)
	}
	return exchange[claimReply]{script.Call{Script: countingAcquireScript, Keys: s.allKeys(), Once: kept == 0, Args: args}, func(m rueidis.RedisMessage) (claimReply, error) {
		return s.decodeAcquire(m, len(all))
	}}
}

func (s *CountingSemaphore) decodeAcquire(m rueidis.RedisMessage, n int) (r claimReply, err error) {
	v, err := m.ToArray()
	if err != nil || len(v) < 3 {
		return r, malformed("acquire", s.key, &m)
	}
	var bad error
	r.status, err = v[0].AsInt64()
	r.server, bad = v[1].AsInt64()
	r.served.look = -1
	switch {
	case errors.Join(err, bad) != nil:
		return r, malformed("acquire", s.key, &m)
	case r.status == countingNoInteger:
		return r, notInteger(s.key)
	case r.status != countingOK:
		return r, nil
	case len(v) < 3+n:
		return r, malformed("acquire", s.key, &m)
	}
	for _, x := range v[3 : 3+n] {
		ticket, bad := x.AsInt64()
		r.asked, err = append(r.asked, ticket), errors.Join(err, bad)
	}
	r.served, bad = readServed(append(v[2:3:3], v[3+n:]...))
	if errors.Join(err, bad) != nil {
		return r, malformed("acquire", s.key, &m)
	}
	return r, nil
}

// served tells the waiters of this process of what they were given in the reply to a call that was sent at sent.
func (s *CountingSemaphore) served(r served, sent time.Time) {
	if len(r.grants) == 0 && r.look < 0 {
		return
	}
	for i := range r.grants {
		r.grants[i].Sent = sent
	}
	s.c.queue.Served(s.line(), r.grants, r.look)
}

// claimed is what the server said about one claimant.
type claimed struct {
	asked          int64
	sent, received time.Time
}

func (c claimed) answer() wait.Answer {
	// Nobody knows who has the rest. A Java process may, and its releases hand over nothing.
	return wait.Answer{Granted: c.asked == askedGranted, Left: -1, Ticket: max(0, c.asked), Sent: c.sent, Foreign: true}
}

// Ask implements wait.Taker. It is the first request, sent once.
func (a *claimant) Ask(ctx context.Context, standing *wait.Standing) (wait.Answer, error) {
	s := a.s
	own, last := a.Stand(), time.Now()
	call := timed(s.key, s.c.attemptOnce, func(sent time.Time, notAfter int64) exchange[claimReply] {
		last = sent
		return s.acquireExchange([]wait.Standing{own}, standing != nil, 0, notAfter).late(func(r claimReply) {
			s.served(r.served, sent)
			if r.status == countingOK && r.asked[0] == askedGranted {
				s.giveBack(int64(a.n))
			}
		})
	})
	call.Beyond = seeThrough
	r, err := call.Run(ctx, s.c.runner)
	if err != nil {
		if errors.Is(err, ErrUnknownOutcome) {
			s.c.queue.AskAgain(s.line()) // it may have served others of this process
			a.mayRun(last.Add(s.c.opts.CallTimeout))
			err = wait.Final(err)
		}
		return wait.Answer{}, err
	}
	s.served(r.served, last)
	return claimed{r.asked[0], last, time.Now()}.answer(), nil
}

// AskAll implements wait.Batcher.
func (a *claimant) AskAll(ctx context.Context, all []wait.Standing, place bool) ([]any, error) {
	s := a.s
	var last time.Time
	call := timed(s.key, s.c.runner.Attempt, func(sent time.Time, notAfter int64) exchange[claimReply] {
		last = sent
		return s.acquireExchange(all, place, s.kept(), notAfter)
	})
	r, err := call.Run(ctx, s.c.runner)
	if err != nil {
		if !errors.Is(err, ErrUnavailable) {
			s.c.queue.AskAgain(s.line())
		}
		return nil, &unansweredError{err, last, time.Now()}
	}
	s.served(r.served, last)
	replies := make([]any, len(all))
	for i := range all {
		replies[i] = claimed{r.asked[i], last, time.Now()}
	}
	return replies, nil
}

// Told implements wait.Batcher. After a request without an answer the next answer tells what became of it, if the mark of a grant
// cannot be over yet:
//
//	claimant                                         server
//	asks: the request is sent at D  ---------------> granted, marked
//	   no reply, and none for all of the next
//	                                                 the mark is over
//	asks again  -----------------------------------> queued: it knows nothing of the first
//
// Then the outcome of the first is unknown, and nobody may ask again: that could take a second time.
func (a *claimant) Told(reply any, err error) (wait.Answer, error) {
	s := a.s
	if err != nil {
		var u *unansweredError
		if errors.As(err, &u) {
			if errors.Is(err, ErrUnknownOutcome) || script.BrokenOff(err) {
				if a.doubtful.IsZero() {
					a.doubtful = u.sent
				}
				a.mayRun(u.sent.Add(s.c.opts.CallTimeout))
			}
			err = u.error
		}
		return wait.Answer{}, err
	}
	c := reply.(claimed)
	switch kept := s.kept(); {
	case c.asked == askedGranted || a.doubtful.IsZero():
		a.doubtful = time.Time{}
	case c.received.Sub(a.doubtful) > kept-lease.Margin(kept):
		a.lost = true
		return wait.Answer{}, wait.Final(errLongAgo(s.key))
	case c.sent.After(a.unanswered):
		a.doubtful = time.Time{} // it did not run, and cannot any more
	}
	return c.answer(), nil
}

// withdraw takes out what the server has of a waiter that gave up, in the background: at once, and again when no request for it can run
// any more, which is after until. When all that was given to it is back by itself, it goes on no longer.
func (s *CountingSemaphore) withdraw(entry string, until time.Time) {
	s.c.session.Finish(func() {
		hub := s.c.session.Hub.Context()
		end := time.Now().Add(max(s.kept(), time.Until(until)+s.kept()))
		for failures := 0; ; {
			sent := time.Now()
			err := s.runWithdraw(hub, entry)
			pause := time.Until(until)
			switch {
			case err == nil && sent.After(until):
				return
			case err != nil && (!script.Retryable(err) || !sent.Before(end)):
				s.c.session.Logger.Warn("redlatch: permits that may have been granted to a caller that had given up were not given back", "name", s.name, "error", err)
				return
			case err != nil:
				failures++
				pause = script.Backoff(failures)
			}
			if !script.Pause(hub, pause+time.Millisecond) {
				return
			}
		}
	})
}

func (s *CountingSemaphore) runWithdraw(ctx context.Context, entry string) error {
	ctx, cancel := s.c.session.Bounded(ctx)
	defer cancel()
	x := s.changeExchange(countingWithdrawScript, "withdraw", false, entry)
	x.Once = false // a second run finds nothing
	sent := time.Now()
	r, err := x.by(ctx, s.c.runner.Attempt)
	if err != nil {
		s.c.queue.AskAgain(s.line())
		return err
	}
	s.served(r.served, sent)
	if r.status > 0 {
		s.c.queue.Wake(s.line())
	}
	return nil
}

// giveBack gives back what a request took that had been given up on.
func (s *CountingSemaphore) giveBack(took int64) {
	if took == 0 {
		return
	}
	err := s.c.session.Enter()
	if err == nil {
		defer s.c.session.Leave()
		ctx, cancel := context.WithTimeout(context.Background(), s.c.session.Bound())
		defer cancel()
		_, err = s.runAdd(ctx, took, false)
	}
	if err != nil {
		s.c.session.Logger.Warn("redlatch: permits taken for a caller that had given up were not given back", "name", s.name, "permits", took, "error", err)
	}
}
