package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const linger = 10 * time.Millisecond

func TestALockThatLingersIsHadAgainWithoutACall(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks.Reentrant("l").WithLinger(20 * time.Millisecond)
	const cycles = 20000
	var last context.Context
	for range cycles {
		h := lock(t, l, within(t))
		if last != nil {
			_, err := l.TryLock(context.WithoutCancel(last), 0, 0)
			require.ErrorIs(t, err, errs.ErrLost, "a turn is one caller's")
		}
		last = h.Context(context.Background())
		require.NoError(t, h.Unlock(within(t)))
	}
	calls := redistest.CommandCalls(t, r.redis)["evalsha"]
	t.Logf("%d cycles took %d calls", cycles, calls)
	require.Less(t, calls, cycles/10)
	redistest.Eventually(t, 20*time.Second, "it is released", func() bool { return len(r.hash(t, "l")) == 0 })
}

func TestWhatLingersEndsInTime(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		r := rigs[0]
		l, theirs := r.locks.Reentrant("l").WithLinger(linger), rigs[1].locks.Reentrant("l")
		free := func() bool { synctest.Wait(); return len(r.hash(t, "l")) == 0 }
		h := lock(t, l, ctx)
		require.NoError(t, h.Unlock(ctx))
		require.False(t, free())
		for _, other := range []*rlock.Lock{l, r.locks.Reentrant("l")} {
			h, err := other.TryLock(ctx, 0, 0)
			require.NoError(t, err, "callers of the process have it")
			require.NoError(t, h.Unlock(ctx))
			if other == l {
				time.Sleep(linger - time.Millisecond)
				require.False(t, free(), "it lingers anew")
			}
		}
		require.True(t, free(), "the last one did not ask for that")

		h = lock(t, l, ctx)
		require.NoError(t, h.Unlock(ctx))
		time.Sleep(linger + time.Millisecond)
		require.True(t, free())

		began := time.Now()
		h = lock(t, l, ctx)
		got := next(t, theirs, ctx)
		synctest.Wait()
		for len(got) == 0 && time.Since(began) < time.Second {
			require.NoError(t, h.Unlock(ctx))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if len(got) == 0 {
				h = lock(t, l, ctx)
			}
		}
		require.LessOrEqual(t, time.Since(began), 25*time.Millisecond, "whatever the callers of this process do")
		require.NoError(t, (<-got).Unlock(ctx))
	})
}

// Where processes contend a lock does not linger.
func TestALockThatOthersWaitForDoesNotLinger(t *testing.T) {
	t.Parallel()
	bubble(t, 3, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		l, theirs := rigs[0].locks.Reentrant("l").WithLinger(linger), rigs[1].locks.Reentrant("l")
		h := lock(t, theirs, ctx)
		got := next(t, l, ctx)
		synctest.Wait()
		other := next(t, rigs[2].locks.Reentrant("l"), ctx)
		synctest.Wait()
		require.NoError(t, h.Unlock(ctx))
		h = <-got
		began := time.Now()
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, (<-other).Unlock(ctx))
		require.Less(t, time.Since(began), linger)
	})
}

func TestWhateverEndsWhatLingersIsHeeded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, r *rig, l *rlock.Lock){
		"Close": func(t *testing.T, r *rig, l *rlock.Lock) {
			require.NoError(t, r.locks.Close(context.Background()))
			_, err := l.Lock(context.Background())
			require.ErrorIs(t, err, errs.ErrClosed)
		},
		"ForceUnlock": func(t *testing.T, r *rig, l *rlock.Lock) {
			ok, err := l.ForceUnlock(context.Background())
			require.NoError(t, err)
			require.True(t, ok)
			owner := lock(t, l, context.Background())
			require.Equal(t, []rlock.Owner{owner.Owner()}, r.owners(t, "l"))
			require.NoError(t, owner.Unlock(context.Background()))
		},
		"a lease": func(t *testing.T, r *rig, l *rlock.Lock) {
			h, err := l.TryLock(context.Background(), time.Second, time.Minute)
			require.NoError(t, err)
			require.NoError(t, h.Unlock(context.Background()))
			require.Empty(t, r.owners(t, "l"))
		},
		"Owner": func(t *testing.T, r *rig, l *rlock.Lock) {
			h := lock(t, l, context.Background())
			require.NotEmpty(t, h.Owner())
			require.NoError(t, h.Unlock(context.Background()))
			require.Empty(t, r.owners(t, "l"))
		},
		"an ended context": func(t *testing.T, _ *rig, l *rlock.Lock) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := l.Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				r := rigs[0]
				l := r.locks.NonReentrant("l").WithLinger(20 * time.Millisecond)
				require.NoError(t, lock(t, l, context.Background()).Unlock(context.Background()))
				require.NotEmpty(t, r.owners(t, "l"))
				end(t, r, l)
				time.Sleep(30 * time.Millisecond)
				synctest.Wait()
				require.Empty(t, r.owners(t, "l"))
			})
		})
	}
}

func TestOnlyReentrantAndNonReentrantLocksLinger(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	both, err := rlock.Multi(r.locks.Reentrant("m"), r.locks.Reentrant("n"))
	require.NoError(t, err)
	for name, l := range map[string]*rlock.Lock{
		"fair": r.locks.Fair("l").WithLinger(linger), "read": r.locks.ReadWrite("l").Read().WithLinger(linger),
		"plain":  r.locks.Plain("l").WithLinger(linger),
		"fenced": r.locks.Fenced("l").WithLinger(linger), "multi": both.WithLinger(linger),
		"negative": r.locks.Reentrant("l").WithLinger(-1),
		"too long": r.locks.Reentrant("l").WithLinger(21 * time.Millisecond),
	} {
		_, err := l.Lock(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidOption, name)
		require.ErrorContains(t, err, "linger", name)
	}
	require.NoError(t, lock(t, r.locks.Fair("l").WithLinger(0), within(t)).Unlock(within(t)))
}

func BenchmarkLinger(b *testing.B) {
	for name, d := range map[string]time.Duration{"released": 0, "lingers": linger} {
		b.Run(name, func(b *testing.B) {
			l := newRig(b, redistest.Start(b), rlock.Options{}).locks.Reentrant("l").WithLinger(d)
			ctx := context.Background()
			for b.Loop() {
				h, err := l.Lock(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
