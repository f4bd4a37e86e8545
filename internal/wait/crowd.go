package wait

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/script"
)

// crowdSize is for how many keys a process may wait while all of its waiters poll every PollCap. In a crowd, which is
// more, a waiter sleeps on when its poll is due (sleepsOn), and polls once in the time that its entry on the server
// allows (QueueEntry.Poll), if a message comes whatever happens to what it waits for. The polls of thousands of waiters
// would otherwise be most of what the server does.
//
// The crowd is looked at when an entry is made, and again whenever a poll is due. So:
//
//   - An entry says for how long its waiter may be silent, and never changes, because it is also the waiter's place:
//
//     64 waiters                     server                             the 65th and later ones
//     entries: stale after 2.5 s --> keeps them
//     <-- entries: stale after 25 s
//     poll every PollCap             passes over none of them           poll every 10 s
//
//     Those that came first go on as they began. With such an entry, a poll every 10 s would lose them their places
//     after each 2.5 s (TestCrowd_EarlierWaiter_PollsEveryPollCap).
//
//   - The crowd ends while a waiter sleeps on: it polls when the PollCap that runs is over. Its entry stays, and does
//     little harm: if its process stops, the server passes over it after 25 s in place of 2.5 s.
//
//   - A message is lost, and the process does not know: the waiter finds out by its poll, up to 10 s later. A grant
//     that was lost has ended by then (its first lease is four PollCaps), and others may have been served meanwhile.
//
//   - The subscription is lost, and the process knows: all waiters ask at once, and again when it is back
//     (grantsMissed). Until then no waiter sleeps on.
//
//   - A grant counts from the last answer (see taken), which may be 10 s old. Then half of its first lease is over, so
//     the waiter asks once more, and that answer is a grant of the whole lease.
//
//   - The process stops for a while: its polls are late. The entry bears two and a half of them. When it goes on, each
//     waiter has one poll due, and no more.
//
//   - Redisson, or a program that publishes nothing, holds what is waited for (Answer.Foreign, Answer.Unpublished), the
//     key's slot is being migrated, or the last request failed: no grant says when that is over. The waiter does not
//     sleep on.
const crowdSize = 64

// isCrowd reports whether the process waits for more keys than that. Called with mu held.
func (q *Waiters) isCrowd() bool { return len(q.localQueues) > crowdSize }

// sleepsOn reports whether the waiter, whose poll is due, sleeps on for another PollCap.
func (w *Caller) skipsPoll() bool {
	if !w.hearsGrants() || w.answer.Ticket == 0 || w.isReleaseSilent() || w.lastErr != nil || w.remainingLease() == 0 {
		return false
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.waiters.isCrowd() && w.canSkipPoll(time.Since(w.answeredAt))
}

// maySleep reports whether a waiter that was asked for so long ago may sleep for another PollCap: it has a place, its
// entry bears that, and grants reach it. Called with mu held.
func (w *Caller) canSkipPoll(asked time.Duration) bool {
	return w.ticket != 0 && asked+w.waiters.pollCap <= w.entry.Poll &&
		accessor.Of[accessor.Subscription](w.grantSub.sub).Live()
}

// sleepOn is sleepsOn for a local queue of Requesters, for all of which the last call was made at polledAt. Called with
// mu held.
func (q *Waiters) allSkipPoll(queue *localQueue) bool {
	requests := queue.requests
	if !q.isCrowd() || !requests.havePlaces() || requests.releasesSilent || requests.failures > 0 {
		return false
	}
	asked := time.Since(requests.polledAt)
	for caller := queue.first; caller != nil; caller = caller.behind {
		if !caller.hearsGrants() || !caller.canSkipPoll(asked) {
			return false
		}
	}
	return true
}

// retryIn returns how long to pause after so many failures, of which the first was sent at since. A crowd pauses for
// longer: each of its waiters for a random part of the silence so far, up to a PollCap. So its requests come as in calm
// while the server is silent, and when it answers again:
//
//	5,000 waiters                  server
//	                               stands still for 1.2 s
//	ask within a PollCap ------->
//	give up after CallTimeout, ask again ... twice or more
//	                               runs all that, answers all at once
//	all ask, a PollCap later, within a tenth of it; and again, for minutes (see sleepTime)
func (q *Waiters) retryIn(failures int, since time.Time) time.Duration {
	q.mu.Lock()
	crowd := q.isCrowd()
	q.mu.Unlock()
	pause := script.Backoff(failures)
	if crowd {
		pause = max(pause, rand.N(time.Since(since)+1))
	}
	return min(pause, q.pollCap)
}
