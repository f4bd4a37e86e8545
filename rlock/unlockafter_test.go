package rlock_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestUnlockAfter_InnerHold_CountsAtTheLastUnlock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		l := r.locks.Reentrant("l")
		outer := lock(t, l, within(t))
		inner := lock(t, l, outer.Context(within(t)))
		require.NoError(t, inner.UnlockAfter(within(t), time.Hour))
		require.Greater(t, r.pttl(t, "l"), lease/2)
		require.LessOrEqual(t, r.pttl(t, "l"), lease)
		require.NoError(t, outer.Unlock(within(t)))
		require.Equal(t, "1", r.hash(t, "l")[string(outer.Owner())])
		require.Greater(t, r.pttl(t, "l"), time.Hour-time.Minute, "longer than the lease was")
		require.LessOrEqual(t, r.pttl(t, "l"), time.Hour)
	})
}

// It is taken, but nobody's: who joined it would act under a hold that was given up.
func TestUnlockAfter_Kept_IsNotJoined(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{WatchdogTimeout: lease}), newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		l := other.locks.Reentrant("l")
		refused := func(h *rlock.Hold) {
			t.Helper()
			for _, l := range []*rlock.Lock{r.locks.Reentrant("l"), l} {
				_, err := l.Lock(l.WithOwner(within(t), h.Owner()))
				require.ErrorIs(t, err, errs.ErrLost)
			}
		}
		h := lock(t, r.locks.Reentrant("l"), within(t))
		require.NoError(t, h.UnlockAfter(within(t), time.Minute))
		refused(h)
		_, err := l.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.LessOrEqual(t, r.pttl(t, "l"), time.Minute, "nobody has raised its lease")
		state, err := r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.Len(t, state.Holders, 1)
		require.InDelta(t, time.Minute, state.Holders[0].Lease, float64(30*time.Second))
		removed, err := l.ForceUnlock(within(t))
		require.NoError(t, err)
		require.True(t, removed)
		require.Empty(t, r.hash(t, "l"))

		// Who joined before stays, whoever is through.
		h = lock(t, r.locks.Reentrant("l"), within(t))
		joined := lock(t, l, l.WithOwner(within(t), h.Owner()))
		require.NoError(t, h.UnlockAfter(within(t), time.Minute))
		refused(h)
		again := lock(t, l, l.WithOwner(within(t), joined.Owner()))
		require.NoError(t, again.Unlock(within(t)))
		require.NoError(t, joined.Extend(within(t), lease))
		require.NoError(t, joined.UnlockAfter(within(t), 2*time.Minute))
		refused(h)
		refused(joined)
		require.LessOrEqual(t, r.pttl(t, "l"), 2*time.Minute)
		require.Greater(t, r.pttl(t, "l"), time.Minute)
	})
}

func TestForceUnlock_KeptByUnlockAfter_IsFree(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		for kind, of := range kindOf {
			l := of(r.locks, kind)
			require.NoError(t, lock(t, l, within(t)).UnlockAfter(within(t), time.Hour))
			removed, err := l.ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, removed, kind)
			locked, err := l.IsLocked(within(t))
			require.NoError(t, err)
			require.False(t, locked, kind)
			require.NoError(t, lock(t, l, within(t)).Unlock(within(t)), kind)
			locked, err = l.IsLocked(within(t))
			require.NoError(t, err)
			require.False(t, locked, kind)
		}
	})
}

func TestUnlockAfter_HoldLost_IsErrLost(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		c := s.Client(t)
		for kind, of := range kindOf {
			h := lock(t, of(r.locks, kind), within(t))
			for _, key := range keys(t, c) {
				wire.Must(t, c, "DEL", key)
			}
			require.ErrorIs(t, h.UnlockAfter(within(t), time.Hour), errs.ErrLost, kind)
			require.Empty(t, keys(t, c), kind)
		}
		h := lock(t, r.locks.Reentrant("l"), within(t))
		require.ErrorIs(t, h.UnlockAfter(within(t), -time.Second), errs.ErrInvalidOption)
		require.NoError(t, h.Err(), "nothing was done")
		require.NoError(t, h.Unlock(within(t)))
	})
}

