package wait

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
// So each waiter that gives up halves the limit, and each waiter that is served raises it by one. Callers that are
// served never reach the limit, however long they wait. The limit is never below two: a lock is handed over at most
// once in a round trip, so two waiters of each process keep its queue filled. A waiter that gives up before a call
// requests for it leaves no entry behind.
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
	if limit := p.limitFor(caller); caller.granted {
		p.limit = min(limit+1, maxBatch)
	} else {
		p.limit = max(limit/2, minLimit)
	}
}
