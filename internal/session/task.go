package session

import (
	"context"
	"fmt"
	"sync"
)

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

// Do runs the given function if it is the first call. Otherwise it waits for the result of the first call until ctx
// ends. ok is false if ctx ended first; err is then its cause.
func (o *Once) Do(ctx context.Context, run func(context.Context) error) (ok bool, err error) {
	if !o.Begin() {
		return o.Await(ctx)
	}
	err = run(ctx)
	o.Finish(err)
	return true, err
}

// Close is Do for a Close: a later call waits for the first until its own ctx ends, and returns the first call's
// result.
func (o *Once) Close(ctx context.Context, run func(context.Context) error) error {
	ok, err := o.Do(ctx, run)
	if !ok {
		return fmt.Errorf("close: an earlier call of Close is still under way: %w", err)
	}
	return err
}
