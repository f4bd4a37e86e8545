package lease

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// leaseRequest is the request for one lease in a call.
type leaseRequest struct {
	*Lease
	length time.Duration // the requested length: readOnly for a look
}

// batchKey is equal for all leases of one call.
type batchKey struct {
	script    *script.Script
	slot      uint16
	untracked bool
}

// leaseList are leases with one batchKey that wait for a call, the earliest deadline first.
type leaseList struct {
	batchKey
	leases        []leaseRequest
	firstDeadline instant // the deadline of the first lease when it became the first
}

// Before orders the lists by their first leases.
func (l *leaseList) Before(other *leaseList) bool { return l.firstDeadline.Before(other.firstDeadline) }

// SetIndex does nothing: only the first list ever changes.
func (*leaseList) SetIndex(int) {}

// enqueue queues leases for their calls. Called with mu held.
//
// Each lease waits in the queue once, for a place among maxCalls. If each were due again a moment later instead, a
// hundred thousand leases on a silent server would keep a processor busy (TestRenewals_WaitForTheirCall_CostNothing).
func (e *Engine) enqueue(key batchKey, leases []leaseRequest) {
	slices.SortFunc(leases, func(request, other leaseRequest) int {
		return cmp.Compare(request.trust.deadline, other.trust.deadline)
	})
	heap.Push(&e.callQueue, &leaseList{key, leases, leases[0].trust.deadline})
}

// sendQueued sends queued calls while there is a free place, the most urgent first: a short lease does not wait behind
// a hundred thousand long ones (TestRenewals_ShortLease_GoesBeforeLongOnes).
func (e *Engine) sendQueued() {
	for {
		conn, batch, awaited := e.takeBatch()
		if len(batch) == 0 {
			return
		}
		e.sendBatch(conn, batch, awaited)
	}
}

// takeBatch removes the next batch from the queue, takes a place for it, and returns how long its reply is awaited. The
// batch is empty if the queue is empty, or if every place is taken.
func (e *Engine) takeBatch() (conn script.Conn, batch []leaseRequest, awaited time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	// Only here places are taken, with mu held.
	for e.callQueue.Len() > 0 && e.ctx.Err() == nil && len(e.callPlaces) < cap(e.callPlaces) {
		first := e.callQueue[0]
		if conn = nil; !first.untracked {
			conn = e.tracker.connection()
		}
		length := batchLength(first.leases, conn != nil)
		batch, awaited = batch[:0], maxReplyTimeout
		for _, request := range first.leases[:length] {
			if request.state != registered || !now.Before(request.trust.deadline) {
				continue // released, or over
			}
			if request.schedule.shortLength > 0 && request.length > 0 {
				request.length = request.schedule.raisedLength(now)
			}
			awaited = min(awaited, replyTimeout(request.Lease, now))
			batch = append(batch, request)
		}
		if first.leases = first.leases[length:]; len(first.leases) > 0 {
			first.firstDeadline = first.leases[0].trust.deadline
			heap.Fix(&e.callQueue, 0)
		} else {
			heap.Pop(&e.callQueue)
		}
		if len(batch) > 0 {
			e.callPlaces <- struct{}{}
			return conn, batch, awaited
		}
	}
	return nil, nil, 0
}

// batchLength returns how many of the first leases go into one batch. There is at least one lease.
func batchLength(leases []leaseRequest, tracked bool) int {
	length := min(len(leases), batchSize)
	if tracked {
		length = min(length, max(1, trackedKeys/len(leases[0].keys())))
	}
	records := leases[0].Of.Records()
	for i := 1; i < length; i++ {
		if records += leases[i].Of.Records(); records > batchRecords {
			return i
		}
	}
	return length
}

// replyTimeout returns how long the reply to a call is awaited before the lease is requested anew: half of the rest of
// the lease. So a call that is lost without a trace is repeated while there is time, sooner and sooner, and a server
// that is slow receives the request once or twice.
//
//	engine                                  server, which takes 170 ms for each of 36 calls
//	10.0 s  sends the calls 1 to 32
//	10.5 s                                  has run 3; the others wait in its queue
//
// If the 29 others were sent anew now, they would wait a second time, and 500 ms later a third time. The server would
// run only 1 call in 10 for the first time, and all holds would be lost although it could do all renewals in 0.6 of the
// time (TestRenewal_NotAnsweredYet_IsNotSentAnew). A connection that breaks ends its calls at once. A reply that comes
// later than the timeout is recorded, too: see recordLateReply.
func replyTimeout(lease *Lease, now instant) time.Duration {
	left, length := lease.trust.deadline.Sub(now), lease.schedule.serverLength()
	return min(maxReplyTimeout, max(left/2, min(length/6, minReplyTimeout)))
}

// sendBatch renews one batch, for which a place was taken, on a goroutine of its own, so that the network never delays
// the clock.
func (e *Engine) sendBatch(conn script.Conn, batch []leaseRequest, awaited time.Duration) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		defer e.sendQueued()
		defer e.occupySlot()()
		ctx, cancel := context.WithTimeout(e.ctx, awaited)
		defer cancel()
		e.renewBatch(ctx, conn, batch)
	}()
}

// occupySlot returns a function that frees a call's place among maxCalls. In a Cluster a call that has no reply after a
// while moves to the places of slow calls, so that a silent node takes no places from the other nodes. The calls to it
// last for as long as they may, and there may be one for each slot (TestRenewals_SilentNode_EndNoLeaseOfAnother).
func (e *Engine) occupySlot() (free func()) {
	if !e.runner.Apart() {
		return func() { <-e.callPlaces }
	}
	places, moved := e.callPlaces, make(chan struct{})
	timer := time.AfterFunc(minReplyTimeout, func() {
		defer close(moved)
		select {
		case e.slowCallPlaces <- struct{}{}:
			<-e.callPlaces
			places = e.slowCallPlaces
			e.sendQueued()
		default:
		}
	})
	return func() {
		if !timer.Stop() {
			<-moved
		}
		<-places
	}
}
