package redlatch_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
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

// unwaiting are all calls of all packages that do not wait, made while the server is well: what they are about is
// there, and was made by other, whatever takes no time. Each has an object of its own, so that none shares a call with
// another.
func unwaiting(t *testing.T, red, other *redlatch.Client) verbs {
	all := verbs{}
	ofLocks(t, red, all)
	ofPermits(t, red, all)
	ofParties(red, all)
	ofCounters(red, all)
	ofLimits(t, red, all)
	ofPackets(t, red, other, all)
	ofClaims(t, red, other, all)
	ofSales(t, red, other, all)
	all["Hub.Publish"] = func(ctx context.Context) error { return err1(red.Hub().Publish(ctx, "news", "none")) }
	require.NoError(t, keeping(all, nil))
	return all
}

func ofLocks(t *testing.T, red *redlatch.Client, all verbs) {
	c := red.Locks()
	multi := func(name string) *rlock.Lock {
		l, err := rlock.Multi(c.Reentrant(name+"-a"), c.Reentrant(name+"-b"))
		require.NoError(t, err)
		return l
	}
	for kind, of := range map[string]func(name string) *rlock.Lock{
		"Reentrant": c.Reentrant, "NonReentrant": c.NonReentrant, "Fenced": c.Fenced, "Fair": c.Fair, "Plain": c.Plain,
		"Multi": multi,
		"Spin":  func(name string) *rlock.Lock { return c.Spin(name, time.Millisecond, time.Second) },
		"Read":  func(name string) *rlock.Lock { return c.ReadWrite(name).Read() },
		"Write": func(name string) *rlock.Lock { return c.ReadWrite(name).Write() },
	} {
		held, free := of("held-"+kind), of("free-"+kind)
		hold, err := held.Lock(t.Context())
		require.NoError(t, err, kind)
		all["Hold.Extend of "+kind] = func(ctx context.Context) error { return hold.Extend(ctx, 30*time.Second) }
		all["Lock.TryLock of "+kind] = func(ctx context.Context) error { return err1(free.TryLock(ctx, 0, 0)) }
		all["Lock.IsLocked of "+kind] = func(ctx context.Context) error { return err1(held.IsLocked(ctx)) }
		all["Lock.Inspect of "+kind] = func(ctx context.Context) error { return err1(held.Inspect(ctx)) }
	}
	all["Lock.ForceUnlock"] = func(ctx context.Context) error { return err1(c.Reentrant("forced").ForceUnlock(ctx)) }
	all["Lock.DoOnce"] = func(ctx context.Context) error {
		return err1(c.Reentrant("job").DoOnce(ctx, time.Hour, func(context.Context) error { return nil }))
	}
	all["Election.Leader"] = func(ctx context.Context) error { return err1(red.Elections().Election("asked").Leader(ctx)) }
	all["Election.Observe"] = func(ctx context.Context) error {
		return errOf(red.Elections().Election("observed").Observe(ctx))
	}
	all["Election.Drain"] = func(ctx context.Context) error { return red.Elections().Election("drained").Drain(ctx, 0) }
	shards := red.Elections().Shards("shards", 3)
	all["Shards.Workers"] = func(ctx context.Context) error { return err1(shards.Workers(ctx)) }
	all["Shards.Observe"] = func(ctx context.Context) error { return errOf(shards.Observe(ctx)) }
	all["Shards.Drain"] = func(ctx context.Context) error { return shards.Drain(ctx, "none", time.Hour) }
}

