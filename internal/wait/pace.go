package wait

import "time"

// requestPace limits how many waiters of a local queue have an entry in the server's queue, with OneFirst. The other
// waiters stay in the local queue. Without a limit, callers that give up would cost the server more than those that are
// served, because it enqueues and removes each of them, and the first of its queue, which have waited longest, would
// leave just as they are handed the lock:
//
//	64 callers, patience 2 ms               server, 20,000 owners a second
//	all in one call ----------------------> enqueues 64 owners
//	all leave, and 64 others come --------> removes 64, enqueues 64: after 5 ms, 500 ms: the caller has left, nobody is
//	                                        served
//
// So each waiter that gives up within a PollCap halves the limit, and each waiter that is served raises it by one. A
// waiter that gives up later has cost the server no more than a waiter that is served and polls. If it halved the
// limit, too, a few callers of ordinary patience would cost the next callers their order among all processes:
//
//	process A                               server                                process B
//	6 callers give up after 2 s             held for long
//	3 callers, limit 2 -------------------> enqueues 2
//	the third stays in A                    enqueues B's caller <---------------- 1 caller, later than A's third
//	                                        serves A's first two, then B's, then A's third
//
// Callers that are served never reach the limit, however long they wait. The limit is never below two: a lock is handed
// over at most once in a round trip, so two waiters of each process keep its queue filled. A waiter that gives up
// before a call requests for it leaves no entry behind.
type requestPace struct {
	queuedCount int // waiters of the local queue that may have an entry
	limit       int // of queuedCount; 0: no waiter has left yet
}

const minLimit = 2

// limitFor returns how many waiters may have an entry. caller is any waiter of the local queue.
func (p *requestPace) limitFor(caller *Caller) int {
	if p.limit == 0 || caller.request.Mode != OneFirst {
		return maxBatch
	}
	return p.limit
}

// mayQueue reports whether a call that enqueues may request for the waiter, and counts the waiter.
func (p *requestPace) mayQueue(caller *Caller) bool {
	if !caller.place.mayBeQueued && caller.request.Mode == OneFirst && p.queuedCount >= p.limitFor(caller) {
		return false
	}
	p.addQueued(caller)
	return true
}

// addQueued counts a waiter that gets an entry.
func (p *requestPace) addQueued(caller *Caller) {
	if !caller.place.mayBeQueued {
		caller.place.mayBeQueued = true
		p.queuedCount++
	}
}

// recordEnd adapts the limit when a waiter leaves.
func (p *requestPace) recordEnd(caller *Caller) {
	if caller.place.mayBeQueued {
		p.queuedCount--
	}
	limit := p.limitFor(caller)
	switch {
	case caller.granted:
		p.limit = min(limit+1, maxBatch)
	case time.Since(caller.request.Began) < caller.waiters.pollCap:
		p.limit = max(limit/2, minLimit)
	}
}
