package rcounter

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions told of what happens, each with a context and the name of the counter; nil ones are skipped
// and cost nothing. They run on the goroutine of the call: they must return at once. One that panics is logged and otherwise
// ignored.
//
// The context is that of the call: it carries the caller's span, and may have ended.
type Observer struct {
	// Written: the server answered an Add, Incr, Decr, AddOnce, Set or CompareAndSet; or it did not write, for the reason in
	// err. What is refused before anything is sent is not told.
	Written func(ctx context.Context, name string, took time.Duration, err error)
}

// observe takes o, guarded.
func (c *Client) observe(o Observer) *Client {
	if o.Written != nil {
		c.written = session.Guard2(c.calls, o.Written)
	}
	return c
}

// write makes a call that writes, of which the observer is told.
func (k *Counter) write(ctx context.Context, call func() error) error {
	if k.c.written == nil {
		return call()
	}
	began := time.Now()
	err := call()
	k.c.written(ctx, k.name, time.Since(began), edged(err))
	return err
}

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	return Observer{Written: session.Both2(o.Written, next.Written)}
}
