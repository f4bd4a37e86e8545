package contract_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// waiting runs wait until the end of a scene. It is there when ready says so.
func (s *hostileRig) waiting(t testing.TB, what string, wait func(ctx context.Context) error,
	ready func() bool) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	waits.Go(func() { s.judge(act{name: what + " waiter", waits: true}, wait(ctx), 0) })
	redistest.Eventually(t, 10*time.Second, "a waiter", ready)
	return func() {
		cancel()
		waits.Wait()
	}
}

// permitScenes are those of a kind of semaphore: n is what is held, and what does not fit beside it.
func (s *hostileRig) permitScenes(a actors, n int, weighted bool,
	of func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore) []hostileCase {
	bg := context.Background()
	acts := func(name string, p *rsemaphore.Permit) (all []act) {
		x := of(a.other.Semaphores(), name)
		all = semaphoreActs(x, n)
		if !weighted {
			all = append(all, does("AddPermits", func(ctx context.Context) error { return err1(x.AddPermits(ctx, 1)) }))
		}
		if p != nil {
			all = append(all, permitActs(x, p, weighted)...)
		}
		return append(all, does("Resize", func(ctx context.Context) error { return err1(x.Resize(ctx, 2*n)) }),
			semaphoreActs(x, n)[2])
	}
	works := func(ctx context.Context, name string) error {
		x := of(a.other.Semaphores(), name)
		p, err := x.TryAcquire(ctx, 1, calls, 0)
		if err != nil {
			return err
		}
		return cmp.Or(err1(x.Inspect(ctx)), p.Release(ctx))
	}
	held := func(t testing.TB, name string) ([]act, func()) {
		p := redistest.NoError(of(a.holder.Semaphores(), name).WithLabel("label").Acquire(bg, n))(t)
		return acts(name, p), func() { p.Release(bg) }
	}
	cases := []hostileCase{
		{"held", held, works},
		{"resized", func(t testing.TB, name string) ([]act, func()) {
			all, end := held(t, name)
			x := of(a.holder.Semaphores(), name)
			require.NoError(t, err1(x.Resize(bg, 2*n)))
			if !weighted {
				require.NoError(t, err1(x.AddPermits(bg, 1)))
			}
			return all, end
		}, works},
		{"queued", func(t testing.TB, name string) ([]act, func()) {
			all, release := held(t, name)
			end := s.waiting(t, "semaphore", func(ctx context.Context) error {
				p, err := of(a.waiter.Semaphores(), name).WithLabel("waits").Acquire(ctx, n)
				if err == nil {
					p.Release(bg)
				}
				return err
			}, func() bool {
				n, err := s.c.Do(bg, s.c.B().Eval().Script(queued).Numkeys(0).Arg("*"+name+"*").Build()).AsInt64()
				return err == nil && n > 0
			})
			return all, func() { end(); release() }
		}, works},
	}
	if !weighted {
		cases = append(cases, hostileCase{"free", func(t testing.TB, name string) ([]act, func()) {
			_, release := held(t, name)
			release()
			return acts(name, nil), func() {}
		}, works})
	}
	return cases
}

const queued = `local n = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if string.find(key, 'queue') and redis.call('TYPE', key).ok == 'zset' then n = n + redis.call('ZCOUNT', key, '(0', '+inf') end
end
return n`

func (s *hostileRig) countingScenes(a actors) []hostileCase {
	bg := context.Background()
	return []hostileCase{{"set", func(t testing.TB, name string) ([]act, func()) {
		x := counting.New(a.other.Semaphores(), name)
		redistest.NoError(x.TrySetPermits(bg, 5, time.Minute))(t)
		return countingActs(x), func() {}
	}, func(ctx context.Context, name string) error {
		x := counting.New(a.other.Semaphores(), name)
		if err := x.TryAcquire(ctx, 5, 0); err != nil {
			return err
		}
		return x.Release(ctx, 5)
	}}}
}

