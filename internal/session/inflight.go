package session

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/errs"
)

// Inflight counts the calls under way, and the holds that are neither released nor lost. A client's Close waits for
// them. The zero value is open and empty.
type Inflight struct {
	hub context.Context // the context of the client's hub: after its end Enter fails. Set before use; may be nil

	mu      sync.Mutex
	closed  atomic.Bool // written under mu
	count   int
	drained chan struct{} // made by close, closed when n reaches 0
}

// Enter counts a call or hold, or returns errs.ErrClosed. Leave counts it out.
func (f *Inflight) Enter() error {
	if !f.IfOpen(func() { f.count++ }) {
		return errs.ErrClosed
	}
	return nil
}

// Leave counts a call or hold out.
func (f *Inflight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count--; f.count == 0 && f.drained != nil {
		close(f.drained)
		f.drained = nil
	}
}

// IfOpen runs do and reports true. If Close has begun or the hub is closed, it reports false and does not run do. Close
// does not begin while do runs, so do must not block.
func (f *Inflight) IfOpen(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() || f.hub != nil && f.hub.Err() != nil {
		return false
	}
	do()
	return true
}

// Closed reports whether Close has begun, or the hub is closed. It takes no mutex, because every claim calls it, also
// the claims that the process answers by itself.
func (f *Inflight) Closed() bool { return f.closed.Load() || f.hub != nil && f.hub.Err() != nil }

// Join counts a call or hold, also after Close or the hub's end, because a release is still sent then. Leave counts it
// out.
func (f *Inflight) Join() {
	f.mu.Lock()
	f.count++
	f.mu.Unlock()
}

// Count returns the number of calls and holds.
func (f *Inflight) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// close refuses Enter from now on, and returns a channel that is closed when all have left. It is called once.
func (f *Inflight) close() (drained <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed.Store(true)
	channel := make(chan struct{})
	if f.count == 0 {
		close(channel)
	} else {
		f.drained = channel
	}
	return channel
}
