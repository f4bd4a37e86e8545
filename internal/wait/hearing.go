package wait

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// What a crowd listens to: grants, once for all of its waiters, and releases where no grant would come.

// awaitGrants has the process listen for grants, and waits for that for a moment. A batch goes without places if it
// takes longer; once it is there all are asked for again.
func (q *Queue) awaitGrants(c *crowd) {
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

// listen subscribes to grants for a crowd.
func (q *Queue) listen(c *crowd, channel string) {
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
		q.sweep(c)
	}
}

// subscribe subscribes for a crowd, for as long as its waiters would sleep; nil: it could not.
func (q *Queue) subscribe(ctx context.Context, channel string) *pubsub.Subscription {
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

// overhear listens to releases for the crowd, where it does not hear of them otherwise: foreign, because holders are
// not of this library and hand over nothing; or because this process hears no grants. A message has the first in line
// asked for.
func (w *waiter) overhear(foreign bool) {
	q, c := w.q, w.line.crowd
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.overheard != nil || w.is == gone || !foreign && w.standing != nil && w.standing.hears || w.r.Channel == "" {
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	c.overheard = cancel
	go q.releases(ctx, c, w.r.Channel)
}

func (q *Queue) releases(ctx context.Context, c *crowd, channel string) {
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

// released asks for the first in line, or for all that one call asks for where there are no places.
func (q *Queue) released(c *crowd) {
	q.mu.Lock()
	w := c.first
	if w == nil {
		q.mu.Unlock()
		return
	}
	ctx, name := w.ctx, w.r.Name
	if c.hears && !c.placeless {
		q.wants(c, w)
		q.drive(c)
	} else {
		q.sweep(c)
	}
	q.mu.Unlock()
	q.woken(ctx, name, true)
}
