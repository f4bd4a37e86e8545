package redlatch_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func (s *hostileRig) semaphores(t *testing.T) *rsemaphore.Client {
	c, err := rsemaphore.New(s.hub, rsemaphore.Options{CallTimeout: calls, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

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

// semaphoreScenes are those of a Semaphore of 3, of which make makes descriptions.
func (s *hostileRig) semaphoreScenes(holder, waiter, other *rsemaphore.Client,
	make func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore) []hostileCase {
	bg := context.Background()
	acts := func(name string, p *rsemaphore.Permit) (all []act) {
		x := make(other, name)
		take := func(ctx context.Context, n int, wait time.Duration) error {
			p, err := x.TryAcquire(ctx, n, wait, 0)
			if err == nil {
				err = p.Release(ctx)
			}
			return err
		}
		all = append(all,
			does("Available", func(ctx context.Context) error { return second(x.Available(ctx)) }),
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("TryAcquire", func(ctx context.Context) error { return take(ctx, 1, 0) }),
			waitsFor("Acquire", func(ctx context.Context) error { return take(ctx, 2, time.Second) }),
			does("AddPermits", func(ctx context.Context) error { return second(x.AddPermits(ctx, 1)) }),
		)
		if p != nil {
			all = append(all,
				does("InspectIDs", func(ctx context.Context) error { return second(x.InspectIDs(ctx, p.IDs()...)) }),
				does("Extend", func(ctx context.Context) error { return p.Extend(ctx, time.Minute) }),
				does("ExtendIDs", func(ctx context.Context) error { return x.ExtendIDs(ctx, time.Minute, p.IDs()...) }),
				does("ReleaseIDs", func(ctx context.Context) error { return x.ReleaseIDs(ctx, p.IDs()[:1]...) }),
				does("Release", func(ctx context.Context) error { return p.Release(ctx) }),
			)
		}
		return append(all,
			does("Resize", func(ctx context.Context) error { return second(x.Resize(ctx, 4)) }),
			does("TryAcquire again", func(ctx context.Context) error { return take(ctx, 1, 0) }),
		)
	}
	works := func(ctx context.Context, name string) error {
		p, err := make(other, name).TryAcquire(ctx, 1, calls, 0)
		if err != nil {
			return err
		}
		if _, err := make(other, name).Inspect(ctx); err != nil {
			return err
		}
		return p.Release(ctx)
	}
	hold := func(t testing.TB, name string, n int) *rsemaphore.Permit {
		p, err := make(holder, name).WithLabel("label").Acquire(bg, n)
		require.NoError(t, err)
		return p
	}
	return []hostileCase{
		{"free", func(t testing.TB, name string) ([]act, func()) {
			require.NoError(t, hold(t, name, 2).Release(bg))
			return acts(name, nil), func() {}
		}, works},
		{"held", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name, 2)
			return acts(name, p), func() { p.Release(bg) }
		}, works},
		{"resized", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name, 2)
			_, err := make(holder, name).Resize(bg, 4)
			require.NoError(t, err)
			_, err = make(holder, name).AddPermits(bg, 1)
			require.NoError(t, err)
			return acts(name, p), func() { p.Release(bg) }
		}, works},
		{"queued", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name, 2)
			end := s.waiting(t, "semaphore", func(ctx context.Context) error {
				p, err := make(waiter, name).WithLabel("waits").Acquire(ctx, 2)
				if err == nil {
					p.Release(bg)
				}
				return err
			}, func() bool {
				n, err := s.c.Do(bg, s.c.B().Eval().Script(queued).Numkeys(0).Arg("*"+name+"*").Build()).AsInt64()
				return err == nil && n > 0
			})
			return acts(name, p), func() { end(); p.Release(bg) }
		}, works},
	}
}

const queued = `local n = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if string.find(key, 'queue') and redis.call('TYPE', key).ok == 'zset' then n = n + redis.call('ZCOUNT', key, '(0', '+inf') end
end
return n`

