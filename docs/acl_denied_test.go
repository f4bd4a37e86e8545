package docs_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestAUserWithoutRightsIsDeniedByEveryVerbOfEveryPackage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	acl := []string{"ACL", "SETUSER", "nobody", "on", ">pw", "+ping", "+client"}
	require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(acl...).Build()).Error())
	o := s.Option()
	o.Username, o.Password = "nobody", "pw"
	quiet := slog.New(slog.DiscardHandler)
	hub, err := pubsub.Dial(o, pubsub.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	locks, err := rlock.New(hub, rlock.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { locks.Close(t.Context()) })
	semaphores, err := rsemaphore.New(hub, rsemaphore.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { semaphores.Close(t.Context()) })
	counters, err := rcounter.New(hub, rcounter.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { counters.Close() })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for kind, l := range map[string]*rlock.Lock{
		"Reentrant": locks.Reentrant("a"), "NonReentrant": locks.NonReentrant("b"), "Fenced": locks.Fenced("c"), "Fair": locks.Fair("d"),
		"Spin": locks.Spin("e", rlock.Backoff{}), "Plain": locks.Plain("f", rlock.PlainOptions{}), "Read": locks.ReadWrite("g").Read(), "Write": locks.ReadWrite("h").Write(),
	} {
		for verb, err := range map[string]error{
			"Lock":           second(l.Lock(ctx)),
			"TryLock":        second(l.TryLock(ctx, time.Second, 0)),
			"IsLocked":       second(l.IsLocked(ctx)),
			"HoldCount":      second(l.HoldCount(ctx)),
			"RemainingLease": second(l.RemainingLease(ctx)),
			"Inspect":        second(l.Inspect(ctx)),
			"ForceUnlock":    second(l.ForceUnlock(ctx)),
		} {
			require.ErrorIs(t, err, rlock.ErrDenied, "%s.%s", kind, verb)
			require.ErrorContains(t, err, "lacks +evalsha", "%s.%s", kind, verb)
			require.NotErrorIs(t, err, rlock.ErrNotAcquired, "%s.%s", kind, verb)
		}
	}
	sem, counting, latch := semaphores.Semaphore("s", 2), semaphores.CountingSemaphore("cs"), semaphores.CountDownLatch("l")
	for verb, err := range map[string]error{
		"Semaphore.Acquire":               second(sem.Acquire(ctx, 1)),
		"Semaphore.Available":             second(sem.Available(ctx)),
		"Semaphore.Inspect":               second(sem.Inspect(ctx)),
		"Semaphore.Resize":                second(sem.Resize(ctx, 3)),
		"CountingSemaphore.TrySetPermits": second(counting.TrySetPermits(ctx, 1, 0)),
		"CountingSemaphore.Acquire":       counting.Acquire(ctx, 1),
		"CountingSemaphore.Release":       counting.Release(ctx, 1),
		"CountingSemaphore.Drain":         second(counting.Drain(ctx)),
		"CountDownLatch.TrySetCount":      second(latch.TrySetCount(ctx, 1, 0)),
		"CountDownLatch.CountDown":        second(latch.CountDown(ctx)),
		"CountDownLatch.Count":            second(latch.Count(ctx)),
		"CountDownLatch.Await":            latch.Await(ctx),
		"CountDownLatch.Delete":           second(latch.Delete(ctx)),
		"CyclicBarrier.Await":             second(semaphores.CyclicBarrier("b", 1).Await(ctx)),
		"CyclicBarrier.State":             second(semaphores.CyclicBarrier("b", 1).State(ctx)),
	} {
		require.ErrorIs(t, err, rsemaphore.ErrDenied, verb)
	}
	counter, stock, sharded, packet := counters.Counter("n", rcounter.CounterOptions{}), counters.Stock("st"), counters.Sharded("w", 2), counters.RedPacket("p")
	spec := rcounter.OpenSpec{Limit: 2, OpenFor: time.Minute, Retain: time.Minute}
	for verb, err := range map[string]error{
		"Counter.Add":           second(counter.Add(ctx, 1)),
		"Counter.Get":           second(counter.Get(ctx)),
		"Counter.Cached":        second(counter.Cached(ctx, time.Second)),
		"Counter.Set":           counter.Set(ctx, 1),
		"Counter.CompareAndSet": second(counter.CompareAndSet(ctx, 1, 2)),
		"Stock.Open":            second(stock.Open(ctx, spec)),
		"Stock.Claim":           second(stock.Claim(ctx, "ann")),
		"Stock.ClaimOnce":       second(stock.ClaimOnce(ctx, "r", "ann", 1)),
		"Stock.ClaimAny":        second(stock.ClaimAny(ctx, 1)),
		"Stock.Reserve":         second(stock.Reserve(ctx, "r", "ann", 1, time.Minute)),
		"Stock.Return":          second(stock.Return(ctx, "ann", 1)),
		"Stock.Resize":          stock.Resize(ctx, 3),
		"Stock.Status":          second(stock.Status(ctx)),
		"Stock.Close":           stock.Close(ctx),
		"ShardedStock.Open":     second(sharded.Open(ctx, spec)),
		"ShardedStock.Claim":    second(sharded.Claim(ctx, "ann")),
		"RedPacket.Send":        second(packet.Send(ctx, rcounter.PacketSpec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute})),
		"RedPacket.Grab":        second(packet.Grab(ctx, "ann")),
		"RateLimiter.Allow":     second(counters.RateLimiter("r", rcounter.RateLimiterOptions{Rate: 1}).Allow(ctx, "k", 1)),
	} {
		require.ErrorIs(t, err, rcounter.ErrDenied, verb)
	}
	require.ErrorIs(t, second(hub.Publish(ctx, "c", "m")), pubsub.ErrDenied)
	require.ErrorIs(t, second(hub.Subscribe(ctx, "c")), pubsub.ErrDenied)
}

func second[T any](_ T, err error) error { return err }
