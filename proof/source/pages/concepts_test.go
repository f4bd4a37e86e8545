package pages_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// Report writes a report alone. The comments name the terms of the page.
func Report(ctx context.Context, locks *rlock.Client, write func(ctx context.Context, token int64) error) error {
	lock := locks.Fenced("report") // a description: nothing is sent yet
	hold, err := lock.Lock(ctx)    // ctx bounds the wait, not the hold
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	token, _ := hold.Token() // greater than the token of every earlier hold
	slog.Info("got the lock", "owner", hold.Owner(), "deadline in", time.Until(hold.Until()))
	return write(hold.Context(ctx), token) // this context ends when ctx ends, or the hold
}

func TestReport_LockLost_ContextEndsAndTheNextTokenIsGreater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		var first int64
		require.ErrorIs(t, Report(t.Context(), locks, func(ctx context.Context, token int64) error {
			first = token
			srv.Lose("report")
			<-ctx.Done()
			return context.Cause(ctx)
		}), redlatch.ErrLost)
		require.NoError(t, Report(t.Context(), locks, func(_ context.Context, token int64) error {
			require.Greater(t, token, first)
			return nil
		}))
	})
}
