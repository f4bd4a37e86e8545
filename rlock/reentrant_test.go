package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestReentry_ByContext_IsACountInTheProcess(t *testing.T) {
	t.Parallel()
	r := newUntracked(t, redistest.Start(t))
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	field := string(a.Owner())
	require.Equal(t, map[string]string{field: "1"}, r.hash(t, "l"))
	require.True(t, strings.HasPrefix(field, r.locks.ID()+":"))
	ctx := a.Context(within(t))
	calls := callsOf(t, r.redis, func() {
		b := lock(t, l, ctx)
		require.NoError(t, b.Unlock(ctx))
		require.ErrorIs(t, b.Err(), errs.ErrReleased)
		require.NoError(t, a.Err(), "the outer hold lasts")
	})
	require.Zero(t, calls["evalsha"], "nothing was sent")
	require.Equal(t, map[string]string{field: "1"}, r.hash(t, "l"))
	require.NoError(t, a.Unlock(ctx))
	require.Empty(t, r.hash(t, "l"))
}

func TestAcquire_EachTime_IsANewOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	_, err := l.TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "the same goroutine and the same Lock are nobody's identity")
	_, err = l.TryLock(rlock.Detach(a.Context(within(t))), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "detached work is not the holder")
	again := lock(t, l, context.WithoutCancel(a.Context(within(t))))
	require.NoError(t, again.Unlock(within(t)))
	dead := context.WithoutCancel(a.Context(within(t)))
	require.NoError(t, a.Unlock(within(t)))
	_, err = l.Lock(dead)
	require.ErrorIs(t, err, errs.ErrLost, "an owner that holds nothing any more can't be re-entered")

	leader := lock(t, r.locks.Reentrant("leader"), within(t))
	order := lock(t, r.locks.Reentrant("order"), leader.Context(within(t)))
	_, err = r.locks.Reentrant("order").TryLock(leader.Context(within(t)), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "a hold of another name is no identity")
	require.NoError(t, order.Unlock(within(t)))
	require.NoError(t, leader.Unlock(within(t)))
}

func TestReentry_LocalWaiter_IsNotBehindIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	waiting := pass(t, l)
	redistest.Eventually(t, 10*time.Second, "the other waits", func() bool {
		return r.locks.Waiting("l") == 1
	})
	b := lock(t, l, a.Context(within(t))) // would wait forever behind the waiter
	require.NoError(t, b.Unlock(within(t)))
	require.NoError(t, a.Unlock(within(t)))
	require.NoError(t, <-waiting)
}

func TestLease_LosersAndReentries_NeverShortenIt(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Reentrant("l")
		a, err := l.TryLock(within(t), 0, time.Hour)
		require.NoError(t, err)
		for _, lease := range []time.Duration{rlock.MinLease, 0} {
			_, err = l.TryLock(within(t), 0, lease)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			b, err := l.TryLock(a.Context(within(t)), 0, lease)
			require.NoError(t, err)
			require.NoError(t, b.Unlock(within(t)))
			require.NoError(t, a.Extend(within(t), time.Second))
			require.Greater(t, r.pttl(t, "l"), 50*time.Minute)
			require.Greater(t, time.Until(a.Until()), 50*time.Minute)
		}
		require.NoError(t, a.Extend(within(t), 3*time.Hour))
		require.Greater(t, r.pttl(t, "l"), 2*time.Hour)
		require.Greater(t, time.Until(a.Until()), 2*time.Hour)
		require.NoError(t, a.Unlock(within(t)))
	})
}

func TestWait_MessageOfRedisson_WakesIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{PollCap: 30 * time.Second})
	// a Java holder, and its unlock: DEL and PUBLISH 0
	java := s.Client(t)
	wire.Must(t, java, "HSET", "l", "8b5f0d5e-0000-4000-8000-000000000000:1", "1")
	wire.Must(t, java, "PEXPIRE", "l", "25000")
	got := pass(t, r.locks.Reentrant("l"))
	redistest.Eventually(t, 10*time.Second, "subscribed", func() bool {
		n, err := java.Do(within(t), java.B().PubsubNumsub().Channel("redisson_lock__channel:{l}").Build()).AsIntMap()
		return err == nil && n["redisson_lock__channel:{l}"] == 1
	})
	wire.Must(t, java, "DEL", "l")
	began := time.Now()
	wire.Must(t, java, "PUBLISH", "redisson_lock__channel:{l}", "0")
	require.NoError(t, <-got)
	require.Less(t, time.Since(began), 12*time.Second, "half the lease: woken, not timed out")
}

func TestUnlock_Reentrant_PublishesTheMessageOfRedisson(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	sub, err := r.hub.Subscribe(within(t), "redisson_lock__channel:{l}")
	require.NoError(t, err)
	defer sub.Close()
	h := lock(t, r.locks.Reentrant("l"), within(t))
	require.NoError(t, h.Unlock(within(t)))
	m, err := sub.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, "0", m.Payload)
}

