package session

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch/internal/errs"
)

// Inflight counts what a client's Close waits for: acquisitions under way, and what is held and neither released nor
// lost. The zero value is open and empty.
type Inflight struct {
	// Hub, if set, is the context of the hub that the client works on: nobody gets in after its end. Set before use.
	Hub context.Context

	mu      sync.Mutex
	closed  bool
	held    int
	drained chan struct{} // made by Close, closed when held reaches 0
}

// Enter counts one in, or returns errs.ErrClosed; Leave counts it out.
func (f *Inflight) Enter() error {
	if !f.IfOpen(func() { f.held++ }) {
		return errs.ErrClosed
	}
	return nil
}

// Leave counts one out.
func (f *Inflight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held--; f.held == 0 && f.drained != nil {
		close(f.drained)
		f.drained = nil
	}
}

// IfOpen runs do, which must not block, and reports true, unless Close has begun, which does not begin meanwhile, or the
// hub is closed.
func (f *Inflight) IfOpen(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.Hub != nil && f.Hub.Err() != nil {
		return false
	}
	do()
	return true
}

// Closed reports whether Close has begun, or the hub is closed.
func (f *Inflight) Closed() bool { return !f.IfOpen(func() {}) }

// Close lets nobody in any more, and returns a channel that is closed when all have left. first: nobody had closed it.
func (f *Inflight) Close() (drained <-chan struct{}, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false
	}
	f.closed = true
	c := make(chan struct{})
	if f.held == 0 {
		close(c)
	} else {
		f.drained = c
	}
	return c, true
}
