package rlock_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// While a service moves from redsync or Plain to a lock that is a hash, or back, both kinds are under one name at
// once. A lock of the other kind is contention; what is not a lock is ErrWrongType.

// Every kind waits for a lock of redsync's, which releases without a word, and no kind is kept out for long.
func TestEveryKind_LockIsAString_WaitsForIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for kind, of := range withMulti(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond})
			name := "x" + kind
			set := r.redis.B().Set().Key(name).Value("b64==").Nx().Px(time.Minute).Build()
			require.NoError(t, r.redis.Do(within(t), set).Error())
			_, err := of(r.locks, name).TryLock(within(t), 0, 0)
			var held *rlock.NotAcquiredError
			require.ErrorAs(t, err, &held)
			require.NotErrorIs(t, err, errs.ErrWrongType)
			if kind != "Plain" && kind != "Multi" {
				require.Equal(t, "string", held.Kind)
				require.True(t, held.Foreign)
				require.ErrorContains(t, err, "another kind of lock: its key is a string")
			}
			_, err = of(r.locks, name).TryLock(within(t), 150*time.Millisecond, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			redistest.Eventually(t, 10*time.Second, "who gave up leaves nothing", func() bool {
				return !slices.ContainsFunc(keys(t, r.redis), func(k string) bool {
					return k != name && (k == "redlatch_queue:{"+name+"}" || k == "redisson_lock_queue:{"+name+"}")
				})
			})
			got := make(chan result, 1)
			ctx := within(t)
			go func() {
				h, err := of(r.locks, name).Lock(ctx)
				got <- result{h, err, time.Now()}
			}()
			redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.locks.Lines() > 0 })
			wire.Must(t, r.redis, "DEL", name)
			(<-got).unlock(t)
		})
	}
}

// The holder's key ends while the others wait: they do not sleep for longer than its lease.
func TestWait_StringLockExpires_IsWokenByATimer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{PollCap: time.Minute})
	set := r.redis.B().Set().Key("x").Value("b64==").Nx().Px(500 * time.Millisecond).Build()
	require.NoError(t, r.redis.Do(within(t), set).Error())
	h, err := r.locks.Reentrant("x").Lock(within(t))
	require.NoError(t, err)
	require.NoError(t, h.Unlock(within(t)))
}

// Processes of both kinds want one lock at once, as in a rolling update: one at a time holds it, none gets any error,
// all get their share, and the waiting is by messages: PollCap is longer than the test. Half of the callers give up
// within 5 ms, in every state, and come again.
func TestKinds_TwoWantOneLock_TakeTurns(t *testing.T) {
	t.Parallel()
	redistest.SideBySide(t, map[string]func(testing.TB) *redistest.Server{
		"redis": func(t testing.TB) *redistest.Server { return redistest.Start(t) }, "cluster": redistest.Cluster,
	}, func(t *testing.T, _ string, start func(testing.TB) *redistest.Server) { takeTurns(t, start(t)) })
}

// twoKinds is the lock "x" of n processes that hardly poll: a Plain one and a Reentrant one in turn.
func twoKinds(t *testing.T, s *redistest.Server, n int) (all []*rlock.Lock) {
	t.Helper()
	for i := range n {
		locks := newRig(t, s, rlock.Options{PollCap: time.Minute}).locks
		if i%2 == 0 {
			all = append(all, locks.Plain("x"))
		} else {
			all = append(all, locks.Reentrant("x"))
		}
	}
	return all
}

func takeTurns(t *testing.T, s *redistest.Server) {
	const each, rounds = 3, 15
	var holders, overlaps atomic.Int64
	shares := make([]atomic.Int64, 2*each)
	var longest [2 * each]time.Duration // that the first caller of each process waited
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var wg sync.WaitGroup
	for i, l := range twoKinds(t, s, 2*each) {
		for w := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					patience := time.Minute
					if w > 1 {
						patience = time.Duration(rand.IntN(5000)) * time.Microsecond
					}
					began := time.Now()
					h, err := l.TryLock(ctx, patience, 0)
					if w == 0 {
						longest[i] = max(longest[i], time.Since(began))
					}
					if err != nil {
						if !errors.Is(err, errs.ErrNotAcquired) {
							t.Errorf("process %d: %v", i, err)
							return
						}
						continue
					}
					if holders.Add(1) > 1 {
						overlaps.Add(1)
					}
					if w < 2 {
						time.Sleep(time.Millisecond)
						shares[i].Add(1)
					}
					holders.Add(-1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Errorf("process %d: %v", i, err)
					}
				}
			})
		}
	}
	redistest.Eventually(t, 60*time.Second, "every process has had it", func() bool {
		for i := range shares {
			if shares[i].Load() < rounds {
				return false
			}
		}
		return true
	})
	stop()
	wg.Wait()
	require.Zero(t, overlaps.Load())
	t.Logf("the patient waited for up to %v", longest)
	require.Less(t, slices.Max(longest[:]), 20*time.Second, "no process waits for a poll")
	c := s.Client(t)
	for _, node := range c.Nodes() {
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
			return len(keys(t, node)) == 0
		})
	}
}

