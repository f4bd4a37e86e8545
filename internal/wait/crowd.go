package wait

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/script"
)

// crowdSize is the number of keys for which a process may wait while all of its waiters poll every PollCap. A process
// that waits for more keys is a crowd. In a crowd a waiter skips polls (skipsPoll), and polls once in QueueEntry.Poll,
// if a message announces every release of its lock. Otherwise the polls of thousands of waiters would be most of the
// server's load.
//
// isCrowd is called when an entry is made, and whenever a poll is due. An entry says how long its waiter may make no
// request. The entry never changes, because it is also the waiter's place. So the 64 earlier waiters go on polling
// every PollCap: with a poll every 10 s they would lose their places after each 2.5 s
// (TestCrowd_EarlierWaiter_PollsEveryPollCap).
//
//	64 waiters                     server                             the 65th and later ones
//	entries: stale after 2.5 s --> keeps them
//	                               keeps them                     <-- entries: stale after 25 s
//	poll every PollCap             drops no entry                     poll every 10 s
//
// docs/design/protocols.md, "Crowds", lists the other cases.
const crowdSize = 64

// isCrowd reports whether the process waits for more than crowdSize keys. Called with mu held.
func (q *Waiters) isCrowd() bool { return len(q.localQueues) > crowdSize }

// skipsPoll reports whether the waiter, whose poll is due, sleeps for another PollCap.
func (w *Caller) skipsPoll() bool {
	results := &w.results
	if !w.place.hearsGrants() || results.answer.Ticket == 0 || results.isReleaseSilent() || results.lastErr != nil ||
		results.remainingLease() == 0 {
		return false
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.waiters.isCrowd() && w.canSkipPoll(time.Since(w.results.answeredAt))
}

// canSkipPoll reports whether a waiter whose last request was silence ago may sleep for another PollCap: the waiter has
// a ticket, its entry allows the silence, and its subscription to grants works. Called with mu held.
func (w *Caller) canSkipPoll(silence time.Duration) bool {
	return w.place.ticket != 0 && silence+w.waiters.pollCap <= w.place.entry.Poll &&
		accessor.Of[accessor.Subscription](w.place.grantSub.sub).Live()
}

// allSkipPoll reports whether all waiters of a local queue of Requesters, for which a poll is due, sleep for another
// PollCap. Called with mu held.
func (q *Waiters) allSkipPoll(queue *localQueue) bool {
	requests := queue.requests
	if !q.isCrowd() || !requests.havePlaces() || requests.releasesSilent || requests.outage.failures > 0 {
		return false
	}
	silence := time.Since(requests.polledAt)
	for caller := queue.first; caller != nil; caller = caller.behind {
		if !caller.place.hearsGrants() || !caller.canSkipPoll(silence) {
			return false
		}
	}
	return true
}

// outage is a row of requests without a reply, up to the last request. If the last request had a reply, outage is zero.
type outage struct {
	failures int
	since    time.Time // when the first of the requests was sent
}

// record adds a request that was sent at an instant.
func (o *outage) record(sent time.Time) {
	if o.failures++; o.failures == 1 {
		o.since = sent
	}
}

// retryIn returns how long to pause before the next request. In a crowd a waiter pauses for longer: for as long as the
// outage so far, up to a PollCap, less a random part of up to a half. So the requests of a crowd are spread while the
// server is silent, and also when it replies again, even if they all failed at once with their connection. Without the
// longer pause:
//
//	5,000 waiters                       server
//	                                    stands still for 1.2 s
//	requests within a PollCap ------->
//	end after CallTimeout, requests again ... twice or more
//	                                    runs all requests, replies to all at once
//	requests a PollCap later, all within a tenth of a PollCap; and again, for minutes (see sleepTime)
func (q *Waiters) retryIn(current outage) time.Duration {
	q.mu.Lock()
	crowd := q.isCrowd()
	q.mu.Unlock()
	pause := script.Backoff(current.failures)
	if crowd {
		longest := min(time.Since(current.since), q.pollCap)
		pause = max(pause, longest-rand.N(longest/2+1))
	}
	return min(pause, q.pollCap)
}
