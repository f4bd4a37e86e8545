package pubsub

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// inner is a Hub with the methods that only the other packages of this module use. innerSubscription is the same for a
// Subscription.
type (
	inner             Hub
	innerSubscription Subscription
)

func init() {
	accessor.Register(func(hub *Hub) accessor.Hub[*Subscription] { return (*inner)(hub) })
	accessor.Register(func(sub *Subscription) accessor.Subscription { return (*innerSubscription)(sub) })
}

func (h *inner) Context() context.Context         { return h.ctx }
func (h *inner) PublishCommand() string           { return (*Hub)(h).publishCommand() }
func (h *inner) RecentErrors() *errs.RecentErrors { return &h.recentErrors }

func (h *inner) NewRunner(callTimeout time.Duration) *script.Runner {
	return (*Hub)(h).newRunner(callTimeout)
}

func (h *inner) Watch(fn func(keys []string)) (stop func(), observed bool) {
	if h.opts.invalidations == nil {
		return func() {}, false
	}
	return h.opts.invalidations.watch(fn), true
}

func (h *inner) TrySubscribe(channel string) (sub *Subscription, ok bool) {
	if h.liveTopics.Load() == 0 {
		return nil, false
	}
	h.mu.Lock()
	defer (*Hub)(h).unlock()
	if topic := h.topics[channel]; topic != nil && topic.live && !h.closed {
		return topic.addSubscription(), true
	}
	return nil, false
}

func (s *innerSubscription) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffered = s.buffered[:0]
	return s.ready
}

func (s *innerSubscription) Live() bool {
	s.topic.hub.mu.Lock()
	defer s.topic.hub.mu.Unlock()
	return s.topic.live
}

func (s *innerSubscription) Discard() { (*Subscription)(s).close(0) }
