package profiles_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// scene is what a feature is tried on: two processes behind the proxy, and the server itself.
type scene struct {
	red, other *redlatch.Client
	server     rueidis.Client
}

// feature is a part of the core. crowd: it is tried where the slots of keys matter, and with what refuses nothing.
type feature struct {
	name  string
	try   func(ctx context.Context, s scene)
	crowd bool
}

const (
	watchdog = 900 * time.Millisecond
	pollCap  = 50 * time.Millisecond
)

// core are the features. What they use ends at its first error.
var core = []feature{
	{name: "lock", try: func(ctx context.Context, s scene) {
		redistest.Must(s.red.Locks().Reentrant("lock").Do(ctx, func(ctx context.Context) error {
			return taken(s.other.Locks().Reentrant("lock").TryLock(ctx, 0, 0))
		}))
	}},
	{name: "contended", try: func(ctx context.Context, s scene) {
		handed(ctx, s.other.Locks().Reentrant("contended"), s.red.Locks().Reentrant("contended"))
	}},
	{name: "fair", try: func(ctx context.Context, s scene) {
		handed(ctx, s.red.Locks().Fair("fair"), s.other.Locks().Fair("fair"))
	}},
	{name: "read-write", try: func(ctx context.Context, s scene) {
		handed(ctx, s.red.Locks().ReadWrite("rw").Read(), s.other.Locks().ReadWrite("rw").Write())
	}},
	{name: "fenced", try: func(ctx context.Context, s scene) {
		handed(ctx, s.red.Locks().Fenced("fenced"), s.other.Locks().Fenced("fenced"))
	}},
	{name: "renewal", try: func(ctx context.Context, s scene) {
		h := redistest.Got(s.red.Locks().Reentrant("renewed").Lock(ctx))
		select {
		case <-h.Done():
			redistest.Must(h.Err())
		case <-time.After(watchdog * 4 / 3):
		}
		redistest.Must(h.Unlock(ctx))
	}},
	{name: "lost hold", try: func(ctx context.Context, s scene) {
		h := redistest.Got(s.red.Locks().Reentrant("lost").Lock(ctx))
		time.Sleep(2 * time.Millisecond)
		redistest.Must(s.server.Do(ctx, s.server.B().Del().Key("lost").Build()).Error())
		select {
		case <-h.Done():
			is(errors.Is(h.Err(), redlatch.ErrLost), "a lost hold ended with %v", h.Err())
		case <-ctx.Done():
			is(false, "a lost hold was not noticed")
		}
	}},
	{name: "semaphore", try: func(ctx context.Context, s scene) {
		p := redistest.Got(s.red.Semaphores().Semaphore("permits", 1).Acquire(ctx, 1))
		after(ctx, p.Release, func(ctx context.Context) error {
			return s.other.Semaphores().Semaphore("permits", 1).Do(ctx, 1, func(context.Context) error { return nil })
		})
	}},
	{name: "latch", try: func(ctx context.Context, s scene) {
		l := s.red.Semaphores().CountDownLatch("latch")
		redistest.Got(l.TrySetCount(ctx, 1, time.Minute))
		after(ctx, func(ctx context.Context) error {
			_, err := l.CountDown(ctx)
			return err
		}, s.other.Semaphores().CountDownLatch("latch").Await)
	}},
	{name: "sale", try: sells},
	{name: "counter", try: func(ctx context.Context, s scene) {
		k := s.red.Counters().Counter("counter", rcounter.CounterOptions{TTL: time.Minute})
		redistest.Got(k.Incr(ctx))
		for range 2 {
			v := redistest.Got(k.Cached(ctx, time.Second))
			is(v == 1, "Cached is %d", v)
		}
	}},
	{name: "rate limit", try: func(ctx context.Context, s scene) {
		l := s.red.Limiters().Limiter("limit", ratelimit.LimiterOptions{Rate: 1})
		for _, want := range []bool{true, false} {
			a := redistest.Got(l.Allow(ctx, "user", 1))
			is(a.Allowed == want, "allowed is %v", a.Allowed)
		}
	}},
	{name: "election", try: func(ctx context.Context, s scene) {
		l := redistest.Got(s.red.Elections().Election("leader").Campaign(ctx, "a"))
		found := redistest.Got(s.other.Elections().Election("leader").Leader(ctx))
		is(found.Value == "a", "the leader is %q", found.Value)
		after(ctx, l.Resign, func(ctx context.Context) error {
			l, err := s.other.Elections().Election("leader").Campaign(ctx, "b")
			if err != nil {
				return err
			}
			return l.Resign(ctx)
		})
	}},
	{name: "many at once", try: many, crowd: true},
	{name: "messages", try: func(ctx context.Context, s scene) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		sub := redistest.Got(s.red.Hub().Subscribe(ctx, "news"))
		defer sub.Close()
		redistest.Got(s.other.Hub().Publish(ctx, "news", "m"))
		m := redistest.Got(sub.Next(ctx))
		is(m.Payload == "m", "the message is %q", m.Payload)
	}},
}

// is ends a feature where what must be is not.
func is(so bool, format string, args ...any) {
	if !so {
		redistest.Must(fmt.Errorf(format, args...))
	}
}

// taken is nil if an acquisition was refused.
func taken(_ *rlock.Hold, err error) error {
	if !errors.Is(err, redlatch.ErrNotAcquired) {
		return fmt.Errorf("another acquires what is held: %w", err)
	}
	return nil
}

