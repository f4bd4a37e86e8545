package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// contend makes requests until a request is granted, or the wait ends otherwise.
func (w *Caller) contend() error {
	for {
		if w.results.tries > 0 && !w.pause() {
			return w.gaveUp()
		}
		if done, err := w.endedByOther(); done {
			return err
		}
		if w.takesGrant() {
			return nil
		}
		// Messages are read before the request is sent, because this request answers them.
		if w.request.OnMessage != nil && w.releases.sub != nil && w.readMessages() && w.releases.endedByMessage {
			return nil
		}
		if done, err := w.try(); done {
			return err
		}
	}
}

// try makes a request. done: the wait is over, with err. Otherwise the reply is in answer, or err says why the server
// did not reply.
func (w *Caller) try() (done bool, err error) {
	began := time.Now()
	answer, err := w.sendRequest()
	return w.recordResult(began, answer, err)
}

// requestContext returns the context of the next request. The first request, and those of a cohort, do not end with
// Request.Until.
func (w *Caller) requestContext() context.Context {
	if w.results.tries > 0 && w.request.Mode != Cohort {
		return w.waitContext()
	}
	return w.ctx
}

// recordResult records the result of a request that was sent at began. The results are as of try.
func (w *Caller) recordResult(began time.Time, answer Answer, err error) (bool, error) {
	ctx := w.requestContext()
	w.results.answer = answer
	w.results.tries++
	if err == nil {
		w.waiters.Silence.RecordAnswer(&w.request)
	}
	switch {
	case err == nil && answer.Granted:
		return true, nil
	case err == nil:
		w.recordRefusal(answer, began)
	case !script.NotAnswered(err):
		return true, err
	default:
		w.recordNoReply(ctx, began, err)
	}
	switch {
	case w.waiters.Ended(w.ctx) != nil || w.isTimeUp():
		return true, w.gaveUp()
	case err == nil:
		w.reportWaiting()
	default:
		w.waiters.Silence.recordFailure(&w.request, began, err)
	}
	return false, err
}

// takesGrant reports whether a grant has come, and makes the waiter the holder.
func (w *Caller) takesGrant() bool {
	if w.place.entry == nil {
		return false
	}
	used, _ := w.takeGrant()
	return used
}

// reportWaiting reports, once, that the caller waits for others: it was refused, or its process holds the lock, or
// another caller is before it.
func (w *Caller) reportWaiting() {
	if w.waitReported {
		return
	}
	w.waitReported = true // not in w.request, which a call for the waiters reads on its own goroutine
	if watcher := w.request.Watcher; watcher != nil {
		watcher.BeginWait(w)
	}
	if !w.request.Reported && w.request.Mode != Cohort {
		w.waiters.onWait(w.ctx, w.request.Name)
	}
}

// handOverTaker returns the Taker of the hand-over; nil for a waiter in no local queue.
func (w *Caller) handOverTaker() Taker {
	if w.localQueue == nil {
		return nil
	}
	return w.request.Taker
}

// prepare shares the subscriptions of the process, before the first request.
func (w *Caller) prepare() {
	switch {
	case w.request.Backoff != nil:
	case w.handOverTaker() == nil:
		// A subscription of the process costs nothing, and saves the request after a new subscription.
		w.attach(w.waiters.hubInternals.TrySubscribe(w.request.Channel))
	case w.waiters.isSubscribed(w.request.Grants):
		w.register(true)
	}
}

// sendRequest sends one request.
func (w *Caller) sendRequest() (answer Answer, err error) {
	ctx := w.requestContext()
	switch {
	case w.handOverTaker() != nil:
		answer, err = w.request.Taker.Ask(ctx, w.entryForRequest())
		w.recordTicket(answer, err)
	case w.request.Taker != nil:
		answer, err = w.request.Taker.Ask(ctx, nil)
	default:
		answer, err = w.request.Try(ctx)
	}
	return answer, err
}

// recordNoReply records that a request, sent at began with ctx, got no reply.
func (w *Caller) recordNoReply(ctx context.Context, began time.Time, err error) {
	// A request that the end of the caller's time cut short proves nothing about the server, so an earlier finding stays.
	// The server gets the end of that time, and may refuse a later request by its own clock before the timer here goes
	// off. So a deadline that leaves no time for another request counts as the end.
	if end, ok := ctx.Deadline(); !w.results.everAnswered && (w.results.lastErr == nil || !errs.IsCut(err)) ||
		ctx.Err() == nil && !(ok && time.Until(end) <= time.Since(began)) {
		w.recordFinding(-1, err)
	}
	w.results.outage.record(began)
}

