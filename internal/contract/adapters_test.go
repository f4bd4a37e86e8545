package contract_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// act is one call of the library, named "Type.Verb" or "Type.Verb of a kind".
type act struct {
	name  string
	waits bool // for up to patience
	do    func(ctx context.Context) error
	// it is several calls, or, a reservation of a limiter that is cancelled, reads its neighbours when it is gone
	parts bool
}

// does is an act that does not wait.
func does(name string, do func(ctx context.Context) error) act { return act{name: name, do: do} }

// returns is does of a call with a result.
func returns[T any](name string, do func(ctx context.Context) (T, error)) act {
	return act{name: name, do: func(ctx context.Context) error { return err1(do(ctx)) }}
}

// waitsFor is an act that may wait, for patience.
func waitsFor(name string, do func(ctx context.Context) error) act {
	return act{name: name, waits: true, do: do}
}

// add adds acts that apart does not name.
func (v verbs) add(of string, acts ...act) {
	for _, a := range acts {
		if verb, _, _ := strings.Cut(a.name, " "); !slices.Contains(apart, verb) {
			v[a.name+of] = a.do
		}
	}
}

// spread adds the acts of a primitive, each on an object of its own.
func (v verbs) spread(name, of string, acts func(name string) []act) {
	for i := range acts(name) {
		v.add(of, acts(fmt.Sprint(name, "-", i))[i])
	}
}

func lockActs(l *rlock.Lock) []act {
	take := func(ctx context.Context, wait time.Duration) error {
		h, err := l.TryLock(ctx, wait, 0)
		if err == nil {
			err = h.Unlock(ctx)
		}
		return err
	}
	return []act{
		returns("Lock.IsLocked", l.IsLocked),
		returns("Lock.Inspect", l.Inspect),
		does("Lock.TryLock", func(ctx context.Context) error { return take(ctx, 0) }),
		waitsFor("Lock.Lock", func(ctx context.Context) error { return take(ctx, time.Second) }),
	}
}

// onceActs are those of a key of a Once.
func onceActs(o *rlock.Once, key string) []act {
	do := func(ctx context.Context, wait time.Duration) error {
		return err2(o.WithWait(wait).Do(ctx, key, "", func(context.Context, int64) ([]byte, error) {
			return []byte("a"), nil
		}))
	}
	return []act{
		does("Once.Inspect", func(ctx context.Context) error { return err1(o.Inspect(ctx, key)) }),
		does("Once.Do", func(ctx context.Context) error { return do(ctx, 0) }),
		waitsFor("Once.Do with a wait", func(ctx context.Context) error { return do(ctx, time.Second) }),
	}
}

// semaphoreActs are those without a permit. n is how many Acquire waits for.
func semaphoreActs(s *rsemaphore.Semaphore, n int) []act {
	take := func(ctx context.Context, n int, wait time.Duration) error {
		p, err := s.TryAcquire(ctx, n, wait, 0)
		if err == nil {
			err = p.Release(ctx)
		}
		return err
	}
	return []act{
		returns("Semaphore.Available", s.Available),
		returns("Semaphore.Inspect", s.Inspect),
		does("Semaphore.TryAcquire", func(ctx context.Context) error { return take(ctx, 1, 0) }),
		waitsFor("Semaphore.Acquire", func(ctx context.Context) error { return take(ctx, n, time.Second) }),
	}
}

func permitActs(s *rsemaphore.Semaphore, p *rsemaphore.Permit, weighted bool) []act {
	part := does("Semaphore.ReleaseIDs in part", func(ctx context.Context) error {
		return s.ReleaseIDs(ctx, p.IDs()[:1]...)
	})
	if weighted {
		part = does("Permit.ReleasePart", func(ctx context.Context) error { return p.ReleasePart(ctx, 1) })
	}
	return []act{
		does("Semaphore.InspectIDs", func(ctx context.Context) error { return err1(s.InspectIDs(ctx, p.IDs()...)) }),
		does("Permit.Extend", func(ctx context.Context) error { return p.Extend(ctx, time.Minute) }),
		does("Semaphore.ExtendIDs", func(ctx context.Context) error { return s.ExtendIDs(ctx, time.Minute, p.IDs()...) }),
		part,
		does("Permit.Release", p.Release),
		does("Semaphore.ReleaseIDs", func(ctx context.Context) error { return s.ReleaseIDs(ctx, p.IDs()...) }),
	}
}

