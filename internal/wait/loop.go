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
		if done, err := w.served(); done {
			return err
		}
		if w.holdsGrant() {
			return nil
		}
		// A message from before the request is sent is not a reason for another one.
		if w.r.OnMessage != nil && w.sub != nil && w.readMessages() && w.answered {
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
	w.paced(began, err == nil)
	switch {
	case err == nil && w.answer.Granted:
		return true, nil
	case err != nil && !script.NotAnswered(err):
		return true, err
	case w.q.Ended(w.ctx) != nil || w.late():
		return true, w.gaveUp()
	case err == nil:
		w.waits()
	default:
		w.q.Silence.failed(&w.r, began, err)
	}
	return false, err
}

// holdsGrant reports whether a grant has come that is used.
func (w *Caller) holdsGrant() bool {
	if w.entry == nil {
		return false
	}
	used, _ := w.taken()
	return used
}

// waits reports, once, that the caller waits for others: it was refused, or its process holds what it asks for, or
// another is before it.
func (w *Caller) waits() {
	if !w.reported {
		w.reported = true
		w.q.waits(w.ctx, w.r.Name)
	}
}

// taker returns what takes part in the hand-over; nil for a waiter that stands in no local queue.
func (w *Caller) taker() Taker {
	if w.localQueue == nil {
		return nil
	}
	return w.r.Taker
}

// prepare does what comes before the first try.
func (w *Caller) prepare() {
	switch {
	case w.r.Backoff != nil:
	case w.taker() == nil:
		// Where the process is subscribed already this costs nothing, and saves the try after the subscription.
		w.attach(w.q.inner.TrySubscribe(w.r.Channel))
	case w.q.hearsGrants(w.r.Grants):
		w.register(true)
	}
}

// ask asks the server. An error after which asking again may help is noted, and counted in failures.
func (w *Caller) ask() (answer Answer, err error) {
	ctx := w.ctx
	if w.tries > 0 && w.r.Mode != Cohort {
		ctx = w.waitContext()
	}
	began := time.Now()
	switch {
	case w.taker() != nil:
		answer, err = w.r.Taker.Ask(ctx, w.asking())
		w.learn(answer, err)
	case w.r.Taker != nil:
		answer, err = w.r.Taker.Ask(ctx, nil)
	default:
		answer, err = w.r.Try(ctx)
	}
	w.move(answer.Channel)
	if err == nil {
		w.q.Silence.answered(&w.r)
	}
	switch {
	case err == nil && answer.Granted:
	case err == nil:
		w.noteRefusal(answer, began)
	case script.NotAnswered(err):
		// A try that the waiter's own patience cut short says nothing about the server. The server gets the time when the
		// patience ends, and may refuse what comes later by its clock before the timer here goes off. No other try would fit
		// in, either. What an earlier try has found out about the server stays.
		if end, ok := ctx.Deadline(); !w.everAnswered && (w.failure == nil || !errs.IsCut(err)) ||
			ctx.Err() == nil && !(ok && time.Until(end) <= time.Since(began)) {
			w.note(-1, err)
		}
		if w.failures++; w.silentSince.IsZero() {
			w.silentSince = began
		}
	}
	return answer, err
}

// noteRefusal takes in the refusal of a try that began then.
func (w *Caller) noteRefusal(answer Answer, began time.Time) {
	w.everAnswered, w.failures = true, 0
	if w.silence = time.Since(began); !w.silentSince.IsZero() {
		w.silence, w.silentSince = time.Since(w.silentSince), time.Time{}
	}
	w.note(answer.Left, nil)
}

// pause waits after a try for a reason to ask again; false: out of patience.
func (w *Caller) pause() bool {
	hands, a := w.taker() != nil, &w.answer
	switch {
	case w.failures > 0:
		return w.rest(w.q.retryIn(w.failures, w.silentSince))
	case w.r.Backoff != nil:
		return w.sleep(min(w.r.Backoff(w.tries-1), w.q.pollCap))
	case hands && !w.hears() && w.listenForGrants():
		return true // the next try asks for a place in the queue, if grants are heard by now
	case (!hands || a.Foreign) && w.sub == nil && w.subscribe():
		return true // try again at once: see the package comment
	}
	d := w.sleepTime()
	if w.refusals > 0 {
		d = min(d, script.Backoff(w.refusals))
	}
	if a.Soon > 0 {
		d = min(d, a.Soon)
	}
	return w.sleep(d)
}

// sleepTime returns how long to sleep when nothing happens.
func (w *Caller) sleepTime() time.Duration {
	d := w.q.pollCap
	if w.entry != nil || w.r.Own { // in a queue on the server, ours or Redisson's
		d = min(d, MaxPoll)
	}
	if w.hears() && w.answer.Ticket == 0 { // the key's slot is being migrated, and no release is published meanwhile
		d /= placelessPolls
	}
	left := w.left()
	if left >= 0 {
		d = min(d, AfterLease(left))
	}
	d -= rand.N(max(d/10, min(w.silence, d)) + 1) // what a stall has gathered is spread over as long a time again
	if left >= 0 && left < d {
		d = script.Expiry(left)
	}
	return d
}

// isUntold reports whether, by the last answer, no grant says when the holder is through.
func (w *Caller) isUntold() bool { return w.answer.Foreign || w.answer.Unpublished }

// left is what is left of the holder's lease by the last answer; negative: unknown.
func (w *Caller) left() time.Duration {
	if w.known < 0 {
		return w.known
	}
	return max(0, w.known-time.Since(w.asked))
}

// AfterLease returns how long to sleep for a lease that ends in left: until it has expired, and by a random time
// longer, because all waiters of all processes know the same instant.
func AfterLease(left time.Duration) time.Duration {
	return script.Expiry(left) + rand.N(time.Millisecond+left/50)
}

// placelessPolls is how often a waiter asks in a PollCap while the server's queue cannot be used.
const placelessPolls = 20

// rest pauses after a failure, for d or until a grant comes; false: out of patience.
func (w *Caller) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.wakeup:
	case <-w.waitContext().Done():
		return false
	}
	return true
}

// sleep waits for a reason to try again, for d at most; false: out of patience.
func (w *Caller) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if w.sleepsOn() {
				t.Reset(w.sleepTime())
				continue
			}
			w.q.woken(w.ctx, w.r.Name, false)
		case <-w.pushes():
			if w.r.OnMessage != nil && !w.readMessages() {
				continue // what has come was heard before the last try
			}
			w.q.woken(w.ctx, w.r.Name, true)
		case <-w.wakeup:
			w.q.woken(w.ctx, w.r.Name, true)
		case <-w.waitContext().Done():
			return false
		}
		return true
	}
}
