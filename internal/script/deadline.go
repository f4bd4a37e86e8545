package script

import (
	"context"
	"sync"
	"time"
)

// LazyDeadline is the context of a call that mostly needs none. It behaves as context.WithDeadline(parent, limit), and
// makes that context when somebody asks for Done.
//
// rueidis asks for Done on a connection that is pipelining. On another connection rueidis needs the deadline alone, and
// sets it on the connection. From its client-side cache rueidis answers without either. Such a call then needs no
// timer, no channel and no registration with parent, which were four allocations and a sixth of the client's time for
// an uncontended lock.
type LazyDeadline struct {
	parent context.Context
	limit  time.Time

	mu     sync.Mutex
	made   context.Context // nil until somebody asks for Done
	cancel context.CancelFunc
	ended  bool
}

// NewLazyDeadline returns a context that ends with parent, or at limit. The caller calls End afterwards.
func NewLazyDeadline(parent context.Context, limit time.Time) *LazyDeadline {
	if earlier, ok := parent.Deadline(); ok && earlier.Before(limit) {
		limit = earlier
	}
	return &LazyDeadline{parent: parent, limit: limit}
}

// Deadline returns the limit.
func (d *LazyDeadline) Deadline() (limit time.Time, ok bool) { return d.limit, true }

// Done returns the channel of the context, which is made by the first call.
func (d *LazyDeadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil {
		d.made, d.cancel = context.WithDeadline(d.parent, d.limit)
		if d.ended {
			d.cancel()
		}
	}
	return d.made.Done()
}

// Err returns nil for a call that is still under way after its limit, unless somebody has asked for Done. Then the
// connection itself ends the call.
func (d *LazyDeadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.made != nil:
		return d.made.Err()
	case d.ended:
		return context.Canceled
	}
	return d.parent.Err()
}

// Value finds the made context, too. Package context looks for it there when it derives a context from d: without it
// each derived context would need a goroutine.
func (d *LazyDeadline) Value(key any) any {
	d.mu.Lock()
	made := d.made
	d.mu.Unlock()
	if made != nil {
		return made.Value(key)
	}
	return d.parent.Value(key)
}

// End ends the context. The call is over.
func (d *LazyDeadline) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended = true; d.cancel != nil {
		d.cancel()
	}
}
