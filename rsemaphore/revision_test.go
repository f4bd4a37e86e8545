package rsemaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// In a rolling deployment two versions of a program run at once, each with its own capacity.
func TestRevision_TwoVersionsRun_NewestSetsTheCapacity(t *testing.T) {
	t.Parallel()
	for _, weighted := range []bool{false, true} {
		redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
			r := newRig(t, srv, patient)
			of, remembers := r.c.Semaphore, "{s}:notes"
			if weighted {
				of, remembers = r.c.WeightedSemaphore, weightedKeys[0]
			}
			older, newer := of("s", 5).WithRevision(1), of("s", 8).WithRevision(2)
			held := acquire(t, older, 5)
			for range 3 {
				p := acquire(t, newer, 3) // the first makes it 8
				_, err := older.TryAcquire(within(t), 1, 0, 0)
				require.ErrorIs(t, err, errs.ErrNotAcquired)
				release(t, p)
				release(t, acquire(t, older, 3)) // and the older has its share of that
				require.Equal(t, 3, must1[int](t)(older.Available(within(t))))
			}
			release(t, acquire(t, of("s", 77), 1)) // whoever knows of no revision goes by the server's, too
			release(t, acquire(t, older, 3))

			_, err := of("s", 9).WithRevision(2).TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
			require.ErrorContains(t, err, `"s" has 8, not 9`)

			require.Equal(t, 8, must1[int](t)(older.Resize(within(t), 6)), "an operator's resize counts")
			release(t, acquire(t, newer, 1))
			require.Equal(t, 1, must1[int](t)(newer.Available(within(t))))
			back := of("s", 5).WithRevision(3) // the new version is taken back
			_, err = back.TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.Zero(t, must1[int](t)(back.Available(within(t))), "what is held stays held")
			release(t, held)
			release(t, acquire(t, newer, 5))
			require.Equal(t, 5, must1[int](t)(newer.Available(within(t))))
			require.Greater(t, r.pttl(t, remembers), 6*24*time.Hour)
		})
	}
}

// The count of permits is there, as from Redisson, and nothing else.
func TestRevision_MadeByRedisson_CountsFromTheFirstAcquisition(t *testing.T) {
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
