package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// state is all that the server has.
func (r *rig) state(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, k := range r.keys(t) {
		m[k] = r.contents(t, k)
	}
	return m
}

func TestSemaphoreKinds_OtherKindInUse_IsRefused(t *testing.T) {
	t.Parallel()
	type calls = func(ctx context.Context, c *rsemaphore.Client, name string) map[string]error
	latch := func(ctx context.Context, c *rsemaphore.Client, name string) map[string]error {
		l := c.CountDownLatch(name)
		return map[string]error{"CountDown": errOf(l.CountDown(ctx)), "CountDownBy": errOf(l.CountDownBy(ctx, "p")),
			"TrySetCount": errOf(l.TrySetCount(ctx, 3, 0)), "Count": errOf(l.Count(ctx)), "Delete": errOf(l.Delete(ctx)),
			"Await": l.Await(ctx)}
	}
	counted := func(ctx context.Context, c *rsemaphore.Client, name string) map[string]error {
		s := counting.New(c, name)
		return map[string]error{"Acquire": s.Acquire(ctx, 1), "Release": s.Release(ctx, 1),
			"TrySetPermits": errOf(s.TrySetPermits(ctx, 3, 0)), "AddPermits": errOf(s.AddPermits(ctx, -1))}
	}
	leased := func(ctx context.Context, c *rsemaphore.Client, name string) map[string]error {
		s := c.Semaphore(name, 3)
		return map[string]error{"Acquire": errOf(s.Acquire(ctx, 1)), "Resize": errOf(s.Resize(ctx, 2)),
			"Shared": errOf(s.Shared().TryAcquire(ctx, 1, 0, 0))}
	}
	setLatch := func(ttl time.Duration) func(t *testing.T, r *rig, name string) {
		return func(t *testing.T, r *rig, name string) {
			set := redistest.NoError(r.c.CountDownLatch(name).TrySetCount(within(t), 3, ttl))(t)
			require.True(t, set)
		}
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for _, c := range []struct {
			is    string
			make  func(t *testing.T, r *rig, name string)
			calls []calls
			says  string
		}{
			{"a Semaphore in use", func(t *testing.T, r *rig, name string) { acquire(t, r.c.Semaphore(name, 3), 1) },
				[]calls{latch, counted}, "is a Semaphore"},
			{"a shared Semaphore in use", func(t *testing.T, r *rig, name string) {
				acquire(t, r.c.Semaphore(name, 3).Shared(), 1)
			},
				[]calls{latch, counted}, "is a Semaphore"},
			{"a Semaphore of which nothing is out", func(t *testing.T, r *rig, name string) {
				release(t, acquire(t, r.c.Semaphore(name, 3), 1))
			},
				[]calls{latch}, "is not a CountDownLatch"},
			{"a CountingSemaphore with an end", func(t *testing.T, r *rig, name string) {
				require.NoError(t, errOf(counting.New(r.c, name).TrySetPermits(within(t), 3, time.Hour)))
			}, []calls{latch}, "is not a CountDownLatch"},
			{"a latch", setLatch(0), []calls{counted, leased}, "is a CountDownLatch"},
			{"a latch with a TTL", setLatch(time.Hour), []calls{counted, leased}, "is a CountDownLatch"},
		} {
			for _, name := range []string{"x", "a{x}"} {
				r.must(t, "FLUSHALL")
				c.make(t, r, name)
				before := r.state(t)
				for _, calls := range c.calls {
					for verb, err := range calls(within(t), r.c, name) {
						require.ErrorIs(t, err, errs.ErrWrongType, "%s, %s", c.is, verb)
						require.ErrorContains(t, err, c.says, "%s, %s", c.is, verb)
					}
					require.Equal(t, before, r.state(t), c.is)
				}
			}
		}
	})
}