func ofPermits(t *testing.T, red *redlatch.Client, all verbs) {
	c := red.Semaphores()
	s := c.Semaphore("semaphore", 9)
	permit, err := s.Acquire(t.Context(), 1)
	require.NoError(t, err)
	all["Permit.Extend"] = func(ctx context.Context) error { return permit.Extend(ctx, 30*time.Second) }
	all["Semaphore.TryAcquire"] = func(ctx context.Context) error { return err1(s.TryAcquire(ctx, 1, 0, 0)) }
	all["Semaphore.Available"] = func(ctx context.Context) error { return err1(s.Available(ctx)) }
	all["Semaphore.Inspect"] = func(ctx context.Context) error { return err1(s.Inspect(ctx)) }
	all["Semaphore.Resize"] = func(ctx context.Context) error { return err1(s.Resize(ctx, 9)) }
	all["Semaphore.AddPermits"] = func(ctx context.Context) error { return err1(s.AddPermits(ctx, 1)) }
	all["Semaphore.ReleaseIDs"] = func(ctx context.Context) error { return s.ReleaseIDs(ctx, permit.IDs()...) }
	all["Semaphore.ExtendIDs"] = func(ctx context.Context) error { return s.ExtendIDs(ctx, time.Minute, permit.IDs()...) }
	all["Semaphore.InspectIDs"] = func(ctx context.Context) error { return err1(s.InspectIDs(ctx, permit.IDs()...)) }

	w := c.WeightedSemaphore("weighted", 99)
	weight, err := w.Acquire(t.Context(), 90)
	require.NoError(t, err)
	all["Permit.Extend of weights"] = func(ctx context.Context) error { return weight.Extend(ctx, 30*time.Second) }
	all["Permit.ReleasePart"] = func(ctx context.Context) error { return weight.ReleasePart(ctx, 1) }
	all["Semaphore.TryAcquire of weights"] = func(ctx context.Context) error { return err1(w.TryAcquire(ctx, 1, 0, 0)) }
	all["Semaphore.Available of weights"] = func(ctx context.Context) error { return err1(w.Available(ctx)) }
	all["Semaphore.Inspect of weights"] = func(ctx context.Context) error { return err1(w.Inspect(ctx)) }
	all["Semaphore.Resize of weights"] = func(ctx context.Context) error { return err1(w.Resize(ctx, 99)) }
	all["Semaphore.ReleaseIDs of weights"] = func(ctx context.Context) error { return w.ReleaseIDs(ctx, weight.IDs()...) }
	all["Semaphore.ExtendIDs of weights"] = func(ctx context.Context) error {
		return w.ExtendIDs(ctx, time.Minute, weight.IDs()...)
	}
	all["Semaphore.InspectIDs of weights"] = func(ctx context.Context) error {
		return err1(w.InspectIDs(ctx, weight.IDs()...))
	}
}

func ofParties(red *redlatch.Client, all verbs) {
	c := red.Semaphores()
	n, l, b := c.CountingSemaphore("counting"), c.CountDownLatch("latch"), c.CyclicBarrier("barrier", 2)
	all["CountingSemaphore.TrySetPermits"] = func(ctx context.Context) error { return err1(n.TrySetPermits(ctx, 3, 0)) }
	all["CountingSemaphore.TryAcquire"] = func(ctx context.Context) error { return n.TryAcquire(ctx, 1, 0) }
	all["CountingSemaphore.AddPermits"] = func(ctx context.Context) error { return err1(n.AddPermits(ctx, 1)) }
	all["CountingSemaphore.Available"] = func(ctx context.Context) error { return err1(n.Available(ctx)) }
	all["CountingSemaphore.Inspect"] = func(ctx context.Context) error { return err1(n.Inspect(ctx)) }
	all["CountDownLatch.TrySetCount"] = func(ctx context.Context) error { return err1(l.TrySetCount(ctx, 2, 0)) }
	all["CountDownLatch.CountDown"] = func(ctx context.Context) error { return err1(l.CountDown(ctx)) }
	all["CountDownLatch.CountDownBy"] = func(ctx context.Context) error { return err1(l.CountDownBy(ctx, "ann")) }
	all["CountDownLatch.Count"] = func(ctx context.Context) error { return err1(l.Count(ctx)) }
	all["CountDownLatch.Inspect"] = func(ctx context.Context) error { return err1(l.Inspect(ctx)) }
	all["CountDownLatch.Delete"] = func(ctx context.Context) error { return err1(l.Delete(ctx)) }
	all["CyclicBarrier.Inspect"] = func(ctx context.Context) error { return err1(b.Inspect(ctx)) }
}

func ofCounters(red *redlatch.Client, all verbs) {
	k := red.Counters().Counter("counter", rcounter.CounterOptions{})
	bounded := red.Counters().Counter("bounded", rcounter.CounterOptions{Max: rcounter.Bound(9)})
	all["Counter.Incr"] = func(ctx context.Context) error { return err1(k.Incr(ctx)) }
	all["Counter.Incr of a bounded one"] = func(ctx context.Context) error { return err1(bounded.Incr(ctx)) }
	all["Counter.Decr"] = func(ctx context.Context) error { return err1(k.Decr(ctx)) }
	all["Counter.Add"] = func(ctx context.Context) error { return err1(k.Add(ctx, 2)) }
	all["Counter.Get"] = func(ctx context.Context) error { return err1(k.Get(ctx)) }
	all["Counter.Set"] = func(ctx context.Context) error { return k.Set(ctx, 2) }
	all["Counter.CompareAndSet"] = func(ctx context.Context) error { return err1(k.CompareAndSet(ctx, 1, 2)) }
	all["Counter.AddOnce"] = func(ctx context.Context) error { return err2(k.AddOnce(ctx, "payment", 2)) }
	all["Counter.Cached"] = func(ctx context.Context) error { return err1(k.Cached(ctx, time.Minute)) }
}