func TestLock_InACluster_WorksOnEveryNode(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	a, b := newRig(t, s, rlock.Options{WatchdogTimeout: 2 * time.Second}), newRig(t, s, rlock.Options{})
	var holds []*rlock.Hold
	for i := range 6 {
		holds = append(holds, lock(t, a.locks.Reentrant(fmt.Sprintf("l%d", i)), within(t)))
	}
	first := holds[5].Until()
	redistest.Eventually(t, 20*time.Second, "renewed on every node", func() bool {
		return !slices.ContainsFunc(holds, func(h *rlock.Hold) bool { return h.Until().Sub(first) < 400*time.Millisecond })
	})
	for i, h := range holds {
		l := b.locks.Reentrant(fmt.Sprintf("l%d", i))
		got := pass(t, l)
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return b.locks.Waiting(l.Name()) == 1 })
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
	}
}

func TestLock_EachClientOption_Works(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP2":                 func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
		"DisableRetry":          func(o *rueidis.ClientOption) { o.DisableRetry = true },
		"AlwaysPipelining":      func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
		"DisableAutoPipelining": func(o *rueidis.ClientOption) { o.DisableAutoPipelining = true },
		"one connection":        func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, s, rlock.Options{}, change)
			l := r.locks.Reentrant("l " + name)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 10 {
						if err := l.Do(within(t), func(context.Context) error { return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// The last Unlock of an owner says whether the lock was lost; one that comes beside it, of another hold of the same
// owner, asks nobody.
func TestUnlock_TwoHoldsOfOneOwner_FindNoLoss(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		l := r.locks.Reentrant("l")
		for range redistest.Sized(200, 200, 1000) {
			outer := lock(t, l, within(t))
			inner := lock(t, l, outer.Context(within(t)))
			var wg sync.WaitGroup
			for _, h := range []*rlock.Hold{outer, inner} {
				wg.Go(func() {
					if err := h.Unlock(within(t)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.Empty(t, r.hash(t, "l"))
		}
		outer := lock(t, l, within(t))
		inner := lock(t, l, outer.Context(within(t)))
		wire.Must(t, r.redis, "DEL", "l")
		require.NoError(t, inner.Unlock(within(t)), "it asks nobody")
		require.ErrorIs(t, outer.Unlock(within(t)), errs.ErrLost, "a real loss is told")
	})
}

// A re-entry may have the longest lease, and whatever was done or lost since, the server may have it.
func TestUnlock_AfterALongerReentry_IsTriedForItsLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		through, aside := newRig(t, p.Server(), rlock.Options{WatchdogTimeout: 3 * time.Second}), newRig(t, servers[0],
			rlock.Options{})
		l := through.locks.Reentrant("l")
		h := lock(t, l, within(t))
		require.NoError(t, lock(t, l.WithLease(time.Minute), h.Context(within(t))).Unlock(within(t)))
		p.Refuse()
		p.Cut()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, h.Unlock(ctx))
		time.Sleep(3500 * time.Millisecond) // longer than the first lease
		p.Heal()
		redistest.Eventually(t, 20*time.Second, "released", func() bool { return len(aside.hash(t, "l")) == 0 })
	})
}

func TestNotAcquired_EachHolder_SaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		refused := func(l *rlock.Lock) *rlock.NotAcquiredError {
			_, err := l.TryLock(within(t), 0, 0)
			var na *rlock.NotAcquiredError
			require.ErrorAs(t, err, &na)
			return na
		}
		h := lock(t, r.locks.Reentrant("l"), within(t))
		own := refused(r.locks.Reentrant("l"))
		require.True(t, own.Ours, "its context was forgotten")
		require.False(t, own.Foreign || own.NoEnd)
		require.ErrorContains(t, own, "acquire under its Context")
		require.False(t, refused(other.locks.Reentrant("l")).Ours)
		wire.Must(t, r.redis, "PERSIST", "l")
		endless := refused(other.locks.Reentrant("l"))
		require.Negative(t, leaseOf(t, r.locks.Reentrant("l")))
		require.True(t, endless.NoEnd && !endless.Foreign)
		require.ErrorContains(t, endless, "has no expiry")
		require.NoError(t, h.Unlock(within(t)))

		wire.Must(t, r.redis, "HSET", "user", "name", "Ann")
		foreign := refused(r.locks.Reentrant("user"))
		require.True(t, foreign.NoEnd && foreign.Foreign)
		require.ErrorContains(t, foreign, "perhaps it is not a lock")
		require.True(t, refused(r.locks.Fair("user")).NoEnd)
	})
}