// recordRefusal records the refusal of a request that was sent at began.
func (w *Caller) recordRefusal(answer Answer, began time.Time) {
	w.results.everAnswered, w.results.silentFor = true, time.Since(began)
	if w.results.outage.failures > 0 {
		w.results.silentFor, w.results.outage = time.Since(w.results.outage.since), outage{}
	}
	w.recordFinding(answer.Left, nil)
}

// pause awaits a reason for the next request. It returns false if the wait is over.
func (w *Caller) pause() bool {
	handsOver, answer := w.handOverTaker() != nil, &w.results.answer
	switch {
	case w.results.outage.failures > 0:
		return w.pauseAfterFailure(w.waiters.retryIn(w.results.outage))
	case w.request.Backoff != nil:
		return w.sleep(min(w.request.Backoff(w.results.tries-1), w.waiters.pollCap))
	case handsOver && !w.place.hearsGrants() && w.listenForGrants():
		return true // if the subscription stands, the next request enters the server's queue
	case (!handsOver || answer.Release == OnChannel) && w.releases.sub == nil && w.subscribeToReleases():
		return true // a request at once: see the package comment
	}
	sleep := w.sleepTime()
	if w.releases.refusals > 0 {
		sleep = min(sleep, script.Backoff(w.releases.refusals))
	}
	if answer.RepeatIn > 0 {
		sleep = min(sleep, answer.RepeatIn)
	}
	return w.sleep(sleep)
}

// sleepTime returns how long the waiter sleeps if nothing wakes it.
func (w *Caller) sleepTime() time.Duration {
	sleep := w.waiters.pollCap
	if w.place.entry != nil { // it may have an entry in a queue on the server
		sleep = min(sleep, MaxPoll)
	}
	if w.place.hearsGrants() && w.results.answer.Ticket == 0 { // the slot is being migrated: releases are not published
		sleep /= pollsWithoutPlace
	}
	left := w.results.remainingLease()
	if left >= 0 {
		sleep = min(sleep, AfterLease(left))
	}
	// A stall of the server gathers polls. They are spread over as long a time as the stall took.
	sleep -= rand.N(max(sleep/10, min(w.results.silentFor, sleep)) + 1)
	if left >= 0 && left < sleep {
		sleep = script.Expiry(left)
	}
	return sleep
}

// isReleaseSilent reports whether, by the last reply, no grant follows the holder's release.
func (r *requestResults) isReleaseSilent() bool { return r.answer.Release != AsGrant }

// remainingLease returns the rest of the holder's lease by the last reply; negative: not known.
func (r *requestResults) remainingLease() time.Duration {
	if r.leaseLeft < 0 {
		return r.leaseLeft
	}
	return max(0, r.leaseLeft-time.Since(r.answeredAt))
}

// AfterLease returns how long to sleep for a lease that ends in left. A random time is added to the end of the lease,
// because all waiters of all processes know the same instant.
func AfterLease(left time.Duration) time.Duration {
	return script.Expiry(left) + rand.N(time.Millisecond+left/50)
}

// pollsWithoutPlace is how often a waiter polls in a PollCap while the server's queue cannot be used.
const pollsWithoutPlace = 20

// pauseAfterFailure waits for pause, or until a grant comes. It returns false if the wait is over.
func (w *Caller) pauseAfterFailure(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wakeup:
	case <-w.waitContext().Done():
		return false
	}
	return true
}

// sleep waits for a reason for the next request, for timeout at most. It returns false if the wait is over.
func (w *Caller) sleep(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if w.skipsPoll() {
				timer.Reset(w.sleepTime())
				continue
			}
			w.waiters.onWakeup(w.ctx, w.request.Name, false)
		case <-w.messages():
			if w.request.OnMessage != nil && !w.readMessages() {
				continue // the messages were read before the last request
			}
			w.waiters.onWakeup(w.ctx, w.request.Name, true)
		case <-w.wakeup:
			w.waiters.onWakeup(w.ctx, w.request.Name, true)
		case <-w.waitContext().Done():
			return false
		}
		return true
	}
}
