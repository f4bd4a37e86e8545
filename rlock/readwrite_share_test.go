package rlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestReaders_OfOneProcess_AreOneHolder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	rw := r.locks.ReadWrite("l")
	first := lock(t, rw.Read(), within(t))
	before := redistest.CommandCalls(t, r.redis)["evalsha"]
	var holds []*rlock.Hold
	for len(holds) < 100 {
		holds = append(holds, lock(t, rw.Read(), within(t)))
	}
	calls := redistest.CommandCalls(t, r.redis)["evalsha"] - before
	t.Logf("100 more readers took %d calls", calls)
	own := lock(t, rw.Read().WithLease(lease), within(t))
	labelled := lock(t, rw.Read().WithLabel("job"), within(t))
	theirs := lock(t, other.locks.ReadWrite("l").Read(), within(t))
	st, err := rw.Read().Inspect(within(t))
	require.NoError(t, err)
	require.Len(t, st.Holders, 4)
	again := lock(t, rw.Read(), first.Context(within(t)))
	require.Equal(t, first.Owner(), again.Owner())
	for _, h := range append(holds, first, own, labelled, theirs) {
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, h.Unlock(within(t)))
	}
	require.NoError(t, again.Err())
	_, err = rw.Write().TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "the last one holds it")
	require.NoError(t, again.Unlock(within(t)))
	w, err := rw.Write().TryLock(within(t), 0, 0)
	require.NoError(t, err)
	require.NoError(t, w.Unlock(within(t)))
	redistest.Eventually(t, 30*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}

// TestReaders_Waiting_AreAdmittedTogether: a readers' phase is of all that waited for it, though the first of them may
// be through before the second has run; and what a process has waiting in line costs one place, and no call each.
func TestReaders_Waiting_AreAdmittedTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b, c := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{PollCap: 10 * time.Second}), newRig(t, s,
		rlock.Options{})
	w := lock(t, a.locks.ReadWrite("l").Write(), within(t))
	rw := b.locks.ReadWrite("l")
	const many = 50
	var entered sync.WaitGroup
	entered.Add(many)
	done := make(chan error, many)
	for range many {
		go func() {
			h, err := rw.Read().Lock(within(t))
			if err == nil {
				entered.Done()
				entered.Wait() // all of them hold it at once
				err = h.Unlock(within(t))
			}
			done <- err
		}()
	}
	redistest.Eventually(t, 30*time.Second, "the readers wait", func() bool {
		return a.inLine(t, "l") == 1 && b.locks.Waiting("l") == many
	})
	writer := acquiring(t, c.locks.ReadWrite("l").Write())
	redistest.Eventually(t, 30*time.Second, "and a writer", func() bool { return a.inLine(t, "l") == 2 })
	before := redistest.CommandCalls(t, a.redis)["evalsha"]
	a.spendBudget(t, "l")
	require.NoError(t, w.Unlock(within(t)))
	for range many {
		require.NoError(t, <-done)
	}
	g := <-writer
	require.NoError(t, g.err)
	require.Less(t, redistest.CommandCalls(t, a.redis)["evalsha"]-before, many, "not one for each reader")
	require.NoError(t, g.hold.Unlock(within(t)))
	redistest.Eventually(t, 30*time.Second, "nothing is left", func() bool { return len(keys(t, a.redis)) == 0 })
}

// spendBudget has a writers' phase be over with the writer that holds the lock.
func (r *rig) spendBudget(t testing.TB, name string) {
	t.Helper()
	wire.Must(t, r.redis, "ZADD", "redlatch_rwq:{"+name+"}", "-16", "!writes")
}

// TestReaders_OneHangs_OthersAreAdmitted: a writer waits for it, and readers for the writer. They are let in after a
// poll, again after two, and so on.
func TestReaders_OneHangs_OthersAreAdmitted(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond})
		hung := lock(t, a.locks.ReadWrite("l").Read(), within(t))
		rw := b.locks.ReadWrite("l")
		writer := acquiring(t, rw.Write())
		redistest.Eventually(t, 30*time.Second, "the writer waits", func() bool { return a.inLine(t, "l") == 1 })
		for range 3 {
			h := lock(t, rw.Read(), within(t)) // its ctx ends before the lease does
			select {
			case <-writer:
				t.Fatal("a writer beside a reader")
			default:
			}
			require.NoError(t, h.Unlock(within(t)))
		}
		require.NoError(t, hung.Unlock(within(t)))
		(<-writer).unlock(t)
	})
}

