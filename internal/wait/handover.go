package wait

import (
	"context"
	"time"
)

// Taker is a waiter to which a release can give what it waits for, without another try: the server hands it over from
// its queue. The package comment has the protocol.
type Taker interface {
	// QueueEntry returns how the server is to know the waiter. crowd: its process waits for so much that the waiter should
	// poll rarely. It must not block, nor call the Waiters.
	QueueEntry(crowd bool) QueueEntry
	// Ask is Request.Try; with an entry it asks for a place in the server's queue, too. Answer.Ticket names it.
	Ask(ctx context.Context, entry *QueueEntry) (Answer, error)
	// Taken is called with a grant. false: it is not to be used unconfirmed; Ask is called at once.
	Taken(grant Grant) bool
	// ReleaseLater is called when the wait ends without a grant, but something of it may be left on the server, or may get
	// there until after. The taker has it released in the background.
	ReleaseLater(after time.Time)
}

// QueueEntry is how the server knows a waiter.
type QueueEntry struct {
	Owner string        // never used for another acquisition
	Entry string        // in the server's queue
	Lease time.Duration // in full
	// Poll is how often the waiter is to ask at least: the server drops the entry after two and a half of that. Less than
	// PollCap is PollCap.
	Poll        time.Duration
	hearsGrants bool // grants published to this process reach it
}

// Grant says that a release has made a waiter the holder.
type Grant struct {
	Owner string
	// Ticket is the place in the server's queue that was served; 0 for a grant of which a call of this process learned.
	Ticket int64
	// Sent: the server's lease began no earlier.
	Sent time.Time
	// Lease is what was written on the server.
	Lease time.Duration
}

const (
	// idleTimeout is how long a grant subscription stays when nothing waits.
	idleTimeout = 2 * time.Second
	// MaxPoll bounds the sleep of a waiter in a queue on the server, whatever PollCap: entries that are not stamped for
	// longer than two and a half polls are passed over.
	MaxPoll = 10 * time.Second
)

// hears reports whether the waiter's grant subscription is known to work, so that a grant reaches it.
func (w *Caller) hearsGrants() bool { return w.entry != nil && w.entry.hearsGrants }

// listenForGrants subscribes to grants. It reports whether to ask again at once, because the subscription is there or
// because no time is left to sleep.
func (w *Caller) listenForGrants() bool {
	hears, over := w.subscribeToGrants()
	w.register(hears)
	return hears || over
}

