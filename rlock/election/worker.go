package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// Run makes the caller one of the workers, and calls fn for each of its shards, each on its own goroutine, until ctx
// ends. name is shown by Workers and matched by Drain, such as a host name. It has at most 256 bytes of UTF-8. Workers
// of the same name are drained together.
//
// Each of m live workers has n/m shards, or one more, within five Heartbeats after the last change, or ten after a
// crash, plus the time until the functions of moving shards return. docs/election.md says which shards move.
//
// The ctx of fn ends in three cases, and fn should then return. The result of fn is then dropped.
//
//   - With cause ErrReleased: the shard should move. As soon as fn has returned, another worker has it.
//   - With ErrLost, ErrMaxHold or ErrClosed: the shard is lost, and another worker may have it soon, even before fn
//     returns. If the shard is still due here, fn is called again after it has returned.
//   - With the cause of Run's ctx, when that ends.
//
// If fn returns nil earlier, the worker keeps the shard without further work. If fn returns an error earlier, Run ends
// with this error, and the shard goes to another worker. So do not return an error that belongs to one shard.
//
// Run returns after all functions have returned and the shards are released. The error is ctx's cause, ErrClosed, an
// error of fn, or the server's refusal of the workers hash. Run goes on while the server does not answer. It logs a
// refused lock of a shard, and tries the shard again in each Heartbeat.
func (s *Shards) Run(ctx context.Context, name string, fn func(ctx context.Context, shard *Shard) error) error {
	if err := s.client.session.Usable(s.argErr, session.CheckLabel("name", name)); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	//nolint:contextcheck // the client's context: its Close ends the worker
	defer context.AfterFunc(s.client.session.Context(), func() { stop(errs.ErrClosed) })()
	id := accessor.Of[*hold.Keeper](s.client.locks).NewOwner("")
	self := &worker{shards: s, name: name, id: id, fn: fn, stop: stop,
		sightings: newSightings(id, s.client.trustPeriod/2), changed: make(chan struct{}, 1), duties: map[int]*duty{}}
	self.run(ctx)
	return s.client.session.Error(context.Cause(ctx))
}

// worker is one Run.
type worker struct {
	shards    *Shards
	id, name  string
	fn        func(ctx context.Context, shard *Shard) error
	stop      context.CancelCauseFunc
	changed   chan struct{} // has one message after a change of duties
	running   sync.WaitGroup
	sightings *sightings

	mu     sync.Mutex
	duties map[int]*duty
}

// duty is one shard of the worker, from the start of the wait for its lock until its release.
type duty struct {
	stop     context.CancelCauseFunc
	acquired bool
}

// run registers the worker in each heartbeat, and follows the plan, until ctx ends.
func (w *worker) run(ctx context.Context) {
	heartbeat := w.shards.client.trustPeriod / 3
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for ctx.Err() == nil {
		// ctx must not cancel this call: it could then arrive after the HDEL below, and register the worker again.
		attemptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeat)
		state := w.shards.encodeWorker(w.ownedShards(), w.name)
		members, err := w.shards.syncMembers(attemptCtx, w.id, state, w.shards.client.trustPeriod)
		cancel()
		switch {
		case err == nil:
			w.applyPlan(ctx, members)
		case !script.NotAnswered(err) && ctx.Err() == nil:
			w.stop(err)
		}
		select {
		case <-ticker.C:
		case <-w.changed:
			script.Pause(ctx, min(heartbeat/10, 10*time.Millisecond)) // so that changes that come together are sent together
		case <-ctx.Done():
		}
	}
	// The worker unregisters before its functions end, so that the next workers are already queued for its shards.
	_, _ = w.shards.client.session.Runner.Attempt(context.WithoutCancel(ctx), script.Call{Script: script.Plain("hdel"),
		Keys: []string{w.shards.workers}, Args: []string{w.id}})
	w.running.Wait()
}

// ownedShards returns the shards that the worker has now, including those that it will release soon.
func (w *worker) ownedShards() []bool {
	owned := make([]bool, w.shards.count)
	w.mu.Lock()
	defer w.mu.Unlock()
	for index, duty := range w.duties {
		owned[index] = duty.acquired
	}
	return owned
}

// applyPlan makes the plan for the live members, and starts and stops duties.
func (w *worker) applyPlan(ctx context.Context, members []workerState) {
	for index := range members {
		if members[index].id == w.id {
			members[index].owned = w.ownedShards() // the shards may have changed since the request
		}
	}
	members, settled := w.sightings.update(time.Now(), members)
	if !settled {
		return
	}
	mine := plan(w.shards.count, w.id, members)
	w.mu.Lock()
	defer w.mu.Unlock()
	for index := range mine {
		switch duty := w.duties[index]; {
		case mine[index] && duty == nil:
			w.startDuty(ctx, index)
		case !mine[index] && duty != nil:
			duty.stop(errShardMoves)
		}
	}
}

// errShardMoves is the cause of the context of Run's function when its shard should move.
var errShardMoves = fmt.Errorf("%w: another worker is to have the shard", errs.ErrReleased)

// startDuty waits for a shard, runs fn for it, and releases it. Called with mu held.
func (w *worker) startDuty(ctx context.Context, index int) {
	ctx, stop := context.WithCancelCause(ctx)
	duty := &duty{stop: stop}
	w.duties[index] = duty
	w.running.Go(func() {
		defer stop(nil)
		hold, err := w.shards.lock(index).WithLabel(w.name).Lock(rlock.Detach(ctx))
		if err == nil {
			w.changeDuties(func() { duty.acquired = true })
			err = w.runFunc(ctx, &Shard{index, hold})
			_ = hold.Unlock(context.WithoutCancel(ctx)) // a failed release is retried in the background
		} else if ctx.Err() != nil || !errors.Is(err, errs.ErrClosed) {
			w.logRefusal(ctx, index, err)
			script.Pause(ctx, w.shards.client.trustPeriod/3)
			err = nil // the next plan starts the shard again if it is still due here
		}
		if err != nil {
			w.stop(err)
		}
		w.changeDuties(func() { delete(w.duties, index) })
	})
}

// logRefusal logs the refusal of a shard's lock, unless the server did not answer. A refusal must not end the worker:
// the shard would go to the next worker, and end that one, too, until no shard had a worker.
func (w *worker) logRefusal(ctx context.Context, index int, err error) {
	if ctx.Err() == nil && !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated) {
		lockName := w.shards.lock(index).Name()
		w.shards.client.session.Complain("a shard cannot be acquired, and has no worker until it can", lockName, err)
	}
}

// changeDuties changes the duties, and wakes run, which sends the new state.
func (w *worker) changeDuties(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// runFunc runs fn until the shard should be released, or is lost.
func (w *worker) runFunc(ctx context.Context, shard *Shard) error {
	ctx = shard.Context(ctx)
	if ctx.Err() != nil { // the plan changed while the worker waited for the shard
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
