package wait

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// contend asks until it is granted, or there is a reason to stop.
func (w *Caller) contend() error {
	for {
		if w.tries > 0 && !w.pause() {
			return w.gaveUp()
		}
		if done, err := w.endedByOther(); done {
			return err
		}
		if w.takesGrant() {
			return nil
		}
		// A message from before the request is sent is not a reason for another one.
		if w.request.OnMessage != nil && w.sub != nil && w.readMessages() && w.endedByMessage {
			return nil
		}
		if done, err := w.try(); done {
			return err
		}
	}
}

// try makes a request. done: the wait is over, with err; otherwise err is why the server could not be asked, and the
// reply is in answer.
func (w *Caller) try() (done bool, err error) {
	began := time.Now()
	w.answer, err = w.ask()
	w.tries++
	w.recordReply(began, err == nil)
	switch {
	case err == nil && w.answer.Granted:
		return true, nil
	case err != nil && !script.NotAnswered(err):
		return true, err
	case w.waiters.Ended(w.ctx) != nil || w.isTimeUp():
		return true, w.gaveUp()
	case err == nil:
		w.reportWaiting()
	default:
		w.waiters.Silence.recordFailure(&w.request, began, err)
	}
	return false, err
}

// holdsGrant reports whether a grant has come that is used.
func (w *Caller) takesGrant() bool {
	if w.entry == nil {
		return false
	}
	used, _ := w.takeGrant()
	return used
}

// waits reports, once, that the caller waits for others: it was refused, or its process holds what it asks for, or
// another is before it.
func (w *Caller) reportWaiting() {
	if !w.waitReported {
		w.waitReported = true
		w.waiters.onWait(w.ctx, w.request.Name)
	}
}

// taker returns what takes part in the hand-over; nil for a waiter that stands in no local queue.
func (w *Caller) handOverTaker() Taker {
	if w.localQueue == nil {
		return nil
	}
	return w.request.Taker
}

// prepare does what comes before the first try.
func (w *Caller) prepare() {
	switch {
	case w.request.Backoff != nil:
	case w.handOverTaker() == nil:
		// Where the process is subscribed already this costs nothing, and saves the try after the subscription.
		w.attach(w.waiters.hubInternals.TrySubscribe(w.request.Channel))
	case w.waiters.isSubscribed(w.request.Grants):
		w.register(true)
	}
}

// ask asks the server. An error after which asking again may help is noted, and counted in failures.
func (w *Caller) ask() (answer Answer, err error) {
	ctx := w.ctx
	if w.tries > 0 && w.request.Mode != Cohort {
		ctx = w.waitContext()
	}
	began := time.Now()
	switch {
	case w.handOverTaker() != nil:
		answer, err = w.request.Taker.Ask(ctx, w.entryForRequest())
		w.recordTicket(answer, err)
	case w.request.Taker != nil:
		answer, err = w.request.Taker.Ask(ctx, nil)
	default:
		answer, err = w.request.Try(ctx)
	}
	w.moveChannel(answer.Channel)
	if err == nil {
		w.waiters.Silence.recordAnswer(&w.request)
	}
	switch {
	case err == nil && answer.Granted:
	case err == nil:
		w.recordRefusal(answer, began)
	case script.NotAnswered(err):
		// A try that the waiter's own patience cut short says nothing about the server. The server gets the time when the
		// patience ends, and may refuse what comes later by its clock before the timer here goes off. No other try would fit
		// in, either. What an earlier try has found out about the server stays.
		if end, ok := ctx.Deadline(); !w.everAnswered && (w.lastErr == nil || !errs.IsCut(err)) ||
			ctx.Err() == nil && !(ok && time.Until(end) <= time.Since(began)) {
			w.recordFinding(-1, err)
		}
		if w.failures++; w.silentSince.IsZero() {
			w.silentSince = began
		}
	}
	return answer, err
}

// noteRefusal takes in the refusal of a try that began then.
func (w *Caller) recordRefusal(answer Answer, began time.Time) {
	w.everAnswered, w.failures = true, 0
	if w.silentFor = time.Since(began); !w.silentSince.IsZero() {
		w.silentFor, w.silentSince = time.Since(w.silentSince), time.Time{}
	}
	w.recordFinding(answer.Left, nil)
}

// pause waits after a try for a reason to ask again; false: out of patience.
func (w *Caller) pause() bool {
	hands, answer := w.handOverTaker() != nil, &w.answer
	switch {
	case w.failures > 0:
		return w.pauseAfterFailure(w.waiters.retryIn(w.failures, w.silentSince))
	case w.request.Backoff != nil:
		return w.sleep(min(w.request.Backoff(w.tries-1), w.waiters.pollCap))
	case hands && !w.hearsGrants() && w.listenForGrants():
		return true // the next try asks for a place in the queue, if grants are heard by now
	case (!hands || answer.Foreign) && w.sub == nil && w.subscribeToReleases():
		return true // try again at once: see the package comment
	}
	sleep := w.sleepTime()
	if w.subscribeRefusals > 0 {
		sleep = min(sleep, script.Backoff(w.subscribeRefusals))
	}
	if answer.Soon > 0 {
		sleep = min(sleep, answer.Soon)
	}
	return w.sleep(sleep)
}

// sleepTime returns how long to sleep when nothing happens.
func (w *Caller) sleepTime() time.Duration {
	sleep := w.waiters.pollCap
	if w.entry != nil || w.request.Own { // in a queue on the server, ours or Redisson's
		sleep = min(sleep, MaxPoll)
	}
	if w.hearsGrants() && w.answer.Ticket == 0 { // the key's slot is being migrated, and no release is published meanwhile
		sleep /= pollsWithoutPlace
	}
	left := w.remainingLease()
	if left >= 0 {
		sleep = min(sleep, AfterLease(left))
	}
	// After a stall the polls that have gathered are spread over as long a time as the stall took.
	sleep -= rand.N(max(sleep/10, min(w.silentFor, sleep)) + 1)
	if left >= 0 && left < sleep {
		sleep = script.Expiry(left)
	}
	return sleep
}

// isUntold reports whether, by the last answer, no grant says when the holder is through.
func (w *Caller) isReleaseSilent() bool { return w.answer.Foreign || w.answer.Unpublished }

// left is what is left of the holder's lease by the last answer; negative: unknown.
func (w *Caller) remainingLease() time.Duration {
	if w.leaseLeft < 0 {
		return w.leaseLeft
	}
	return max(0, w.leaseLeft-time.Since(w.answeredAt))
}

// AfterLease returns how long to sleep for a lease that ends in left: until it has expired, and by a random time
// longer, because all waiters of all processes know the same instant.
func AfterLease(left time.Duration) time.Duration {
	return script.Expiry(left) + rand.N(time.Millisecond+left/50)
}

// placelessPolls is how often a waiter asks in a PollCap while the server's queue cannot be used.
const pollsWithoutPlace = 20

// rest pauses after a failure, for d or until a grant comes; false: out of patience.
func (w *Caller) pauseAfterFailure(sleep time.Duration) bool {
	timer := time.NewTimer(sleep)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wakeup:
	case <-w.waitContext().Done():
		return false
	}
	return true
}

// sleep waits for a reason to try again, for d at most; false: out of patience.
func (w *Caller) sleep(sleep time.Duration) bool {
	timer := time.NewTimer(sleep)
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
				continue // what has come was heard before the last try
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
