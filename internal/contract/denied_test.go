package contract_test

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestRights_Withdrawn_EveryVerbIsErrDenied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Ask(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	option := s.Option()
	option.Username, option.Password = "app", "pw"
	red, err := redlatch.Open(t.Context(), option, redlatch.Options{CallTimeout: time.Minute,
		Logger:     slog.New(slog.DiscardHandler),
		Sales:      withBooks,
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout = time.Hour },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = time.Hour },
		Limiters:   func(o *ratelimit.Options) { o.AllowTimeout = time.Minute }})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	t.Cleanup(func() { red.Close(ended) })
	calls := unwaiting(t, red, open(t, s, patient))
	maps.Copy(calls, waiting(red, time.Minute, func(context.Context) error { t.Error("granted"); return nil }))
	calls["Hub.Subscribe"] = func(ctx context.Context) error { return err1(red.Hub().Subscribe(ctx, "c")) }
	calls["Sale.KeepLedger"] = func(ctx context.Context) error {
		return red.Sales().Sale("kept").KeepLedger(ctx, time.Minute, 1,
			func(context.Context, []stock.Entry) error { return nil })
	}
	s.Ask(t, "ACL", "SETUSER", "app", "-@all", "+ping", "+client")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for verb, call := range calls {
		err := call(ctx)
		require.ErrorIs(t, err, redlatch.ErrDenied, verb)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired, verb)
		if strings.HasPrefix(verb, "Lock.") {
			require.ErrorContains(t, err, "lacks +evalsha", verb)
		}
	}
}

// firstError is the first error of a loop.
func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
