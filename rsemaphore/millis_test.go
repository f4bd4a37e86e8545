package rsemaphore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestPermit_EndToldToItsHolder_IsNoMillisecondEarly(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	mine, others := newRig(t, srv, rsemaphore.Options{}).c, newRig(t, srv, rsemaphore.Options{}).c
	const lease = 20 * time.Second
	var names atomic.Int64
	failed := func(t *testing.T, err error) bool {
		if err != nil {
			require.ErrorIs(t, err, errs.ErrNotAcquired)
		}
		return err == nil
	}
	for name, make := range map[string]func(t *testing.T) redistest.Last{
		"one": func(_ *testing.T) redistest.Last {
			name := fmt.Sprint("s", names.Add(1))
			return redistest.Last{Take: func(t *testing.T) time.Duration {
				redistest.NoError(mine.Semaphore(name, 1).TryAcquire(within(t), 1, 0, lease))(t)
				return lease
			}, Gone: func(t *testing.T) bool {
				_, err := others.Semaphore(name, 1).TryAcquire(within(t), 1, 0, lease)
				return failed(t, err)
			}, Kept: func(t *testing.T) {
				n := redistest.NoError(others.Semaphore(name, 1).Available(within(t)))(t)
				require.Zero(t, n)
			}}
		},
		"two of three": func(_ *testing.T) redistest.Last {
			name := fmt.Sprint("s", names.Add(1))
			return redistest.Last{Take: func(t *testing.T) time.Duration {
				redistest.NoError(mine.Semaphore(name, 3).TryAcquire(within(t), 2, 0, lease))(t)
				return lease
			}, Gone: func(t *testing.T) bool {
				p, err := others.Semaphore(name, 3).TryAcquire(within(t), 1, 0, time.Hour) // there is one more
				require.NoError(t, err)
				_, err = others.Semaphore(name, 3).TryAcquire(within(t), 2, 0, lease)
				require.NoError(t, p.Release(within(t)))
				return failed(t, err)
			}}
		},
		"released": func(_ *testing.T) redistest.Last {
			name := fmt.Sprint("s", names.Add(1))
			var p *rsemaphore.Permit
			return redistest.Last{Once: true, Take: func(t *testing.T) (_ time.Duration) {
				p = redistest.NoError(mine.Semaphore(name, 2).TryAcquire(within(t), 2, 0, lease))(t)
				return lease
			}, Gone: func(t *testing.T) bool {
				err := p.Release(within(t))
				if err != nil {
					require.ErrorIs(t, err, errs.ErrLost)
				}
				return err != nil
			}}
		},
		"a weight": func(_ *testing.T) redistest.Last {
			name := fmt.Sprint("w", names.Add(1))
			return redistest.Last{Take: func(t *testing.T) time.Duration {
				redistest.NoError(mine.WeightedSemaphore(name, 1000).TryAcquire(within(t), 600, 0, lease))(t)
				return lease
			}, Gone: func(t *testing.T) bool {
				_, err := others.WeightedSemaphore(name, 1000).TryAcquire(within(t), 500, 0, lease)
				return failed(t, err)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) { redistest.LastsWholly(t, srv, make) })
	}
}

// A party counts for as long as it may think that it does: nobody breaks its generation before the end of its lease.
func TestBarrier_LeaseOfAParty_EndsNoMillisecondEarly(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	const lease = 40 * time.Second
	mine, others := newRig(t, srv, rsemaphore.Options{WatchdogTimeout: lease}).c, newRig(t, srv, rsemaphore.Options{}).c
	var names atomic.Int64
	redistest.LastsWholly(t, srv, func(_ *testing.T) redistest.Last {
		name := fmt.Sprint("b", names.Add(1))
		arrived := func(t *testing.T) int {
			st := redistest.NoError(others.CyclicBarrier(name, 2).Inspect(within(t)))(t)
			return st.Waiting
		}
		return redistest.Last{Take: func(t *testing.T) time.Duration {
			ctx, cancel := context.WithCancel(within(t))
			done := make(chan struct{})
			go func() {
				defer close(done)
				mine.CyclicBarrier(name, 2).Await(ctx)
			}()
			t.Cleanup(func() { cancel(); <-done })
			redistest.Eventually(t, 20*time.Second, "it has arrived", func() bool { return arrived(t) == 1 })
			return lease
		}, Gone: func(t *testing.T) bool { return arrived(t) == 0 }}
	})
}
