package contract_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// A re-entry and each of the readers that share a hold are acquisitions of their own. In simulated time no refusal
// takes so long that it asks for the holders.
func TestObserver_HoldsThatShare_AreFollowedEach(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		f, ctx := &follower{}, t.Context()
		locks := open(t, servers[0], f.options()).Locks()
		l, read := locks.Reentrant("l"), locks.ReadWrite("rw").Read()
		lock := func(ctx context.Context, l *rlock.Lock) *rlock.Hold {
			h := redistest.NoError(l.Lock(ctx))(t)
			return h
		}
		require.NoError(t, lock(ctx, l).Unlock(ctx))
		require.NoError(t, lock(ctx, read).Unlock(ctx))
		f.Take() // the scripts were sent

		hold := lock(ctx, l)
		again := lock(hold.Context(ctx), l)
		require.ErrorIs(t, err1(l.TryLock(ctx, 0, 0)), errs.ErrNotAcquired)
		require.NoError(t, hold.Unlock(ctx))
		require.NoError(t, again.Unlock(again.Context(ctx)))
		require.Equal(t, []string{
			"5 acquires l", "5 sent", "5 acquired l",
			"6 acquires l", "6 acquired l",
			"7 acquires l", "7 sent", "7 not acquired l",
			"8 releases l of 5", "8 released l: true",
			"9 releases l of 6", "9 sent", "9 released l: true",
		}, f.Take())

		one, two := lock(ctx, read), lock(ctx, read)
		require.NoError(t, one.Unlock(ctx))
		require.NoError(t, two.Unlock(ctx))
		require.Equal(t, []string{
			"10 acquires rw", "10 acquired rw", "11 acquires rw", "11 acquired rw",
			"12 releases rw of 10", "12 released rw: true", "13 releases rw of 11", "13 released rw: true",
		}, slices.DeleteFunc(f.Take(), func(s string) bool { return strings.HasSuffix(s, "sent") }))

		hold = lock(ctx, l)
		require.NoError(t, err1(l.ForceUnlock(ctx)))
		require.ErrorIs(t, hold.Extend(ctx, 10*time.Minute), errs.ErrLost)
		require.ErrorIs(t, hold.Unlock(ctx), errs.ErrLost)
		require.Subset(t, f.Take(), []string{"14 lost l", "15 releases l of 14", "15 released l: false"})
	})
}

func TestObserver_PermitsAndBarriers_AreToldOnce(t *testing.T) {
	t.Parallel()
	f, ctx, server := &follower{}, t.Context(), redistest.Embedded(t)
	o := f.options()
	o.CallTimeout = 20 * time.Second
	c := open(t, server, o).Semaphores()
	take := func() []string {
		return slices.DeleteFunc(f.Take(), func(s string) bool { return strings.HasSuffix(s, "sent") })
	}
	pool := c.Semaphore("pool", 3)
	permit := redistest.NoError(pool.Acquire(ctx, 2))(t)
	require.ErrorIs(t, err1(pool.TryAcquire(ctx, 2, 0, 0)), errs.ErrNotAcquired)
	require.NoError(t, permit.Release(ctx))
	counting := counting.New(c, "counting")
	require.NoError(t, counting.Release(ctx, 1))
	require.NoError(t, counting.Acquire(ctx, 1))
	require.Equal(t, []string{
		"1 acquires 2 of pool", "1 acquired 2 of pool",
		"2 acquires 2 of pool", "2 not acquired 2 of pool",
		"3 releases 2 of pool of 1", "3 released 2 of pool: true",
		"4 releases 1 of counting of 0", "4 released 1 of counting: true", // it knows no holders
		"5 acquires 1 of counting", "5 acquired 1 of counting",
	}, take())

	latch := c.CountDownLatch("latch")
	require.NoError(t, latch.Await(ctx))
	require.NoError(t, err1(latch.TrySetCount(ctx, 1, 0)))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, latch.Await(ended), context.Canceled)
	require.NoError(t, err1(c.CyclicBarrier("barrier", 1).Await(ctx)))
	require.Equal(t, []string{"waited for latch: true", "waited for latch: false", "waited for barrier: true"}, take())

	permit = redistest.NoError(pool.Acquire(ctx, 1))(t)
	server.Embedded.FlushAll()
	require.ErrorIs(t, permit.Extend(ctx, 10*time.Minute), errs.ErrLost)
	require.ErrorIs(t, permit.Release(ctx), errs.ErrLost)
	require.Equal(t, []string{"6 acquires 1 of pool", "6 acquired 1 of pool", "6 lost pool",
		"7 releases 1 of pool of 6", "7 released 1 of pool: false"}, take())
}

// told notes what observers of counts and sales are told, in the context of the call.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (s *told) note(t *testing.T, ctx context.Context, took time.Duration, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if spanOf(ctx) != "a call" || took < 0 {
		t.Errorf("in %q, took %v: %s", spanOf(ctx), took, line)
	}
	s.lines = append(s.lines, line)
}

