package wait

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// grantChannels is the subscriptions of a client to grants. Guarded by Waiters.mu.
type grantChannels struct {
	subs        map[string]*grantSubscription // by channel
	pending     map[string]*pendingSubscribe  // by channel
	deniedUntil map[string]time.Time          // by kind of channel; the user has no right to it
	lastGapAt   time.Time                     // when messages were last missed
}

// grantSubscription is the subscription of a client to a channel of grants. All waiters of the client share it.
type grantSubscription struct {
	sub   *pubsub.Subscription
	users int         // waiters with QueueEntry.hearsGrants
	idle  *time.Timer // closes the subscription after idleTimeout without users; nil while there are users
}

// isSubscribed reports whether the process is subscribed to a channel of grants.
func (q *Waiters) isSubscribed(channel string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grants.subs[channel] != nil
}

// SubscribesFirst reports whether a refused waiter subscribes the process to grants, and then makes another request.
// The first request of a cohort may then be made before [Waiters.Enter], because no wake-up before Enter is needed.
// Otherwise the request is made after Enter: if the process is subscribed, the request enqueues the cohort; if the user
// has no right to subscribe, the cohort sleeps after a refusal:
//
//	request: refused            release in the same process: Wake finds no waiter yet
//	Enter, sleeps for PollCap on a free lock
func (q *Waiters) SubscribesFirst(grants string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grants.subs[grants] == nil && !q.mayNotSubscribe(grants)
}

