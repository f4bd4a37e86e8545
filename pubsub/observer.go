package pubsub

import (
	"context"

	"github.com/redlatch/redlatch/internal/errs"
)

// note is what is left to do when mu is let go of: the observer gets an event, or an answer is given.
type note struct {
	errs.Event
	answer *answer
}

// observe has unlock give e to the observer. What goes wrong is also kept for the debug page. Called with mu held.
func (h *Hub) observe(e errs.Event) {
	switch e.Kind {
	case errs.EventRefused:
		h.recent.Add("subscribe", e.Name, e.Err)
	case errs.EventLost:
		h.recent.Add("subscriptions", e.Name, e.Err)
	}
	if h.observer != nil {
		e.Package = "pubsub"
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
	errs.Tell(context.Background(), h.observer, n.Event, h.log)
}
