package wait

import (
	"context"
	"time"
)

// Taker makes the requests of a waiter that a release can make the holder, without another request: the server hands
// over from its queue. The package comment has the protocol.
type Taker interface {
	// QueueEntry returns the waiter's entry for the server's queue. crowd: the process waits for so many keys that the
	// waiter should poll rarely. QueueEntry must not block, nor call the Waiters.
	QueueEntry(crowd bool) QueueEntry
	// Ask makes a request as Request.Try does. With an entry the request also enters the server's queue, and
	// Answer.Ticket is the place there.
	Ask(ctx context.Context, entry *QueueEntry) (Answer, error)
	// Taken is called with a grant. It reports whether the waiter uses the grant. If not, Ask is called at once, to
	// confirm the grant.
	Taken(grant Grant) bool
	// ReleaseLater is called when the wait ends without a grant, but the server may have the waiter's entry or hold, or
	// may write one until after. The Taker releases the owner in the background.
	ReleaseLater(after time.Time)
}

// QueueEntry is the entry of a waiter in the server's queue.
type QueueEntry struct {
	Owner string        // used for one acquisition only
	Entry string        // the text in the server's queue
	Lease time.Duration // the full lease
	// Poll is the longest time between two requests of the waiter: the server drops the entry after two and a half Polls
	// without a request. A Poll of less than PollCap counts as PollCap.
	Poll time.Duration
	// Channel, if set, is a channel of this waiter alone, on which a release of another program notifies it.
	Channel     string
	LeavesAt    time.Time // the caller gives up at this instant; zero: not known. For RequestAll
	hearsGrants bool      // the process is subscribed to its grants
}

// Grant records that a release has made a waiter the holder.
type Grant struct {
	Owner string
	// Ticket is the ticket of the waiter's entry in the server's queue; 0 for a grant from a reply ([Waiters.Served]).
	Ticket int64
	// Sent is an instant before which the server's lease cannot have begun.
	Sent time.Time
	// Lease is the length of the lease that the server wrote.
	Lease time.Duration
}

const (
	// idleTimeout is how long a grant subscription without users stays.
	idleTimeout = 2 * time.Second
	// MaxPoll bounds the sleep of a waiter in a queue on the server, whatever PollCap, because each request stamps the
	// entry. The server drops an entry that was not stamped for two and a half polls.
	MaxPoll = 10 * time.Second
)

// hearsGrants reports whether the waiter uses a confirmed subscription to grants, so that a grant reaches it.
func (p *serverPlace) hearsGrants() bool { return p.entry != nil && p.entry.hearsGrants }

// listenForGrants subscribes to grants. It reports whether to make a request at once, because the subscription stands
// or the time to sleep is over.
func (w *Caller) listenForGrants() bool {
	stands, over := w.subscribeToGrants()
	w.register(stands)
	return stands || over
}

