package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// In a rolling deployment two versions of a program run at once, each with its own capacity.
func TestTwoVersionsOfAProgramDoNotFightOverTheCapacity(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		older, newer := r.c.Semaphore("s", 5).WithRevision(1), r.c.Semaphore("s", 8).WithRevision(2)
		held := acquire(t, older, 5)
		for range 3 {
			p := acquire(t, newer, 3) // the first makes it 8
			_, err := older.TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			release(t, p)
			release(t, acquire(t, older, 3)) // and the older has its share of that
			require.Equal(t, 3, must1[int](t)(older.Available(within(t))))
		}
		release(t, acquire(t, r.c.Semaphore("s", 77), 1)) // whoever knows of no revision goes by the server's, too
		release(t, acquire(t, older, 3))

		_, err := r.c.Semaphore("s", 9).WithRevision(2).TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.ErrorContains(t, err, `"s" has 8, not 9`)

		require.Equal(t, 8, must1[int](t)(older.Resize(within(t), 6)), "an operator's resize counts")
		release(t, acquire(t, newer, 1))
		require.Equal(t, 1, must1[int](t)(newer.Available(within(t))))
		back := r.c.Semaphore("s", 5).WithRevision(3) // the new version is taken back
		_, err = back.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.Zero(t, must1[int](t)(back.Available(within(t))), "what is held stays held")
		release(t, held)
		release(t, acquire(t, newer, 5))
		require.Equal(t, 5, must1[int](t)(newer.Available(within(t))))
		require.Greater(t, r.pttl(t, "{s}:notes"), 6*24*time.Hour)

		for _, bad := range []int64{0, -1, 1 << 53} {
			_, err := r.c.Semaphore("s", 5).WithRevision(bad).TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, "revision is ")
		}
	})
}

func TestTwoVersionsDoNotFightOverTheCapacityOfWeights(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		older, newer := r.c.WeightedSemaphore("s", 50).WithRevision(1), r.c.WeightedSemaphore("s", 80).WithRevision(2)
		held := weigh(t, older, 50)
		for range 2 {
			require.NoError(t, weigh(t, newer, 30).Release(within(t)))
			require.NoError(t, weigh(t, older, 30).Release(within(t)))
		}
		require.NoError(t, weigh(t, r.c.WeightedSemaphore("s", 7), 1).Release(within(t)))
		_, err := r.c.WeightedSemaphore("s", 90).WithRevision(2).TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.EqualValues(t, 80, must1[int](t)(older.Resize(within(t), 60)))
		require.NoError(t, weigh(t, newer, 10).Release(within(t)))
		require.NoError(t, held.Release(within(t)))
		require.EqualValues(t, 60, must1[int](t)(newer.Available(within(t))))
		require.NoError(t, weigh(t, r.c.WeightedSemaphore("s", 40).WithRevision(3), 40).Release(within(t)))
		require.EqualValues(t, 40, must1[int](t)(newer.Available(within(t))))
	})
}

func TestANewRevisionServesWhoWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	other := newRig(t, r.server, patient)
	held := acquire(t, r.c.Semaphore("s", 2).WithRevision(1), 2)
	got := make(chan error, 1)
	go func() {
		got <- other.c.Semaphore("s", 2).WithRevision(1).Do(within(t), 2, func(context.Context) error { return nil })
	}()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool {
		return r.number(t, "ZCARD", "redlatch_queue:{s}") > 0
	})
	require.NoError(t, r.c.Semaphore("s", 5).WithRevision(2).Do(within(t), 1, func(context.Context) error { return nil }))
	require.NoError(t, <-got)
	release(t, held)
}

// The count of permits is there, as from Redisson, and nothing else.
func TestARevisionCountsFromItsFirstAcquisitionWithRedisson(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		r.must(t, "SET", "s", "5")
		s := r.c.Semaphore("s", 8).Shared().WithRevision(1)
		p := acquire(t, s, 1)
		require.Equal(t, 7, must1[int](t)(s.Available(within(t))))
		release(t, p)
		require.Equal(t, "8", r.text(t, "GET", "s"))
	})
}
