package wait

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/pubsub"
)

// Taker is a waiter to whom a release can give what it waits for, without another try: handed over by the server from
// its queue, or named by a release of this very process. The protocol, and which of its rules keep it safe, is in
// docs/design.md.
type Taker interface {
	// Stand returns how the waiter is to be known. It must not block, nor call the Queue.
	Stand() Standing
	// Ask is Request.Try; with a standing it asks for a place in the server's queue, too. Answer.Ticket names it.
	Ask(ctx context.Context, s *Standing) (Answer, error)
	// Taken is told of a grant. false: it is not to be used unconfirmed; Ask is called at once.
	Taken(g Grant) bool
	// Owe is called when the wait ends without a grant, but something of it may be left on the server, or get there
	// until after: it is to be released in the background.
	Owe(after time.Time)
}

// Standing is how the server and the releases of this process know a waiter.
type Standing struct {
	Owner string        // never used for another acquisition
	Entry string        // in the server's queue
	Lease time.Duration // in full
	hears bool          // grants published to this process reach it
}

// Grant is the word that a release has made a waiter the holder.
type Grant struct {
	Owner string
	// Ticket is the place in the server's queue that was served; 0 for a grant inside the process.
	Ticket int64
	// Sent: the server's lease began no earlier.
	Sent time.Time
	// Lease is what was written on the server.
	Lease time.Duration
}

const (
	// moment is how long a waiter whose process holds the lock hopes to be named by the release before it asks for a
	// place in the server's queue. A lock that is held for less costs its process one call for each acquisition.
	moment = 5 * time.Millisecond
	// mostTurns and turnTime bound how long a lock stays within a process while others queue for it.
	mostTurns = 32
	turnTime  = 20 * time.Millisecond
	// linger is how long grants are listened for when nobody waits.
	linger = 2 * time.Second
	// MaxPoll bounds the sleep of a waiter in a queue on the server, whatever PollCap: entries that are not stamped for
	// longer than two and a half polls are passed over.
	MaxPoll = 10 * time.Second
)

// ear listens to one channel of grants.
type ear struct {
	sub   *pubsub.Subscription
	users int
	idle  *time.Timer
}

// hears reports whether grants on channel are listened for already.
func (q *Queue) hears(channel string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ears[channel] != nil
}

// listen has grants on channel heard, if the server allows. over is subscription's.
func (w *waiter) listen() (hears, over bool) {
	q, channel := w.q, w.r.Grants
	if q.hears(channel) {
		return true, false
	}
	sub, over := w.subscription(channel)
	if sub == nil {
		return false, over
	}
	q.mu.Lock()
	if q.ears[channel] != nil || q.ctx.Err() != nil {
		q.mu.Unlock()
		sub.Close()
		return true, over
	}
	e := &ear{sub: sub}
	q.ears[channel] = e
	q.mu.Unlock()
	go q.hear(channel, e)
	return true, over
}

func (q *Queue) hear(channel string, e *ear) {
	defer func() {
		e.sub.Close()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.ears[channel] == e {
			delete(q.ears, channel)
		}
	}()
	for {
		m, err := e.sub.Next(q.ctx)
		switch {
		case err != nil:
			return
		case m.Gap:
			q.missed()
		default:
			if g, ok := parseGrant(m.Payload); ok {
				q.deliver(g)
			}
		}
	}
}

// parseGrant reads "ticket lease-ms owner". Ticket 0 is none, only a reason to look.
func parseGrant(text string) (g Grant, ok bool) {
	ticket, rest, _ := strings.Cut(text, " ")
	lease, owner, _ := strings.Cut(rest, " ")
	n, err1 := strconv.ParseInt(ticket, 10, 64)
	ms, err2 := strconv.ParseInt(lease, 10, 64)
	return Grant{Ticket: n, Lease: time.Duration(ms) * time.Millisecond, Owner: owner}, err1 == nil && err2 == nil && n >= 0
}

// missed: grants may have gone by unheard, and what comes next may be from before a failover. Everybody asks.
func (q *Queue) missed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gap = time.Now()
	for _, w := range q.standing {
		w.wake()
	}
}

// deliver hands a grant to its waiter. One that is not there any more has seen to what may come (Owe), or holds what it
// is granted: nothing is to be done about its grant.
func (q *Queue) deliver(g Grant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.standing[g.Owner]
	if w == nil {
		return
	}
	if g.Ticket > 0 && (w.grant == nil || w.grant.Ticket != 0 && w.grant.Ticket < g.Ticket) {
		w.grant = &g
	}
	w.wake()
}

// stand makes the waiter known: before anything is sent that may be answered by a grant.
//
// One that hears no grants asks for no place in the server's queue. Only releases of this process can name it; it polls,
// and goes on trying to hear. A place in the queue would be served in silence, and the lock be idle until the next poll:
//
//	waiter                                   another process
//	asks: held, and queued as one that       (holds the lock)
//	does not hear; sleeps for up to PollCap
//	                                         releases: hands the lock over to the waiter, tells nobody
//
// The first SUBSCRIBE of a process takes a moment, which any nudge cuts short, so this was common wherever a program
// started. The ear may also go between listen and here, when it has lingered for long enough; the loop listens again.
func (w *waiter) stand(hears bool) {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.standing == nil {
		s := w.r.Taker.Stand()
		w.standing = &s
		if w.nudge == nil {
			w.nudge = make(chan struct{}, 1)
		}
		q.standing[s.Owner] = w
		w.line.contender = w
	}
	if e := q.ears[w.r.Grants]; hears && e != nil && w.ear == nil {
		w.standing.hears = true
		e.users++
		w.ear = e
		if e.idle != nil {
			e.idle.Stop()
			e.idle = nil
		}
	}
}

