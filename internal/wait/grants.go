package wait

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/pubsub"
)

// grantSubscription is the one subscription of a client to one channel of grants, for all its waiters.
type grantSubscription struct {
	sub   *pubsub.Subscription
	users int         // waiters whose entry says that they hear grants
	idle  *time.Timer // ends it when there have been none for a while
}

// hearsGrants reports whether grants on channel are listened for already.
func (q *Waiters) isSubscribed(channel string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grantSubs[channel] != nil
}

// subscribeToGrants has the process listen to the channel of grants, if the server allows it, and awaits that for as
// long as the waiter would sleep. The subscription is not the waiter's, and does not end with its patience. over is as
// of subscription.
func (w *Caller) subscribeToGrants() (hears, over bool) {
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

// leftUnheard has the process listen for grants because of a waiter that leaves, and would have listened if it had had
// the time. Otherwise a process all of whose callers leave before their first question is answered would never listen.
// None of its waiters could be handed anything: each is notified that it is free, and it is left to each until it has
// asked (TestHandOver_ImpatientCallers_AreHandedTheLock).
func (w *Caller) listenForLaterCallers() {
	if w.request.Mode == Paced && !w.granted && w.request.Taker != nil && w.localQueue != nil {
		w.waiters.Listen(w.request.Grants)
	}
}

// listening is a SUBSCRIBE to grants under way.
type pendingSubscribe struct {
	done chan struct{} // closed when it is answered
	err  error
}

// listening returns the SUBSCRIBE to a channel of grants that is under way, or sends one; nil: the process is
// subscribed already, or cannot be.
func (q *Waiters) startSubscribe(channel string) *pendingSubscribe {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pendingSubscribes[channel]
	isDenied := time.Now().Before(q.deniedUntil[channelKind(channel)])
	if pending != nil || q.grantSubs[channel] != nil || q.ctx.Err() != nil || isDenied {
		return pending
	}
	pending = &pendingSubscribe{done: make(chan struct{})}
	q.pendingSubscribes[channel] = pending
	go func() {
		sub, err := q.subscribe(q.ctx, channel)
		if pending.err = err; err == nil {
			q.addGrantSubscription(channel, sub)
		}
		q.mu.Lock()
		delete(q.pendingSubscribes, channel)
		q.mu.Unlock()
		close(pending.done)
	}()
	return pending
}

// keepGrants makes a subscription the one to that channel of grants, unless there is one already. It ends when none
// has used it for a while.
func (q *Waiters) addGrantSubscription(channel string, sub *pubsub.Subscription) {
	q.mu.Lock()
	if q.grantSubs[channel] != nil || q.ctx.Err() != nil {
		q.mu.Unlock()
		sub.Close()
		return
	}
	subscription := &grantSubscription{sub: sub}
	q.grantSubs[channel] = subscription
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

// unused has a subscription to grants end after a while, unless a waiter comes to use it. Called with mu held.
func (q *Waiters) closeWhenIdle(channel string, subscription *grantSubscription) {
	if q.ctx.Err() != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(idleTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if subscription.idle == timer && subscription.users == 0 && q.grantSubs[channel] == subscription {
			delete(q.grantSubs, channel)
			subscription.sub.Close()
		}
	})
	subscription.idle = timer
}

// Listen has grants on channel listened for, in the background: a caller is about to wait. Without it the first request
// that asks for a place in the server's queue is one more, behind the subscription.
func (q *Waiters) Listen(channel string) { q.startSubscribe(channel) }

func (q *Waiters) receiveGrants(channel string, subscription *grantSubscription) {
	defer func() {
		subscription.sub.Close()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.grantSubs[channel] == subscription {
			delete(q.grantSubs, channel)
		}
	}()
	for {
		message, err := subscription.sub.Next(q.ctx)
		switch {
		case err != nil:
			return
		case message.Gap:
			q.grantsMissed()
		default:
			for _, grant := range parseGrants(message.Payload) {
				q.deliver(grant)
			}
		}
	}
}

// parseGrants reads a grant, or "*" and several, each "ticket lease-ms length" and so many bytes of the owner.
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

// parseGrant reads "ticket lease-ms owner". Ticket 0 grants nothing; it is only a reason to look.
func parseGrant(text string) (grant Grant, ok bool) {
	ticketText, rest, _ := strings.Cut(text, " ")
	leaseText, owner, _ := strings.Cut(rest, " ")
	ticket, err1 := strconv.ParseInt(ticketText, 10, 64)
	ms, err2 := strconv.ParseInt(leaseText, 10, 64)
	return Grant{Ticket: ticket, Lease: time.Duration(ms) * time.Millisecond, Owner: owner},
		err1 == nil && err2 == nil && ticket >= 0
}

// grantsMissed is called after a gap: grants may have been missed, and the next one may be from before a failover. All
// waiters ask.
func (q *Waiters) grantsMissed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastGapAt = time.Now()
	for _, caller := range q.byOwner {
		if caller.requester == nil {
			signal(caller.wakeup)
		}
	}
	q.forEachRequesterQueue(q.pollAll)
}

// eachRequests calls f for every local queue of Requesters that have waited. Called with mu held.
func (q *Waiters) forEachRequesterQueue(f func(*localQueue)) {
	for _, queue := range q.localQueues {
		for ; queue != nil; queue = queue.next {
			if queue.requests != nil {
				f(queue)
			}
		}
	}
}

// deliver hands a grant to its waiter. If that has left, either it has a release pending (Taker.ReleaseLater), which
// takes the owner out of the queue and the lock and hands over again, and is now sent again at once
// (Waiters.Unclaimed), or it holds what was granted. A grant is not released because no waiter is there for it:
//
//	waiter                          here                     server
//	                                                         grants, publishes: the message is late
//	asks: granted
//	unlocks: the request is sent
//	                                the message arrives
//	                                releases the owner  ---> the lock is free
//	                                                         the unlock finds nothing
//	learns that the lock was lost
func (q *Waiters) deliver(grant Grant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	caller := q.byOwner[grant.Owner]
	if caller == nil {
		q.reportUnclaimed(grant.Owner)
		return
	}
	if grant.Ticket == 0 && caller.requester != nil {
		q.recordNotice(caller, grant.Lease)
		return
	}
	if grant.Ticket > 0 && (caller.grant == nil || caller.grant.Ticket != 0 && caller.grant.Ticket < grant.Ticket) {
		caller.grant = &grant
	}
	signal(caller.wakeup)
}

// Nudge has the waiter of an owner ask, if there is one: a try that was given up has been answered after all.
func (q *Waiters) Nudge(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if caller := q.byOwner[owner]; caller != nil && caller.requester == nil {
		signal(caller.wakeup)
	}
}

// unclaimed is called with mu held.
func (q *Waiters) reportUnclaimed(owner string) {
	if q.Unclaimed != nil {
		q.Unclaimed(owner)
	}
}
