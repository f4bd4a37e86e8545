package pubsub

// Stats are counts of one hub: what this process is subscribed to.
type Stats struct {
	Channels    int // channels that are wanted, with those no longer needed that stay for Options.Grace
	Confirmed   int // channels of these whose subscription the server has confirmed, and that are up now
	Connections int // connections for subscriptions, including those that are being made

	// Lacks are the commands that the server, or a proxy before it, is known to refuse, and without which the clients on
	// this hub go on. Each was logged when it was first refused, which is when it was first needed. They are in a fixed
	// order.
	Lacks []Lack
}

// Lack is a command that a server refuses.
type Lack struct {
	// Command is "CLIENT TRACKING", "EVALSHA", "SUBSCRIBE", "PUBSUB NUMSUB", "WAIT" or "INFO", or "keys of several slots"
	// in a call, which a Cluster behind one address refuses; others may come.
	Command string
	Effect  string // what does not hold without it, or is slower, in words
	Err     error  // the refusal
}

// Stats returns the counts of now. It sends nothing. Of a closed hub all are 0, and no lack is known.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return Stats{}
	}
	s := Stats{Channels: len(h.topics), Confirmed: int(h.live.Load()), Connections: len(h.links)}
	for _, l := range h.lacks.All() {
		s.Lacks = append(s.Lacks, Lack(l))
	}
	return s
}
