package rsemaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
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

func TestWhatIsKnownToBeAnotherKindIsRefusedAndNothingIsChanged(t *testing.T) {
	t.Parallel()
	type call = func(t *testing.T, r *rig, name string) error
	latch := map[string]call{
		"CountDown": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountDownLatch(name).CountDown(within(t)))
		},
		"CountDownBy": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountDownLatch(name).CountDownBy(within(t), "p"))
		},
		"TrySetCount": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountDownLatch(name).TrySetCount(within(t), 3, 0))
		},
		"Count": func(t *testing.T, r *rig, name string) error { return errOf(r.c.CountDownLatch(name).Count(within(t))) },
		"Delete": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountDownLatch(name).Delete(within(t)))
		},
		"Await": func(t *testing.T, r *rig, name string) error { return r.c.CountDownLatch(name).Await(within(t)) },
	}
	counting := map[string]call{
		"Acquire": func(t *testing.T, r *rig, name string) error {
			return r.c.CountingSemaphore(name).Acquire(within(t), 1)
		},
		"Release": func(t *testing.T, r *rig, name string) error {
			return r.c.CountingSemaphore(name).Release(within(t), 1)
		},
		"TrySetPermits": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountingSemaphore(name).TrySetPermits(within(t), 3, 0))
		},
		"AddPermits": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.CountingSemaphore(name).AddPermits(within(t), -1))
		},
	}
	leased := map[string]call{
		"Acquire": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.Semaphore(name, 3).Acquire(within(t), 1))
		},
		"Shared": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.Semaphore(name, 3).Shared().TryAcquire(within(t), 1, 0, 0))
		},
		"Resize": func(t *testing.T, r *rig, name string) error {
			return errOf(r.c.Semaphore(name, 3).Resize(within(t), 2))
		},
	}
	setLatch := func(ttl time.Duration) func(t *testing.T, r *rig, name string) {
		return func(t *testing.T, r *rig, name string) {
			set, err := r.c.CountDownLatch(name).TrySetCount(within(t), 3, ttl)
			require.NoError(t, err)
			require.True(t, set)
		}
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for _, c := range []struct {
			is    string
			make  func(t *testing.T, r *rig, name string)
			calls []map[string]call
			says  string
		}{
			{"a Semaphore in use", func(t *testing.T, r *rig, name string) { acquire(t, r.c.Semaphore(name, 3), 1) },
				[]map[string]call{latch, counting}, "is a Semaphore"},
			{"a shared Semaphore in use", func(t *testing.T, r *rig, name string) {
				acquire(t, r.c.Semaphore(name, 3).Shared(), 1)
			},
				[]map[string]call{latch, counting}, "is a Semaphore"},
			{"a Semaphore of which nothing is out", func(t *testing.T, r *rig, name string) {
				release(t, acquire(t, r.c.Semaphore(name, 3), 1))
			},
				[]map[string]call{latch}, "is not a CountDownLatch"},
			{"a CountingSemaphore with an end", func(t *testing.T, r *rig, name string) {
				require.NoError(t, errOf(r.c.CountingSemaphore(name).TrySetPermits(within(t), 3, time.Hour)))
			}, []map[string]call{latch}, "is not a CountDownLatch"},
			{"a latch", setLatch(0), []map[string]call{counting, leased}, "is a CountDownLatch"},
			{"a latch with a TTL", setLatch(time.Hour), []map[string]call{counting, leased}, "is a CountDownLatch"},
		} {
			for _, calls := range c.calls {
				for verb, do := range calls {
					t.Run(c.is+" "+verb, func(t *testing.T) {
						for _, name := range []string{"x", "a{x}"} {
							r.must(t, "FLUSHALL")
							c.make(t, r, name)
							before := r.state(t)
							err := do(t, r, name)
							require.ErrorIs(t, err, errs.ErrWrongType)
							require.ErrorContains(t, err, c.says)
							require.Equal(t, before, r.state(t))
						}
					})
				}
			}
		}
	})
}