// entryForRequest returns the entry that the next request puts into the server's queue, and records that the waiter may
// be queued. It returns nil for a waiter that receives no grants.
func (w *Caller) entryForRequest() *QueueEntry {
	if !w.place.hearsGrants() {
		return nil
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	w.place.mayBeQueued = true
	return w.place.entry
}

// recordTicket records the waiter's place in the server's queue by the reply to a request.
func (w *Caller) recordTicket(answer Answer, err error) {
	if w.place.entry == nil {
		return
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	switch {
	case answer.OwnerReplaced:
		w.unregister()
	case err == nil && answer.Ticket > 0 && answer.Ticket >= w.place.ticket && answer.Sent.After(w.place.ticketSentAt):
		w.place.ticket, w.place.ticketSentAt = answer.Ticket, answer.Sent
	}
}

// register adds the waiter to Waiters.byOwner before the waiter's first request, because a grant can overtake the reply
// that names its ticket (TestGrant_OvertakesItsPlace_IsUsed).
//
// A waiter that receives no grants enters no queue on the server. It polls, and tries to subscribe again and again.
// Otherwise the server would hand over to it in silence, and the lock would be idle until the next poll:
//
//	waiter                                   another process
//	request: held, and queued without a      (holds the lock)
//	subscription; sleeps for up to PollCap
//	                                         releases: hands the lock over to the waiter, publishes nothing
//
// That happened whenever a program started, because any wake-up cuts a process's first SUBSCRIBE short
// (TestRelease_DuringFirstSubscribe_LeavesNoLockIdle). And with one process of four that may not subscribe, the other
// three had 2 acquisitions a second each instead of 200 (TestWaiter_MayNotListen_IsInNoQueue). The price: while others
// queue, a waiter without a subscription may never find the lock free. An unused subscription may also end between
// subscribeToGrants and register; the loop subscribes again.
func (w *Caller) register(isSubscribed bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if w.place.entry == nil {
		w.place.entryValue = w.request.Taker.QueueEntry(waiters.isCrowd())
		entry := &w.place.entryValue
		w.place.entry = entry
		waiters.byOwner[entry.Owner] = w
	}
	if isSubscribed {
		w.useSubscription(waiters.grants.subs[w.request.Grants])
	}
}

// useSubscription records that a subscription brings the waiter's grants. nil is ignored. Called with mu held, after
// register.
func (w *Caller) useSubscription(subscription *grantSubscription) {
	if subscription == nil || w.place.grantSub != nil {
		return
	}
	w.place.entry.hearsGrants = true
	subscription.users++
	w.place.grantSub = subscription
	if subscription.idle != nil {
		subscription.idle.Stop()
		subscription.idle = nil
	}
}

// unregister removes the waiter's entry and place, because its wait ends or its owner is replaced. Called with mu held.
func (w *Caller) unregister() {
	if w.place.entry == nil {
		return
	}
	waiters := w.waiters
	delete(waiters.byOwner, w.place.entry.Owner)
	w.place.entry, w.place.grant, w.place.ticket = nil, nil, 0
	if w.joint.cancelReleases != nil {
		w.joint.cancelReleases()
		w.joint.cancelReleases = nil
	}
	if subscription := w.place.grantSub; subscription != nil {
		w.place.grantSub = nil
		if subscription.users--; subscription.users == 0 {
			waiters.closeWhenIdle(w.request.Grants, subscription)
		}
	}
}

// takeGrant uses the waiter's grant if the grant is trusted. used: the waiter is the holder. doubt: a request has to
// confirm the grant. The deadline of a grant counts from an instant at which it was surely not written yet:
//
//   - A grant in a reply of this process ([Waiters.Served]): the send of that call.
//   - A grant from the server's queue: the send of the request whose reply was "held, your ticket is this", because the
//     server granted the ticket later. The message's arrival does not count: when a late message arrives, the lease
//     may be over, and another owner may hold the lock.
//
// The rules of trust are:
//
//   - A grant of the owner's earlier ticket is never used. The server dropped that entry, so the lease is long over
//     (TestGrant_EarlierPlace_IsNotTrusted).
//   - A grant of a later ticket has overtaken its reply, so it is kept (TestGrant_OvertakesItsPlace_IsUsed).
//   - No grant is used while a call requests for the waiter. The call could run after the holder's release, and take
//     the lock for an owner that has left (TestGrant_WaiterIsAskedFor_IsNotUsedYet).
//   - After a gap in the messages the queue may be from before a failover, so the next grant is confirmed
//     (TestGrant_AfterAGap_IsConfirmed).
func (w *Caller) takeGrant() (used, doubt bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	grant := w.place.grant
	inFlight := w.joint.state == requested || w.joint.state == reading || w.joint.done
	use := grant != nil && !inFlight &&
		(grant.Ticket == 0 || grant.Ticket == w.place.ticket && w.place.ticketSentAt.After(waiters.grants.lastGapAt))
	doubt = grant != nil && grant.Ticket >= w.place.ticket
	if grant != nil && !inFlight && (grant.Ticket == 0 || grant.Ticket <= w.place.ticket) {
		w.place.grant = nil
	}
	if use {
		if w.place.handedOver = true; w.joint.state == waiting {
			w.joint.state = deciding
		}
		if grant.Ticket != 0 {
			grant.Sent = w.place.ticketSentAt
		}
	}
	waiters.mu.Unlock()
	if use && w.request.Taker.Taken(*grant) {
		return true, false
	}
	if use && w.joint.requester != nil {
		waiters.mu.Lock()
		w.joint.state = waiting
		waiters.mu.Unlock()
	}
	return false, doubt || use
}

// endHandOver ends the waiter's part in the hand-over. owed: the server may have the waiter's entry or hold, or may
// write one until after. Called with mu held.
func (w *Caller) endHandOver(granted bool) (after time.Time, owed bool) {
	owed = w.place.mayBeQueued || w.place.grant != nil
	if w.joint.state == abandoned { // the call that requests for the waiter may run until after
		after, owed = time.Now().Add(w.request.MaxRunTime), true
	}
	w.unregister()
	return after, owed && !granted
}
