package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// Run makes the caller one of the workers, and calls fn for each shard that it has, each on a goroutine of its own,
// until ctx ends. name is what Workers shows and Drain means, such as a host name. It has at most 256 bytes of UTF-8.
// Two of one name are two workers, and are drained together.
//
// While m workers are there each has n/m shards, or one more, within five Heartbeats of the last change, ten if it was
// a crash, and the time that functions take to return whose shards move. A worker that comes takes its share from those
// that have most, one that leaves or crashes leaves its shards to those that have least, and no other shard moves. The
// coming or going of a worker counts when it has lasted for one and a half Heartbeats, whatever the others do. So
// workers that start together divide the shards once, a shard waits for a new worker for about two Heartbeats also
// during a deploy, and a worker that crashes soon after each start gets none.
//
// The ctx of fn ends, and fn should return then:
//
//   - with cause ErrReleased, when the shard is to move: when fn has returned, another worker has it at once.
//   - with ErrLost, ErrMaxHold or ErrClosed, when the shard is lost: another worker may have it soon, whether or not fn
//     has returned. If it is still to be had here, fn is called again when it has returned.
//   - with ctx.
//
// What fn returns then is dropped. If it returns nil before, this worker has the shard with no work to do. If it
// returns an error before, Run ends with it.
//
// When Run ends, all functions have returned and the shards are released. Its error is ctx's cause, ErrClosed, an error
// of fn, or a refusal of the server to keep the list of workers, as for want of a right. While the server does not
// answer, Run goes on.
//
// A shard whose lock is refused, because of the type of its key or for want of a right, is logged, and tried again in
// each Heartbeat; the other shards go on. An error of fn that is due to its shard is better not returned: that shard
// would end the next worker, too, and so all of them.
//
// A worker sends one call in a Heartbeat, and one after each change of what it has, besides what the locks cost.
func (s *Shards) Run(ctx context.Context, name string, fn func(ctx context.Context, shard *Shard) error) error {
	if err := s.c.session.Usable(s.bad, session.CheckLabel("name", name)); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	//nolint:contextcheck // that of the client: its Close ends the worker
	defer context.AfterFunc(s.c.session.Context(), func() { end(errs.ErrClosed) })()
	id := accessor.Of[*session.Session](s.c.locks).NewOwner("")
	w := &worker{s: s, name: name, id: id, fn: fn, end: end, seen: newSightings(id, s.c.trust/2),
		changed: make(chan struct{}, 1), duties: map[int]*duty{}}
	w.run(ctx)
	return s.c.session.Error(context.Cause(ctx))
}

// worker is one Run.
type worker struct {
	s        *Shards
	id, name string
	fn       func(ctx context.Context, shard *Shard) error
	end      context.CancelCauseFunc
	changed  chan struct{} // has one message after a change of duties
	running  sync.WaitGroup
	seen     *sightings

	mu     sync.Mutex
	duties map[int]*duty
}

// duty is one shard from when it is waited for until it is released.
type duty struct {
	stop context.CancelCauseFunc
	has  bool
}

// run says that the worker is there, and does what is planned, until ctx ends.
func (w *worker) run(ctx context.Context) {
	beat := w.s.c.trust / 3
	t := time.NewTicker(beat)
	defer t.Stop()
	for ctx.Err() == nil {
		// Not cut short by ctx: it could then arrive after what takes the worker out below.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), beat)
		members, err := w.s.say(limit, w.id, w.s.text(w.has(), w.name), w.s.c.trust)
		cancel()
		switch {
		case err == nil:
			w.heed(ctx, members)
		case !script.NotAnswered(err) && ctx.Err() == nil:
			w.end(err)
		}
		select {
		case <-t.C:
		case <-w.changed:
			script.Pause(ctx, min(beat/10, 10*time.Millisecond)) // what changes together is said together
		case <-ctx.Done():
		}
	}
	// First, so that others wait for the shards already while the functions end.
	_, _ = w.s.c.session.Runner.Attempt(context.WithoutCancel(ctx), script.Call{Script: script.Plain("hdel"),
		Keys: []string{w.s.workers}, Args: []string{w.id}})
	w.running.Wait()
}

// has is what the worker has now, also what it is about to release.
func (w *worker) has() []bool {
	has := make([]bool, w.s.n)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, d := range w.duties {
		has[i] = d.has
	}
	return has
}

// heed does what is planned for the workers that are there.
func (w *worker) heed(ctx context.Context, members []member) {
	for i := range members {
		if members[i].id == w.id {
			members[i].has = w.has() // which may have changed since it was said
		}
	}
	members, settled := w.seen.update(time.Now(), members)
	if !settled {
		return
	}
	mine := plan(w.s.n, w.id, members)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range mine {
		switch d := w.duties[i]; {
		case mine[i] && d == nil:
			w.begin(ctx, i)
		case !mine[i] && d != nil:
			d.stop(errMoves)
		}
	}
}

// errMoves is why the context of Run's function ends when its shard is to move.
var errMoves = fmt.Errorf("%w: another worker is to have the shard", errs.ErrReleased)

// begin waits for a shard, runs fn for it, and releases it. mu is held.
func (w *worker) begin(ctx context.Context, i int) {
	ctx, stop := context.WithCancelCause(ctx)
	d := &duty{stop: stop}
	w.duties[i] = d
	w.running.Go(func() {
		defer stop(nil)
		hold, err := w.s.lock(i).WithLabel(w.name).Lock(rlock.Detach(ctx))
		if err == nil {
			w.set(func() { d.has = true })
			err = w.serve(ctx, &Shard{i, hold})
			_ = hold.Unlock(context.WithoutCancel(ctx)) // if it fails it goes on by itself
		} else if ctx.Err() != nil || !errors.Is(err, errs.ErrClosed) {
			w.complain(ctx, i, err)
			script.Pause(ctx, w.s.c.trust/3)
			err = nil // it is tried again if it is still wanted
		}
		if err != nil {
			w.end(err)
		}
		w.set(func() { delete(w.duties, i) })
	})
}

// complain logs why a shard cannot be acquired, unless the server did not answer. It is no reason to end the worker:
// the shard would go to the next one, and end that one, too, until no shard had a worker.
func (w *worker) complain(ctx context.Context, i int, err error) {
	if ctx.Err() == nil && !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated) {
		w.s.c.session.Complain("a shard cannot be acquired: it has no worker until it can", w.s.lock(i).Name(), err)
	}
}

// set changes what the worker has, and has it said.
func (w *worker) set(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// serve runs fn until the shard is to be released, or is lost.
func (w *worker) serve(ctx context.Context, shard *Shard) error {
	ctx = shard.Context(ctx)
	if ctx.Err() != nil { // the plan has changed while it was waited for
		return nil
	}
	err := w.fn(ctx, shard)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}