// Waiters of both kinds came while the lock was a string. They are served in the order in which they came, and none
// polls.
func TestQueue_WaitersCameDuringAStringLock_AreServedInTurn(t *testing.T) {
	t.Parallel()
	bubble(t, 6, rlock.Options{PollCap: time.Minute}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		h := lock(t, rigs[0].locks.Plain("x"), ctx)
		served := make(chan int, 2*len(rigs))
		for i, r := range rigs[1:] {
			l := r.locks.Plain("x")
			if i == 0 || i == 4 {
				l = r.locks.Reentrant("x")
			}
			go func() {
				if l.Do(ctx, func(context.Context) error { served <- i; return nil }) != nil {
					served <- -1
				}
			}()
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, h.Unlock(ctx))
		for i := range rigs[1:] {
			require.Equal(t, i, <-served, "in the order in which they came")
		}
		require.Less(t, time.Since(began), time.Second, "nobody polls")
	})
}

// The reply to a release is lost, and its second run finds a lock of the other kind, which the first has made way for:
// nothing was lost.
func TestRelease_SecondRunFindsTheOtherKind_IsNoLoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	plain, reentrant := (*rlock.Client).Plain, (*rlock.Client).Reentrant
	for name, of := range map[string][2]func(*rlock.Client, string) *rlock.Lock{
		"Plain, then Reentrant": {plain, reentrant}, "Reentrant, then Plain": {reentrant, plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s)
			r := newRig(t, p.Server(), rlock.Options{CallTimeout: 300 * time.Millisecond})
			other := newRig(t, s, rlock.Options{})
			h := lock(t, of[0](r.locks, name), within(t))
			got := make(chan result, 1)
			ctx := within(t)
			go func() {
				h, err := of[1](other.locks, name).Lock(ctx)
				got <- result{h, err, time.Now()}
			}()
			redistest.Eventually(t, 20*time.Second, "it queues", func() bool {
				n, err := other.redis.Do(ctx, other.redis.B().Exists().Key("redlatch_queue:{"+name+"}").Build()).AsInt64()
				return err == nil && n == 1
			})
			p.Trap(&redistest.Trap{Match: redistest.With(string(h.Owner())), Fate: redistest.LoseReply})
			require.NoError(t, h.Unlock(within(t)))
			x := <-got
			require.NoError(t, x.err)
			require.NoError(t, x.hold.Err())
			require.NoError(t, x.hold.Unlock(within(t)))
		})
	}
}

// What is seen of waiters of two kinds.
func TestInspect_WaitersOfTwoKinds_AreShownOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := newRig(t, s, rlock.Options{})
	h := lock(t, holder.locks.Reentrant("x"), within(t))
	var wg sync.WaitGroup
	for _, of := range []func(*rlock.Client, string) *rlock.Lock{(*rlock.Client).Reentrant, (*rlock.Client).Plain} {
		r := newRig(t, s, rlock.Options{})
		wg.Go(func() {
			h, err := of(r.locks, "x").Lock(within(t))
			if err == nil {
				err = h.Unlock(within(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, 20*time.Second, "both wait", func() bool {
		state, err := holder.locks.Plain("x").Inspect(within(t))
		require.NoError(t, err)
		return len(state.Waiters) == 2
	})
	members, err := holder.redis.Do(within(t), holder.redis.B().Zcard().Key("redlatch_queue:{x}").Build()).AsInt64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, members, int64(2))
	require.NoError(t, h.Unlock(within(t)))
	wg.Wait()
}

// withMulti are all kinds, and a Multi of w, the lock and y.
func withMulti(t *testing.T) map[string]func(c *rlock.Client, name string) *rlock.Lock {
	kinds := maps.Clone(kindOf)
	kinds["Multi"] = func(c *rlock.Client, name string) *rlock.Lock {
		m, err := rlock.Multi(c.Reentrant("w"), c.Reentrant(name), c.NonReentrant("y"))
		require.NoError(t, err)
		return m
	}
	return kinds
}
