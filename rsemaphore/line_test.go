package rsemaphore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

func TestQueues_OfDifferentObjects_AreSeparate(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	other := newRig(t, srv, patient)
	for semaphore, wait := range map[string]func(r *rig) <-chan error{
		"latch:job": func(r *rig) <-chan error {
			must1[bool](t)(other.c.CountDownLatch("job").TrySetCount(within(t), 1, 0))
			done := await(t, r.c.CountDownLatch("job"), 1)
			waitingIn(t, r, "latch:job", 1)
			must1[int64](t)(other.c.CountDownLatch("job").CountDown(within(t)))
			return done
		},
		"counting:work": func(r *rig) <-chan error {
			done := make(chan error, 1)
			ctx := within(t)
			go func() { done <- counting.New(r.c, "work").Acquire(ctx, 1) }()
			waitingIn(t, r, "counting:work", 1)
			require.NoError(t, counting.New(other.c, "work").Release(within(t), 1))
			return done
		},
	} {
		var mu sync.Mutex
		named := map[string]bool{}
		o := patient
		o.Observer = heeding(redlatch.EventWoken, func(e redlatch.Event) {
			mu.Lock()
			defer mu.Unlock()
			named[e.Name] = true
		})
		r := newRig(t, srv, o)
		held := acquire(t, other.c.Semaphore(semaphore, 1), 1)
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() { gone <- errOf(r.c.Semaphore(semaphore, 1).Acquire(ctx, 1)) }()
		redistest.Eventually(t, 20*time.Second, "a call waits", func() bool { return r.c.Lines() == 1 })
		require.NoError(t, <-wait(r))
		cancel()
		require.ErrorIs(t, <-gone, errs.ErrNotAcquired)
		require.NoError(t, held.Release(within(t)))
		mu.Lock()
		for name := range named {
			require.Contains(t, []string{"job", "work", semaphore}, name, "the object's own name")
		}
		mu.Unlock()
	}
}
