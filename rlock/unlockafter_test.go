package rlock_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestUnlockAfterKeepsEveryKindUntilItsTimeAndNoLonger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.SideBySide(t, kindOf, func(t *testing.T, kind string, of func(*rlock.Client, string) *rlock.Lock) {
		r, other := newRig(t, s, rlock.Options{WatchdogTimeout: lease}), newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		asks := of(other.locks, kind)
		if kind == "Read" {
			asks = other.locks.ReadWrite(kind).Write()
		}
		const d = 700 * time.Millisecond
		h := lock(t, of(r.locks, kind), within(t))
		at := time.Now()
		require.NoError(t, h.UnlockAfter(within(t), d))
		require.ErrorIs(t, h.Err(), errs.ErrReleased)
		require.NoError(t, h.Unlock(within(t)), "the first result")
		require.LessOrEqual(t, leaseOf(t, asks), d, "5 minutes before")
		ctx := within(t)
		require.NoError(t, r.locks.Close(ctx), "its process need not last")
		h = lock(t, asks, within(t))
		// the server counts on its wall clock, which is set now and then
		require.Greater(t, time.Since(at), d-100*time.Millisecond)
		require.Less(t, time.Since(at), lease/10)
		require.NoError(t, h.UnlockAfter(within(t), time.Nanosecond), "over already: released")
		locked, err := asks.IsLocked(within(t))
		require.NoError(t, err)
		require.False(t, locked)
	})
}

func TestUnlockAfterOfOneHoldCountsForTheLastUnlockOfItsOwner(t *testing.T) {
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

func TestUnlockAfterLeavesThoseWhoJoined(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{WatchdogTimeout: lease}), newRig(t, s,
			rlock.Options{WatchdogTimeout: 2 * lease})
		h := lock(t, r.locks.Reentrant("l"), within(t))
		l := other.locks.Reentrant("l")
		joined := lock(t, l, l.WithOwner(within(t), h.Owner()))
		require.NoError(t, h.UnlockAfter(within(t), time.Minute))
		require.Greater(t, r.pttl(t, "l"), lease, "the joiner has its own")
		state, err := r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.Len(t, state.Holders, 2)
		for _, holder := range state.Holders {
			if holder.Owner == h.Owner() {
				require.LessOrEqual(t, holder.Lease, time.Minute)
				require.Greater(t, holder.Lease, time.Duration(0))
			}
		}
		require.NoError(t, joined.Unlock(within(t)))
		require.Greater(t, r.pttl(t, "l"), time.Duration(0), "and so has who is through")
		require.LessOrEqual(t, r.pttl(t, "l"), time.Minute)
	})
}

// It is taken, but nobody's: who joined it would act under a hold that was given up.
func TestWhatIsKeptIsNotJoined(t *testing.T) {
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

func TestUnlockAfterOfOneReaderLeavesTheOthers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{WatchdogTimeout: lease}), newRig(t, s,
			rlock.Options{WatchdogTimeout: 2 * lease})
		h := lock(t, r.locks.ReadWrite("l").Read(), within(t))
		longer := lock(t, other.locks.ReadWrite("l").Read(), within(t))
		require.NoError(t, h.UnlockAfter(within(t), time.Minute))
		require.Greater(t, r.pttl(t, "l"), lease, "the other reader's")
		require.NoError(t, longer.Unlock(within(t)))
		require.Greater(t, r.pttl(t, "l"), time.Duration(0))
		require.LessOrEqual(t, r.pttl(t, "l"), time.Minute)
	})
}

func TestForceUnlockFreesWhatUnlockAfterLeft(t *testing.T) {
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

func TestUnlockAfterOfWhatIsLost(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		c := s.Client(t)
		for kind, of := range kindOf {
			h := lock(t, of(r.locks, kind), within(t))
			for _, key := range keys(t, c) {
				require.NoError(t, c.Do(within(t), c.B().Del().Key(key).Build()).Error())
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
func TestUnlockAfterOfUnknownOutcomeStillKeeps(t *testing.T) {
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

func TestWhatIsKeptIsNotTakenOver(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for kind, of := range kindOf {
		simulated(t, 1, func(t *testing.T, servers quorumServers) {
			r, other := newRig(t, servers[0], living()), newRig(t, servers[0], living())
			asks := of(other.locks, kind)
			if kind == "Read" {
				asks = other.locks.ReadWrite(kind).Write()
			}
			h := lock(t, of(r.locks, kind), within(t))
			at := time.Now()
			require.NoError(t, h.UnlockAfter(within(t), 8*beat), kind)
			require.NoError(t, r.locks.Close(within(t)), kind) // no heartbeat from here on
			require.NoError(t, lock(t, asks, within(t)).Unlock(within(t)), kind)
			require.Greater(t, time.Since(at), 8*beat-100*time.Millisecond, kind)
		})
	}
}

// A waiter that asked before was told the whole lease, and would sleep for its PollCap.
func TestTheEndOfAnUnlockAfterWakesWaitersThatAskedBefore(t *testing.T) {
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

func TestLookScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "look")
		to := func(owner string) string { return "g:" + owner[:36] + " 0 0 " + owner }
		for name, c := range map[string]struct {
			before []string
			told   int64
			heard  []string
		}{
			"nobody queues": {heard: []string{"c 0"}},
			"a queue": {before: []string{"ZADD", "QUEUE", "-5", "!" + bob, "7000000", alice + " 4000 2500",
				"8000000", bob + " 4000 2500"}, told: 1, heard: []string{to(alice), "c 0"}},
			"readers and writers": {before: []string{"ZADD", "QUEUE", "7000000", bob + " 4000 2500", "6000000000000001",
				alice + " 4000 2500", "6000000000000002", carol + " 4000 2500"}, told: 2,
				heard: []string{to(alice), to(bob), "c 0"}},
			"a fair queue": {before: []string{"RPUSH", "QUEUE", alice, bob}, told: 1,
				heard: []string{"c:" + alice + " 0", to(alice)}},
			"of another type":       {before: []string{"HSET", "QUEUE", alice, "1"}, heard: []string{"c 0"}},
			"only stamps of nobody": {before: []string{"ZADD", "QUEUE", "-5", "!" + bob}, heard: []string{"c 0"}},
		} {
			g.must(t, "FLUSHALL")
			if c.before != nil {
				g.must(t, c.before...)
			}
			hear, stop := overhear(t, g.c,
				[]string{"g:" + alice[:36], "g:" + bob[:36], "g:" + carol[:36], "c", "c:" + alice}, "")
			for range 2 {
				v, err := eval(t, g.c, src, []string{"QUEUE"}, "PUBLISH", "c", "g:")
				require.NoError(t, err, name)
				require.Equal(t, []int64{c.told}, v, name)
				require.ElementsMatch(t, c.heard, hear(), name)
			}
			stop()
		}
	})
}
