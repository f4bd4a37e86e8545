package rsemaphore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// follower is an Observer that gives each acquisition and each release a number of its own, and notes what is told
// under which.
type follower struct{ redistest.Steps }

func (f *follower) observer() rsemaphore.Observer {
	return func(ctx context.Context, e rsemaphore.Event) context.Context {
		switch e.Kind {
		case rsemaphore.EventAcquiring:
			return f.Begin(ctx, "acquires %d of %s", e.N, e.Name)
		case rsemaphore.EventWaiting:
			f.Note("%d waits for %s", f.Step(ctx), e.Name)
		case rsemaphore.EventAcquired:
			f.Note("%d acquired %d of %s", f.Step(ctx), e.N, e.Name)
		case rsemaphore.EventNotAcquired:
			f.Note("%d did not acquire %d of %s", f.Step(ctx), e.N, e.Name)
		case rsemaphore.EventReleasing:
			return f.Begin(ctx, "releases %d of %s acquired by %d", e.N, e.Name, f.Step(e.Acquisition))
		case rsemaphore.EventReleased:
			f.Note("%d released %d of %s: %v", f.Step(ctx), e.N, e.Name, e.Err == nil)
		case rsemaphore.EventEnded:
			f.Note("%d lost %s", f.Step(ctx), e.Name)
		}
		return ctx
	}
}

// heeding is an Observer of one kind of event.
func heeding(kind rsemaphore.EventKind, f func(e rsemaphore.Event)) rsemaphore.Observer {
	return func(ctx context.Context, e rsemaphore.Event) context.Context {
		if e.Kind == kind {
			f(e)
		}
		return ctx
	}
}

func TestAnObserverFollowsACallByTheContextThatItReturned(t *testing.T) {
	t.Parallel()
	f := &follower{}
	ctx := within(t)
	r := newRig(t, redistest.Embedded(t),
		rsemaphore.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 5 * time.Minute, Observer: f.observer()})
	pool := r.c.Semaphore("pool", 3)
	permit := acquire(t, pool, 2)
	_, err := pool.TryAcquire(ctx, 2, 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	other := acquire(t, pool, 1)
	require.NoError(t, permit.Release(ctx))
	require.NoError(t, permit.Release(ctx)) // has that result, and is not told
	require.NoError(t, other.Release(other.Context(ctx)))
	require.Equal(t, []string{
		"1 acquires 2 of pool", "1 acquired 2 of pool",
		"2 acquires 2 of pool", "2 did not acquire 2 of pool",
		"3 acquires 1 of pool", "3 acquired 1 of pool",
		"4 releases 2 of pool acquired by 1", "4 released 2 of pool: true",
		"5 releases 1 of pool acquired by 3", "5 released 1 of pool: true",
	}, f.Take())

	counting := r.c.CountingSemaphore("counting")
	require.NoError(t, counting.Release(ctx, 1))
	require.NoError(t, counting.Acquire(ctx, 1))
	require.Equal(t, []string{
		"6 releases 1 of counting acquired by 0", "6 released 1 of counting: true",
		"7 acquires 1 of counting", "7 acquired 1 of counting",
	}, f.Take(), "it knows no holders")

	permit = acquire(t, pool, 1)
	r.must(t, "FLUSHALL")
	require.ErrorIs(t, permit.Extend(ctx, 10*time.Minute), errs.ErrLost)
	require.ErrorIs(t, permit.Release(ctx), errs.ErrLost)
	require.Equal(t, []string{
		"8 acquires 1 of pool", "8 acquired 1 of pool", "8 lost pool",
		"9 releases 1 of pool acquired by 8", "9 released 1 of pool: false",
	}, f.Take())
}

func TestWaitingIsToldOnceToEachThatWaits(t *testing.T) {
	t.Parallel()
	f := &follower{}
	ctx := within(t)
	r := newRig(t, redistest.Embedded(t),
		rsemaphore.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: time.Minute, Observer: f.observer()})
	pool := r.c.Semaphore("pool", 1)
	permit := acquire(t, pool, 1)
	_, err := pool.TryAcquire(ctx, 1, 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.Len(t, f.Take(), 4, "it did not wait")
	const waiters = 3
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if err := pool.Do(ctx, 1, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	told := map[int]int{}
	waiting := func() int {
		for _, note := range f.Take() {
			var id int
			var name string
			if n, _ := fmt.Sscanf(note, "%d waits for %s", &id, &name); n == 2 {
				told[id]++
			}
		}
		return len(told)
	}
	require.Eventually(t, func() bool { return waiting() == waiters }, 30*time.Second, time.Millisecond)
	require.NoError(t, permit.Release(ctx))
	all.Wait()
	waiting()
	require.Equal(t, map[int]int{3: 1, 4: 1, 5: 1}, told)
}
