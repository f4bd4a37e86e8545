package wait

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// What a batch queue listens to: grants, once for all of its waiters, and releases where no grant would come.

// awaitGrants has the process listen for grants, and waits for that for a moment. A batch goes without places if it
// takes longer; once it is there all are asked for again.
func (q *Waiters) awaitGrants(c *batchQueue) {
	q.mu.Lock()
	w := c.first
	if w == nil || w.r.Grants == "" || q.grantSubs[w.r.Grants] != nil {
		q.mu.Unlock()
		return
	}
	if c.hearing == nil {
		if now := time.Now(); now.Before(q.denied[kindOf(w.r.Grants)]) || now.Before(c.listenAt) {
			q.mu.Unlock()
			return
		}
		c.hearing = make(chan struct{})
		go q.listen(c, w.r.Grants)
	}
	ready := c.hearing
	q.mu.Unlock()
	t := time.NewTimer(hearing)
	defer t.Stop()
	select {
	case <-ready:
	case <-t.C:
	case <-q.ctx.Done():
	}
}

// listen subscribes to grants for a batch queue.
func (q *Waiters) listen(c *batchQueue, channel string) {
	sub := q.subscribe(q.ctx, channel)
	if sub != nil {
		q.keepGrants(channel, sub)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	close(c.hearing)
	c.hearing = nil
	if sub == nil {
		c.refusals++
		c.listenAt = time.Now().Add(min(script.Backoff(c.refusals), q.pollCap))
		return
	}
	c.refusals = 0
	if !c.hears {
		c.hears = true
		q.pollAll(c)
	}
}

// subscribe subscribes for a batch queue, for as long as its waiters would sleep; nil: it could not.
func (q *Waiters) subscribe(ctx context.Context, channel string) *pubsub.Subscription {
	ctx, cancel := context.WithTimeout(ctx, q.pollCap)
	defer cancel()
	sub, err := q.hub.Subscribe(ctx, channel)
	if err == nil {
		return sub
	}
	if denies(err) {
		q.mu.Lock()
		q.denied[kindOf(channel)] = time.Now().Add(deniedPause)
		q.mu.Unlock()
	}
	return nil
}

// subscribeReleases listens to releases for the batch queue, where it does not hear of them otherwise: foreign, because
// holders are not of this library and hand over nothing; or because this process hears no grants. A message has the
// first in the local queue asked for.
func (w *waiter) subscribeReleases(foreign bool) {
	q, c := w.q, w.localQueue.batchQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.cancelReleases != nil || w.is == gone || !foreign && w.entry != nil && w.entry.hears || w.r.Channel == "" {
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	c.cancelReleases = cancel
	go q.releases(ctx, c, w.r.Channel)
}

func (q *Waiters) releases(ctx context.Context, c *batchQueue, channel string) {
	for failures := 0; ; failures++ {
		sub := q.subscribe(ctx, channel)
		if sub == nil {
			q.mu.Lock()
			pause := max(script.Backoff(failures), time.Until(q.denied[kindOf(channel)]))
			q.mu.Unlock()
			if !script.Pause(ctx, pause) {
				return
			}
			continue
		}
		for err := error(nil); err == nil; _, err = sub.Next(ctx) {
			q.released(c)
		}
		sub.Close()
		return
	}
}

// released asks for the first in the local queue, or for all that one call asks for where there are no places.
func (q *Waiters) released(c *batchQueue) {
	q.mu.Lock()
	w := c.first
	if w == nil {
		q.mu.Unlock()
		return
	}
	ctx, name := w.ctx, w.r.Name
	if c.hears && !c.placeless {
		q.enqueue(c, w)
		q.startAsking(c)
	} else {
		q.pollAll(c)
	}
	q.mu.Unlock()
	q.woken(ctx, name, true)
}
