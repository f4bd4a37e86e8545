package pubsub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// topic is one channel in the process: what is wanted of it and what the server has confirmed. Guarded by Hub.mu.
type topic struct {
	hub  *Hub
	name string
	slot uint16
	link *link
	subs map[*Subscription]struct{}

	bare    bool        // the server refuses its mark
	live    bool        // confirmed on the link's current connection
	everUp  bool        // was live before: a new confirmation means that messages were missed
	missing bool        // was live, is down, and is wanted back
	answer  *answer     // the server's next, if it is not live
	grace   *time.Timer // runs while there are no subscribers
}

// channels returns what the server is asked for: the channel, after its mark if it has one. The server sees to both in
// one step, so no script finds a listener of ours without its mark.
func (t *topic) channels() []string {
	if mark := keyname.Mark(t.name); mark != "" && !t.bare {
		return []string{mark, t.name}
	}
	return []string{t.name}
}

// answer is the server's next word on a subscription. A call that waits has a reference to it of its own: before the
// call looks, the topic may be down again and wait for another answer.
type answer struct {
	given chan struct{} // closed then
	err   error         // why it was refused; set before
}

func newAnswer() *answer { return &answer{given: make(chan struct{})} }

// resolve gives the answer to those that wait for it, after the observer got it. Called with mu held.
func (t *topic) resolve(err error) {
	t.answer.err = err
	if h := t.hub; h.observer != nil {
		h.notes = append(h.notes, note{answer: t.answer})
		return
	}
	close(t.answer.given)
}

// join adds a subscription. Called with mu held.
func (t *topic) join() *Subscription {
	if t.grace != nil {
		t.grace.Stop()
		t.grace = nil
	}
	s := &Subscription{topic: t, ready: make(chan struct{}, 1)}
	t.subs[s] = struct{}{}
	return s
}

// leave removes a subscription and starts the grace period after the last. Called with mu held.
func (t *topic) leave(s *Subscription, grace time.Duration) {
	delete(t.subs, s)
	h := t.hub
	if len(t.subs) > 0 || h.closed || h.topics[t.name] != t {
		return
	}
	if grace == 0 {
		t.link.keepUntil = time.Now().Add(h.grace) // the channel goes, the connection stays for the next
		t.drop()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(grace, func() {
		h.mu.Lock()
		defer h.unlock()
		// Stop does not wait for a timer that has fired: a subscriber may have joined, or joined and left again, since
		if t.grace == timer && len(t.subs) == 0 {
			t.drop()
		}
	})
	t.grace = timer
}

// drop forgets the topic and has it unsubscribed. Called with mu held.
func (t *topic) drop() {
	if t.live {
		t.live = false
		t.hub.live.Add(-1)
	}
	t.found() // it is not wanted back
	delete(t.hub.topics, t.name)
	delete(t.link.want, t.name)
	t.link.wake()
}

// up is called when the server has confirmed the topic. Called with mu held.
func (t *topic) up() {
	if t.live {
		return
	}
	h, again := t.hub, t.everUp
	t.live, t.everUp, h.refused = true, true, false
	h.live.Add(1)
	h.lacks.Drop(errs.LackSubscribe)
	t.found()
	if again {
		t.gap()
	}
	if h.shunned == t.name {
		h.shunned = ""
		h.log.Info("redlatch: subscribed to a channel that had been refused", "channel", t.name)
	}
	if h.lost && h.missing == 0 {
		h.lost = false
		h.log.Info("redlatch: subscriptions are back")
	}
	h.observe(errs.Event{Kind: errs.EventSubscribed, Name: t.name, Again: again})
	t.resolve(nil)
}

// found counts the topic no longer among the missing. Called with mu held.
func (t *topic) found() {
	if t.missing {
		t.missing = false
		t.hub.missing--
	}
}

// down is called when the connection ends, or the server takes the subscription away. Called with mu held.
func (t *topic) down() {
	if t.live {
		t.live, t.missing = false, true
		t.answer = newAnswer()
		t.hub.live.Add(-1)
		t.hub.missing++
		t.gap()
	}
}

// refuse is called when the server refuses the topic: the calls that wait for its answer get err. A topic that was
// never confirmed is dropped, and the next Subscribe asks the server anew. One that was confirmed before is asked for
// again, until it is confirmed or not wanted any more. It reports whether to ask again. Called with mu held.
func (t *topic) refuse(err error) (again bool) {
	t.resolve(err)
	if !t.everUp {
		t.drop()
		return false
	}
	t.answer = newAnswer()
	return true
}

// gap tells every subscriber that messages may have been missed, which wakes all waiters of the channel. It comes both
// when a subscription goes down and when it is up again. The first alone would not do:
//
//	waiter                           subscription           another
//	                                 down: a gap
//	wakes, looks: held, sleeps
//	                                                        releases, publishes: no one hears
//	                                 confirmed: a gap
//	wakes, looks: free
//
// (TestSubscription_LostConnection_IsAGapAndSubscribedAgain)
func (t *topic) gap() {
	for s := range t.subs {
		s.push(Message{Gap: true})
	}
}

// Message is one message of a subscription's channel, or a gap between messages.
type Message struct {
	Payload string
	// Gap: messages may have been missed at this place. Payload is empty.
	Gap bool
}

// Subscription receives the messages of one channel, by Next or by Ready. It is safe for concurrent use. Each message
// goes to one caller of Next.
type Subscription struct {
	topic *topic
	ready chan struct{}

	mu     sync.Mutex
	buf    []Message
	closed bool
}

// push adds a message. It never blocks: it runs on the connection's reader, where waiting for a subscriber would hold
// up every channel. Called with Hub.mu held.
func (s *Subscription) push(m Message) {
	s.mu.Lock()
	h, dropped := s.topic.hub, 0
	switch n := len(s.buf); {
	case s.closed, m.Gap && n > 0 && s.buf[n-1].Gap:
	default:
		for ; len(s.buf) >= h.buffer; s.buf = s.buf[1:] { // the oldest two become one gap; the oldest may be a gap already
			for _, old := range s.buf[:2] {
				if !old.Gap {
					dropped++
				}
			}
			s.buf[1] = Message{Gap: true}
		}
		s.buf = append(s.buf, m)
	}
	s.mu.Unlock()
	for range dropped {
		h.observe(errs.Event{Kind: errs.EventDropped, Name: s.topic.name})
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *Subscription) end() {
	s.mu.Lock()
	s.closed = true
	s.buf = nil
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Next returns the next message or gap. It waits for one until ctx ends, and then returns ctx's cause, or until the
// subscription or its hub is closed, and then returns ErrClosed.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			s.end() // passes the wake-up on: other callers of Next may wait, too
			return Message{}, fmt.Errorf("pubsub: subscription to %q: %w", s.topic.name, errs.ErrClosed)
		}
		if len(s.buf) > 0 {
			m := s.buf[0]
			s.buf = s.buf[1:]
			more := len(s.buf) > 0
			s.mu.Unlock()
			if more {
				select {
				case s.ready <- struct{}{}:
				default:
				}
			}
			return m, nil
		}
		s.buf = nil
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

// Close ends the subscription; waiting calls of Next return ErrClosed. If this was the channel's last Subscription the
// channel stays subscribed for Options.Grace. Later calls do nothing.
func (s *Subscription) Close() { s.close(s.topic.hub.grace) }

func (s *Subscription) close(grace time.Duration) {
	h := s.topic.hub
	h.mu.Lock()
	if _, ok := s.topic.subs[s]; ok {
		s.topic.leave(s, grace)
	}
	h.unlock()
	s.end()
}
