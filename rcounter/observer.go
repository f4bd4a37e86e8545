package rcounter

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the counters of a client, for metrics. It runs on the goroutine of the call,
// so it must return at once. It may call the client. A panic in it is logged and otherwise ignored. It must be safe for
// concurrent use.
//
// ctx is that of the call: it carries the caller's span, and may have ended.
type Observer func(ctx context.Context, e Event)

// Event is one call: the server answered a call that writes (Add, Incr, Decr, AddOnce, Set or CompareAndSet), or did
// not. What is refused before anything is sent is not an event.
type Event struct {
	// Name is the counter's, as the caller gave it.
	Name string
	// Took is how long the call took.
	Took time.Duration
	// Err is why the server did not write; nil: it did.
	Err error
}

// write makes a call that writes, and reports it. Without an observer no clock is read.
func (k *Counter) write(ctx context.Context, call func() error) error {
	if k.c.observer == nil {
		return call()
	}
	began := time.Now()
	err := call()
	session.Tell(ctx, k.c.calls, k.c.observer, Event{Name: k.name, Took: time.Since(began), Err: edged(err)})
	return err
}