// asking returns the entry with which to ask for a place in the server's queue, nil for a waiter that hears no
// grants. It notes that the place is about to be asked for.
func (w *Caller) entryForRequest() *QueueEntry {
	if !w.hearsGrants() {
		return nil
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	w.mayBeQueued = true
	return w.entry
}

// learn takes in what an Ask said of the waiter's place in the server's queue.
func (w *Caller) recordTicket(answer Answer, err error) {
	if w.entry == nil {
		return
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	switch {
	case answer.Renamed:
		w.unregister()
	case err == nil && answer.Ticket > 0 && answer.Ticket >= w.ticket && answer.Sent.After(w.ticketSentAt):
		w.ticket, w.ticketSentAt = answer.Ticket, answer.Sent
	}
}

// register makes the waiter known, before anything is sent that may be answered by a grant: the grant can overtake the
// reply which says that the waiter is in the queue (TestGrant_OvertakesItsPlace_IsUsed).
//
// One that hears no grants asks for no place in the server's queue. It polls, and goes on trying to hear. A place in
// the queue would be served in silence, and the lock be idle until the next poll:
//
//	waiter                                   another process
//	asks: held, and queued as one that       (holds the lock)
//	does not hear; sleeps for up to PollCap
//	                                         releases: hands the lock over to the waiter, publishes nothing
//
// The first SUBSCRIBE of a process takes a moment, which any wake-up cuts short, so this was common wherever a program
// started (TestRelease_DuringFirstSubscribe_LeavesNoLockIdle). With one process of four that may not subscribe, the
// other three had 2 acquisitions a second each in place of 200 (TestWaiter_MayNotListen_IsInNoQueue). The price: while
// others queue, a waiter that does not hear may never find the lock free. The subscription may also end between
// subscribeToGrants and here, if nothing has used it for long enough; the loop subscribes again.
func (w *Caller) register(hears bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if w.entry == nil {
		w.entryValue = w.request.Taker.QueueEntry(waiters.isCrowd())
		entry := &w.entryValue
		w.entry = entry
		waiters.byOwner[entry.Owner] = w
	}
	if hears {
		w.useSubscription(waiters.grantSubs[w.request.Grants])
	}
}

// hear notes that grants reach the waiter, by e if that is there. Called with mu held, of a waiter that is registered.
func (w *Caller) useSubscription(subscription *grantSubscription) {
	if subscription == nil || w.grantSub != nil {
		return
	}
	w.entry.hearsGrants = true
	subscription.users++
	w.grantSub = subscription
	if subscription.idle != nil {
		subscription.idle.Stop()
		subscription.idle = nil
	}
}

// unregister is called with mu held.
func (w *Caller) unregister() {
	if w.entry == nil {
		return
	}
	waiters := w.waiters
	delete(waiters.byOwner, w.entry.Owner)
	w.entry, w.grant, w.ticket = nil, nil, 0
	if subscription := w.grantSub; subscription != nil {
		w.grantSub = nil
		if subscription.users--; subscription.users == 0 {
			waiters.closeWhenIdle(w.request.Grants, subscription)
		}
	}
}

// taken reports whether a grant is there that is used; doubt: there is one about which the server is to be asked. Its
// deadline counts from when it was surely not yet written:
//
//   - one that a call of this process learned of ([Waiters.Served]): when that call was sent;
//   - one from the server's queue: when the last call was sent that was answered "held, and you are in the queue with
//     this ticket": the grant of that ticket came later. It never counts from the message's arrival, which may be any
//     time after it was sent: its lease may be over, and another owner's running. And a message about an earlier place
//     of the same owner, which was passed over and has queued anew, is never trusted: its lease is long over
//     (TestGrant_EarlierPlace_IsNotTrusted).
//
// A grant whose ticket no answer has named yet may have overtaken that answer: it is kept
// (TestGrant_OvertakesItsPlace_IsUsed). None is used while a request for the waiter is under way: that could reach
// the server after what was granted has been released, and take it anew for an owner that is through
// (TestGrant_WaiterIsAskedFor_IsNotUsedYet). After a gap in the messages the queue may be one from before a
// failover: the next grant is confirmed then (TestGrant_AfterAGap_IsConfirmed).
func (w *Caller) takeGrant() (used, doubt bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	grant := w.grant
	inFlight := w.state == requested || w.state == reading || w.done
	use := grant != nil && !inFlight &&
		(grant.Ticket == 0 || grant.Ticket == w.ticket && w.ticketSentAt.After(waiters.lastGapAt))
	doubt = grant != nil && grant.Ticket >= w.ticket
	if grant != nil && !inFlight && (grant.Ticket == 0 || grant.Ticket <= w.ticket) {
		w.grant = nil
	}
	if use {
		if w.handedOver = true; w.state == waiting {
			w.state = deciding
		}
		if grant.Ticket != 0 {
			grant.Sent = w.ticketSentAt
		}
	}
	waiters.mu.Unlock()
	if use && w.request.Taker.Taken(*grant) {
		return true, false
	}
	if use && w.requester != nil {
		waiters.mu.Lock()
		w.state = waiting
		waiters.mu.Unlock()
	}
	return false, doubt || use
}

// finish is called with mu held when the wait ends. owed: something of it may be left on the server, or get there
// until after.
func (w *Caller) endHandOver(granted bool) (after time.Time, owed bool) {
	owed = w.mayBeQueued || w.grant != nil
	if w.state == abandoned { // the call that requests for it may run until its end
		after, owed = time.Now().Add(w.request.Reach), true
	}
	w.unregister()
	return after, owed && !granted
}