func (s *hostileRig) weightedScenes(holder, waiter, other *rsemaphore.Client,
	make func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore) []hostileCase {
	bg := context.Background()
	acts := func(name string, p *rsemaphore.Permit) (all []act) {
		x := make(other, name)
		take := func(ctx context.Context, n int, wait time.Duration) error {
			p, err := x.TryAcquire(ctx, n, wait, 0)
			if err == nil {
				err = p.Release(ctx)
			}
			return err
		}
		all = append(all,
			does("Available", func(ctx context.Context) error { return second(x.Available(ctx)) }),
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("TryAcquire", func(ctx context.Context) error { return take(ctx, 1, 0) }),
			waitsFor("Acquire", func(ctx context.Context) error { return take(ctx, 60, time.Second) }),
		)
		if p != nil {
			all = append(all,
				does("InspectIDs", func(ctx context.Context) error { return second(x.InspectIDs(ctx, p.IDs()...)) }),
				does("Extend", func(ctx context.Context) error { return p.Extend(ctx, time.Minute) }),
				does("ExtendIDs", func(ctx context.Context) error { return x.ExtendIDs(ctx, time.Minute, p.IDs()...) }),
				does("ReleasePart", func(ctx context.Context) error { return p.ReleasePart(ctx, 10) }),
				does("Release", func(ctx context.Context) error { return p.Release(ctx) }),
				does("ReleaseIDs", func(ctx context.Context) error { return x.ReleaseIDs(ctx, p.IDs()...) }),
			)
		}
		return append(all,
			does("Resize", func(ctx context.Context) error { return second(x.Resize(ctx, 120)) }),
			does("TryAcquire again", func(ctx context.Context) error { return take(ctx, 1, 0) }),
		)
	}
	works := func(ctx context.Context, name string) error {
		p, err := make(other, name).TryAcquire(ctx, 1, calls, 0)
		if err != nil {
			return err
		}
		if _, err := make(other, name).Inspect(ctx); err != nil {
			return err
		}
		return p.Release(ctx)
	}
	hold := func(t testing.TB, name string) *rsemaphore.Permit {
		p, err := make(holder, name).WithLabel("label").Acquire(bg, 60)
		require.NoError(t, err)
		return p
	}
	return []hostileCase{
		{"held", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name)
			return acts(name, p), func() { p.Release(bg) }
		}, works},
		{"resized", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name)
			_, err := make(holder, name).Resize(bg, 120)
			require.NoError(t, err)
			return acts(name, p), func() { p.Release(bg) }
		}, works},
		{"queued", func(t testing.TB, name string) ([]act, func()) {
			p := hold(t, name)
			end := s.waiting(t, "weighted", func(ctx context.Context) error {
				p, err := make(waiter, name).WithLabel("waits").Acquire(ctx, 60)
				if err == nil {
					p.Release(bg)
				}
				return err
			}, func() bool {
				n, err := s.c.Do(bg, s.c.B().Eval().Script(queued).Numkeys(0).Arg("*"+name+"*").Build()).AsInt64()
				return err == nil && n > 0
			})
			return acts(name, p), func() { end(); p.Release(bg) }
		}, works},
	}
}

func (s *hostileRig) countingScenes(other *rsemaphore.Client) []hostileCase {
	bg := context.Background()
	return []hostileCase{{"set", func(t testing.TB, name string) ([]act, func()) {
		x := other.CountingSemaphore(name)
		_, err := x.TrySetPermits(bg, 5, time.Minute)
		require.NoError(t, err)
		return []act{
			does("Available", func(ctx context.Context) error { return second(x.Available(ctx)) }),
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("TryAcquire", func(ctx context.Context) error { return x.TryAcquire(ctx, 2, 0) }),
			waitsFor("Acquire", func(ctx context.Context) error { return x.TryAcquire(ctx, 5, time.Second) }),
			does("Release", func(ctx context.Context) error { return x.Release(ctx, 2) }),
			does("AddPermits", func(ctx context.Context) error { return second(x.AddPermits(ctx, 2)) }),
			does("TrySetPermits", func(ctx context.Context) error { return second(x.TrySetPermits(ctx, 2, 0)) }),
		}, func() {}
	}, func(ctx context.Context, name string) error {
		x := other.CountingSemaphore(name)
		if err := x.TryAcquire(ctx, 5, 0); err != nil {
			return err
		}
		return x.Release(ctx, 5)
	}}}
}

