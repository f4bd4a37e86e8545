package pubsub

// Stats are counts of one hub: what this process is subscribed to.
type Stats struct {
	Channels    int // channels that are wanted, with those no longer needed that stay for Options.Grace
	Confirmed   int // channels of these whose subscription the server has confirmed, and that are up now
	Connections int // connections for subscriptions, including those that are being made
}

// Stats returns the counts of now. It sends nothing. Of a closed hub all are 0.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return Stats{}
	}
	return Stats{Channels: len(h.topics), Confirmed: int(h.live.Load()), Connections: len(h.links)}
}
