package pubsub

// Observer is called with what happens to a hub's subscriptions, for metrics. It runs on the goroutine where that
// happens, mostly the connection's reader, so it must return at once and call nothing that waits for the server, such
// as Subscribe. One event comes after the other; a call of Subscribe returns after the event that it waits for. A panic
// in it is logged and otherwise ignored. It gets no context, because no caller causes these events.
type Observer func(e Event)

// Event is something that happened to a hub's subscriptions. Its Kind says which fields are set.
type Event struct {
	Kind EventKind
	// Channel is the channel. Of all but EventLost.
	Channel string
	// Again: the channel had been confirmed before, and was down meanwhile. Of EventSubscribed.
	Again bool
	// Node is the address of the connection's node in a Cluster; "" elsewhere. Of EventLost.
	Node string
	// Err is the server's refusal, or why the connection ended; never nil. Of EventRefused and EventLost.
	Err error
}

// EventKind is the kind of an Event, in words.
type EventKind string

// The kinds of events.
const (
	// EventSubscribed: the server confirmed a channel (Channel, Again).
	EventSubscribed EventKind = "subscribed"
	// EventRefused: the server refused to subscribe a channel (Channel, Err).
	EventRefused EventKind = "refused"
	// EventLost: a connection with subscriptions ended, or could not be made (Node, Err). The hub tries another.
	EventLost EventKind = "lost"
	// EventDropped: a message was dropped, because Options.Buffer others waited for a subscriber (Channel). A Gap stands
	// in its place.
	EventDropped EventKind = "dropped"
)

// note is what is left to do when mu is let go of: the observer gets an event, or an answer is given.
type note struct {
	Event
	answer *answer
}

// observe has unlock give e to the observer. What goes wrong is also kept for the debug page. Called with mu held.
func (h *Hub) observe(e Event) {
	switch e.Kind {
	case EventRefused:
		h.recent.Add("subscribe", e.Channel, e.Err)
	case EventLost:
		h.recent.Add("subscriptions", e.Node, e.Err)
	}
	if h.observer != nil {
		h.notes = append(h.notes, note{Event: e})
	}
}

// unlock lets go of mu. Then it sees to what was noted under it, one after the other, unless another goroutine is about
// that:
//
//	reader                                  Subscribe of "b"             observer
//	confirms "a": notes it
//	unlock: telling                                                      "a" begins
//	                                        lock, unlock: no note of its own
//	lock: nothing was noted meanwhile                                    "a" ends
//	unlock
//
// What another goroutine notes while one tells is reported by the latter. So the observer runs without mu, and may look
// at the hub.
func (h *Hub) unlock() {
	if len(h.notes) == 0 || h.telling {
		h.mu.Unlock()
		return
	}
	h.telling = true
	defer func() { // also if an observer ends its goroutine
		h.telling = false
		h.mu.Unlock()
	}()
	for len(h.notes) > 0 {
		n := h.notes[0]
		h.notes = h.notes[1:]
		h.see(n)
	}
	h.notes = nil
}

// see does what a note says, without mu.
func (h *Hub) see(n note) {
	h.mu.Unlock()
	defer h.mu.Lock()
	if n.answer != nil {
		close(n.answer.given)
		return
	}
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("redlatch: observer panicked", "panic", p)
		}
	}()
	h.observer(n.Event)
}