func (s *hostileRig) latchScenes(a actors) []hostileCase {
	bg := context.Background()
	acts := func(name string) []act {
		x := a.other.Semaphores().CountDownLatch(name)
		return append(latchActs(x), does("TrySetCount again", func(ctx context.Context) error {
			return err1(x.TrySetCount(ctx, 3, time.Minute))
		}))
	}
	works := func(ctx context.Context, name string) error {
		x := a.other.Semaphores().CountDownLatch(name)
		return cmp.Or(err1(x.Delete(ctx)), err1(x.TrySetCount(ctx, 1, time.Minute)), err1(x.CountDown(ctx)), x.Await(ctx))
	}
	return []hostileCase{
		{"set", func(t testing.TB, name string) ([]act, func()) {
			x := a.other.Semaphores().CountDownLatch(name)
			require.NoError(t, err1(x.TrySetCount(bg, 1000, 0)))
			require.NoError(t, err1(x.CountDownBy(bg, "one")))
			return acts(name), func() {}
		}, works},
		{"awaited", func(t testing.TB, name string) ([]act, func()) {
			x := a.other.Semaphores().CountDownLatch(name)
			require.NoError(t, err1(x.TrySetCount(bg, 1000, time.Minute)))
			require.NoError(t, err1(x.CountDownBy(bg, "one")))
			await := a.waiter.Semaphores().CountDownLatch(name).Await
			return acts(name), s.waiting(t, "latch", await, func() bool { return true })
		}, works},
		{"open", func(t testing.TB, name string) ([]act, func()) {
			x := a.other.Semaphores().CountDownLatch(name)
			require.NoError(t, err1(x.TrySetCount(bg, 1, 0)))
			require.NoError(t, err1(x.CountDownBy(bg, "one")))
			return acts(name), func() {}
		}, works},
		{"deleted", func(t testing.TB, name string) ([]act, func()) {
			x := a.other.Semaphores().CountDownLatch(name)
			require.NoError(t, err1(x.TrySetCount(bg, 1, 0)))
			require.NoError(t, err1(x.Delete(bg)))
			return acts(name), func() {}
		}, works},
	}
}

func (s *hostileRig) barrierScenes(a actors) []hostileCase {
	return []hostileCase{{"awaited", func(t testing.TB, name string) ([]act, func()) {
		x := a.other.Semaphores().CyclicBarrier(name, 3)
		end := s.waiting(t, "barrier", func(ctx context.Context) error {
			return err1(a.waiter.Semaphores().CyclicBarrier(name, 3).Await(ctx))
		}, func() bool {
			state, err := x.Inspect(context.Background())
			return err == nil && state.Waiting > 0
		})
		return barrierActs(x), end
	}, func(ctx context.Context, name string) error { // that party has left by now
		return err1(a.other.Semaphores().CyclicBarrier(name+"2", 1).Await(ctx))
	}}}
}

// semaphoreKinds are the objects of package rsemaphore.
func semaphoreKinds() map[string]scenes {
	permits := func(n int, weighted bool, of func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore) scenes {
		return func(s *hostileRig, a actors) []hostileCase { return s.permitScenes(a, n, weighted, of) }
	}
	return map[string]scenes{
		"Semaphore": permits(2, false, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.Semaphore(name, 3)
		}),
		"Revised": permits(2, false, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.Semaphore(name, 3).WithRevision(7)
		}),
		"Shared": permits(2, false, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.Semaphore(name, 3).Shared()
		}),
		"Tenant": permits(2, false, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.Semaphore(name, 3).For("t")
		}),
		"WeightedTenant": permits(60, true, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(name, 100).For("t").WithWeight(7)
		}),
		"Weighted": permits(60, true, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(name, 100)
		}),
		"WeightedRevised": permits(60, true, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(name, 100).WithRevision(7)
		}),
		"Counting": (*hostileRig).countingScenes, "Latch": (*hostileRig).latchScenes, "Barrier": (*hostileRig).barrierScenes,
	}
}
