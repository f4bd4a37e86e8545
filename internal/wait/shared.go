package wait

import "time"

// sharedAnswers are what a local queue has for all of its callers: they wait for the same event, a latch that opens or
// the end of a barrier's generation. The contender asks the server, or hears a message that tells all, and its answer
// serves every caller that came before. So an event costs a client at most one request however many wait, and what
// follows the event cannot hide it from the callers that have not asked yet:
//
//	first caller                    second caller                another process
//	asks: closed
//	                                stands behind the first
//	                                                             opens the latch, sets it again at once
//	asks: it has been opened since
//	the first's last request
//	serves the second, too
//	                                returns; had it asked, it
//	                                would read "closed"
//
// An answer is for every caller that came before its request was sent, and for no other: a later one may wait for the
// next event (TestServe_Answer_IsForEarlierCallersOnly).
type sharedAnswers struct {
	note   any
	noteAt time.Time // when the request was sent that brought it; zero: there is none
}

// Serve ends the waits for a key of the callers that came before a request was sent at sent: the server replied to it
// that the event has come. If the event is only known to have come after an earlier request, and so may be another one
// than the newest callers wait for, sent is that request's time. The waits end as with err from a try.
func (q *Waiters) Serve(key string, sent time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		for caller := queue.first; caller != nil; caller = caller.behind {
			if !caller.done && !sent.Before(caller.request.Began) {
				caller.done, caller.doneErr = true, err
				signal(caller.wakeup)
			}
		}
	}
}

// served reports whether another caller's answer has ended the wait, and with which error.
func (w *Caller) endedByOther() (done bool, err error) {
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.done, w.doneErr
}

// Note keeps what the server replied to a request sent at sent while the event was yet to come: the next request can
// carry it, and learn of the event by the difference. It is forgotten with the last caller.
func (q *Waiters) Note(key string, sent time.Time, note any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.localQueues[key]; queue != nil {
		queue.note, queue.noteAt = note, sent
	}
}

// LastNote returns the note of a request that was sent no earlier than since, and when that was; zero if there is none.
func (q *Waiters) LastNote(key string, since time.Time) (note any, sent time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.localQueues[key]; queue != nil && !queue.noteAt.Before(since) {
		return queue.note, queue.noteAt
	}
	return nil, time.Time{}
}
