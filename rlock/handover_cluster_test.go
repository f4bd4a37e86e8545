package rlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestHandOver_Cluster_WorksOnEveryNode(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := s.Client(t)
	o := rlock.Options{PollCap: 30 * time.Second}
	holder, first, second := newRig(t, s, o), newRig(t, s, o), newRig(t, s, o)
	nodes := map[int]bool{}
	for i := range 12 {
		name := fmt.Sprint("l", i)
		nodes[int(keyname.Slot(name))*3/16384] = true
		h := lock(t, holder.locks.Reentrant(name), within(t))
		a := queueUp(t, c, first.locks.Reentrant(name), within(t), 1)
		b := queueUp(t, c, second.locks.Reentrant(name), within(t), 2)
		line := queued(t, c, name)
		began := time.Now()
		require.NoError(t, h.Unlock(within(t)))
		for j, w := range []<-chan result{a, b} {
			got := <-w
			require.NoError(t, got.err)
			require.EqualValues(t, line[j], got.hold.Owner())
			got.unlock(t)
		}
		require.Less(t, time.Since(began), 20*time.Second, "by message, not by poll")
		require.Empty(t, holder.hash(t, name))
		require.Empty(t, queued(t, c, name))
	}
	require.Len(t, nodes, 3)
}

// TestSlotMigration_ReentrantLocks_AreTakenAndReleased: where the lock and its queue are on two nodes no script may use
// both.
func TestSlotMigration_ReentrantLocks_AreTakenAndReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := s.Client(t)
	o := rlock.Options{PollCap: 100 * time.Millisecond}
	a, b, other, third := newRig(t, s, o), newRig(t, s, o), newRig(t, s, o), newRig(t, s, o)
	m := wire.NewMove(t, s, "l")
	queue := "redlatch_queue:{l}"
	held, forced := lock(t, a.locks.Reentrant("l"), within(t)), lock(t, a.locks.Reentrant("{l}2"), within(t))
	m.Begin()
	// held on the old node, no queue yet
	waiting := acquiring(t, b.locks.Reentrant("l"))
	_, err := other.locks.Reentrant("l").TryLock(within(t), 200*time.Millisecond, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.Empty(t, waiting)
	require.NoError(t, held.Unlock(within(t)))
	got := <-waiting
	require.NoError(t, got.err)
	n, err := m.To.Do(within(t), m.To.B().Arbitrary("CLUSTER", "COUNTKEYSINSLOT", m.Slot).Build()).AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "what is new is made on the new node")
	_, err = other.locks.Reentrant("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, got.hold.Extend(within(t), time.Minute))
	got.unlock(t)
	ok, err := other.locks.Reentrant("{l}2").ForceUnlock(within(t))
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, forced.Unlock(within(t)), errs.ErrLost)
	require.NoError(t, lock(t, other.locks.Reentrant("{l}2"), within(t)).Unlock(within(t)))
	for range 20 {
		h := lock(t, other.locks.Reentrant("l"), within(t))
		require.NoError(t, h.Unlock(within(t)))
	}
	m.End()

	// and back, with waiters in the queue when the slot begins to move
	m = m.Back()
	held = lock(t, a.locks.Reentrant("l"), within(t))
	w1 := queueUp(t, c, b.locks.Reentrant("l"), within(t), 1)
	w2 := queueUp(t, c, other.locks.Reentrant("l"), within(t), 2)
	w3 := queueUp(t, c, third.locks.Reentrant("l"), within(t), 3)
	m.Begin()
	require.NoError(t, held.Unlock(within(t)), "both are still here, but what is gone here cannot be made here")
	next := func() result {
		select {
		case got = <-w1:
		case got = <-w2:
		case got = <-w3:
		}
		require.NoError(t, got.err)
		return got
	}
	next().unlock(t) // the lock is there now, its queue still here
	got = next()
	ok, err = a.locks.Reentrant("l").ForceUnlock(within(t))
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, got.hold.Unlock(within(t)), errs.ErrLost)
	got = next()
	m.Key(queue)
	m.End()
	got.unlock(t)

	// and the queue works as before
	held = lock(t, a.locks.Reentrant("l"), within(t))
	w1 = queueUp(t, c, b.locks.Reentrant("l"), within(t), 1)
	w2 = queueUp(t, c, other.locks.Reentrant("l"), within(t), 2)
	redistest.Eventually(t, 20*time.Second, "their subscriptions have followed", func() bool {
		n, err := m.To.Do(within(t),
			m.To.B().PubsubShardnumsub().Channel("redlatch_grant:{l}:"+b.locks.ID(),
				"redlatch_grant:{l}:"+other.locks.ID()).Build()).AsIntMap()
		for _, listeners := range n {
			if listeners != 1 {
				return false
			}
		}
		return err == nil && len(n) == 2
	})
	line := queued(t, c, "l")
	require.NoError(t, held.Unlock(within(t)))
	for i, w := range []<-chan result{w1, w2} {
		got := <-w
		require.NoError(t, got.err)
		require.EqualValues(t, line[i], got.hold.Owner())
		got.unlock(t)
	}
}

// TestSlotMigration_FairAndReadWriteLocks_AreReleased: what a script has emptied on the old node it may not
// look at any more, though all its keys were there when it began.
func TestSlotMigration_FairAndReadWriteLocks_AreReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	r, other := newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond}), newRig(t, s, rlock.Options{})
	m := wire.NewMove(t, s, "{l}")
	rw := func(n int) *rlock.ReadWriteLock { return r.locks.ReadWrite(fmt.Sprint("{l}rw", n)) }
	wait := func(l *rlock.Lock) <-chan result {
		waiting := acquiring(t, l)
		redistest.Eventually(t, 10*time.Second, "it waits", func() bool {
			i, err := l.Inspect(within(t))
			return err == nil && len(i.Waiters) == 1
		})
		return waiting
	}
	fair, forced := r.locks.Fair("{l}1"), r.locks.Fair("{l}2")
	fairly, taken := lock(t, fair, within(t)), lock(t, forced, within(t))
	waiting := []<-chan result{wait(fair), wait(forced)}
	reads, kept, cut := lock(t, rw(1).Read(), within(t)), lock(t, rw(2).Write(), within(t)), lock(t, rw(3).Read(),
		within(t))
	under := lock(t, rw(2).Read(), kept.Context(within(t)))
	m.Begin()
	for _, h := range []*rlock.Hold{fairly, reads, under, kept} {
		require.NoError(t, h.Unlock(within(t)), h.Name())
	}
	for h, l := range map[*rlock.Hold]*rlock.Lock{taken: other.locks.Fair("{l}2"),
		cut: other.locks.ReadWrite("{l}rw3").Read()} {
		ok, err := l.ForceUnlock(within(t))
		require.NoError(t, err)
		require.True(t, ok)
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
	}
	for _, w := range waiting {
		got := <-w
		require.NoError(t, got.err)
		got.unlock(t)
	}
}