func (s *hostileRig) latchScenes(waiter, other *rsemaphore.Client) []hostileCase {
	bg := context.Background()
	acts := func(name string) []act {
		x := other.CountDownLatch(name)
		return []act{
			does("Count", func(ctx context.Context) error { return second(x.Count(ctx)) }),
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			waitsFor("Await", x.Await),
			does("CountDown", func(ctx context.Context) error { return second(x.CountDown(ctx)) }),
			does("CountDownBy", func(ctx context.Context) error { return second(x.CountDownBy(ctx, "one")) }),
			does("CountDownBy another", func(ctx context.Context) error { return second(x.CountDownBy(ctx, "another")) }),
			does("TrySetCount", func(ctx context.Context) error { return second(x.TrySetCount(ctx, 3, 0)) }),
			does("Delete", func(ctx context.Context) error { return second(x.Delete(ctx)) }),
			does("TrySetCount again", func(ctx context.Context) error { return second(x.TrySetCount(ctx, 3, time.Minute)) }),
		}
	}
	works := func(ctx context.Context, name string) error {
		x := other.CountDownLatch(name)
		if _, err := x.Delete(ctx); err != nil {
			return err
		}
		if _, err := x.TrySetCount(ctx, 1, time.Minute); err != nil {
			return err
		}
		if _, err := x.CountDown(ctx); err != nil {
			return err
		}
		return x.Await(ctx)
	}
	return []hostileCase{
		{"set", func(t testing.TB, name string) ([]act, func()) {
			x := other.CountDownLatch(name)
			require.NoError(t, second(x.TrySetCount(bg, 1000, 0)))
			require.NoError(t, second(x.CountDownBy(bg, "one")))
			return acts(name), func() {}
		}, works},
		{"awaited", func(t testing.TB, name string) ([]act, func()) {
			x := other.CountDownLatch(name)
			require.NoError(t, second(x.TrySetCount(bg, 1000, time.Minute)))
			require.NoError(t, second(x.CountDownBy(bg, "one")))
			return acts(name), s.waiting(t, "latch", waiter.CountDownLatch(name).Await, func() bool { return true })
		}, works},
		{"open", func(t testing.TB, name string) ([]act, func()) {
			x := other.CountDownLatch(name)
			require.NoError(t, second(x.TrySetCount(bg, 1, 0)))
			require.NoError(t, second(x.CountDownBy(bg, "one")))
			return acts(name), func() {}
		}, works},
		{"deleted", func(t testing.TB, name string) ([]act, func()) {
			x := other.CountDownLatch(name)
			require.NoError(t, second(x.TrySetCount(bg, 1, 0)))
			require.NoError(t, second(x.Delete(bg)))
			return acts(name), func() {}
		}, works},
	}
}

func (s *hostileRig) barrierScenes(waiter, other *rsemaphore.Client) []hostileCase {
	return []hostileCase{{"awaited", func(t testing.TB, name string) ([]act, func()) {
		x := other.CyclicBarrier(name, 3)
		end := s.waiting(t, "barrier", func(ctx context.Context) error {
			return second(waiter.CyclicBarrier(name, 3).Await(ctx))
		}, func() bool {
			state, err := x.Inspect(context.Background())
			return err == nil && state.Waiting > 0
		})
		return []act{
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			waitsFor("Await", func(ctx context.Context) error { return second(x.Await(ctx)) }),
		}, end
	}, func(ctx context.Context, name string) error { // that party has left by now
		return second(other.CyclicBarrier(name+"2", 1).Await(ctx))
	}}}
}

func TestHostileValuesOfSemaphoresAreErrWrongType(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase{
		"Semaphore": func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase {
			return s.semaphoreScenes(holder, waiter, other, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
				return c.Semaphore(name, 3)
			})
		},
		"Revised": func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase {
			return s.semaphoreScenes(holder, waiter, other, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
				return c.Semaphore(name, 3).WithRevision(7)
			})
		},
		"Shared": func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase {
			return s.semaphoreScenes(holder, waiter, other, func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
				return c.Semaphore(name, 3).Shared()
			})
		},
		"Weighted": func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase {
			return s.weightedScenes(holder, waiter, other,
				func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
					return c.WeightedSemaphore(name, 100)
				})
		},
		"WeightedRevised": func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase {
			return s.weightedScenes(holder, waiter, other,
				func(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
					return c.WeightedSemaphore(name, 100).WithRevision(7)
				})
		},
		"Counting": func(s *hostileRig, _, _, other *rsemaphore.Client) []hostileCase { return s.countingScenes(other) },
		"Latch": func(s *hostileRig, _, waiter, other *rsemaphore.Client) []hostileCase {
			return s.latchScenes(waiter, other)
		},
		"Barrier": func(s *hostileRig, _, waiter, other *rsemaphore.Client) []hostileCase {
			return s.barrierScenes(waiter, other)
		},
	}
	redistest.SideBySide(t, kinds,
		func(t *testing.T, kind string, scenes func(s *hostileRig, holder, waiter, other *rsemaphore.Client) []hostileCase) {
			s := newStage(t)
			defer s.report(t)
			s.suffer(t, strings.ToLower(kind), scenes(s, s.semaphores(t), s.semaphores(t), s.semaphores(t)),
				redistest.Sized(40, 30, 1))
		})
}
