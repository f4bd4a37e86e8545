package pubsub

// Stats are the counts of one hub: the subscriptions of this process.
type Stats struct {
	Channels    int // wanted channels, and channels that are no longer needed and stay for Options.Grace
	Confirmed   int // Channels whose subscription the server has confirmed, and that are up now
	Connections int // connections for subscriptions, including connections that are being made

	// Lacks are the commands that the server, or a proxy before it, is known to refuse, and without which the clients on
	// this hub go on. A refusal is known, and was logged, from the first need of the command on. The order is fixed.
	Lacks []Lack
}

// Lack is a command that a server refuses.
type Lack struct {
	// Command is "CLIENT TRACKING", "EVALSHA", "SUBSCRIBE", "PUBSUB NUMSUB", "WAIT" or "INFO". It is "keys of several
	// slots" for a call that a Cluster behind one address refuses. Other values may be added.
	Command string
	Effect  string // in words: the promise that does not hold without the command, or the operation that is slower
	Err     error  // the refusal
}

// Stats returns the current counts. It sends nothing. A closed hub has only zeros, and no Lacks.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return Stats{}
	}
	stats := Stats{Channels: len(h.topics), Confirmed: int(h.liveTopics.Load()), Connections: len(h.routes.links)}
	for _, lacking := range h.opts.lacks.All() {
		stats.Lacks = append(stats.Lacks, Lack(lacking))
	}
	return stats
}