// Whatever becomes of the call, the lock is taken until its time; in the end it is free.
func TestUnlockAfter_OutcomeUnknown_StillKeeps(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), rlock.Options{WatchdogTimeout: lease, CallTimeout: 200 * time.Millisecond})
		direct := s.Client(t)
		for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
			h := lock(t, r.locks.Reentrant("l"), within(t))
			at := time.Now()
			p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: fate})
			require.NoError(t, h.UnlockAfter(within(t), 2*time.Second), "sent again")
			require.NotEmpty(t, keys(t, direct))
			redistest.Eventually(t, 20*time.Second, "its end", func() bool { return len(keys(t, direct)) == 0 })
			require.Greater(t, time.Since(at), 2*time.Second-100*time.Millisecond)
		}
	})
}

// What is kept is taken until its time and no longer, though its process sends no heartbeat from then on.
func TestUnlockAfter_Kept_IsNotTakenOver(t *testing.T) {
	t.Parallel()
	for kind, of := range kindOf {
		simulated(t, 1, func(t *testing.T, servers quorumServers) {
			r, other := newRig(t, servers[0], living()), newRig(t, servers[0], living())
			asks := of(other.locks, kind)
			if kind == "Read" {
				asks = other.locks.ReadWrite(kind).Write()
			}
			const d = 8 * beat
			h := lock(t, of(r.locks, kind), within(t))
			at := time.Now()
			require.NoError(t, h.UnlockAfter(within(t), d), kind)
			require.ErrorIs(t, h.Err(), errs.ErrReleased, kind)
			require.NoError(t, h.Unlock(within(t)), "%s: the first result", kind)
			require.LessOrEqual(t, leaseOf(t, asks), d, "%s: 5 minutes before", kind)
			require.NoError(t, r.locks.Close(within(t)), kind)
			h = lock(t, asks, within(t))
			require.InDelta(t, d, time.Since(at), float64(d/10), kind)
			require.NoError(t, h.UnlockAfter(within(t), time.Nanosecond), "%s: over already, released", kind)
			redistest.Eventually(t, 10*time.Millisecond, kind+" is free", func() bool {
				locked, err := asks.IsLocked(within(t))
				return err == nil && !locked
			})
		})
	}
}

// A waiter that asked before was told the whole lease, and would sleep for its PollCap.
func TestUnlockAfter_EndDue_WakesWaitersThatAskedBefore(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const pollCap, d = 10 * time.Second, 300 * time.Millisecond
	kinds := maps.Clone(kindOf)
	delete(kinds, "Spin") // it polls
	redistest.SideBySide(t, kinds, func(t *testing.T, kind string, of func(*rlock.Client, string) *rlock.Lock) {
		holder, other := newRig(t, s, rlock.Options{PollCap: pollCap, WatchdogTimeout: lease}), newRig(t, s,
			rlock.Options{PollCap: pollCap, WatchdogTimeout: lease})
		for where, r := range map[string]*rig{"another process": other, "the same process": holder} {
			name := kind + where
			asks := of(r.locks, name)
			if kind == "Read" {
				asks = r.locks.ReadWrite(name).Write()
			}
			locked := time.Now()
			h := lock(t, of(holder.locks, name), within(t))
			had := make(chan time.Time, 1)
			go func() {
				if h, err := asks.Lock(within(t)); err == nil {
					had <- time.Now()
					h.Unlock(within(t))
				}
			}()
			redistest.Eventually(t, 20*time.Second, "it has a place in the queue, or waits for its turn", func() bool {
				state, err := asks.Inspect(within(t))
				return err == nil && len(state.Waiters)+holder.locks.Waiting(name) > 0
			})
			began := time.Now()
			require.NoError(t, h.UnlockAfter(within(t), time.Since(locked)+d))
			at := <-had
			require.Less(t, at.Sub(began), pollCap/2, "%s: until it polled", where)
		}
	})
}
