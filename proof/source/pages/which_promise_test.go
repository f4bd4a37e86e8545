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

// Post books a payment. If two processes did so at once, money would be lost: book gets a token, and passes it to a
// database that refuses a smaller token than it has seen.
func Post(ctx context.Context, locks *rlock.Client, book func(ctx context.Context, token int64) error) error {
	hold, err := locks.Fenced("account:7").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	token, _ := hold.Token()
	return book(hold.Context(ctx), token)
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

func TestPost_OneAfterAnother_HaveGreaterTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t).Open().Locks()
		var seen int64
		for range 2 {
			require.NoError(t, Post(t.Context(), locks, func(_ context.Context, token int64) error {
				require.Greater(t, token, seen)
				seen = token
				return nil
			}))
		}
	})
}
