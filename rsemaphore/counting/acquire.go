package counting

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// queueKey is where the process's waiters of this semaphore stand. Those that want the same number stand behind each
// other, and one of them contends. Waiters for different numbers do not: no one knows how many permits there are in
// all, so the one in front may want more than there will ever be.
func (s *Semaphore) queueKey() string { return "counting:" + s.key }

// acquire takes n permits, waiting until until; zero: only ctx bounds the wait. once: it does not wait.
//
// While no caller of the process waits, requests go out in parallel. From the first that is refused on, newcomers that
// may wait go into the line.
func (s *Semaphore) acquire(ctx context.Context, n int, until time.Time, once bool) error {
	if err := cmp.Or(s.bad, session.CheckNumber("permits", int64(n), 1, maxPermits)); err != nil {
		return s.session.Error(err)
	}
	if err := s.session.Enter(); err != nil {
		return err
	}
	defer s.session.Leave()
	ctx = s.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: s.name, N: int64(n)})
	began := time.Now()
	t := &taker{s: s, n: n, free: unheard}
	r := wait.Request{Name: s.name, Of: s, Began: began, QueueKey: s.queueKey(), Manner: strconv.Itoa(n),
		Channel: s.channel,
		Until:   until, Try: t.try, OnMessage: t.onMessage}
	refused := !once && s.session.Waiters.Members(r.QueueKey) > 0
	var err error
	if !refused {
		alone := r
		alone.Mode, alone.Until, alone.OnMessage = wait.Alone, began, nil
		err = s.session.Waiters.Wait(ctx, alone)
		if g := (*wait.GaveUp)(nil); !once && errors.As(err, &g) {
			if ended := context.Cause(ctx); ended != nil { // it ended after the refusal, and the caller is to hear of both
				g.Cause = cmp.Or(g.Cause, ended)
			} else {
				refused = until.IsZero() || time.Now().Before(until)
			}
		}
	}
	if refused {
		t.asked = 0
		err = s.session.Waiters.Wait(ctx, r)
	}
	waited := time.Since(began)
	if err != nil {
		err = wait.Ending{Package: "rsemaphore", Name: s.name, Contended: func(g *wait.GaveUp) error {
			return &errs.NotAcquiredError{Name: s.name, N: n, Lease: -1, Waited: waited, Cause: g.Cause}
		}}.Explain(err)
		s.session.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: s.name, N: int64(n), Took: waited, Err: err})
		return err
	}
	s.session.Answered()
	s.session.Tell(ctx, errs.Event{Kind: errs.EventAcquired, Name: s.name, N: int64(n), Took: waited})
	return nil
}

// taker is one call of Acquire. Each of its requests that take permits is sent once, because the server could not tell
// a second from another caller's, and one of unknown outcome ends the wait. So a waiter makes few of them:
//
//	reason                                     request
//	it comes; it has subscribed                takes
//	a message that enough are free             takes
//	a message that too few are free            none
//	PollCap is over, another has left          looks, which may be repeated; takes if enough are free
//
// An outage therefore ends a wait only if it loses one of the few requests that take.
type taker struct {
	s     *Semaphore
	n     int
	asked int   // tries since it came into the line
	free  int64 // the most that a message said were free since the last try, or unheard
}

const unheard int64 = -1

// onMessage reads a message, which is the number of permits that are free. Nothing is granted by it.
func (t *taker) onMessage(payload string) bool {
	if n, err := strconv.ParseInt(payload, 10, 64); err == nil {
		t.free = max(t.free, n)
	}
	return false
}

// try implements wait.Request.Try.
func (t *taker) try(ctx context.Context) (wait.Answer, error) {
	refused := wait.Answer{Left: -1}
	asked, free := t.asked, t.free
	t.asked, t.free = asked+1, unheard
	if asked >= 2 {
		if free == unheard {
			var err error
			if free, err = t.s.get(ctx, t.s.session.Runner.Attempt); err != nil && !errors.Is(err, errs.ErrWrongType) {
				return refused, err
			} else if err != nil {
				free = int64(t.n) // the request that takes says what is wrong
			}
		}
		if free < int64(t.n) {
			return refused, nil
		}
	}
	took, err := t.s.take(ctx, t.n)
	if errors.Is(err, errs.ErrUnknownOutcome) {
		err = wait.Final(err)
	}
	refused.Granted = took
	return refused, err
}

// takeReply is that of acquire.lua.
type takeReply struct{ status, server int64 }

// Clock implements script.Reply.
func (r takeReply) Clock() (server int64, late bool) { return r.server, r.status == statusLate }

func (s *Semaphore) decodeTake(m rueidis.RedisMessage) (takeReply, error) {
	v, err := s.numbers(m, 2)
	switch {
	case err != nil:
		return takeReply{}, err
	case v[0] == statusNoInteger:
		return takeReply{}, s.notInteger()
	}
	return takeReply{v[0], v[1]}, nil
}

// take asks once for n permits. If the reply comes after its caller has given up, what was taken is given back.
func (s *Semaphore) take(ctx context.Context, n int) (took bool, err error) {
	var replied chan struct{}
	call := script.Timed[takeReply]{Key: s.key, Beyond: session.ReplyGrace, Decode: s.decodeTake,
		Send: func(ctx context.Context, _ time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			call, done := s.call(acquireScript, strconv.Itoa(n), strconv.FormatInt(notAfter, 10)), make(chan struct{})
			replied = done
			call.Once, call.Late = true, func(res rueidis.RedisResult) {
				defer close(done)
				if m, err := res.ToMessage(); err == nil {
					if r, err := s.decodeTake(m); err == nil && r.status == statusOK {
						s.giveBack(int64(n))
					}
				}
			}
			return s.session.AttemptOnce(ctx, call)
		}}
	r, err := call.Run(ctx, s.session.Runner)
	s.awaitReply(err, replied)
	return r.status == statusOK, err
}

// awaitReply has Close wait for the reply to a request whose caller has given up on it, if that is what err says: what
// it took goes back over a connection that is closed after Close. After a CallTimeout a reply is unlikely, and none may
// come at all.
func (s *Semaphore) awaitReply(err error, replied <-chan struct{}) {
	if !errors.Is(err, errs.ErrUnknownOutcome) {
		return
	}
	s.session.Finish(func() {
		t := time.NewTimer(s.session.CallTimeout)
		defer t.Stop()
		select {
		case <-replied:
		case <-t.C:
		}
	})
}

// giveBack gives back what a request took that had been given up on, also while the client closes.
func (s *Semaphore) giveBack(took int64) {
	s.session.Join()
	defer s.session.Leave()
	ctx, cancel := context.WithTimeout(context.Background(), s.session.GiveBackBound())
	defer cancel()
	if _, err := s.runAdd(ctx, took); err != nil {
		s.session.Logger.Warn("redlatch: permits taken for a caller that had given up were not given back", "name", s.name,
			"permits", took, "error", err)
	}
}
