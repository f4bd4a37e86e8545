package pubsub

import "github.com/redis/rueidis"

const MaxBuffer = maxBuffer

// Live reports whether the channel is subscribed at this moment.
func (s *Subscription) Live() bool {
	h := s.topic.hub
	h.mu.Lock()
	defer h.unlock()
	return s.topic.live
}

// What the other packages of this module use, for the tests here.
type Invalidations = invalidations

func (i *invalidations) Option(o rueidis.ClientOption) rueidis.ClientOption {
	return i.withObservers(o)
}

func (i *invalidations) In(o Options) Options {
	o.invalidations = i
	return o
}

func (h *Hub) PublishCommand() string { return (*inner)(h).PublishCommand() }

func (h *Hub) Watch(fn func(keys []string)) (stop func(), observed bool) {
	return (*inner)(h).Watch(fn)
}

func (h *Hub) TrySubscribe(channel string) (*Subscription, bool) {
	return (*inner)(h).TrySubscribe(channel)
}

func (s *Subscription) Discard() { (*innerSubscription)(s).Discard() }
