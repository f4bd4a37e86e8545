package contract_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// verbs are calls by "Type.Verb", or "Type.Verb of a kind".
type verbs map[string]func(ctx context.Context) error

// err drops the first result of a call.
func err1[T any](_ T, err error) error         { return err }
func err2[T, U any](_ T, _ U, err error) error { return err }

// kept is what clients in bubbles left held. The garbage collector must not find it, since it is outside: see package
// redlatchtest.
var kept struct {
	sync.Mutex
	all []any
}

// keeping is err1 of what must not be dropped in a bubble.
func keeping[T any](v T, err error) error {
	if redistest.InABubble() {
		kept.Lock()
		defer kept.Unlock()
		kept.all = append(kept.all, v)
	}
	return err
}

// errOf is the error that ends a sequence.
func errOf[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
	}
	return err
}

// inTime is what make returns when a busy machine does not answer it too late.
func inTime[T any](t *testing.T, make func() (T, error)) (made T) {
	t.Helper()
	redistest.Eventually(t, lasting, "an answer in time", func() bool {
		var err error
		if made, err = make(); errors.Is(err, errs.ErrUnknownOutcome) || errors.Is(err, errs.ErrUnavailable) {
			return false
		}
		require.NoError(t, err)
		return true
	})
	return made
}

// unwaiting are all calls of all packages that do not wait, made while the server is well: what they are about is
// there, and was made by other, whatever takes no time. Each has an object of its own, so that none shares a call with
// another.
func unwaiting(t *testing.T, red, other *redlatch.Client) verbs {
	all := verbs{}
	ofLocks(t, red, all)
	ofPermits(t, red, other, all)
	all.spread("counter", "", func(name string) []act {
		return counterActs(red.Counters().Counter(name, rcounter.CounterOptions{Initial: 3}))
	})
	bounded := red.Counters().Counter("bounded", rcounter.CounterOptions{Max: rcounter.Bound(9)})
	all["Counter.Incr of a bounded one"] = func(ctx context.Context) error { return err1(bounded.Incr(ctx)) }
	limits := func(name string) *ratelimit.Limiter {
		return red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: 1000})
	}
	reserved := inTime(t, func() (*ratelimit.Reservation, error) {
		return limits("canceled").Reserve(t.Context(), "k", 1)
	})
	charged := inTime(t, func() (*ratelimit.Charge, error) {
		charge, _, err := limits("charged").Charge(t.Context(), "k", 9)
		return charge, err
	})
	all.add("", returns("Reservation.Cancel", reserved.Cancel), reserveAct(limits("reserved")),
		does("Charge.Settle", func(ctx context.Context) error { return charged.Settle(ctx, 3) }),
		does("Limiter.Reset", func(ctx context.Context) error { return limits("reset").Reset(ctx, "k") }))
	all.spread("limiter", "", func(name string) []act {
		return append(limiterActs(red.Limiters(), limits(name)), storedActs(limits(name))...)
	})
	all.spread("packet", "", func(name string) []act {
		p := other.RedPackets().Packet(name)
		require.NoError(t, err1(p.Send(t.Context(),
			redpacket.Spec{Total: 1000, Shares: 10, OpenFor: time.Minute, Ledger: true})))
		require.NoError(t, err1(p.Grab(t.Context(), "bob")))
		return packetActs(red.RedPackets().Packet(name))
	})
	all.spread("sale", "", func(name string) []act {
		sale(t, other, name)
		return saleActs(red.Sales().Sale(name))
	})
	all["Hub.Publish"] = func(ctx context.Context) error { return err1(red.Hub().Publish(ctx, "news", "none")) }
	require.NoError(t, keeping(all, nil))
	return all
}

func ofLocks(t *testing.T, red *redlatch.Client, all verbs) {
	c := red.Locks()
	for kind, of := range lockKinds {
		hold := inTime(t, func() (*rlock.Hold, error) { return of(c, "held-"+kind).Lock(t.Context()) })
		all["Hold.Extend of "+kind] = func(ctx context.Context) error { return hold.Extend(ctx, 30*time.Second) }
		all.spread("free-"+kind, " of "+kind, func(name string) []act { return lockActs(of(c, name)) })
	}
	all["Lock.ForceUnlock"] = func(ctx context.Context) error { return err1(c.Reentrant("forced").ForceUnlock(ctx)) }
	all["Lock.DoOnce"] = func(ctx context.Context) error {
		return err1(c.Reentrant("job").DoOnce(ctx, time.Hour, func(context.Context) error { return nil }))
	}
	all.spread("once", "", func(name string) []act { return onceActs(c.Once(name, rlock.OnceOptions{}), "k")[:2] })
	all["Election.Leader"] = func(ctx context.Context) error { return err1(red.Elections().Election("asked").Leader(ctx)) }
	all["Election.Observe"] = func(ctx context.Context) error {
		return errOf(red.Elections().Election("observed").Observe(ctx))
	}
	shards := red.Elections().Shards("shards", 3)
	all["Shards.Workers"] = func(ctx context.Context) error { return err1(shards.Workers(ctx)) }
	all["Shards.Observe"] = func(ctx context.Context) error { return errOf(shards.Observe(ctx)) }
	all["Shards.Drain"] = func(ctx context.Context) error { return shards.Drain(ctx, "none", time.Hour) }
}