func countingActs(x *counting.Semaphore) []act {
	return []act{
		returns("CountingSemaphore.Available", x.Available),
		returns("CountingSemaphore.Inspect", x.Inspect),
		does("CountingSemaphore.TryAcquire", func(ctx context.Context) error { return x.TryAcquire(ctx, 2, 0) }),
		waitsFor("CountingSemaphore.Acquire", func(ctx context.Context) error { return x.TryAcquire(ctx, 5, time.Second) }),
		does("CountingSemaphore.Release", func(ctx context.Context) error { return x.Release(ctx, 2) }),
		does("CountingSemaphore.AddPermits", func(ctx context.Context) error { return err1(x.AddPermits(ctx, 2)) }),
		does("CountingSemaphore.TrySetPermits", func(ctx context.Context) error { return err1(x.TrySetPermits(ctx, 2, 0)) }),
	}
}

func latchActs(x *rsemaphore.CountDownLatch) []act {
	return []act{
		returns("CountDownLatch.Count", x.Count),
		returns("CountDownLatch.Inspect", x.Inspect),
		waitsFor("CountDownLatch.Await", x.Await),
		returns("CountDownLatch.CountDown", x.CountDown),
		does("CountDownLatch.CountDownBy", func(ctx context.Context) error { return err1(x.CountDownBy(ctx, "one")) }),
		does("CountDownLatch.CountDownBy another", func(ctx context.Context) error {
			return err1(x.CountDownBy(ctx, "another"))
		}),
		does("CountDownLatch.TrySetCount", func(ctx context.Context) error { return err1(x.TrySetCount(ctx, 3, 0)) }),
		returns("CountDownLatch.Delete", x.Delete),
	}
}

func barrierActs(x *rsemaphore.CyclicBarrier) []act {
	return []act{returns("CyclicBarrier.Inspect", x.Inspect),
		waitsFor("CyclicBarrier.Await", func(ctx context.Context) error { return err1(x.Await(ctx)) })}
}

func counterActs(x *rcounter.Counter) []act {
	return []act{
		returns("Counter.Get", x.Get),
		does("Counter.Cached", func(ctx context.Context) error { return err1(x.Cached(ctx, time.Millisecond)) }),
		does("Counter.AddOnce", func(ctx context.Context) error { return err2(x.AddOnce(ctx, "now", 5)) }),
		returns("Counter.Incr", x.Incr),
		returns("Counter.Decr", x.Decr),
		does("Counter.Add", func(ctx context.Context) error { return err1(x.Add(ctx, -2)) }),
		does("Counter.CompareAndSet", func(ctx context.Context) error { return err1(x.CompareAndSet(ctx, 9, 10)) }),
		does("Counter.Set", func(ctx context.Context) error { return x.Set(ctx, 9) }),
	}
}

func limiterActs(c *ratelimit.Client, x *ratelimit.Limiter) []act {
	return []act{
		does("Limiter.Peek", func(ctx context.Context) error { return err1(x.Peek(ctx, "k")) }),
		returns("Limiter.Inspect", x.Inspect),
		does("Limiter.Allow", func(ctx context.Context) error { return err1(x.Allow(ctx, "k", 2)) }),
		does("Limiter.AllowAtMost", func(ctx context.Context) error { return err1(x.AllowAtMost(ctx, "k", 2)) }),
		does("Client.AllowAll", func(ctx context.Context) error {
			return err1(c.AllowAll(ctx, ratelimit.Take{Limiter: x, Key: "k", N: 1},
				ratelimit.Take{Limiter: x, Key: "other", N: 1}))
		}),
		does("Limiter.Charge", func(ctx context.Context) error { return err2(x.Charge(ctx, "k", 2)) }),
		does("Client.ChargeAll", func(ctx context.Context) error {
			return err2(c.ChargeAll(ctx, ratelimit.Take{Limiter: x, Key: "k", N: 1},
				ratelimit.Take{Limiter: x, Key: "other", N: 1}))
		}),
		does("Limiter.OpenCharges", func(ctx context.Context) error { return err1(x.OpenCharges(ctx, "k")) }),
		// it waits for units, after the answer
		waitsFor("Limiter.Wait", func(ctx context.Context) error { return err1(x.Wait(ctx, "k", 5)) }),
	}
}

