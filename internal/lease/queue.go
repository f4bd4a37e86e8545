package lease

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// asked is one lease in a call.
type asked struct {
	*Lease
	length time.Duration // the requested length: howLong for a look
}

// batchKey is what the leases of one call have in common.
type batchKey struct {
	script    *script.Script
	slot      uint16
	untracked bool
}

// list is leases of one kind that wait for a call, those first that end first.
type list struct {
	batchKey
	leases []asked
	first  instant // the deadline of the first, when it was the first
}

// Before orders the lists by their first leases.
func (l *list) Before(other *list) bool { return l.first.Before(other.first) }

// SetIndex does nothing: only the first list ever changes.
func (*list) SetIndex(int) {}

// enqueue has leases wait for their calls. Called with mu held.
//
// Each lease waits in the queue once, for a place among maxFlights. If each were put back to be due again a moment
// later, a hundred thousand leases on a silent server would keep a processor busy
// (TestRenewals_WaitForTheirCall_CostNothing).
func (e *Engine) enqueue(k batchKey, leases []asked) {
	slices.SortFunc(leases, func(a, b asked) int { return cmp.Compare(a.deadline, b.deadline) })
	heap.Push(&e.queue, &list{k, leases, leases[0].deadline})
}

// launch sends what is in line while there is a free place, the most urgent first: a short lease does not wait behind a
// hundred thousand long ones (TestRenewals_ShortLease_GoesBeforeLongOnes).
func (e *Engine) launch() {
	for {
		conn, batch, awaited := e.take()
		if len(batch) == 0 {
			return
		}
		e.send(conn, batch, awaited)
	}
}

// take takes the next batch out of the queue, and a place for it, and says how long its reply is awaited. The batch is
// empty if the queue is, or if every place is taken.
func (e *Engine) take() (conn script.Conn, batch []asked, awaited time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for e.queue.Len() > 0 && e.ctx.Err() == nil && len(e.flight) < cap(e.flight) { // places are taken with mu held
		first := e.queue[0]
		if conn = nil; !first.untracked {
			conn = e.tracked()
		}
		n := fitting(first.leases, conn != nil)
		batch, awaited = batch[:0], longest
		for _, a := range first.leases[:n] {
			if a.state != registered || !now.Before(a.deadline) {
				continue // released, or over
			}
			if a.short > 0 && a.length > 0 {
				a.length = a.start.Add(a.Lease.length).Sub(now)
			}
			awaited = min(awaited, patience(a.Lease, now))
			batch = append(batch, a)
		}
		if first.leases = first.leases[n:]; len(first.leases) > 0 {
			first.first = first.leases[0].deadline
			heap.Fix(&e.queue, 0)
		} else {
			heap.Pop(&e.queue)
		}
		if len(batch) > 0 {
			e.flight <- struct{}{}
			return conn, batch, awaited
		}
	}
	return nil, nil, 0
}

// fitting is how many of the first leases, which are one at least, go into one batch.
func fitting(leases []asked, tracked bool) int {
	n := min(len(leases), batchSize)
	if tracked {
		n = min(n, max(1, trackedKeys/len(leases[0].keys())))
	}
	records := int(leases[0].Records)
	for i := 1; i < n; i++ {
		if records += int(leases[i].Records); records > batchRecords {
			return i
		}
	}
	return n
}

// patience is how long the reply to a call about l is awaited before l is asked about anew: half of the rest of l. So a
// call that is lost without a trace is repeated while there is time, sooner and sooner, and a server that is slow is
// asked once or twice.
//
//	engine                                  server, which takes 170 ms for each of 36 calls
//	10.0 s  sends the calls 1 to 32
//	10.5 s                                  has run 3; the others are in its line
//
// Sent anew now, the 29 others would stand in the line a second time, and 500 ms later a third time: the server would
// run 1 call in 10 for the first time, and all holds would be lost though it could do all that is needed in 0.6 of the
// time (TestRenewal_NotAnsweredYet_IsNotSentAnew). A connection that breaks ends its calls at once. A reply that
// comes later than this is taken in too: see late.
func patience(l *Lease, now instant) time.Duration {
	return min(longest, max(l.deadline.Sub(now)/2, min(l.term()/6, shortest)))
}

// send renews one batch, for which a place was taken, on a goroutine of its own, so that the network never holds up the
// clock.
func (e *Engine) send(conn script.Conn, batch []asked, awaited time.Duration) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		defer e.launch()
		defer e.occupySlot()()
		ctx, cancel := context.WithTimeout(e.ctx, awaited)
		defer cancel()
		e.deliver(ctx, conn, batch)
	}()
}

// occupySlot returns what gives a call's place among maxFlights back. In a Cluster a call that has no reply after a
// while is set aside, so that a node that is silent takes no places from the others: the calls to it last for as long
// as they may, and there may be one for each slot (TestRenewals_SilentNode_EndNoLeaseOfAnother).
func (e *Engine) occupySlot() (giveBack func()) {
	if !e.runner.Apart() {
		return func() { <-e.flight }
	}
	at, tried := e.flight, make(chan struct{})
	timer := time.AfterFunc(shortest, func() {
		defer close(tried)
		select {
		case e.aside <- struct{}{}:
			<-e.flight
			at = e.aside
			e.launch()
		default:
		}
	})
	return func() {
		if !timer.Stop() {
			<-tried
		}
		<-at
	}
}
