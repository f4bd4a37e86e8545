package pubsub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// topicState is the state of one channel in the process, called a topic: the subscriptions here, and the confirmation
// by the server. Guarded by Hub.mu.
type topicState struct {
	hub           *Hub
	name          string
	slot          uint16
	link          *link
	subscriptions map[*Subscription]struct{}

	withoutMark bool          // the server refuses the counting channel, see channels
	live        bool          // the server has confirmed the topic on the link's current connection
	wasLive     bool          // the topic was live before: a new confirmation means that messages were missed
	isLost      bool          // the topic was live, is down, and still has to be subscribed
	nextReply   *awaitedReply // the server's next reply to SUBSCRIBE; meaningless while the topic is live
	graceTimer  *time.Timer   // runs while there are no subscriptions
}

// channels returns the channels to subscribe to: the topic's channel, after its counting channel (keyname.Mark) if it
// has one. The server subscribes to both in one step, so no script counts a subscriber of ours as one of Redisson's.
func (t *topicState) channels() []string {
	if mark := keyname.Mark(t.name); mark != "" && !t.withoutMark {
		return []string{mark, t.name}
	}
	return []string{t.name}
}

// awaitedReply is the server's next reply to the SUBSCRIBE of a topic. A waiting call keeps its own reference: before
// the call reads the reply, the topic may be down again and wait for another reply.
type awaitedReply struct {
	received chan struct{} // closed when the reply has come
	err      error         // the reason of a refusal; written before received is closed
}

func newAwaitedReply() *awaitedReply { return &awaitedReply{received: make(chan struct{})} }

// resolve passes the reply on to the waiting calls, after the observer has received the events before it. Called with
// mu held.
func (t *topicState) resolve(err error) {
	t.nextReply.err = err
	t.hub.notices.queued = append(t.hub.notices.queued, notice{reply: t.nextReply})
}

// addSubscription adds a subscription. Called with mu held.
func (t *topicState) addSubscription() *Subscription {
	if t.graceTimer != nil {
		t.graceTimer.Stop()
		t.graceTimer = nil
	}
	sub := &Subscription{topic: t, ready: make(chan struct{}, 1)}
	t.subscriptions[sub] = struct{}{}
	return sub
}