func ofLimits(t *testing.T, red *redlatch.Client, all verbs) {
	c, o := red.Limiters(), ratelimit.LimiterOptions{Rate: 1000}
	l, together, kept := c.Limiter("limiter", o), c.Limiter("together", o), c.Limiter("kept", o)
	reserved, err := l.Reserve(t.Context(), "canceled", 1)
	require.NoError(t, err)
	all["Client.AllowAll"] = func(ctx context.Context) error {
		return err1(c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "all", N: 1},
			ratelimit.Take{Limiter: together, Key: "all", N: 1}))
	}
	all["Limiter.Allow"] = func(ctx context.Context) error { return err1(l.Allow(ctx, "", 1)) }
	all["Limiter.AllowAtMost"] = func(ctx context.Context) error { return err1(l.AllowAtMost(ctx, "at most", 2)) }
	all["Limiter.Peek"] = func(ctx context.Context) error { return err1(l.Peek(ctx, "peeked")) }
	all["Limiter.Reset"] = func(ctx context.Context) error { return l.Reset(ctx, "reset") }
	all["Limiter.Reserve"] = func(ctx context.Context) error { return err1(l.Reserve(ctx, "reserved", 1)) }
	// it waits for units, after the answer
	all["Limiter.Wait"] = func(ctx context.Context) error { return err1(l.Wait(ctx, "waited", 1)) }
	all["Limiter.Set"] = func(ctx context.Context) error { return kept.Set(ctx, "ann") }
	all["Limiter.Unset"] = func(ctx context.Context) error { return c.Limiter("unset", o).Unset(ctx) }
	all["Limiter.Inspect"] = func(ctx context.Context) error { return err1(kept.Inspect(ctx)) }
	all["Reservation.Cancel"] = func(ctx context.Context) error { return err1(reserved.Cancel(ctx)) }
}

func ofPackets(t *testing.T, red, other *redlatch.Client, all verbs) {
	p := red.RedPackets().Packet("packet")
	spec := redpacket.Spec{Total: 1000, Shares: 10, OpenFor: time.Minute, Ledger: true}
	require.NoError(t, err1(other.RedPackets().Packet("packet").Send(t.Context(), spec)))
	require.NoError(t, err1(other.RedPackets().Packet("packet").Grab(t.Context(), "bob")))
	all["Packet.Send"] = func(ctx context.Context) error {
		return err1(red.RedPackets().Packet("packet-2").Send(ctx, spec))
	}
	all["Packet.Grab"] = func(ctx context.Context) error { return err1(p.Grab(ctx, "ann")) }
	all["Packet.Refund"] = func(ctx context.Context) error { return err1(p.Refund(ctx)) }
	all["Packet.Inspect"] = func(ctx context.Context) error { return err1(p.Inspect(ctx)) }
	all["Packet.Shares"] = func(ctx context.Context) error { return errOf(p.Shares(ctx)) }
	all["Packet.Ledger"] = func(ctx context.Context) error {
		return err1(p.Ledger(ctx, 10, func(context.Context, []redpacket.Entry) error { return nil }))
	}
}

// sale is a stock that is open, of which user bob has a unit under the id of a request.
func sale(t *testing.T, red *redlatch.Client, name string) *stock.Stock {
	s := red.Stocks().Stock(name)
	require.NoError(t, err1(s.Open(t.Context(), stock.Spec{Limit: 100, PerUser: 9, OpenFor: time.Hour, Ledger: true})))
	require.NoError(t, err1(s.Claim(t.Context(), "bob", stock.Request{ID: "request", N: 2})))
	require.NoError(t, err1(s.Reserve(t.Context(), "bob", stock.Request{ID: "reservation", N: 2}, time.Hour)))
	return s
}