func (s *told) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func TestObserver_CountsAndSales_AreToldOnce(t *testing.T) {
	t.Parallel()
	server, seen := redistest.Embedded(t), &told{}
	admin, ctx := server.Client(t), context.WithValue(t.Context(), spanKey{}, "a call")
	o := redlatch.Options{CallTimeout: 20 * time.Second}
	o.Counters = func(o *rcounter.Options) {
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			seen.note(t, ctx, e.Took, "%s: %v", e.Name, e.Err)
			return ctx
		}
	}
	o.RedPackets = func(o *redpacket.Options) {
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			seen.note(t, ctx, e.Took, "%s: %v, %d, %v", e.Name, e.Outcome, e.N, e.Err)
			return ctx
		}
	}
	o.Sales = func(o *stock.Options) {
		o.KeyPrefix = "shop:"
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			seen.note(t, ctx, e.Took, "%s: %v, %d, %v", e.Name, e.Outcome, e.N, e.Err)
			return ctx
		}
	}
	o.Limiters = func(o *ratelimit.Options) {
		o.RefusalTrust, o.AllowTimeout = -1, 20*time.Second
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			seen.note(t, ctx, e.Took, "%s: %v, %d, %v", e.Name, e.Outcome, e.N, e.Err)
			return ctx
		}
	}
	red := open(t, server, o)
	is := func(want ...string) {
		t.Helper()
		require.Equal(t, want, seen.take())
	}

	k := red.Counters().Counter("k", rcounter.CounterOptions{Max: rcounter.Bound(9)})
	for _, call := range []func() error{
		func() error { return err1(k.Incr(ctx)) }, func() error { return err1(k.Decr(ctx)) },
		func() error { return err1(k.Add(ctx, 20)) }, func() error { return err2(k.AddOnce(ctx, "order", 2)) },
		func() error { return err2(k.AddOnce(ctx, "order", 3)) }, func() error { return k.Set(ctx, 5) },
		func() error { return err1(k.CompareAndSet(ctx, 5, 6)) },
	} {
		is(fmt.Sprintf("k: %v", call()))
	}
	require.NoError(t, err1(k.Get(ctx)))
	require.ErrorIs(t, k.Set(ctx, 10), errs.ErrOutOfRange) // not sent
	is()

	p := red.RedPackets().Packet("p")
	p.Grab(ctx, "ann")
	require.NoError(t, err1(p.Send(ctx, redpacket.Spec{Total: 70, Shares: 1, OpenFor: time.Hour})))
	for _, user := range []string{"ann", "ann", "bob", ""} { // the last is not sent
		p.Grab(ctx, user)
	}
	rig.Must(t, admin, "DEL", "rc:{p}:g")
	p.Grab(ctx, "ann")
	is(`p: , 0, redpacket: no such red packet: "rc:{p}:p"`, "p: grabbed, 70, <nil>", "p: grabbed, 70, <nil>",
		"p: sold out, 0, <nil>",
		`p: , 0, redpacket: no such red packet: corrupt: "rc:{p}:p" should have 1 records or shares, and has 0`)

	s, two := red.Sales().Sale("s"), []stock.Line{{N: 2}}
	require.NoError(t, s.Open(ctx, stock.Spec{Limit: 9, PerUser: 5, OpenFor: time.Hour}))
	for _, order := range []stock.Order{{User: "ann"}, {User: "ann"}, {ID: "1", User: "bob", Lines: two}, {Anyone: true}} {
		require.NoError(t, err1(s.Buy(ctx, order)))
	}
	for _, order := range []stock.Order{{ID: "2", User: "bob", Lines: two}, {ID: "3", Lines: []stock.Line{{N: 4}}},
		{ID: "4", UpTo: true, Lines: []stock.Line{{N: 9}}}} {
		require.NoError(t, err1(s.Reserve(ctx, order, time.Hour)))
	}
	require.ErrorIs(t, err1(s.Buy(ctx, stock.Order{ID: "1", User: "cid", Lines: two})), errs.ErrMismatch)
	require.NoError(t, err1(s.Pay(ctx, "2")))         // is no event
	require.Error(t, err1(s.Buy(ctx, stock.Order{}))) // refused, and not sent
	is("s: sold, 1, <nil>", "s: sold, 1, <nil>", "s: sold, 2, <nil>", "s: sold, 1, <nil>",
		"s: reserved, 2, <nil>", "s: sold out, 0, <nil>", "s: reserved, 3, <nil>",
		`s: , 0, stock: id used before with other arguments: on "rc:{shop:s}:sale"`)

	limit := func(name string, rate int64) *ratelimit.Limiter {
		return red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: rate, Per: time.Hour})
	}
	a, b := limit("a", 2), limit("b", 5)
	for range 2 {
		require.NoError(t, err1(red.Limiters().AllowAll(ctx, ratelimit.Take{Limiter: a, Key: "k", N: 1},
			ratelimit.Take{Limiter: b, Key: "k", N: 1})))
	}
	require.NoError(t, err1(a.Allow(ctx, "k", 1)))
	require.NoError(t, err1(b.AllowAtMost(ctx, "k", 5)))
	is("a: allowed, 1, <nil>", "b: allowed, 1, <nil>", "a: allowed, 1, <nil>", "b: allowed, 1, <nil>",
		"a: refused, 0, <nil>", "b: allowed, 3, <nil>")
	shadow := red.Limiters().Limiter("c", ratelimit.LimiterOptions{Rate: 9, Per: time.Hour, Shadow: true})
	charge, _, err := shadow.Charge(ctx, "k", 4)
	require.NoError(t, err)
	require.NoError(t, charge.Settle(ctx, 1))
	require.NoError(t, charge.Settle(ctx, 2)) // is no event
	require.NoError(t, err1(shadow.Allow(ctx, "k", 9)))
	is("c: allowed, 4, <nil>", "c: , -3, <nil>", "c: would refuse, 9, <nil>")
}