// reserveAct is of limiters that count by GCRA.
func reserveAct(x *ratelimit.Limiter) act {
	return act{name: "Limiter.Reserve", parts: true, do: func(ctx context.Context) error {
		r, err := x.Reserve(ctx, "k", 3)
		if err == nil {
			_, err = r.Cancel(ctx)
		}
		return err
	}}
}

// storedActs are of limiters whose limit is kept on the server.
func storedActs(x *ratelimit.Limiter) []act {
	return []act{does("Limiter.Set", func(ctx context.Context) error { return x.Set(ctx, "me") }),
		does("Limiter.Unset", x.Unset)}
}

func packetActs(x *redpacket.Packet) []act {
	return []act{
		returns("Packet.Inspect", x.Inspect),
		does("Packet.Shares", func(ctx context.Context) error { return errOf(x.Shares(ctx)) }),
		does("Packet.Grab", func(ctx context.Context) error { return err1(x.Grab(ctx, "ann")) }),
		does("Packet.Grab again", func(ctx context.Context) error { return err1(x.Grab(ctx, "bob")) }),
		does("Packet.Ledger", func(ctx context.Context) error {
			return err1(x.Ledger(ctx, 10, func(context.Context, []redpacket.Entry) error { return nil }))
		}),
		returns("Packet.Refund", x.Refund),
		does("Packet.Send", func(ctx context.Context) error {
			return err1(x.Send(ctx, redpacket.Spec{Total: 100, Shares: 5, OpenFor: time.Minute, Retain: time.Minute}))
		}),
	}
}

// saleSpec is that of the sales whose acts are saleActs.
var saleSpec = stock.Spec{Limit: 100, PerUser: 9, OpenFor: time.Hour, Retain: time.Hour, Ledger: true}

// withBooks has each Restore find an empty book.
func withBooks(o *stock.Options) { o.Books = func(string) stock.Book { return &salebook.Book{} } }

// saleActs are those of a sale as sale opens it.
func saleActs(x *stock.Sale) []act {
	two, open := []stock.Line{{N: 2}}, false
	buy := func(o stock.Order) func(context.Context) (stock.Answer, error) {
		return func(ctx context.Context) (stock.Answer, error) { return x.Buy(ctx, o) }
	}
	return []act{
		returns("Sale.Inspect", x.Inspect),
		does("Sale.Status", func(ctx context.Context) error { return err1(x.Status(ctx, "sold")) }),
		does("Sale.Holders", func(ctx context.Context) error { return errOf(x.Holders(ctx)) }),
		returns("Sale.Buy", buy(stock.Order{User: "ann"})),
		returns("Sale.Buy by id", buy(stock.Order{ID: "new", User: "ann", Lines: two})),
		returns("Sale.Buy by anyone", buy(stock.Order{Anyone: true, Lines: two})),
		does("Sale.Reserve", func(ctx context.Context) error {
			return err1(x.Reserve(ctx, stock.Order{ID: "cart", User: "joe", UpTo: true}, time.Minute))
		}),
		does("Sale.Extend", func(ctx context.Context) error { return err1(x.Extend(ctx, "reserved", 2*time.Hour)) }),
		does("Sale.Pay", func(ctx context.Context) error { return err1(x.Pay(ctx, "reserved", two...)) }),
		does("Sale.Cancel", func(ctx context.Context) error { return err1(x.Cancel(ctx, "reserved")) }),
		does("Sale.Return", func(ctx context.Context) error { return err1(x.Return(ctx, "sold", stock.Line{N: 1})) }),
		does("Sale.Ledger", func(ctx context.Context) error {
			return err1(x.Ledger(ctx, 10, func(context.Context, []stock.Entry) error { return nil }))
		}),
		does("Sale.Change", func(ctx context.Context) error {
			return x.Change(ctx, stock.Change{Items: map[string]stock.Item{"": {Limit: 120, PerUser: 5}}, Paused: &open})
		}),
		does("Sale.Open", func(ctx context.Context) error { return x.Open(ctx, saleSpec) }),
		{name: "Sale.Restore", parts: true, do: func(ctx context.Context) error { return err1(x.Restore(ctx, saleSpec)) }},
		does("Sale.EndSale", x.EndSale),
		does("Sale.Delete", x.Delete),
	}
}
