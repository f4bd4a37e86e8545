package redlatch_test

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/stretchr/testify/require"
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
	hub, err := pubsub.Dial(t.Context(), o, pubsub.Options{Logger: quiet})
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
	t.Cleanup(func() { counters.Close(t.Context()) })
	stocks, err := stock.New(hub, stock.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { stocks.Close(t.Context()) })
	packets, err := redpacket.New(hub, redpacket.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { packets.Close(t.Context()) })
	limiters, err := ratelimit.New(hub, ratelimit.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { limiters.Close(t.Context()) })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for kind, l := range map[string]*rlock.Lock{
		"Reentrant": locks.Reentrant("a"), "NonReentrant": locks.NonReentrant("b"), "Fenced": locks.Fenced("c"),
		"Fair": locks.Fair("d"),
		"Spin": locks.Spin("e", 0, 0), "Plain": locks.Plain("f"), "Read": locks.ReadWrite("g").Read(),
		"Write": locks.ReadWrite("h").Write(),
	} {
		for verb, err := range map[string]error{
			"Lock":        second(l.Lock(ctx)),
			"TryLock":     second(l.TryLock(ctx, time.Second, 0)),
			"IsLocked":    second(l.IsLocked(ctx)),
			"Inspect":     second(l.Inspect(ctx)),
			"ForceUnlock": second(l.ForceUnlock(ctx)),
		} {
			require.ErrorIs(t, err, redlatch.ErrDenied, "%s.%s", kind, verb)
			require.ErrorContains(t, err, "lacks +evalsha", "%s.%s", kind, verb)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "%s.%s", kind, verb)
		}
	}
	sem, counting, latch := semaphores.Semaphore("s", 2), semaphores.CountingSemaphore("cs"),
		semaphores.CountDownLatch("l")
	for verb, err := range map[string]error{
		"Semaphore.Acquire":           second(sem.Acquire(ctx, 1)),
		"Semaphore.Available":         second(sem.Available(ctx)),
		"Semaphore.Inspect":           second(sem.Inspect(ctx)),
		"Semaphore.Resize":            second(sem.Resize(ctx, 3)),
		"Semaphore.AddPermits":        second(sem.AddPermits(ctx, 1)),
		"Semaphore.ExtendIDs":         sem.ExtendIDs(ctx, time.Second, strings.Repeat("0", 32)),
		"Semaphore.InspectIDs":        second(sem.InspectIDs(ctx, strings.Repeat("0", 32))),
		"WeightedSemaphore.Acquire":   second(semaphores.WeightedSemaphore("w", 2).Acquire(ctx, 1)),
		"WeightedSemaphore.Available": second(semaphores.WeightedSemaphore("w", 2).Available(ctx)),
		"WeightedSemaphore.Inspect":   second(semaphores.WeightedSemaphore("w", 2).Inspect(ctx)),
		"WeightedSemaphore.Resize":    second(semaphores.WeightedSemaphore("w", 2).Resize(ctx, 3)),
		"WeightedSemaphore.ExtendIDs": semaphores.WeightedSemaphore("w", 2).ExtendIDs(ctx, time.Second,
			strings.Repeat("0", 32)),
		"WeightedSemaphore.ReleaseIDs":    semaphores.WeightedSemaphore("w", 2).ReleaseIDs(ctx, strings.Repeat("0", 32)),
		"CountingSemaphore.TrySetPermits": second(counting.TrySetPermits(ctx, 1, 0)),
		"CountingSemaphore.Acquire":       counting.Acquire(ctx, 1),
		"CountingSemaphore.Release":       counting.Release(ctx, 1),
		"CountingSemaphore.Inspect":       second(counting.Inspect(ctx)),
		"CountDownLatch.Inspect":          second(latch.Inspect(ctx)),
		"CountDownLatch.TrySetCount":      second(latch.TrySetCount(ctx, 1, 0)),
		"CountDownLatch.CountDown":        second(latch.CountDown(ctx)),
		"CountDownLatch.Count":            second(latch.Count(ctx)),
		"CountDownLatch.Await":            latch.Await(ctx),
		"CountDownLatch.Delete":           second(latch.Delete(ctx)),
		"CyclicBarrier.Await":             second(semaphores.CyclicBarrier("b", 1).Await(ctx)),
		"CyclicBarrier.Inspect":           second(semaphores.CyclicBarrier("b", 1).Inspect(ctx)),
	} {
		require.ErrorIs(t, err, redlatch.ErrDenied, verb)
	}
	counter, sale, packet := counters.Counter("n", rcounter.CounterOptions{}), stocks.Stock("st"), packets.Packet("p")
	spec := stock.Spec{Limit: 2, OpenFor: time.Minute, Retain: time.Minute}
	for verb, err := range map[string]error{
		"Counter.Add":           second(counter.Add(ctx, 1)),
		"Counter.Get":           second(counter.Get(ctx)),
		"Counter.Cached":        second(counter.Cached(ctx, time.Second)),
		"Counter.Set":           counter.Set(ctx, 1),
		"Counter.CompareAndSet": second(counter.CompareAndSet(ctx, 1, 2)),
		"Stock.Open":            second(sale.Open(ctx, spec)),
		"Stock.Claim":           second(sale.Claim(ctx, "ann")),
		"Stock.Claim a request": second(sale.Claim(ctx, "ann", stock.Request{ID: "r", N: 1})),
		"Stock.ClaimAny":        second(sale.ClaimAny(ctx, 1)),
		"Stock.Reserve":         second(sale.Reserve(ctx, "ann", stock.Request{ID: "r", N: 1}, time.Minute)),
		"Stock.Return":          second(sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})),
		"Stock.Change":          sale.Change(ctx, stock.Change{Limit: 3}),
		"Stock.Lookup":          second(sale.Lookup(ctx, stock.Units{Request: "r"})),
		"Stock.Inspect":         second(sale.Inspect(ctx)),
		"Stock.EndSale":         sale.EndSale(ctx),
		"Stock.Delete":          sale.Delete(ctx),
		"Stock.Publish":         sale.Publish(ctx, []stock.Entry{{Epoch: 1, Serial: 1, Kind: stock.KindGrant, N: 1}}),
		"Stock.Events":          firstError(sale.Events(ctx, time.Minute)),
		"Packet.Send": second(packet.Send(ctx,
			redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute})),
		"Packet.Grab":   second(packet.Grab(ctx, "ann")),
		"Limiter.Allow": second(limiters.Limiter("r", ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "k", 1)),
	} {
		require.ErrorIs(t, err, redlatch.ErrDenied, verb)
	}
	require.ErrorIs(t, second(hub.Publish(ctx, "c", "m")), redlatch.ErrDenied)
	require.ErrorIs(t, second(hub.Subscribe(ctx, "c")), redlatch.ErrDenied)
}

func second[T any](_ T, err error) error { return err }

// firstError is the first error of a loop.
func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
