package pubsub

import (
	"context"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
)

// inner is a Hub with what the other packages of this module use of it, and innerSubscription a Subscription likewise.
type (
	inner             Hub
	innerSubscription Subscription
)

func init() {
	accessor.Register(func(h *Hub) accessor.Hub[*Subscription] { return (*inner)(h) })
	accessor.Register(func(s *Subscription) accessor.Subscription { return (*innerSubscription)(s) })
}

func (h *inner) Context() context.Context         { return h.ctx }
func (h *inner) PublishCommand() string           { return h.publish }
func (h *inner) Dials() *errs.Dials               { return h.dials }
func (h *inner) RecentErrors() *errs.RecentErrors { return &h.recent }
func (h *inner) Lacks() *errs.Lacks               { return h.lacks }

func (h *inner) Watch(fn func(keys []string)) (stop func(), observed bool) {
	if h.inv == nil {
		return func() {}, false
	}
	return h.inv.watch(fn), true
}

func (h *inner) TrySubscribe(channel string) (s *Subscription, ok bool) {
	if h.live.Load() == 0 {
		return nil, false
	}
	h.mu.Lock()
	defer (*Hub)(h).unlock()
	if t := h.topics[channel]; t != nil && t.live && !h.closed {
		return t.join(), true
	}
	return nil, false
}

func (s *innerSubscription) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = s.buf[:0]
	return s.ready
}

func (s *innerSubscription) Live() bool {
	s.topic.hub.mu.Lock()
	defer s.topic.hub.mu.Unlock()
	return s.topic.live
}

func (s *innerSubscription) Discard() { (*Subscription)(s).close(0) }