// removeSubscription removes a subscription, and starts the grace period after the last. Called with mu held.
func (t *topicState) removeSubscription(sub *Subscription, grace time.Duration) {
	delete(t.subscriptions, sub)
	hub := t.hub
	if len(t.subscriptions) > 0 || hub.closed || hub.topics[t.name] != t {
		return
	}
	if grace == 0 {
		t.link.keepUntil = time.Now().Add(hub.opts.Grace) // the channel goes, the connection stays for the next channel
		t.drop()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(grace, func() {
		hub.mu.Lock()
		defer hub.unlock()
		// Stop does not wait for a timer that has fired: since then a subscriber may have come, or have come and left again
		if t.graceTimer == timer && len(t.subscriptions) == 0 {
			t.drop()
		}
	})
	t.graceTimer = timer
}

// drop removes the topic from the hub, and has the link unsubscribe from it. Called with mu held.
func (t *topicState) drop() {
	if t.live {
		t.live = false
		t.hub.liveTopics.Add(-1)
	}
	t.clearLost() // a dropped topic need not be subscribed again
	delete(t.hub.topics, t.name)
	delete(t.link.wanted, t.name)
	t.link.wake()
}

// markLive records that the server has confirmed the topic. Called with mu held.
func (t *topicState) markLive() {
	if t.live {
		return
	}
	hub, again := t.hub, t.wasLive
	t.live, t.wasLive, hub.outages.refusalLogged = true, true, false
	hub.liveTopics.Add(1)
	hub.opts.lacks.Drop(errs.LackSubscribe)
	t.clearLost()
	if again {
		t.pushGap()
	}
	if hub.outages.refusedChannel == t.name {
		hub.outages.refusedChannel = ""
		hub.opts.Logger.Info("redlatch: subscribed to a channel that had been refused", "channel", t.name)
	}
	if hub.outages.lossLogged && hub.outages.lostTopics == 0 {
		hub.outages.lossLogged = false
		hub.opts.Logger.Info("redlatch: subscriptions are back")
	}
	hub.observe(errs.Event{Kind: errs.EventSubscribed, Name: t.name, Again: again})
	t.resolve(nil)
}

// clearLost removes the topic from the count of lost topics. Called with mu held.
func (t *topicState) clearLost() {
	if t.isLost {
		t.isLost = false
		t.hub.outages.lostTopics--
	}
}

// markDown records that the connection has ended, or that the server has ended the subscription. Called with mu held.
func (t *topicState) markDown() {
	if t.live {
		t.live, t.isLost = false, true
		t.nextReply = newAwaitedReply()
		t.hub.liveTopics.Add(-1)
		t.hub.outages.lostTopics++
		t.pushGap()
	}
}

// markRefused records that the server has refused the topic. The calls that wait for the reply get err.
//
//   - A topic that was never confirmed is dropped, and the next Subscribe sends SUBSCRIBE anew.
//   - For a topic that was confirmed before, the link sends SUBSCRIBE again, until the topic is confirmed or no longer
//     wanted.
//
// It reports whether the link must send SUBSCRIBE again. Called with mu held.
func (t *topicState) markRefused(err error) (again bool) {
	t.resolve(err)
	if !t.wasLive {
		t.drop()
		return false
	}
	t.nextReply = newAwaitedReply()
	return true
}

// pushGap sends a gap to every subscriber: messages may have been missed. The gap wakes all waiters of the channel. It
// is sent when a subscription goes down, and again when it is confirmed. The first gap alone would not do:
//
//	waiter                           subscription           another process
//	                                 down: a gap
//	wakes, reads: held, sleeps
//	                                                        releases, publishes: no subscriber
//	                                 confirmed: a gap
//	wakes, reads: free
//
// (TestSubscription_LostConnection_IsAGapAndSubscribedAgain)
func (t *topicState) pushGap() {
	for sub := range t.subscriptions {
		sub.push(Message{Gap: true})
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
	topic *topicState
	ready chan struct{}

	mu       sync.Mutex
	buffered []Message
	closed   bool
}

// push adds a message to the buffer. In a full buffer the two oldest elements become one gap. push never blocks: it
// runs on the connection's reader, and a reader that waited for a subscriber would hold up every channel. Called with
// Hub.mu held.
func (s *Subscription) push(message Message) {
	s.mu.Lock()
	hub, dropped := s.topic.hub, 0
	switch n := len(s.buffered); {
	case s.closed, message.Gap && n > 0 && s.buffered[n-1].Gap:
	default:
		for ; len(s.buffered) >= hub.opts.Buffer; s.buffered = s.buffered[1:] { // the two oldest become one gap
			for _, old := range s.buffered[:2] {
				if !old.Gap {
					dropped++
				}
			}
			s.buffered[1] = Message{Gap: true}
		}
		s.buffered = append(s.buffered, message)
	}
	s.mu.Unlock()
	for range dropped {
		hub.observe(errs.Event{Kind: errs.EventDropped, Name: s.topic.name})
	}
	s.signal()
}

// signal wakes a waiting call of Next, or the select of Ready.
func (s *Subscription) signal() { signal(s.ready) }

func (s *Subscription) end() {
	s.mu.Lock()
	s.closed = true
	s.buffered = nil
	s.mu.Unlock()
	s.signal()
}

// Next returns the next message or gap. It waits until a message or gap comes, until ctx ends, and then returns ctx's
// cause, or until the subscription or its hub is closed, and then returns ErrClosed.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			s.end() // wakes the next of several waiting calls of Next
			return Message{}, fmt.Errorf("pubsub: subscription to %q: %w", s.topic.name, errs.ErrClosed)
		}
		if len(s.buffered) > 0 {
			message := s.buffered[0]
			s.buffered = s.buffered[1:]
			more := len(s.buffered) > 0
			s.mu.Unlock()
			if more {
				s.signal()
			}
			return message, nil
		}
		s.buffered = nil
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

// Close ends the subscription, and waiting calls of Next return ErrClosed. After the last Subscription of a channel the
// channel stays subscribed for Options.Grace. Later calls do nothing.
func (s *Subscription) Close() { s.close(s.topic.hub.opts.Grace) }

func (s *Subscription) close(grace time.Duration) {
	hub := s.topic.hub
	hub.mu.Lock()
	if _, ok := s.topic.subscriptions[s]; ok {
		s.topic.removeSubscription(s, grace)
	}
	hub.unlock()
	s.end()
}
