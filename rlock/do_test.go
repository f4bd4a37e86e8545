package rlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestDoOnceRunsOnceInAPeriodOverAllProcesses(t *testing.T) {
	const period = 50 * time.Minute
	bubble(t, 4, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		var runs, refused atomic.Int32
		for range 5 { // hours
			for _, r := range rigs {
				go func() {
					ran, err := r.locks.Reentrant("job").DoOnce(context.Background(), period, func(ctx context.Context) error {
						runs.Add(1)
						time.Sleep(time.Second)
						return ctx.Err()
					})
					if err != nil {
						t.Error(err)
					}
					if !ran {
						refused.Add(1)
					}
				}()
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			ran, err := rigs[0].locks.Reentrant("job").DoOnce(context.Background(), period, func(context.Context) error { return nil })
			require.NoError(t, err)
			require.False(t, ran, "half an hour later")
			time.Sleep(30 * time.Minute)
		}
		require.EqualValues(t, 5, runs.Load())
		require.EqualValues(t, 15, refused.Load())
	})
}

func TestThePeriodCountsWhateverTheWorkReturns(t *testing.T) {
	bubble(t, 1, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		l, ctx, work := rigs[0].locks.Reentrant("job"), context.Background(), errors.New("no paper")
		never := func(context.Context) error { t.Error("ran"); return nil }
		ran, err := l.DoOnce(ctx, time.Minute, func(ctx context.Context) error {
			again, err := l.DoOnce(ctx, time.Minute, never)
			require.NoError(t, err)
			require.False(t, again, "nor under its own hold")
			return work
		})
		require.True(t, ran)
		require.Equal(t, work, err)
		time.Sleep(59 * time.Second)
		ran, err = l.DoOnce(ctx, time.Minute, never)
		require.NoError(t, err)
		require.False(t, ran)
		time.Sleep(time.Second)
		require.PanicsWithValue(t, "oops", func() { l.DoAtLeast(ctx, time.Minute, func(context.Context) error { panic("oops") }) })
		require.ErrorIs(t, l.WithWait(30*time.Second).DoAtLeast(ctx, time.Minute, never), rlock.ErrNotAcquired)
		at := time.Now()
		require.NoError(t, l.DoAtLeast(ctx, 0, func(context.Context) error { return nil }), "it waits")
		require.GreaterOrEqual(t, time.Since(at), 29*time.Second)
		ran, err = l.DoOnce(ctx, time.Minute, func(ctx context.Context) error {
			s.Embedded.Del("job")
			return nil
		})
		require.True(t, ran)
		require.ErrorIs(t, err, rlock.ErrLost)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for _, c := range []struct {
			ctx    context.Context
			period time.Duration
			is     error
		}{{ended, time.Minute, context.Canceled}, {ctx, 0, rlock.ErrInvalidOption}, {ctx, -1, rlock.ErrInvalidOption}} {
			ran, err = l.DoOnce(c.ctx, c.period, never)
			require.ErrorIs(t, err, c.is)
			require.False(t, ran)
		}
		require.ErrorIs(t, l.DoAtLeast(ctx, -1, never), rlock.ErrInvalidOption)
	})
}
