package contract_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// use is all that may be done with an object of a kind.
type use struct {
	primitive string // as in the table of testdata/promises.md
	acts      []act
}

// packageOf is the package of a primitive, with which its errors begin.
func packageOf(primitive string) string {
	switch primitive {
	case "election", "shards":
		return "election"
	case "semaphore", "weighted", "counting", "latch", "barrier":
		return "rsemaphore"
	case "counter":
		return "rcounter"
	case "sale":
		return "stock"
	case "packet":
		return "redpacket"
	case "limiter":
		return "ratelimit"
	}
	return "rlock"
}

// columnOf is the primitive of a lock's kind.
func columnOf(kind string) string { return strings.ReplaceAll(strings.ToLower(kind), "nonr", "non-r") }

// usesOf are all uses of objects of a name. Nothing is there before.
func usesOf(ctx context.Context, red *redlatch.Client, name string) (all []use) {
	for kind, of := range lockKinds {
		l := of(red.Locks(), name)
		all = append(all, use{columnOf(kind), append([]act{does("Lock", func(context.Context) error {
			h, err := l.Lock(ctx)
			if err != nil {
				return err
			}
			_, err = l.TryLock(rlock.Detach(ctx), 20*time.Millisecond, 0) // in vain
			return errors.Join(h.UnlockAfter(ctx, time.Minute), err)
		}), returns("Lock.ForceUnlock", l.ForceUnlock),
			does("Lock.Do", func(ctx context.Context) error { return l.Do(ctx, nothing) }),
			does("Lock.DoOnce", func(ctx context.Context) error { return err1(l.DoOnce(ctx, time.Minute, nothing)) }),
		}, lockActs(l)...)})
	}
	all = append(all, use{"once", onceActs(red.Locks().Once(name, rlock.OnceOptions{}), "k")})
	return slices.Concat(all, electionUses(ctx, red, name), permitUses(ctx, red, name), countUses(red, name))
}

func nothing(context.Context) error { return nil }

func electionUses(ctx context.Context, red *redlatch.Client, name string) []use {
	e, shards := red.Elections().Election(name), red.Elections().Shards(name, 1)
	return []use{{"election", []act{
		does("Election.Campaign", func(context.Context) error {
			l, err := e.Campaign(ctx, "v")
			if err != nil {
				return err
			}
			return errors.Join(err1(e.Leader(ctx)), l.Resign(ctx))
		}),
		does("Election.Run", func(ctx context.Context) error {
			return e.Run(ctx, "v", func(context.Context, *election.Leadership) error { return nil })
		}),
		returns("Election.Leader", e.Leader),
		waitsFor("Election.Observe", func(ctx context.Context) error { return firstError(e.Observe(ctx)) }),
	}}, {"shards", []act{
		returns("Shards.Workers", shards.Workers),
		waitsFor("Shards.Observe", func(ctx context.Context) error { return firstError(shards.Observe(ctx)) }),
		waitsFor("Shards.Run", func(ctx context.Context) error {
			return shards.Run(ctx, "v", func(context.Context, *election.Shard) error { return nil })
		}),
		does("Shards.Drain", func(ctx context.Context) error { return shards.Drain(ctx, "none", time.Hour) }),
	}}}
}

func permitUses(_ context.Context, red *redlatch.Client, name string) (all []use) {
	s := red.Semaphores()
	for _, x := range []struct {
		primitive string
		s         *rsemaphore.Semaphore
	}{{"semaphore", s.Semaphore(name, 1).WithLabel("l")}, {"semaphore", s.Semaphore(name, 1).Fenced()},
		{"semaphore", s.Semaphore(name, 1).For("t").WithMax(1)},
		{"weighted", s.WeightedSemaphore(name, 1).For("t").WithMax(1)}, {"weighted", s.WeightedSemaphore(name, 1)}} {
		id := strings.Repeat("0", 32)
		acts := append(semaphoreActs(x.s, 1), does("Semaphore.Acquire", func(ctx context.Context) error {
			p, err := x.s.TryAcquire(ctx, 1, 0, 0)
			if err != nil {
				return err
			}
			return errors.Join(err1(x.s.TryAcquire(ctx, 1, 20*time.Millisecond, 0)), p.Release(ctx))
		}), does("Semaphore.Do", func(ctx context.Context) error { return x.s.Do(ctx, 1, nothing) }),
			does("Semaphore.ExtendIDs", func(ctx context.Context) error { return x.s.ExtendIDs(ctx, time.Second, id) }),
			does("Semaphore.InspectIDs", func(ctx context.Context) error { return err1(x.s.InspectIDs(ctx, id)) }),
			does("Semaphore.Resize", func(ctx context.Context) error { return err1(x.s.Resize(ctx, 2)) }))
		all = append(all, use{x.primitive, acts})
	}
	latch := s.CountDownLatch(name)
	set := does("CountDownLatch.TrySetCount", func(ctx context.Context) error {
		return err1(latch.TrySetCount(ctx, 3, time.Minute))
	})
	return append(all, use{"semaphore", []act{does("Semaphore.AddPermits", func(ctx context.Context) error {
		return err1(s.Semaphore(name, 1).AddPermits(ctx, 1))
	})}}, use{"counting", countingActs(counting.New(s, name))}, use{"latch", append([]act{set}, latchActs(latch)...)},
		use{"barrier", barrierActs(s.CyclicBarrier(name, 2))})
}

func countUses(red *redlatch.Client, name string) []use {
	l := red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: 1000})
	limits := append(limiterActs(red.Limiters(), l), storedActs(l)...)
	limits = append(limits, reserveAct(red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: 1000})),
		does("Limiter.Reset", func(ctx context.Context) error { return l.Reset(ctx, "k") }))
	for _, key := range []string{"", "{x}"} {
		limits = append(limits, does("Limiter.Allow", func(ctx context.Context) error { return err1(l.Allow(ctx, key, 1)) }))
	}
	packet := red.RedPackets().Packet(name)
	packets := append(packetActs(packet), waitsFor("Packet.KeepLedger", func(ctx context.Context) error {
		return packet.KeepLedger(ctx, time.Second, 9, func(context.Context, []redpacket.Entry) error { return nil })
	}))
	slices.Reverse(packets[:len(packets)-1]) // it is sent first
	return []use{
		{"counter", counterActs(red.Counters().Counter(name, rcounter.CounterOptions{}))},
		{"limiter", limits},
		{"packet", packets},
		{"sale", openedActs(red.Sales().Sale(name))},
	}
}

// openedActs are saleActs of a sale that is opened first, and the one that goes on.
func openedActs(x *stock.Sale) []act {
	return slices.Concat([]act{does("Sale.Open", func(ctx context.Context) error { return x.Open(ctx, saleSpec) })},
		saleActs(x), []act{waitsFor("Sale.KeepLedger", func(ctx context.Context) error {
			return x.KeepLedger(ctx, time.Second, 9, func(context.Context, []stock.Entry) error { return nil })
		})})
}