// unstand is called with mu held.
func (w *waiter) unstand() {
	if w.standing == nil {
		return
	}
	q := w.q
	delete(q.standing, w.standing.Owner)
	w.standing, w.grant, w.ticket = nil, nil, 0
	if e := w.ear; e != nil {
		w.ear = nil
		if e.users--; e.users == 0 && q.ctx.Err() == nil {
			channel := w.r.Grants
			var timer *time.Timer
			timer = time.AfterFunc(linger, func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				if e.idle == timer && e.users == 0 && q.ears[channel] == e {
					delete(q.ears, channel)
					e.sub.Close()
				}
			})
			e.idle = timer
		}
	}
}

// wake is called with mu held.
func (w *waiter) wake() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// taken reports whether a grant is there that may be used. Its deadline counts from when it was surely not yet
// written:
//
//   - a grant inside the process: when the release that wrote it was sent;
//   - one from the server's queue: when the last call was sent that was answered "held, and you are in the queue with
//     this ticket": the grant of that ticket came later. Never from when the message arrived, which may be any time
//     after; and never by a message about an earlier place of the same owner, whose lease is long over.
//
// One whose ticket no answer has named yet may have overtaken that answer: it is kept. After a gap in the messages the
// queue may be one from before a failover; the next grant is confirmed then.
func (w *waiter) taken() bool {
	q := w.q
	q.mu.Lock()
	g := w.grant
	use := g != nil && (g.Ticket == 0 || g.Ticket == w.ticket && w.held.After(q.gap))
	if g != nil && (g.Ticket == 0 || g.Ticket <= w.ticket) {
		w.grant = nil
	}
	if use {
		if g.Ticket != 0 {
			g.Sent = w.held
		}
		w.byTurn = g.Ticket == 0
	}
	q.mu.Unlock()
	return use && w.r.Taker.Taken(*g)
}

// settled is called with mu held when the wait ends. owes: something of it may be left on the server, or get there
// until after.
func (w *waiter) settled(granted bool) (after time.Time, owes bool) {
	l := w.line
	if l.contender == w {
		l.contender = nil
	}
	after, owes = w.offered, w.queued || w.grant != nil || !w.offered.IsZero()
	w.unstand()
	if granted {
		if w.head && l.members > 1 {
			l.heldSince = time.Now()
			if !w.byTurn {
				l.turns, l.turnsEnd = min(l.members-1, mostTurns), l.heldSince.Add(turnTime)
			}
		}
		return after, false
	}
	return after, owes
}

// Offer names the waiter that a release under way may make the next holder.
type Offer struct {
	Standing
	// NotAfter is when that waiter stops believing in this offer.
	NotAfter time.Time
	// Turn: in this process's turn, before others in the server's queue.
	Turn bool
	q    *Queue
	w    *waiter // may be through with its wait, and serve another one, at any time
}

// Offer tells that a key is about to be released by this process, and returns the waiter that the release may name;
// nil if there is none. What came of it is to be said.
func (q *Queue) Offer(key string, notAfter time.Time) *Offer {
	q.mu.Lock()
	defer q.mu.Unlock()
	var l *line // of those that can be handed it: all wait in one manner
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
	turn := l.turns > 0 && now.Before(l.turnsEnd)
	if !turn && !w.standing.hears {
		return nil // the server would have to tell it
	}
	if u := w.r.Until; !u.IsZero() && u.Before(notAfter) {
		notAfter = u
	}
	w.offered = notAfter
	// Counted now, not when it is known to have been used: on a slow network the waiter hears of it from the server, by
	// asking, before the release is answered, and a turn that does not count as one would bring new turns.
	w.byTurn = turn
	if turn {
		l.turns--
	}
	return &Offer{Standing: *w.standing, NotAfter: notAfter, Turn: turn, q: q, w: w}
}

// Granted: the release, sent at sent, has made the waiter the holder with its lease in full.
func (o *Offer) Granted(sent time.Time) {
	o.settle(func(w *waiter) {
		w.offered = time.Time{}
		w.grant = &Grant{Owner: o.Owner, Sent: sent, Lease: o.Lease}
		w.wake()
	})
}

// Queued: the release, sent at sent, has found or given the waiter a place in the server's queue.
func (o *Offer) Queued(ticket int64, sent time.Time) {
	o.settle(func(w *waiter) {
		w.offered = time.Time{}
		w.queued = true
		if ticket >= w.ticket && sent.After(w.held) {
			w.ticket, w.held = ticket, sent
		}
		if w.grant != nil {
			w.wake()
		}
	})
}

// Refused: nothing came of it; the waiter asks for itself.
func (o *Offer) Refused() {
	o.settle(func(w *waiter) {
		w.offered = time.Time{}
		w.wake()
	})
}

// Failed: what came of it is not known. The waiter asks for itself, and is not named again before NotAfter.
func (o *Offer) Failed() { o.settle(func(w *waiter) { w.wake() }) }

// settle: a waiter that has left meanwhile has seen to what may come until NotAfter.
func (o *Offer) settle(f func(*waiter)) {
	o.q.mu.Lock()
	defer o.q.mu.Unlock()
	if s := o.w.standing; s != nil && s.Owner == o.Owner {
		f(o.w)
	}
}
