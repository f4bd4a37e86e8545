package script

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// inPlace makes the call on the caller's goroutine. Hooks around the client see the call's context, and may derive
// contexts that outlast the call. So each call has a context of its own, which ends with the call
// (TestInPlace_HookDerivesContexts_TheyEndWithTheCall).
func (r *Runner) inPlace(ctx context.Context, call Call, limit time.Time) (rueidis.RedisMessage, error) {
	bounded := &lazyDeadline{parent: ctx, limit: limit}
	result, _ := r.send(bounded, call)
	bounded.end()
	reply, err := result.ToMessage()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if err = errs.Cut(errs.Ended(ctx)); err == nil {
			err = r.late
		}
		err = gaveUp{err, true}
	}
	return reply, err
}

// lazyDeadline is the context of a call that is made in place. It behaves as context.WithDeadline(parent, limit), and
// makes that context when somebody asks for Done.
//
// rueidis asks for Done on a connection that is pipelining. On another connection rueidis needs the deadline alone, and
// sets it on the connection. Such a call then needs no timer, no channel and no registration with parent, which were
// four allocations and a sixth of the client's time for an uncontended lock.
type lazyDeadline struct {
	parent context.Context
	limit  time.Time

	mu     sync.Mutex
	made   context.Context // nil until somebody asks for Done
	cancel context.CancelFunc
	ended  bool
}

// Deadline returns the limit. The runner makes a call in place only if parent lasts for longer.
func (d *lazyDeadline) Deadline() (limit time.Time, ok bool) { return d.limit, true }

func (d *lazyDeadline) Done() <-chan struct{} {
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
func (d *lazyDeadline) Err() error {
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
func (d *lazyDeadline) Value(key any) any {
	d.mu.Lock()
	made := d.made
	d.mu.Unlock()
	if made != nil {
		return made.Value(key)
	}
	return d.parent.Value(key)
}

// end ends the context. The call is over.
func (d *lazyDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended = true; d.cancel != nil {
		d.cancel()
	}
}
