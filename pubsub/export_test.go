package pubsub

var ShardedBy = shardedBy

const MaxBuffer = maxBuffer

// Live reports whether the channel is subscribed at this moment.
func (s *Subscription) Live() bool {
	h := s.topic.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.topic.live
}