// TestReader_ComesAsTheLastLeaves_HoldsTheLock: what is shared is never what is being given back.
func TestReader_ComesAsTheLastLeaves_HoldsTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	rw := r.locks.ReadWrite("l")
	const cycles = 400
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range cycles {
				h, err := rw.Read().Lock(within(t))
				if err != nil {
					t.Error(err)
					return
				}
				if n := timesHeld(t, rw.Read(), h); n == 0 {
					t.Error("not held on the server")
				}
				if err := h.Unlock(within(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, 30*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}

// A writer that queues is passed by those only that come within the window of the last answer which said that none
// does.
func TestReaders_WriterWaits_DoNotOvertakeIt(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		rw, theirs := rigs[0].locks.ReadWrite("l"), rigs[1].locks.ReadWrite("l")
		first := lock(t, rw.Read(), ctx)
		written := next(t, theirs.Write(), ctx)
		synctest.Wait()
		time.Sleep(15 * time.Millisecond)
		_, err := rw.Read().TryLock(ctx, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		_, err = rw.Read().TryLock(ctx, 5*time.Millisecond, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		read := next(t, rw.Read(), ctx)
		synctest.Wait()
		require.NoError(t, first.Unlock(ctx))
		require.NoError(t, (<-written).Unlock(ctx))
		require.NoError(t, (<-read).Unlock(ctx))
		require.Empty(t, keys(t, rigs[0].redis))
	})
}

func TestReader_WriterOfItsProcessWaits_DoesNotOvertakeIt(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		rw := rigs[0].locks.ReadWrite("l")
		first := lock(t, rw.Read(), ctx)
		second, err := rw.Read().TryLock(ctx, 0, 0)
		require.NoError(t, err, "nobody waits")
		require.Equal(t, first.Owner(), second.Owner())
		written := next(t, rw.Write(), ctx)
		synctest.Wait()
		_, err = rw.Read().TryLock(ctx, 0, 0) // within the window: no time has passed
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		again := lock(t, rw.Read(), first.Context(ctx)) // behind the writer it would wait for itself
		require.NoError(t, again.Unlock(ctx))
		require.NoError(t, first.Unlock(ctx))
		require.NoError(t, second.Unlock(ctx))
		require.NoError(t, (<-written).Unlock(ctx))
		require.Empty(t, keys(t, rigs[0].redis))
	})
}

// Readers that ask at the same time, and do not wait, ask for themselves: each is told what the server says.
func TestReaders_AskWithoutWaiting_AreAnsweredByTheServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	rw := r.locks.ReadWrite("l")
	for _, taken := range []bool{false, true} {
		var hold *rlock.Hold
		if taken {
			hold = lock(t, other.locks.ReadWrite("l").Write(), within(t))
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				h, err := rw.Read().TryLock(within(t), 0, 0)
				switch {
				case taken && !errors.Is(err, errs.ErrNotAcquired):
					t.Errorf("of a lock that is taken: %v", err)
				case !taken && err != nil:
					t.Error(err)
				case !taken:
					if err := h.Unlock(within(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if taken {
			require.NoError(t, hold.Unlock(within(t)))
		}
	}
	redistest.Eventually(t, 30*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}

// endsAfter is a context that ends when it has been looked at so many times. Nobody who waits hears of that.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestReader_CtxEndsAsItJoins_HoldsNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		read := newRig(t, s, rlock.Options{}).locks.ReadWrite("l").Read()
		for looks, held := 0, false; !held; looks++ {
			first, err := read.Lock(within(t)) // and others may join it for a moment
			require.NoError(t, err)
			h, err := read.Lock(&endsAfter{context.Background(), looks})
			if held = err == nil; held {
				require.NoError(t, h.Unlock(within(t)))
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			require.NoError(t, first.Unlock(within(t)))
			locked, err := read.IsLocked(within(t))
			require.NoError(t, err)
			require.False(t, locked, "after %d looks", looks)
			require.Less(t, looks, 50)
		}
	})
}
