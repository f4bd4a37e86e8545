package wait

import "time"

// Offer names the waiter that a release under way may make the next holder. After the release exactly one of Granted, Queued,
// Refused and Failed is called.
type Offer struct {
	Standing
	// NotAfter is when that waiter stops believing in this offer.
	NotAfter time.Time
	// Local: a local hand-over, before others in the server's queue.
	Local bool
	q     *Queue
	w     *waiter // its wait may end, and the value serve another wait, at any time
}

// Offer is called before this process releases a key. It returns the waiter that the release may name for as long as within from now,
// nil if there is none.
func (q *Queue) Offer(key string, within time.Duration) *Offer {
	q.mu.Lock()
	defer q.mu.Unlock()
	var l *line // the one whose waiters can be handed the key: they all wait in one manner
	for m := q.lines[key]; m != nil; m = m.next {
		m.heldSince = time.Time{}
		if m.contender != nil {
			l = m
		}
	}
	if l == nil {
		return nil
	}
	w := l.contender
	now := time.Now()
	if w.standing == nil || w.grant != nil || now.Before(w.offered) {
		return nil
	}
	notAfter := now.Add(within)
	local := l.local > 0 && now.Before(l.localEnd)
	if !local && !w.standing.hears {
		return nil // only the server could serve it, and the waiter would not hear of that
	}
	if u := w.r.Until; !u.IsZero() && u.Before(notAfter) {
		notAfter = u
	}
	if d, ok := w.ctx.Deadline(); ok && d.Before(notAfter) {
		notAfter = d
	}
	if !now.Before(notAfter) {
		return nil // it is about to leave
	}
	w.offered = notAfter
	// Counted now, not when it is known to have been used. On a slow network the waiter hears of it from the server, by asking,
	// before the release is answered; a local hand-over that did not count as one would bring new ones.
	w.byLocal = local
	if local {
		l.local--
	}
	return &Offer{Standing: *w.standing, NotAfter: notAfter, Local: local, q: q, w: w}
}

// Granted: the release, sent at sent, has made the waiter the holder with its lease in full.
func (o *Offer) Granted(sent time.Time) {
	o.settle(true, func(w *waiter) {
		w.offered = time.Time{}
		w.grant = &Grant{Owner: o.Owner, Sent: sent, Lease: o.Lease}
		signal(w.wakeup)
	})
}

// Queued: the release, sent at sent, has found or given the waiter a place in the server's queue.
func (o *Offer) Queued(ticket int64, sent time.Time) {
	o.settle(true, func(w *waiter) {
		w.offered = time.Time{}
		w.queued = true
		if ticket >= w.ticket && sent.After(w.held) {
			w.ticket, w.held = ticket, sent
		}
		if w.grant != nil {
			signal(w.wakeup)
		}
	})
}

// Refused: nothing came of it; the waiter asks for itself.
func (o *Offer) Refused() {
	o.settle(false, func(w *waiter) {
		w.offered = time.Time{}
		signal(w.wakeup)
	})
}

// Failed: what came of it is not known. The waiter asks for itself, and is not named again before NotAfter.
func (o *Offer) Failed() { o.settle(false, func(w *waiter) { signal(w.wakeup) }) }

// settle calls f if the waiter still waits. One that has left meanwhile has a release pending, for what
// may come until NotAfter. came: something has come, so that release is sent again now.
func (o *Offer) settle(came bool, f func(*waiter)) {
	o.q.mu.Lock()
	defer o.q.mu.Unlock()
	if s := o.w.standing; s != nil && s.Owner == o.Owner {
		f(o.w)
	} else if came {
		o.q.unclaimed(o.Owner)
	}
}
