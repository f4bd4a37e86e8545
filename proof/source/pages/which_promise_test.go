package pages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// Refresh rebuilds a cache. If two processes did so at once, they would only waste work: a lock is enough.
func Refresh(ctx context.Context, locks *rlock.Client, rebuild func(context.Context) error) error {
	return locks.Reentrant("cache").WithWait(10*time.Second).Do(ctx, rebuild)
}

func TestRefresh_HeldElsewhere_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		require.NoError(t, Refresh(t.Context(), locks, nothing))
		srv.HoldElsewhere("cache")
		require.ErrorIs(t, Refresh(t.Context(), locks, nothing), redlatch.ErrNotAcquired)
	})
}
