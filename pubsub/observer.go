package pubsub

import (
	"context"

	"github.com/redlatch/redlatch/internal/errs"
)

// notice is a task for the time after mu is released: an event for the observer, or a reply for waiting calls.
type notice struct {
	errs.Event
	reply *awaitedReply // nil for an event
}

// noticeQueue are the notices that unlock has yet to deliver. Guarded by Hub.mu.
type noticeQueue struct {
	queued     []notice
	delivering bool // a goroutine is delivering the queued notices
}

// observe queues event for the observer. An error is also kept for the debug page. Called with mu held.
func (h *Hub) observe(event errs.Event) {
	switch event.Kind {
	case errs.EventRefused:
		h.recentErrors.Add("subscribe", event.Name, event.Err)
	case errs.EventLost:
		h.recentErrors.Add("subscriptions", event.Name, event.Err)
	}
	if h.opts.Observer != nil {
		event.Package = "pubsub"
		h.notices.queued = append(h.notices.queued, notice{Event: event})
	}
}

// unlock releases mu. Before that it delivers the queued notices one after the other, unless another goroutine is
// delivering:
//
//	reader                                  Subscribe of "b"             observer
//	confirms "a": queues a notice
//	unlock: delivering                                                   "a" begins
//	                                        lock, unlock: queues nothing
//	lock: nothing was queued meanwhile                                   "a" ends
//	unlock
//
// A notice that another goroutine queues meanwhile is delivered by the goroutine that is delivering. The observer runs
// without mu, so it may use the hub.
func (h *Hub) unlock() {
	if len(h.notices.queued) == 0 || h.notices.delivering {
		h.mu.Unlock()
		return
	}
	h.notices.delivering = true
	defer func() { // also if an observer ends its goroutine
		h.notices.delivering = false
		h.mu.Unlock()
	}()
	for len(h.notices.queued) > 0 {
		next := h.notices.queued[0]
		h.notices.queued = h.notices.queued[1:]
		h.deliverNotice(next)
	}
	h.notices.queued = nil
}

// deliverNotice delivers one notice without mu.
func (h *Hub) deliverNotice(next notice) {
	h.mu.Unlock()
	defer h.mu.Lock()
	if next.reply != nil {
		close(next.reply.received)
		return
	}
	errs.Tell(context.Background(), h.opts.Observer, next.Event, h.opts.Logger)
}
