package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestJoin_BothUnlock_FreesTheLock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, parentFirst := range []bool{true, false} {
			a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
			parent := lock(t, a.locks.Reentrant("l"), within(t))
			remote := b.locks.Reentrant("l")
			joiner := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
			require.NotEqual(t, parent.Owner(), joiner.Owner(), "a name never becomes a hold of its own")
			inner := lock(t, remote, joiner.Context(within(t)))
			require.NoError(t, inner.Unlock(within(t)))
			first, last := joiner, parent
			if parentFirst {
				first, last = parent, joiner
			}
			require.NoError(t, first.Unlock(within(t)))
			_, err := a.locks.Reentrant("l").TryLock(within(t), 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.NoError(t, last.Extend(within(t), time.Minute))
			require.NoError(t, last.Unlock(within(t)))
			require.Empty(t, a.hash(t, "l"))
			_, err = remote.Lock(remote.WithOwner(within(t), parent.Owner()))
			require.ErrorIs(t, err, errs.ErrLost, "it holds nothing any more")
		}
	})
}

// Any hold whose lock is a hash with nothing but owners can be joined through Reentrant of its name: each kind's own
// scripts have to take the ends of the owners along.
func TestJoin_HoldOfAnyKind_LeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		for kind, of := range kindOf {
			if kind == "Plain" || kind == "Read" || strings.HasPrefix(kind, "Write") {
				continue
			}
			for _, parentFirst := range []bool{true, false} {
				parent := lock(t, of(a.locks, kind), within(t))
				remote := b.locks.Reentrant(kind)
				joiner := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
				first, last := joiner, parent
				if parentFirst {
					first, last = parent, joiner
				}
				require.NoError(t, first.Unlock(within(t)), kind)
				require.Len(t, a.hash(t, kind), 2, "%s: an owner and its end", kind)
				require.NoError(t, last.Unlock(within(t)), kind)
				require.Empty(t, a.hash(t, kind), kind)
			}
			parent := lock(t, of(a.locks, kind), within(t))
			remote := b.locks.Reentrant(kind)
			joiner := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
			removed, err := of(b.locks, kind).ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, removed, kind)
			require.Empty(t, a.hash(t, kind), kind)
			require.ErrorIs(t, joiner.Unlock(within(t)), errs.ErrLost)
			require.ErrorIs(t, parent.Unlock(within(t)), errs.ErrLost)
		}
	})
}

// A reader is not a hold that could be joined: the joiner would be none of the read-write lock's holds, and stay in its
// hash.
func TestJoin_ReadWriteLock_IsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		h := lock(t, a.locks.ReadWrite("l").Read(), within(t))
		before := a.hash(t, "l")
		remote := b.locks.Reentrant("l")
		_, err := remote.Lock(remote.WithOwner(within(t), h.Owner()))
		require.ErrorIs(t, err, errs.ErrWrongType)
		require.Equal(t, before, a.hash(t, "l"))
		require.NoError(t, h.Unlock(within(t)))
		require.Empty(t, a.hash(t, "l"))
	})
}

func TestJoin_JoinerDies_BlocksForItsLeaseOnly(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		parent := lock(t, a.locks.Reentrant("l"), within(t))
		remote := b.locks.Reentrant("l").WithLease(2 * time.Second) // and never unlocks: as good as dead
		dead := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
		require.NoError(t, parent.Unlock(within(t)))
		require.LessOrEqual(t, a.pttl(t, "l"), 2*time.Second, "not the parent's lease")
		next := lock(t, a.locks.Reentrant("l"), within(t))
		require.NoError(t, next.Unlock(within(t)))

		parent = lock(t, a.locks.Reentrant("l"), within(t))
		dead2 := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
		<-dead2.Done()
		redistest.Eventually(t, 10*time.Second, "its lease is over on the server", func() bool {
			st, err := a.locks.Reentrant("l").Inspect(within(t))
			require.NoError(t, err)
			for _, h := range st.Holders {
				if h.ID == string(dead2.Owner()) {
					return h.Lease == 0
				}
			}
			return false
		})
		require.NoError(t, parent.Unlock(within(t)))
		require.Empty(t, a.hash(t, "l"), "the dead joiner is swept out with the last of the living")
		require.ErrorIs(t, dead.Unlock(within(t)), errs.ErrLost)
	})
}

