package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// named is an error that names the holders. On a busy machine not all do: there is little time for it.
func named(t *testing.T, acquire func(ctx context.Context) error) (refused *rsemaphore.NotAcquiredError) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, "the holders are named", func() bool {
		require.ErrorAs(t, acquire(within(t)), &refused)
		return len(refused.Holders) > 0
	})
	return refused
}

func TestNotAcquired_ManyPermits_NamesAFew(t *testing.T) {
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		r, waiter := newRig(t, srv, patient), newRig(t, srv, patient)
		r.must(t, "SET", "s", "7")
		r.must(t, "ZADD", "{s}:timeout", "922337203685477", idJava) // Redisson's, for ever
		p := redistest.NoError(r.c.Semaphore("s", 8).Shared().WithLabel("import").Acquire(within(t), 7))(t)
		refused := named(t, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
			defer cancel()
			return errOf(waiter.c.Semaphore("s", 8).Shared().Acquire(ctx, 1))
		})
		require.ErrorIs(t, refused, context.DeadlineExceeded)
		require.Len(t, refused.Holders, 8)
		for _, h := range refused.Holders[:7] {
			require.Equal(t, "import", h.Label)
			require.Contains(t, p.IDs(), h.ID)
			require.Positive(t, h.Lease)
		}
		last := refused.Holders[7]
		require.Empty(t, last.Client)
		require.Negative(t, last.Lease)
		require.ErrorContains(t, refused, "(7), permit "+last.ID+" (1)")
		require.NoError(t, p.Release(within(t)))

		q := redistest.NoError(r.c.Semaphore("many", 500).Acquire(within(t), 500))(t)
		refused = named(t, func(ctx context.Context) error {
			return errOf(waiter.c.Semaphore("many", 500).TryAcquire(ctx, 1, 110*time.Millisecond, 0))
		})
		require.Len(t, refused.Holders, 10)
		require.ErrorContains(t, refused, "(10), others (leases end")
		require.NoError(t, q.Release(within(t)))

		weights := weigh(t, r.c.WeightedSemaphore("w", 500), 500)
		refused = named(t, func(ctx context.Context) error {
			return errOf(waiter.c.WeightedSemaphore("w", 500).TryAcquire(ctx, 2, 110*time.Millisecond, 0))
		})
		require.Len(t, refused.Holders, 1)
		require.Equal(t, 500, refused.Holders[0].N)
		require.Regexp(t, `^rsemaphore: 2 of "w" not acquired after [\dms.]+: held by .+ \(500\) \(leases end in [\dms.]+\)$`,
			refused)
		require.NoError(t, weights.Release(within(t)))
	})
}