func ofClaims(t *testing.T, red, other *redlatch.Client, all verbs) {
	unit, err := sale(t, other, "any").ClaimAny(t.Context(), 1)
	require.NoError(t, err)
	for verb, call := range map[string]func(ctx context.Context, s *stock.Stock) error{
		"Claim":    func(ctx context.Context, s *stock.Stock) error { return err1(s.Claim(ctx, "ann")) },
		"ClaimAny": func(ctx context.Context, s *stock.Stock) error { return err1(s.ClaimAny(ctx, 1)) },
		"Claim a request": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Claim(ctx, "ann", stock.Request{ID: "again", N: 1}))
		},
		"Reserve": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Reserve(ctx, "ann", stock.Request{ID: "r", N: 1}, time.Minute))
		},
		"Reserve up to": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Reserve(ctx, "ann", stock.Request{ID: "r", N: 1, UpTo: true}, time.Minute))
		},
		"Confirm": func(ctx context.Context, s *stock.Stock) error { return err1(s.Confirm(ctx, "reservation")) },
		"Extend":  func(ctx context.Context, s *stock.Stock) error { return err1(s.Extend(ctx, "reservation", time.Hour)) },
		"Cancel":  func(ctx context.Context, s *stock.Stock) error { return err1(s.Cancel(ctx, "reservation")) },
		"Return": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Return(ctx, stock.Units{Claimant: "bob", Ordinal: 1}))
		},
		"Return a request": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Return(ctx, stock.Units{Request: "request"}))
		},
		"Lookup": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Lookup(ctx, stock.Units{Claimant: "bob"}))
		},
		"Lookup an id": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Lookup(ctx, stock.Units{Request: "request"}))
		},
		"Holders": func(ctx context.Context, s *stock.Stock) error { return errOf(s.Holders(ctx)) },
	} {
		sale(t, other, "of-"+verb)
		of := red.Stocks().Stock("of-" + verb)
		all["Stock."+verb] = func(ctx context.Context) error { return call(ctx, of) }
	}
	all["Stock.Return of any"] = func(ctx context.Context) error {
		return err1(red.Stocks().Stock("any").Return(ctx,
			stock.Units{Request: unit.Request, Ordinal: unit.Ordinal, N: unit.N}))
	}
}

func ofSales(t *testing.T, red, other *redlatch.Client, all verbs) {
	spec := stock.Spec{Limit: 100, OpenFor: time.Hour}
	for verb, call := range map[string]func(ctx context.Context, s *stock.Stock) error{
		"Inspect": func(ctx context.Context, s *stock.Stock) error { return err1(s.Inspect(ctx)) },
		"Change":  func(ctx context.Context, s *stock.Stock) error { return s.Change(ctx, stock.Change{Limit: 200}) },
		"EndSale": func(ctx context.Context, s *stock.Stock) error { return s.EndSale(ctx) },
		"Delete":  func(ctx context.Context, s *stock.Stock) error { return s.Delete(ctx) },
		"Reap":    func(ctx context.Context, s *stock.Stock) error { return err1(s.Reap(ctx)) },
		"Ledger": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Ledger(ctx, 10, func(context.Context, []stock.Entry) error { return nil }))
		},
		"Publish": func(ctx context.Context, s *stock.Stock) error {
			return s.Publish(ctx, []stock.Entry{{Serial: 1, Kind: stock.KindGrant, Epoch: 1, Ordinal: 1, N: 1, Claimant: "bob"}})
		},
		"Restore": func(ctx context.Context, s *stock.Stock) error {
			return err1(s.Restore(ctx, func(func(stock.Entry, error) bool) {}))
		},
	} {
		sale(t, other, "of-"+verb)
		of := red.Stocks().Stock("of-" + verb)
		all["Stock."+verb] = func(ctx context.Context) error { return call(ctx, of) }
	}
	all["Stock.Open"] = func(ctx context.Context) error { return err1(red.Stocks().Stock("opened").Open(ctx, spec)) }
	all["Stock.OpenOrJoin"] = func(ctx context.Context) error {
		return err1(red.Stocks().Stock("joined").OpenOrJoin(ctx, spec))
	}

	carts := func(verb string) *stock.Group {
		g := other.Stocks().Group("shop-" + verb)
		for _, name := range []string{"tea", "cup"} {
			require.NoError(t, err1(g.Stock(name).Open(t.Context(), spec)))
		}
		require.NoError(t, err1(g.Reserve(t.Context(), "bob",
			stock.CartRequest{ID: "cart", Lines: []stock.Line{{Stock: "tea", N: 1}, {Stock: "cup", N: 1}}}, time.Hour)))
		return red.Stocks().Group("shop-" + verb)
	}
	reserve, confirm, cancel, others := carts("reserve"), carts("confirm"), carts("cancel"), carts("others")
	all["Group.Reserve"] = func(ctx context.Context) error {
		return err1(reserve.Reserve(ctx, "ann", stock.CartRequest{ID: "other", Lines: []stock.Line{{Stock: "tea", N: 1}}},
			time.Hour))
	}
	all["Group.Confirm"] = func(ctx context.Context) error {
		return err1(confirm.Confirm(ctx, "cart", stock.Line{Stock: "tea"}, stock.Line{Stock: "cup"}))
	}
	all["Group.Extend"] = func(ctx context.Context) error {
		return err1(others.Extend(ctx, "cart", time.Hour, "tea", "cup"))
	}
	all["Group.Lookup"] = func(ctx context.Context) error { return err1(others.Lookup(ctx, "cart", "tea", "cup")) }
	all["Group.Return"] = func(ctx context.Context) error { return err1(others.Return(ctx, "cart", "tea", "cup")) }
	all["Group.Cancel"] = func(ctx context.Context) error { return err1(cancel.Cancel(ctx, "cart", "tea", "cup")) }
}
