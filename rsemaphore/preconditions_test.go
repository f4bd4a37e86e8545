package rsemaphore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// The suite shows it of permits that have handles. ctx is over before the call, or in the instant before the permits
// are there, which are of no use then and go to the next.
func TestCountingSemaphore_OverBeforeTheGrant_HasNothing(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		why, errGranted := errors.New("the customer left"), errors.New("it was granted")
		there := newRig(t, servers[0], rsemaphore.Options{})
		c := there.c.CountingSemaphore("c")
		require.True(t, must1[bool](t)(c.TrySetPermits(within(t), 2, 24*time.Hour)))
		refused := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.ErrorIs(t, err, why)
			require.NotErrorIs(t, err, errs.ErrUnavailable)
			require.NoError(t, c.TryAcquire(within(t), 2, 0), "all are free")
			require.NoError(t, c.Release(within(t), 2))
		}
		ctx, leave := context.WithCancelCause(context.Background())
		leave(why)
		refused(c.Acquire(ctx, 2))
		refused(c.TryAcquire(ctx, 2, 0))
		for n := range 8 { // ctx, or Close; released here, or elsewhere; alone, or before another
			closes, here, alone := n&1 == 1, n&2 == 2, n&4 == 4
			if closes && here {
				continue
			}
			r := newRig(t, servers[0], rsemaphore.Options{})
			by := c
			if here {
				by = r.c.CountingSemaphore("c")
			}
			require.NoError(t, by.Acquire(within(t), 2), "%d: nothing is left of the last", n)
			ctx, leave := context.WithCancelCause(context.Background())
			ended, next, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() {
				err := r.c.CountingSemaphore("c").Acquire(ctx, 2)
				if err == nil {
					err = errors.Join(errGranted, c.Release(context.Background(), 2))
				}
				ended <- err
			}()
			time.Sleep(40 * time.Millisecond)
			if alone {
				next <- nil
			} else {
				go func() { next <- errors.Join(c.Acquire(within(t), 2), c.Release(within(t), 2)) }()
				time.Sleep(40 * time.Millisecond)
			}
			if closes {
				go func() { closed <- r.c.Close(context.Background()) }()
			} else {
				leave(why)
				closed <- nil
			}
			require.NoError(t, by.Release(context.Background(), 2))
			err := <-ended
			require.NoError(t, <-next)
			require.NoError(t, <-closed)
			if !closes {
				refused(err)
			} else if !errors.Is(err, errGranted) { // Close and the grant are at the same time
				require.ErrorIs(t, err, errs.ErrClosed)
			}
			leave(nil)
		}
	})
}

// The server is asked: another client may have resized it.
func TestAcquire_MoreThanThereIs_IsInvalid(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rsemaphore.Options{})
	_, err := r.c.Semaphore("s", 5).Acquire(within(t), 6)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "n is 6, must be 1 to 5")
	require.Empty(t, r.keys(t))
}
