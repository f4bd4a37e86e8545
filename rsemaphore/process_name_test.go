package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestInspectNamesTheProcessOfEachPermit(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{Process: "worker"}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		sem, heavy := rigs[0].c.Semaphore("s", 3), rigs[0].c.WeightedSemaphore("w", 9)
		p := take(t, sem, 2)
		w, err := heavy.Acquire(ctx, 5)
		require.NoError(t, err)
		time.Sleep(1100 * time.Millisecond)
		state, err := rigs[1].c.Semaphore("s", 3).Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, state.Permits, 2)
		for _, h := range state.Permits {
			require.Equal(t, "worker", h.Process)
		}
		weights, err := rigs[1].c.WeightedSemaphore("w", 9).Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, "worker", weights.Permits[0].Process)
		require.NoError(t, p.Release(ctx))
		require.NoError(t, w.Release(ctx))
		time.Sleep(25 * time.Minute)
		require.Empty(t, s.Embedded.Keys())
	})
}
