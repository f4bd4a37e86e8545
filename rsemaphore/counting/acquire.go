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

// queueKey names the queue of this process's waiters for the semaphore. Waiters for the same number queue behind each
// other, and one of them contends. Waiters for different numbers do not. The total number of permits is not known, so
// the first in the queue may want more than there will ever be.
func (s *Semaphore) queueKey() string { return "counting:" + s.key }

// acquire takes that many permits. It waits until the instant until; zero: only ctx bounds the wait. With once it does
// not wait.
//
// While no caller of the process waits, requests go out in parallel. After the first refusal new callers that may wait
// join the local queue.
func (s *Semaphore) acquire(ctx context.Context, permits int, until time.Time, once bool) error {
	if err := cmp.Or(s.bad, session.CheckNumber("permits", int64(permits), 1, maxPermits)); err != nil {
		return s.session.Error(err)
	}
	if err := s.session.Enter(); err != nil {
		return err
	}
	defer s.session.Leave()
	ctx = s.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: s.name, N: int64(permits)})
	began := time.Now()
	own := &acquisition{semaphore: s, permits: permits, announced: notAnnounced}
	request := wait.Request{Name: s.name, Object: s, Began: began, QueueKey: s.queueKey(),
		QueueClass: strconv.Itoa(permits), Channel: s.channel, Until: until, Try: own.try, OnMessage: own.onMessage,
		Watcher: own}
	refused := !once && s.waiters.Members(request.QueueKey) > 0
	var err error
	if !refused {
		alone := request
		alone.Mode, alone.Until, alone.OnMessage = wait.Alone, began, nil
		err = s.waiters.Wait(ctx, alone)
		if gaveUp := (*wait.GaveUp)(nil); !once && errors.As(err, &gaveUp) {
			if ended := context.Cause(ctx); ended != nil { // it ended after the refusal, and the error has both
				gaveUp.Cause = cmp.Or(gaveUp.Cause, ended)
			} else {
				refused = until.IsZero() || time.Now().Before(until)
			}
		}
	}
	if refused {
		own.tries = 0
		err = s.waiters.Wait(ctx, request)
	}
	waited := time.Since(began)
	if err != nil {
		err = wait.Ending{Package: "rsemaphore", Name: s.name, Contended: func(gaveUp *wait.GaveUp) error {
			return &errs.NotAcquiredError{Name: s.name, N: permits, Lease: -1, Waited: waited, Cause: gaveUp.Cause}
		}}.Explain(err)
		s.session.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: s.name, N: int64(permits), Took: waited,
			Waited: own.waited, Err: err})
		return err
	}
	s.session.Answered()
	s.session.Tell(ctx,
		errs.Event{Kind: errs.EventAcquired, Name: s.name, N: int64(permits), Took: waited, Waited: own.waited})
	return nil
}

// acquisition is one call of Acquire. Each of its requests that take permits is sent once, because the server could not
// distinguish a second request from another caller's. A request of unknown outcome ends the wait. So a waiter sends few
// requests that take:
//
//	reason                                     request
//	it comes; it has subscribed                takes
//	a message that enough are free             takes
//	a message that too few are free            none
//	PollCap is over, another has left          reads, which may be repeated; takes if enough are free
//
// An outage therefore ends a wait only if it loses one of the few requests that take.
type acquisition struct {
	semaphore *Semaphore
	permits   int
	tries     int   // attempts since it joined the local queue
	waited    bool  // the call has waited for others
	announced int64 // the highest number of free permits in a message since the last attempt; or notAnnounced
}

const notAnnounced int64 = -1

// BeginWait implements wait.Watcher.
func (t *acquisition) BeginWait(*wait.Caller) { t.waited = true }

// onMessage reads a message: the number of free permits. A message grants nothing.
func (t *acquisition) onMessage(payload string) bool {
	if free, err := strconv.ParseInt(payload, 10, 64); err == nil {
		t.announced = max(t.announced, free)
	}
	return false
}

// try implements wait.Request.Try.
func (t *acquisition) try(ctx context.Context) (wait.Answer, error) {
	refused := wait.Answer{Left: -1}
	asked, free := t.tries, t.announced
	t.tries, t.announced = asked+1, notAnnounced
	if asked >= 2 {
		if free == notAnnounced {
			var err error
			free, err = t.semaphore.get(ctx, t.semaphore.session.Runner.Attempt)
			if err != nil && !errors.Is(err, errs.ErrWrongType) {
				return refused, err
			} else if err != nil {
				free = int64(t.permits) // the request that takes returns the error
			}
		}
		if free < int64(t.permits) {
			return refused, nil
		}
	}
	took, err := t.semaphore.take(ctx, t.permits)
	if errors.Is(err, errs.ErrUnknownOutcome) {
		err = wait.Final(err)
	}
	refused.Granted = took
	return refused, err
}

// takeReply is the reply of acquire.lua.
type takeReply struct{ status, server int64 }

// Clock implements script.Reply.
func (r takeReply) Clock() (server int64, late bool) { return r.server, r.status == statusLate }

func (s *Semaphore) decodeTake(message rueidis.RedisMessage) (takeReply, error) {
	values, err := s.numbers(message, 2)
	switch {
	case err != nil:
		return takeReply{}, err
	case values[0] == statusNoInteger:
		return takeReply{}, s.notInteger()
	}
	return takeReply{values[0], values[1]}, nil
}

// take sends one request for permits. If the reply comes after its caller has given up, the permits are given back.
func (s *Semaphore) take(ctx context.Context, permits int) (took bool, err error) {
	var replied chan struct{}
	call := script.Timed[takeReply]{Key: s.key, Beyond: session.ReplyGrace, Decode: s.decodeTake,
		Send: func(ctx context.Context, _ time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			call := s.scriptCall(acquireScript, strconv.Itoa(permits), strconv.FormatInt(notAfter, 10))
			done := make(chan struct{})
			replied = done
			call.Once, call.Late = true, func(res rueidis.RedisResult) {
				defer close(done)
				if message, err := res.ToMessage(); err == nil {
					if reply, err := s.decodeTake(message); err == nil && reply.status == statusOK {
						s.giveBack(int64(permits))
					}
				}
			}
			return s.session.AttemptOnce(ctx, call)
		}}
	reply, err := call.Run(ctx, s.session.Runner)
	s.awaitReply(err, replied)
	return reply.status == statusOK, err
}

// awaitReply makes Close wait for the reply to a request of unknown outcome, whose caller has given up. The permits go
// back over a connection that is closed after Close. After a CallTimeout a reply is unlikely, and may never come.
func (s *Semaphore) awaitReply(err error, replied <-chan struct{}) {
	if !errors.Is(err, errs.ErrUnknownOutcome) {
		return
	}
	s.session.Finish(func() {
		timer := time.NewTimer(s.session.CallTimeout)
		defer timer.Stop()
		select {
		case <-replied:
		case <-timer.C:
		}
	})
}

// giveBack gives back the permits of a request whose caller has given up, also while the client closes.
func (s *Semaphore) giveBack(permits int64) {
	s.session.Join()
	defer s.session.Leave()
	ctx, cancel := context.WithTimeout(context.Background(), s.session.GiveBackBound())
	defer cancel()
	if _, err := s.runAdd(ctx, permits); err != nil {
		s.session.Logger.Warn("redlatch: permits acquired for a caller that had given up were not returned", "name", s.name,
			"permits", permits, "error", err)
	}
}
