package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
// that have most, one that leaves or crashes leaves its shards to those that have least, and no other shard moves. A
// change counts when it has lasted for one and a half Heartbeats, so workers that start together divide the shards
// once.
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
// of fn, or that of [Election.Campaign], but not that the server did not answer: Run goes on.
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
	w := &worker{s: s, name: name, id: accessor.Of[*session.Session](s.c.locks).NewOwner(""), fn: fn, end: end,
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

	view  string    // who was there at the last heartbeat
	since time.Time // when that was seen first

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

// heed does what is planned for those that are there, once they have been the same for half of the trust. Until then it
// neither takes nor gives up. Otherwise workers that start one after the other would take all and give up most, and one
// whose heartbeat is late would be taken for gone: nothing would be lost, but shards would move.
func (w *worker) heed(ctx context.Context, members []member) {
	has := w.has()
	view := make([]string, 0, len(members))
	for i := range members {
		if members[i].id == w.id {
			members[i].has = has // which may have changed since it was said
		}
		if !members[i].drained {
			view = append(view, members[i].id)
		}
	}
	slices.Sort(view)
	if text := strings.Join(view, " "); text != w.view || w.since.IsZero() {
		w.view, w.since = text, time.Now()
	}
	if time.Since(w.since) < w.s.c.trust/2 {
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
		} else if ctx.Err() != nil || script.NotAnswered(err) || errors.Is(err, errs.ErrNotReplicated) {
			script.Pause(ctx, w.s.c.trust/3)
			err = nil // it is tried again if it is still wanted
		}
		if err != nil {
			w.end(err)
		}
		w.set(func() { delete(w.duties, i) })
	})
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
