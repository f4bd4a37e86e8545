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
func (q *Waiters) hearsGrants(channel string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grantSubs[channel] != nil
}

// subscribeToGrants has the process listen to the channel of grants, if the server allows it, and awaits that for as
// long as the waiter would sleep. The subscription is not the waiter's, and does not end with its patience. over is as
// of subscription.
func (w *Caller) subscribeToGrants() (hears, over bool) {
	q, channel := w.q, w.r.Grants
	l := q.listening(channel)
	if l == nil {
		return q.hearsGrants(channel), false
	}
	return w.subscribing(channel, func(ctx context.Context) error {
		select {
		case <-l.done:
			return l.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// leftUnheard has the process listen for grants because of a waiter that leaves, and would have listened if it had had
// the time. Otherwise a process all of whose callers leave before their first question is answered would never listen.
// None of its waiters could be handed anything: each is notified that it is free, and it is left to each until it has
// asked (TestHandOver_ImpatientCallers_AreHandedTheLock).
func (w *Caller) leftUnheard() {
	if w.r.Mode == Paced && !w.granted && w.r.Taker != nil && w.localQueue != nil {
		w.q.Listen(w.r.Grants)
	}
}

// listening is a SUBSCRIBE to grants under way.
type listening struct {
	done chan struct{} // closed when it is answered
	err  error
}

// listening returns the SUBSCRIBE to a channel of grants that is under way, or sends one; nil: the process is
// subscribed already, or cannot be.
func (q *Waiters) listening(channel string) *listening {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.listens[channel]
	if l != nil || q.grantSubs[channel] != nil || q.ctx.Err() != nil || time.Now().Before(q.denied[kindOf(channel)]) {
		return l
	}
	l = &listening{done: make(chan struct{})}
	q.listens[channel] = l
	go func() {
		sub, err := q.subscribe(q.ctx, channel)
		if l.err = err; err == nil {
			q.keepGrants(channel, sub)
		}
		q.mu.Lock()
		delete(q.listens, channel)
		q.mu.Unlock()
		close(l.done)
	}()
	return l
}

// keepGrants makes a subscription the one to that channel of grants, unless there is one already. It ends when none
// has used it for a while.
func (q *Waiters) keepGrants(channel string, sub *pubsub.Subscription) {
	q.mu.Lock()
	if q.grantSubs[channel] != nil || q.ctx.Err() != nil {
		q.mu.Unlock()
		sub.Close()
		return
	}
	e := &grantSubscription{sub: sub}
	q.grantSubs[channel] = e
	q.unused(channel, e)
	q.eachRequests(func(l *localQueue) {
		if !l.requests.enqueues && l.first != nil && l.first.r.Grants == channel {
			l.requests.enqueues = true
			q.pollAll(l)
		}
	})
	q.mu.Unlock()
	go q.receiveGrants(channel, e)
}

// unused has a subscription to grants end after a while, unless a waiter comes to use it. Called with mu held.
func (q *Waiters) unused(channel string, e *grantSubscription) {
	if q.ctx.Err() != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(idleTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if e.idle == timer && e.users == 0 && q.grantSubs[channel] == e {
			delete(q.grantSubs, channel)
			e.sub.Close()
		}
	})
	e.idle = timer
}

// Listen has grants on channel listened for, in the background: a caller is about to wait. Without it the first request
// that asks for a place in the server's queue is one more, behind the subscription.
func (q *Waiters) Listen(channel string) { q.listening(channel) }

func (q *Waiters) receiveGrants(channel string, e *grantSubscription) {
	defer func() {
		e.sub.Close()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.grantSubs[channel] == e {
			delete(q.grantSubs, channel)
		}
	}()
	for {
		m, err := e.sub.Next(q.ctx)
		switch {
		case err != nil:
			return
		case m.Gap:
			q.grantsMissed()
		default:
			for _, g := range parseGrants(m.Payload) {
				q.deliver(g)
			}
		}
	}
}

// parseGrants reads a grant, or "*" and several, each "ticket lease-ms length" and so many bytes of the owner.
func parseGrants(text string) (all []Grant) {
	rest, several := strings.CutPrefix(text, "*")
	if !several {
		if g, ok := parseGrant(text); ok {
			all = append(all, g)
		}
		return all
	}
	for rest != "" {
		words := strings.SplitN(rest, " ", 4)
		if len(words) < 4 {
			return all
		}
		n, err := strconv.Atoi(words[2])
		if err != nil || n < 0 || n > len(words[3]) {
			return all
		}
		g, ok := parseGrant(words[0] + " " + words[1] + " " + words[3][:n])
		if !ok {
			return all
		}
		all, rest = append(all, g), words[3][n:]
	}
	return all
}

// parseGrant reads "ticket lease-ms owner". Ticket 0 grants nothing; it is only a reason to look.
func parseGrant(text string) (g Grant, ok bool) {
	ticket, rest, _ := strings.Cut(text, " ")
	lease, owner, _ := strings.Cut(rest, " ")
	n, err1 := strconv.ParseInt(ticket, 10, 64)
	ms, err2 := strconv.ParseInt(lease, 10, 64)
	return Grant{Ticket: n, Lease: time.Duration(ms) * time.Millisecond, Owner: owner},
		err1 == nil && err2 == nil && n >= 0
}

// grantsMissed is called after a gap: grants may have been missed, and the next one may be from before a failover. All
// waiters ask.
func (q *Waiters) grantsMissed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gap = time.Now()
	for _, w := range q.byOwner {
		if w.requester == nil {
			signal(w.wakeup)
		}
	}
	q.eachRequests(q.pollAll)
}

// eachRequests calls f for every local queue of Requesters that have waited. Called with mu held.
func (q *Waiters) eachRequests(f func(*localQueue)) {
	for _, l := range q.localQueues {
		for ; l != nil; l = l.next {
			if l.requests != nil {
				f(l)
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
func (q *Waiters) deliver(g Grant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.byOwner[g.Owner]
	if w == nil {
		q.unclaimed(g.Owner)
		return
	}
	if g.Ticket == 0 && w.requester != nil {
		q.notified(w, g.Lease)
		return
	}
	if g.Ticket > 0 && (w.grant == nil || w.grant.Ticket != 0 && w.grant.Ticket < g.Ticket) {
		w.grant = &g
	}
	signal(w.wakeup)
}

// Nudge has the waiter of an owner ask, if there is one: a try that was given up has been answered after all.
func (q *Waiters) Nudge(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.byOwner[owner]; w != nil && w.requester == nil {
		signal(w.wakeup)
	}
}

// unclaimed is called with mu held.
func (q *Waiters) unclaimed(owner string) {
	if q.Unclaimed != nil {
		q.Unclaimed(owner)
	}
}
