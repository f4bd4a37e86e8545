package wait

import "time"

// sharedAnswers are for local queues whose callers wait for the same event: a latch that opens, or the end of a
// barrier's generation. The contender learns of the event by a reply or a message, and its answer serves every earlier
// caller. So an event costs a client at most one request however many callers wait. And a later event cannot hide the
// first event from callers that have made no request yet:
//
//	first caller                    second caller                another process
//	request: closed
//	                                stands behind the first
//	                                                             opens the latch, sets it again at once
//	request: opened since the
//	first caller's last request
//	serves the second, too
//	                                returns; by its own request
//	                                it would read "closed"
//
// An answer serves the callers that came before its request was sent. A later caller may wait for the next event, so
// the answer does not serve it (TestServe_Answer_IsForEarlierCallersOnly).
type sharedAnswers struct {
	note   any
	noteAt time.Time // when the request that brought the note was sent; zero: there is no note
}

// Serve ends, with err, the waits for a key of the callers that came before sent. sent is when the request was sent to
// which the server replied that the event has come. If the reply says only that the event came after an earlier
// request, sent is when that earlier request was sent, because newer callers may wait for the next event.
func (q *Waiters) Serve(key string, sent time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		for caller := queue.first; caller != nil; caller = caller.behind {
			if !caller.joint.done && !sent.Before(caller.request.Began) {
				caller.joint.done, caller.joint.doneErr = true, err
				signal(caller.wakeup)
			}
		}
	}
}

// endedByOther reports whether another goroutine has ended the wait, and returns the error of the wait.
func (w *Caller) endedByOther() (done bool, err error) {
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.joint.done, w.joint.doneErr
}

// Note keeps a reply from before the event, to a request that was sent at sent. The next request can carry the note,
// and so the server sees whether the event has come since. The note goes with the last caller of the key.
func (q *Waiters) Note(key string, sent time.Time, note any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.localQueues[key]; queue != nil {
		queue.note, queue.noteAt = note, sent
	}
}

// LastNote returns the last note, and when its request was sent, if that was at since or later; zero values otherwise.
func (q *Waiters) LastNote(key string, since time.Time) (note any, sent time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.localQueues[key]; queue != nil && !queue.noteAt.Before(since) {
		return queue.note, queue.noteAt
	}
	return nil, time.Time{}
}