// subscribeToGrants subscribes the process to its channel of grants, if the server allows it, and awaits the
// confirmation for as long as the waiter would sleep. The subscription belongs to the process, so it does not end with
// the waiter. over is as in subscribeWithinSleep.
func (w *Caller) subscribeToGrants() (stands, over bool) {
	waiters, channel := w.waiters, w.request.Grants
	pending := waiters.startSubscribe(channel)
	if pending == nil {
		return waiters.isSubscribed(channel), false
	}
	return w.subscribeWithinSleep(channel, func(ctx context.Context) error {
		select {
		case <-pending.done:
			return pending.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// listenForLaterCallers subscribes the process to grants when a Requester leaves without a grant. Otherwise a
// process whose callers all leave before their first reply would never subscribe, and no lock could be handed over to
// it. The server would notify each waiter of the free lock instead, and reserve the lock until the waiter's request
// (TestHandOver_ImpatientCallers_AreHandedTheLock).
func (w *Caller) listenForLaterCallers() {
	if w.request.Mode == OneFirst && !w.granted && w.joint.requester != nil {
		w.waiters.Listen(w.request.Grants)
	}
}

// pendingSubscribe is a SUBSCRIBE to a channel of grants without a reply.
type pendingSubscribe struct {
	done chan struct{} // closed after the reply, when err is set
	err  error
}

// startSubscribe returns the pending SUBSCRIBE to a channel of grants, which is sent if necessary. The result is nil
// if the process is subscribed already, or if it cannot subscribe.
func (q *Waiters) startSubscribe(channel string) *pendingSubscribe {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.grants.pending[channel]
	if pending != nil || q.grants.subs[channel] != nil || q.ctx.Err() != nil || q.mayNotSubscribe(channel) {
		return pending
	}
	pending = &pendingSubscribe{done: make(chan struct{})}
	q.grants.pending[channel] = pending
	go func() {
		sub, err := q.subscribe(q.ctx, channel)
		if pending.err = err; err == nil {
			q.addGrantSubscription(channel, sub)
		}
		q.mu.Lock()
		delete(q.grants.pending, channel)
		q.mu.Unlock()
		close(pending.done)
	}()
	return pending
}

// addGrantSubscription shares sub with the waiters of the process, unless the process has a subscription to the channel
// already. Local queues of Requesters request for all of their waiters, which now get entries in the server's queue.
func (q *Waiters) addGrantSubscription(channel string, sub *pubsub.Subscription) {
	q.mu.Lock()
	if q.grants.subs[channel] != nil || q.ctx.Err() != nil {
		q.mu.Unlock()
		sub.Close()
		return
	}
	subscription := &grantSubscription{sub: sub}
	q.grants.subs[channel] = subscription
	q.closeWhenIdle(channel, subscription)
	q.forEachRequesterQueue(func(queue *localQueue) {
		if !queue.requests.enqueues && queue.first != nil && queue.first.request.Grants == channel {
			queue.requests.enqueues = true
			q.pollAll(queue)
		}
	})
	q.mu.Unlock()
	go q.receiveGrants(channel, subscription)
}

// closeWhenIdle closes a subscription without users after idleTimeout, unless a waiter uses it before. Called with mu
// held.
func (q *Waiters) closeWhenIdle(channel string, subscription *grantSubscription) {
	if q.ctx.Err() != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(idleTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if subscription.idle == timer && subscription.users == 0 && q.grants.subs[channel] == subscription {
			delete(q.grants.subs, channel)
			subscription.sub.Close()
		}
	})
	subscription.idle = timer
}

// Listen subscribes to a channel of grants in the background, because a caller is about to wait. Without the
// subscription the caller's first request would not enter the server's queue, and cost a second request.
func (q *Waiters) Listen(channel string) { q.startSubscribe(channel) }

// receiveGrants delivers the grants of a subscription until the subscription ends.
func (q *Waiters) receiveGrants(channel string, subscription *grantSubscription) {
	defer func() {
		subscription.sub.Close()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.grants.subs[channel] == subscription {
			delete(q.grants.subs, channel)
		}
	}()
	for {
		message, err := subscription.sub.Next(q.ctx)
		switch {
		case err != nil:
			return
		case message.Gap:
			q.grantsMissed()
		case strings.HasPrefix(message.Payload, "="):
			q.deliverResult(message.Payload)
		default:
			for _, grant := range parseGrants(message.Payload) {
				q.deliver(grant)
			}
		}
	}
}

// parseGrants reads one grant, or "*" and several grants. Each of several is "ticket lease-ms length owner", where
// length is the owner's number of bytes.
func parseGrants(text string) (all []Grant) {
	rest, several := strings.CutPrefix(text, "*")
	if !several {
		if grant, ok := parseGrant(text); ok {
			all = append(all, grant)
		}
		return all
	}
	for rest != "" {
		words := strings.SplitN(rest, " ", 4)
		if len(words) < 4 {
			return all
		}
		length, err := strconv.Atoi(words[2])
		if err != nil || length < 0 || length > len(words[3]) {
			return all
		}
		grant, ok := parseGrant(words[0] + " " + words[1] + " " + words[3][:length])
		if !ok {
			return all
		}
		all, rest = append(all, grant), words[3][length:]
	}
	return all
}

// parseGrant reads "ticket lease-ms owner". Ticket 0 grants nothing, and is only a reason to make a request.
func parseGrant(text string) (grant Grant, ok bool) {
	ticketText, rest, _ := strings.Cut(text, " ")
	leaseText, owner, _ := strings.Cut(rest, " ")
	ticket, err1 := strconv.ParseInt(ticketText, 10, 64)
	ms, err2 := strconv.ParseInt(leaseText, 10, 64)
	return Grant{Ticket: ticket, Lease: script.Duration(ms), Owner: owner},
		err1 == nil && err2 == nil && ticket >= 0
}

// grantsMissed has all waiters make a request after a gap in the messages: grants may have been missed, and the next
// grant may be from before a failover.
func (q *Waiters) grantsMissed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.grants.lastGapAt = time.Now()
	for _, caller := range q.byOwner {
		if caller.joint.requester == nil {
			signal(caller.wakeup)
		}
	}
	q.forEachRequesterQueue(q.pollAll)
}

// forEachRequesterQueue calls visit for every local queue in which a Requester has waited. Called with mu held.
func (q *Waiters) forEachRequesterQueue(visit func(*localQueue)) {
	for _, queue := range q.localQueues {
		for ; queue != nil; queue = queue.next {
			if queue.requests != nil {
				visit(queue)
			}
		}
	}
}

// deliver passes a grant to its waiter. If the waiter has left, there are two cases:
//
//   - The owner's release is pending (Taker.ReleaseLater). The release removes the owner from the queue and from the
//     lock, and hands over again. Waiters.Unclaimed sends the release again at once.
//   - The owner holds the lock.
//
// So deliver itself releases no grant for lack of a waiter:
//
//	waiter                          deliver                  server
//	                                                         grants, publishes: the message is late
//	request: granted
//	unlocks: the release is sent
//	                                the message arrives
//	                                releases the owner  ---> the lock is free
//	                                                         the waiter's release finds no hold
//	reports that the lock was lost
func (q *Waiters) deliver(grant Grant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	caller := q.byOwner[grant.Owner]
	if caller == nil {
		q.reportUnclaimed(grant.Owner)
		return
	}
	if grant.Ticket == 0 && caller.joint.requester != nil {
		q.recordNotice(caller, grant.Lease)
		return
	}
	known := caller.place.grant
	if grant.Ticket > 0 && (known == nil || known.Ticket != 0 && known.Ticket < grant.Ticket) {
		caller.place.grant = &grant
	}
	signal(caller.wakeup)
}

// deliverResult ends the wait of a cohort with a result: "=", the length of the waiter's owner, a space, the owner and
// the result. The script that published it has removed the waiter's entry from the queue. A waiter that has left needs
// no result.
func (q *Waiters) deliverResult(text string) {
	lengthText, rest, _ := strings.Cut(text[1:], " ")
	length, err := strconv.Atoi(lengthText)
	if err != nil || length < 0 || length > len(rest) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if caller := q.byOwner[rest[:length]]; caller != nil && caller.joint.requester == nil {
		caller.joint.done, caller.joint.doneErr = true, &Published{Result: rest[length:], Since: caller.request.Began}
		signal(caller.wakeup)
	}
}

// Nudge has an owner's waiter, if there is one, make a request, because the reply to an abandoned request has come.
func (q *Waiters) Nudge(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if caller := q.byOwner[owner]; caller != nil && caller.joint.requester == nil {
		signal(caller.wakeup)
	}
}

// reportUnclaimed calls Waiters.Unclaimed, if set. Called with mu held.
func (q *Waiters) reportUnclaimed(owner string) {
	if q.Unclaimed != nil {
		q.Unclaimed(owner)
	}
}