func ofPermits(t *testing.T, red, other *redlatch.Client, all verbs) {
	c, made := red.Semaphores(), other.Semaphores()
	for of, make := range map[string]func(string, int) *rsemaphore.Semaphore{"": c.Semaphore,
		" of weights": c.WeightedSemaphore} {
		all.spread("permits"+of, of, func(name string) []act {
			s := make(name, 99)
			permit := inTime(t, func() (*rsemaphore.Permit, error) { return s.Acquire(t.Context(), 20) })
			return slices.Concat(semaphoreActs(s, 1), permitActs(s, permit, of != ""),
				[]act{does("Semaphore.Resize", func(ctx context.Context) error { return err1(s.Resize(ctx, 120)) })})
		})
	}
	all.add("", does("Semaphore.AddPermits", func(ctx context.Context) error {
		return err1(c.Semaphore("added", 9).AddPermits(ctx, 1))
	}))
	all.spread("counting", "", func(name string) []act {
		require.NoError(t, counting.New(made, name).Release(t.Context(), 9))
		return countingActs(counting.New(c, name))
	})
	all.spread("latch", "", func(name string) []act {
		require.NoError(t, err1(made.CountDownLatch(name).TrySetCount(t.Context(), 9, 0)))
		return latchActs(c.CountDownLatch(name))
	})
	all.add("", barrierActs(c.CyclicBarrier("barrier", 2))...)
}

// sale is a sale that is open, in which user bob has an order that is sold, and one that is reserved.
func sale(t testing.TB, red *redlatch.Client, name string) *stock.Sale {
	s, two := red.Sales().Sale(name), []stock.Line{{N: 2}}
	require.NoError(t, s.Open(t.Context(), saleSpec))
	require.NoError(t, err1(s.Buy(t.Context(), stock.Order{ID: "sold", User: "bob", Lines: two})))
	require.NoError(t, err1(s.Reserve(t.Context(), stock.Order{ID: "reserved", User: "bob", Lines: two}, time.Hour)))
	return s
}

// waiting are the calls that wait until they are granted, each of an object of its own; then is called under the grant.
func waiting(red *redlatch.Client, patience time.Duration, then func(context.Context) error) verbs {
	locks, permits := red.Locks(), red.Semaphores()
	waits := verbs{
		"Lock.TryLock with a wait": func(ctx context.Context) error {
			return err1(locks.Reentrant("tried").TryLock(context.WithoutCancel(ctx), patience, 0))
		},
		"Once.Do with a wait": func(ctx context.Context) error {
			return err2(locks.Once("once", rlock.OnceOptions{}).Do(ctx, "waited", "",
				func(ctx context.Context, _ int64) ([]byte, error) { return nil, then(ctx) }))
		},
		"Semaphore.TryAcquire with a wait": func(ctx context.Context) error {
			return err1(permits.Semaphore("tried", 1).TryAcquire(context.WithoutCancel(ctx), 1, patience, 0))
		},
		"Semaphore.Acquire": func(ctx context.Context) error {
			return err1(permits.Semaphore("acquired", 1).Acquire(ctx, 1))
		},
		"Semaphore.Do": func(ctx context.Context) error {
			return permits.Semaphore("done", 1).Do(ctx, 1, then)
		},
		"Semaphore.Acquire of weights": func(ctx context.Context) error {
			return err1(permits.WeightedSemaphore("weighed", 9).Acquire(ctx, 3))
		},
		"CountingSemaphore.Acquire": func(ctx context.Context) error {
			return counting.New(permits, "counted").Acquire(ctx, 1)
		},
		"CountDownLatch.Await": func(ctx context.Context) error { return permits.CountDownLatch("latch").Await(ctx) },
		"CyclicBarrier.Await": func(ctx context.Context) error {
			return err1(permits.CyclicBarrier("barrier", 1).Await(ctx))
		},
		"Election.Campaign": func(ctx context.Context) error {
			return err1(red.Elections().Election("campaign").Campaign(ctx, ""))
		},
		"Election.Run": func(ctx context.Context) error {
			return red.Elections().Election("run").Run(ctx, "", func(ctx context.Context, _ *election.Leadership) error {
				return then(ctx)
			})
		},
	}
	for kind, l := range map[string]*rlock.Lock{
		"Reentrant": locks.Reentrant("l"), "NonReentrant": locks.NonReentrant("n"), "Fenced": locks.Fenced("f"),
		"Fair": locks.Fair("fair"), "Plain": locks.Plain("p"),
		"Spin": locks.Spin("s", time.Millisecond, time.Second), "Read": locks.ReadWrite("r").Read(),
		"Write": locks.ReadWrite("w").Write(),
	} {
		waits["Lock.Do of "+kind] = func(ctx context.Context) error { return l.Do(ctx, then) }
	}
	return waits
}
