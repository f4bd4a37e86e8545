package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// closeTime is how long Close waits if its ctx has no end. Otherwise a hold that is never released, for example because
// a function returned before its Unlock, would block a deferred Close(context.Background()) forever.
const closeTime = 10 * time.Second

// Holds are what a client keeps until Close: holds, and calls that wait for them.
type Holds interface {
	// End ends the waiting calls and the contexts of the holds. New calls are refused by then.
	End()
	// Stop waits for pending releases until ctx ends, and stops the renewals. Its error names what is left. All calls and
	// holds have left by then, or ctx has ended.
	Stop(ctx context.Context) error
}

// Keep makes Close end holds. It is called once, before the first call.
func (s *Session) Keep(holds Holds) { s.holds = holds }

// Close refuses new calls, and ends waiting calls with ErrClosed. The contexts of all holds end with cause ErrClosed.
// Then Close waits until ctx ends (for closeTime if ctx has no end): for the releases of holds that are not lost, for
// calls under way, and for the pending releases. Then it stops renewing the holds that are left, and names them in its
// error. Later calls wait for the first until their own ctx ends, and return its result.
//
// The order matters. Waiters end first, because they would acquire what is released meanwhile. The engine renews until
// the last moment, because Close must not cost a hold whose Unlock is still to come. A release that fails becomes a
// pending one, so the retrier runs longer than the holds.
func (s *Session) Close(ctx context.Context) error {
	return s.Error(s.closing.Close(ctx, s.closeOnce))
}

// closeOnce is the first Close.
func (s *Session) closeOnce(ctx context.Context) error {
	drained := s.close()
	cancel := context.CancelFunc(func() {})
	if ctx.Done() == nil {
		ctx, cancel = context.WithTimeout(ctx, closeTime)
	}
	defer cancel()
	if s.holds != nil {
		s.holds.End()
	}
	s.cancel()
	defer s.running.Wait()
	if s.evictionChecked != nil {
		defer func() {
			select {
			case <-s.evictionChecked:
			case <-ctx.Done(): // the check ends by itself (TestClose_ConnectionBeingMade_IsNotWaitedFor)
			}
		}()
	}
	left := 0
	select {
	case <-drained:
	case <-ctx.Done():
		left = s.Count()
	}
	if s.holds != nil {
		return s.holds.Stop(ctx)
	}
	if left > 0 {
		return fmt.Errorf("close: %d background tasks still in progress: %w", left, errs.Ended(ctx))
	}
	return nil
}

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

// Once is a task that is done once and has one result for all callers. In the zero value the task has not begun.
type Once struct {
	mu              sync.Mutex
	result          error
	done            chan struct{} // closed when there is a result; made when a caller waits for it
	begun, finished bool
}

// Unless runs the given function unless the task has begun. The function must not block.
func (o *Once) Unless(run func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun {
		run()
	}
}

// Begin reports whether this call is the first. Then its caller does the task, and passes the result to Finish.
func (o *Once) Begin() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, o.begun = !o.begun, true
	return first
}

// Finish sets the result. It is called once, after a Begin that reported true.
func (o *Once) Finish(result error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result, o.finished = result, true
	if o.done != nil {
		close(o.done)
	}
}

// Await waits for the result until ctx ends. ok is false if ctx ended first; err is then its cause.
func (o *Once) Await(ctx context.Context) (ok bool, err error) {
	o.mu.Lock()
	finished, result := o.finished, o.result
	if o.done == nil && !finished {
		o.done = make(chan struct{})
	}
	done := o.done
	o.mu.Unlock()
	if finished {
		return true, result
	}
	select {
	case <-done:
		return true, o.result
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Close runs the first Close. A later call waits for the first until its own ctx ends, and returns the first call's
// result.
func (o *Once) Close(ctx context.Context, run func(context.Context) error) error {
	if o.Begin() {
		err := run(ctx)
		o.Finish(err)
		return err
	}
	ok, err := o.Await(ctx)
	if !ok {
		return fmt.Errorf("close: an earlier call of Close is still in progress: %w", err)
	}
	return err
}