func TestJoin_ParentDies_BlocksNobodyAfterItsJoiner(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{WatchdogTimeout: 3 * time.Second})
	parent := lock(t, a.locks.Reentrant("l").WithLease(1200*time.Millisecond), within(t))
	remote := b.locks.Reentrant("l")
	joiner := lock(t, remote, remote.WithOwner(within(t), parent.Owner()))
	<-parent.Done()
	redistest.Eventually(t, 10*time.Second, "the parent is dead to the server, too", func() bool {
		st, err := a.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.True(t, st.Locked, "the joiner holds on")
		for _, h := range st.Holders {
			if h.ID == string(parent.Owner()) {
				return h.Lease == 0
			}
		}
		return true
	})
	_, err := remote.Lock(remote.WithOwner(within(t), parent.Owner()))
	require.ErrorIs(t, err, errs.ErrLost)
	require.NoError(t, joiner.Err())
	require.NoError(t, joiner.Unlock(within(t)))
	require.Empty(t, a.hash(t, "l"))
}

func TestJoin_ForeignOwner_IsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	r := newRig(t, s, rlock.Options{})
	l := r.locks.Reentrant("l")
	java := "8b5f0d5e-1111-4000-8000-000000000000:42"
	wire.Must(t, r.redis, "HSET", "l", java, "1")
	for _, o := range []rlock.Owner{rlock.Owner(java), "x", rlock.Owner(r.locks.ID() + ":1!"),
		rlock.Owner(strings.Repeat("x", 1000))} {
		_, err := l.Lock(l.WithOwner(within(t), o))
		require.ErrorIs(t, err, errs.ErrInvalidOption, "%.20s", o)
	}
	_, err := l.Lock(l.WithOwner(within(t), rlock.Owner(r.locks.ID()+":999")))
	require.ErrorIs(t, err, errs.ErrLost)
	require.Equal(t, map[string]string{java: "1"}, r.hash(t, "l"))
}

func TestWithOwner_OwnerOfTheSameClient_IsReentered(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	ctx := l.WithOwner(within(t), a.Owner())
	b := lock(t, l, ctx)
	require.Equal(t, a.Owner(), b.Owner())
	require.Equal(t, map[string]string{string(a.Owner()): "1"}, r.hash(t, "l"))
	require.Equal(t, 1, timesHeld(t, l, b))
	_, err := l.TryLock(rlock.Detach(ctx), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	other := lock(t, r.locks.Reentrant("other"), ctx)
	require.NoError(t, other.Unlock(ctx))
	require.NoError(t, b.Unlock(ctx))
	require.NoError(t, a.Unlock(ctx))
}

func TestForceUnlock_HeldAndWaitedFor_WakesWaitersAndEndsTheHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, other := newRig(t, s, rlock.Options{PollCap: 20 * time.Second, WatchdogTimeout: 20 * time.Second}), newRig(t, s,
		rlock.Options{})
	l := r.locks.Reentrant("l")
	ok, err := l.ForceUnlock(within(t))
	require.NoError(t, err)
	require.False(t, ok)
	h := lock(t, l, within(t))
	got := make(chan *rlock.Hold, 1)
	go func() {
		x, err := other.locks.Reentrant("l").Lock(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- x
	}()
	redistest.Eventually(t, 10*time.Second, "the other waits", func() bool {
		n, err := r.redis.Do(within(t), r.redis.B().Zcard().Key("redlatch_queue:{l}").Build()).AsInt64()
		return err == nil && n == 1
	})
	began := time.Now()
	ok, err = other.locks.Reentrant("l").ForceUnlock(within(t))
	require.NoError(t, err)
	require.True(t, ok)
	x := <-got
	require.Less(t, time.Since(began), 10*time.Second, "woken, not timed out")
	require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
	require.Len(t, r.hash(t, "l"), 1, "the next holder is left alone")
	require.NoError(t, x.Unlock(within(t)))
}
