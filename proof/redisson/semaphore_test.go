package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

func TestCountingSemaphore_BothSides_ShareOneNumber(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "sem"), w.lane(t)
		s := counting.New(r.sems, name)
		same := agreed(t, java, "sem.available", name, s.Available)
		same(0)
		ok := redistest.NoError(s.TrySetPermits(within(t), 5, 0))(t)
		require.True(t, ok)
		require.Equal(t, "false", java.do(t, "sem.set", name, 7))
		same(5)
		java.do(t, "sem.acquire", name, 2)
		require.NoError(t, s.Acquire(within(t), 2))
		same(1)
		require.Equal(t, "false", java.do(t, "sem.try", name, 2, 0))
		require.ErrorIs(t, s.TryAcquire(within(t), 2, 0), errs.ErrNotAcquired)

		// Java waits for two: one is not enough
		waiter := java.send("sem.acquire", name, 3)
		w.listening(t, name)
		require.NoError(t, s.Release(within(t), 1))
		select {
		case <-waiter:
			require.Fail(t, "three of two")
		case <-time.After(50 * time.Millisecond):
		}
		began := time.Now()
		require.NoError(t, s.Release(within(t), 1))
		got(t, waiter)
		require.Less(t, time.Since(began), soon)
		same(0)

		ours := make(chan error, 1)
		go func() { ours <- s.Acquire(within(t), 2) }()
		w.listening(t, name)
		began = time.Now()
		java.do(t, "sem.release", name, 2)
		require.NoError(t, <-ours)
		require.Less(t, time.Since(began), soon)
		same(0)

		go func() { ours <- s.Acquire(within(t), 2) }()
		w.listening(t, name)
		java.do(t, "sem.add", name, 6)
		require.NoError(t, <-ours)
		same(4)
		redistest.NoError(s.AddPermits(within(t), 3))(t)
		same(7)
		redistest.NoError(s.AddPermits(within(t), -9))(t)
		same(-2)
		require.Equal(t, "-2", java.do(t, "sem.drain", name))
		same(0)
		java.do(t, "sem.release", name, 3)
		n := redistest.NoError(s.Available(within(t)))(t)
		require.EqualValues(t, 3, n)
	})
}

func TestSemaphore_BothSides_ShareLeasedPermits(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "permit"), w.lane(t)
		s := r.sems.Semaphore(name, 2)
		require.Equal(t, "true", java.do(t, "permit.set", name, 2))
		same := agreed(t, java, "permit.available", name, s.Available)
		same(2)
		id := java.do(t, "permit.acquire", name, lease.Milliseconds())
		same(1)
		ours := redistest.NoError(s.Acquire(within(t), 1))(t)
		same(0)
		st := redistest.NoError(s.Inspect(within(t)))(t)
		require.Len(t, st.Permits, 2)
		for _, p := range st.Permits {
			switch p.ID {
			case id:
				sameLease(t, lease, p.Lease)
			case ours.IDs()[0]:
				require.Len(t, p.Client, 18)
			default:
				require.Fail(t, "whose is this", p.ID)
			}
		}
		require.Equal(t, "null", java.do(t, "permit.try", name, 50, 1000))
		_, err := s.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)

		// each waits for the other
		waiter := java.send("permit.acquire", name, lease.Milliseconds())
		w.listening(t, name)
		began := time.Now()
		require.NoError(t, ours.Release(within(t)))
		second, _ := got(t, waiter)
		require.Less(t, time.Since(began), soon)
		same(0)
		type result struct {
			p   *rsemaphore.Permit
			err error
		}
		waits := func() <-chan result {
			c := make(chan result, 1)
			ctx := within(t)
			go func() {
				p, err := s.Acquire(ctx, 1)
				c <- result{p, err}
			}()
			w.listening(t, name)
			return c
		}
		c := waits()
		began = time.Now()
		java.do(t, "permit.release", name, second)
		g := <-c
		require.NoError(t, g.err)
		require.Less(t, time.Since(began), soon)

		// ids are understood on the other side
		require.Equal(t, "true", java.do(t, "permit.tryrelease", name, g.p.IDs()[0]))
		require.ErrorIs(t, g.p.Release(within(t)), errs.ErrLost)
		require.NoError(t, s.ReleaseIDs(within(t), id))
		require.Equal(t, "false", java.do(t, "permit.tryrelease", name, id))
		require.ErrorIs(t, s.ReleaseIDs(within(t), id), errs.ErrLost)
		same(2)

		// Java's lease ends: ours gets the permit without a message; and the other way round
		java.do(t, "permit.acquire", name, lease.Milliseconds())
		id = java.do(t, "permit.acquire", name, lease.Milliseconds())
		c = waits()
		require.Equal(t, "true", java.do(t, "permit.lease", name, id, 300))
		require.Empty(t, c)
		// who looked before the lease was shortened does not know, and is first in line
		x := w.rigOf(t, 200*time.Millisecond, 0)
		behind := make(chan error, 1)
		ctx := within(t)
		go func() {
			behind <- x.sems.Semaphore(name, 2).Do(ctx, 1, func(context.Context) error { return nil })
		}()
		g = <-c
		require.NoError(t, g.err)
		require.NoError(t, g.p.Release(within(t)))
		require.NoError(t, <-behind)
		redistest.NoError(s.TryAcquire(within(t), 1, 0, 500*time.Millisecond))(t)
		same(0)
		began = time.Now()
		java.do(t, "permit.acquire", name, lease.Milliseconds())
		require.Less(t, time.Since(began), soon)
	})
}

