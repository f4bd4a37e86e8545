package rlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// TestHold_EndToldToItsHolder_IsNoMillisecondEarly is about ends that are written beside the key, for a hold
// that shares its lock with others. A server's clock counts microseconds. The end of a key is the server's own, which
// TestServer_KeysMillisecondNotOver_KeepsIt looks at.
func TestHold_EndToldToItsHolder_IsNoMillisecondEarly(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	mine, others, third := newRig(t, srv, rlock.Options{}).locks, newRig(t, srv, rlock.Options{}).locks,
		newRig(t, srv, rlock.Options{}).locks
	const first, longer = 20 * time.Second, time.Minute
	var names atomic.Int64
	hold := func(t *testing.T, l *rlock.Lock, d time.Duration) *rlock.Hold {
		h, err := l.TryLock(within(t), 0, d)
		require.NoError(t, err)
		return h
	}
	// Another has the lock once the one that shared it has left, and nobody else's end keeps it.
	after := func(beside **rlock.Hold, l *rlock.Lock) func(t *testing.T) bool {
		return func(t *testing.T) bool {
			require.NoError(t, (*beside).Unlock(within(t)))
			_, err := l.TryLock(within(t), 0, longer)
			if err != nil {
				require.ErrorIs(t, err, errs.ErrNotAcquired)
			}
			return err == nil
		}
	}
	for name, make := range map[string]func(t *testing.T) redistest.Last{
		"joined": func(_ *testing.T) redistest.Last {
			name, beside := fmt.Sprint("l", names.Add(1)), new(rlock.Hold)
			return redistest.Last{Once: true, Gone: after(&beside, third.Reentrant(name)),
				Take: func(t *testing.T) time.Duration {
					h, l := hold(t, mine.Reentrant(name), first), others.Reentrant(name)
					var err error
					beside, err = l.TryLock(l.WithOwner(within(t), h.Owner()), 0, longer)
					require.NoError(t, err)
					return first
				}}
		},
		"joined, and left with UnlockAfter": func(_ *testing.T) redistest.Last {
			name, beside := fmt.Sprint("l", names.Add(1)), new(rlock.Hold)
			return redistest.Last{Once: true, By: 5 * time.Second, Gone: after(&beside, third.Reentrant(name)),
				Take: func(t *testing.T) time.Duration {
					began := time.Now()
					h, l := hold(t, mine.Reentrant(name), longer), others.Reentrant(name)
					var err error
					beside, err = l.TryLock(l.WithOwner(within(t), h.Owner()), 0, longer)
					require.NoError(t, err)
					return left(t, h, began)
				}}
		},
		"a reader beside another": func(_ *testing.T) redistest.Last {
			name, beside := fmt.Sprint("l", names.Add(1)), new(rlock.Hold)
			return redistest.Last{Once: true, Gone: after(&beside, third.ReadWrite(name).Write()),
				Take: func(t *testing.T) time.Duration {
					hold(t, mine.ReadWrite(name).Read(), first)
					beside = hold(t, others.ReadWrite(name).Read(), longer)
					return first
				}}
		},
		"a reader that has left with UnlockAfter": func(_ *testing.T) redistest.Last {
			name, beside := fmt.Sprint("l", names.Add(1)), new(rlock.Hold)
			return redistest.Last{Once: true, By: 5 * time.Second, Gone: after(&beside, third.ReadWrite(name).Write()),
				Take: func(t *testing.T) time.Duration {
					beside = hold(t, others.ReadWrite(name).Read(), longer)
					began := time.Now()
					return left(t, hold(t, mine.ReadWrite(name).Read(), longer), began)
				}}
		},
	} {
		t.Run(name, func(t *testing.T) { redistest.LastsWholly(t, srv, make) })
	}
}

// left leaves a lock that was acquired after began with UnlockAfter, and returns for how long the server keeps it from
// now on.
func left(t *testing.T, h *rlock.Hold, began time.Time) time.Duration {
	t.Helper()
	const d = 20 * time.Second
	require.NoError(t, h.UnlockAfter(within(t), d))
	return (d - time.Since(began) + time.Millisecond - 1).Truncate(time.Millisecond)
}