// handed has one process hold l, and the other wait for it.
func handed(ctx context.Context, l, other *rlock.Lock) {
	h := redistest.Got(l.Lock(ctx))
	first, _ := h.Token()
	after(ctx, h.Unlock, func(ctx context.Context) error {
		h, err := other.Lock(ctx)
		if err != nil {
			return err
		}
		if second, fenced := h.Token(); fenced && second <= first {
			return fmt.Errorf("token %d after %d", second, first)
		}
		return h.Unlock(ctx)
	})
}

// after has wait wait for release, which comes so late that a waiter waits.
func after(ctx context.Context, release, wait func(context.Context) error) {
	waited := make(chan error, 1)
	go func() { waited <- wait(ctx) }()
	select {
	case err := <-waited:
		is(false, "nothing was waited for: %w", err)
	case <-time.After(pollCap / 2):
	}
	redistest.Must(errors.Join(release(ctx), <-waited))
}

// sells sells a sale out by an order that is reserved and paid, and one of anyone.
func sells(ctx context.Context, s scene) {
	sale := s.red.Sales().Sale("sale")
	redistest.Must(sale.Open(ctx, stock.Spec{Limit: 2, OpenFor: time.Minute, Retain: time.Minute, Ledger: true}))
	redistest.Got(sale.Reserve(ctx, stock.Order{User: "ann"}, time.Minute))
	redistest.Got(sale.Pay(ctx, "ann"))
	for _, want := range []stock.State{stock.Sold, stock.Refused, stock.Refused, stock.Refused} {
		a := redistest.Got(s.other.Sales().Sale("sale").Buy(ctx, stock.Order{Anyone: true}))
		is(a.State == want, "an order is %v", a)
		time.Sleep(time.Millisecond)
	}
}

var tries atomic.Int64

// many has many objects in each call: what is held is renewed, waited for, acquired, counted and limited in a crowd.
func many(ctx context.Context, s scene) {
	const held, callers, rounds = 24, 24, 3
	try := tries.Add(1)
	names := func(of string, i int) string { return fmt.Sprint(of, "-", try, "-", i) }
	nothing := func(context.Context) error { return nil }
	holds := make([]*rlock.Hold, held)
	for i := range holds {
		holds[i] = redistest.Got(s.other.Locks().Reentrant(names("many", i)).Lock(ctx))
		defer func() { _ = holds[i].Unlock(context.WithoutCancel(ctx)) }() // for another try, if this one fails
	}
	all, crowd := errgroup.WithContext(ctx)
	use := func(f func()) { all.Go(func() error { return redistest.Try(f) }) }
	for i := range held {
		use(func() { redistest.Must(s.red.Locks().Reentrant(names("many", i)).Do(crowd, nothing)) })
	}
	use(func() {
		time.Sleep(watchdog * 4 / 3)
		for _, h := range holds {
			redistest.Must(h.Err())
			redistest.Must(h.Unlock(crowd))
		}
	})
	for i := range callers {
		use(func() {
			l := s.red.Locks().Reentrant(names("crowd-lock", i))
			p := s.red.Semaphores().Semaphore(names("crowd-permit", i), 1)
			k := s.red.Counters().Counter(names("crowd", i%8), rcounter.CounterOptions{TTL: time.Minute})
			limit := s.red.Limiters().Limiter("crowd", ratelimit.LimiterOptions{Rate: 1000, Burst: rounds})
			for range rounds {
				redistest.Must(l.Do(crowd, nothing))
				redistest.Must(p.Do(crowd, 1, nothing))
				redistest.Got(k.Incr(crowd))
				is(redistest.Got(limit.Allow(crowd, names("", i), 1)).Allowed, "a unit that is free was refused")
			}
		})
	}
	redistest.Must(all.Wait())
	for i := range 8 {
		k := s.other.Counters().Counter(names("crowd", i), rcounter.CounterOptions{TTL: time.Minute})
		v := redistest.Got(k.Get(ctx))
		is(v == callers/8*rounds, "%d of a crowd counted %d", callers/8*rounds, v)
	}
	together(ctx, s)
}

// together has several objects be one step, or an error that says that they cannot.
func together(ctx context.Context, s scene) {
	l := redistest.Got(rlock.Multi(s.red.Locks().Reentrant("multi1"), s.red.Locks().Reentrant("multi2")))
	redistest.Must(l.Do(ctx, func(ctx context.Context) error {
		return taken(s.other.Locks().Reentrant("multi2").TryLock(ctx, 0, 0))
	}))
	limit := s.red.Limiters().Limiter("all", ratelimit.LimiterOptions{Rate: 1})
	d, err := s.red.Limiters().AllowAll(ctx, ratelimit.Take{Limiter: limit, Key: "ann", N: 1},
		ratelimit.Take{Limiter: limit, Key: "bob", N: 1})
	apart := slices.ContainsFunc(s.red.Hub().Stats().Lacks, func(l pubsub.Lack) bool {
		return strings.HasSuffix(l.Command, "several slots")
	})
	if apart && errors.Is(err, redlatch.ErrInvalidName) { // as in a Cluster
		return
	}
	is(err == nil && d.Allowed && !apart, "of several limits, %v: %w", d, err)
}