// TestSemaphore_SharedMadeInGo_IsUsableFromJava: with Shared its keys have no end, as Redisson makes them.
func TestSemaphore_SharedMadeInGo_IsUsableFromJava(t *testing.T) {
	each(t, []place{newestAlone, olderAlone}, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "permit"), w.lane(t)
		s := r.sems.Semaphore(name, 3).Shared()
		p := redistest.NoError(s.TryAcquire(within(t), 1, 0, 300*time.Millisecond))(t)
		require.Equal(t, "false", java.do(t, "permit.set", name, 9))
		require.Equal(t, "2", java.do(t, "permit.available", name))
		java.do(t, "permit.acquire", name, lease.Milliseconds())
		<-p.Done()
		require.EqualValues(t, -1*time.Millisecond, r.pttl(t, name))
		for java.do(t, "permit.available", name) != "2" {
			time.Sleep(10 * time.Millisecond)
		}
		java.do(t, "permit.add", name, 1)
		n := redistest.NoError(s.Available(within(t)))(t)
		require.Equal(t, 3, n)
		p, err := s.TryAcquire(within(t), 3, 0, 0)
		require.NoError(t, err, "the capacity is Java's to change")
		require.Equal(t, "0", java.do(t, "permit.available", name))
		require.NoError(t, p.Release(within(t)))
		before := redistest.NoError(s.Resize(within(t), 6))(t)
		require.Equal(t, 4, before)
		require.Equal(t, "5", java.do(t, "permit.available", name))
		java.do(t, "permit.add", name, -2)
		p, err = s.TryAcquire(within(t), 3, 0, 0)
		require.NoError(t, err, "after a Resize, too")
		require.NoError(t, p.Release(within(t)))
	})
}

// A shared semaphore takes the capacity that Java has set, whatever capacity it was given itself.
func TestSemaphore_SharedMadeInJava_TakesItsCapacity(t *testing.T) {
	each(t, []place{newestAlone, olderAlone}, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "permit"), w.lane(t)
		require.Equal(t, "true", java.do(t, "permit.set", name, 2))
		s := r.sems.Semaphore(name, 5).Shared()
		p := redistest.NoError(s.TryAcquire(within(t), 2, 0, 0))(t)
		_, err := s.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, p.Release(within(t)))
		_, err = r.sems.Semaphore(name, 5).TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch, "one that is not shared has its own")
	})
}

func TestLatch_OpenedByEitherSide_OpensForBoth(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for n := range 4 { // each side sets two, and opens one of them
			javaSets, javaOpens := n&1 == 0, n&2 == 0
			name, java := unique(t, "latch"), w.lane(t)
			l := r.sems.CountDownLatch(name)
			same := agreed(t, java, "latch.count", name, l.Count)
			same(0)
			require.NoError(t, l.Await(within(t)))
			require.Equal(t, "true", java.do(t, "latch.await", name, 0))
			if javaSets {
				require.Equal(t, "true", java.do(t, "latch.set", name, 3))
				ok := redistest.NoError(l.TrySetCount(within(t), 5, 0))(t)
				require.False(t, ok)
			} else {
				ok := redistest.NoError(l.TrySetCount(within(t), 3, 0))(t)
				require.True(t, ok)
				require.Equal(t, "false", java.do(t, "latch.set", name, 5))
			}
			same(3)
			inJava := w.lane(t).send("latch.await", name, 30_000)
			w.listening(t, name)
			inGo := make(chan error, 1)
			go func() { inGo <- l.Await(within(t)) }()
			w.listening(t, name)
			redistest.NoError(l.CountDown(within(t)))(t)
			java.do(t, "latch.down", name)
			same(1)
			require.Empty(t, inJava)
			require.Empty(t, inGo)
			began := time.Now()
			if javaOpens {
				java.do(t, "latch.down", name)
			} else {
				redistest.NoError(l.CountDown(within(t)))(t)
			}
			v, _ := got(t, inJava)
			require.Equal(t, "true", v)
			require.NoError(t, <-inGo)
			require.Less(t, time.Since(began), soon)
			same(0)
		}
	})
}

// TestLatch_DeletedByEitherSide_IsGoneForBoth: waiters of ours are told if it was deleted here, and find it open if
// Java did.
func TestLatch_DeletedByEitherSide_IsGoneForBoth(t *testing.T) {
	each(t, []place{newestAlone, newestCluster, olderAlone}, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "latch"), w.lane(t)
		l := r.sems.CountDownLatch(name)
		var inGo chan error
		for _, javaDeletes := range []bool{true, false} {
			require.Equal(t, "true", java.do(t, "latch.set", name, 2))
			inGo = make(chan error, 1)
			go func() { inGo <- l.Await(within(t)) }()
			w.listening(t, name)
			began := time.Now()
			if javaDeletes {
				require.Equal(t, "true", java.do(t, "latch.delete", name))
				require.NoError(t, <-inGo)
			} else {
				ok := redistest.NoError(l.Delete(within(t)))(t)
				require.True(t, ok)
				require.ErrorIs(t, <-inGo, rsemaphore.ErrLatchDeleted)
			}
			require.Less(t, time.Since(began), soon)
			require.Equal(t, "0", java.do(t, "latch.count", name))
		}
	})
}
