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

// feature is a part of the core. needs are the commands without which it works otherwise, by what then is. crowd: it is
// tried where the slots of keys matter, and with what refuses nothing.
type feature struct {
	name  string
	needs map[string]string
	try   func(ctx context.Context, s scene) error
	crowd bool
}

const (
	watchdog = 900 * time.Millisecond
	pollCap  = 50 * time.Millisecond
)

func untracked(then string) map[string]string { return map[string]string{"CLIENT TRACKING": then} }

var polls = map[string]string{"SUBSCRIBE": "polls"}

// core are the features, in the order of the table.
var core = []feature{
	{name: "lock", try: func(ctx context.Context, s scene) error {
		return s.red.Locks().Reentrant("lock").Do(ctx, func(ctx context.Context) error {
			if _, err := s.other.Locks().Reentrant("lock").TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
				return fmt.Errorf("another acquires what is held: %w", err)
			}
			return nil
		})
	}},
	{name: "contended", needs: polls, try: func(ctx context.Context, s scene) error {
		return handed(ctx, s.other.Locks().Reentrant("contended"), s.red.Locks().Reentrant("contended"))
	}},
	{name: "fair", needs: polls, try: func(ctx context.Context, s scene) error {
		return handed(ctx, s.red.Locks().Fair("fair"), s.other.Locks().Fair("fair"))
	}},
	{name: "read-write", needs: polls, try: func(ctx context.Context, s scene) error {
		return handed(ctx, s.red.Locks().ReadWrite("rw").Read(), s.other.Locks().ReadWrite("rw").Write())
	}},
	{name: "fenced", needs: polls, try: func(ctx context.Context, s scene) error {
		return handed(ctx, s.red.Locks().Fenced("fenced"), s.other.Locks().Fenced("fenced"))
	}},
	{name: "renewal", try: func(ctx context.Context, s scene) error {
		h, err := s.red.Locks().Reentrant("renewed").Lock(ctx)
		if err != nil {
			return err
		}
		select {
		case <-h.Done():
			return h.Err()
		case <-time.After(watchdog * 4 / 3):
		}
		return h.Unlock(ctx)
	}},
	{name: "lost hold", needs: untracked("at renewal"), try: func(ctx context.Context, s scene) error {
		h, err := s.red.Locks().Reentrant("lost").Lock(ctx)
		if err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
		if err := s.server.Do(ctx, s.server.B().Del().Key("lost").Build()).Error(); err != nil {
			return err
		}
		select {
		case <-h.Done():
			if !errors.Is(h.Err(), redlatch.ErrLost) {
				return fmt.Errorf("a lost hold ended with %w", h.Err())
			}
			return nil
		case <-ctx.Done():
			return errors.New("a lost hold was not noticed")
		}
	}},
	{name: "semaphore", needs: polls, try: func(ctx context.Context, s scene) error {
		p, err := s.red.Semaphores().Semaphore("permits", 1).Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return after(ctx, p.Release, func(ctx context.Context) error {
			p, err := s.other.Semaphores().Semaphore("permits", 1).Acquire(ctx, 1)
			if err != nil {
				return err
			}
			return p.Release(ctx)
		})
	}},
	{name: "latch", needs: polls, try: func(ctx context.Context, s scene) error {
		l := s.red.Semaphores().CountDownLatch("latch")
		if _, err := l.TrySetCount(ctx, 1, time.Minute); err != nil {
			return err
		}
		return after(ctx, func(ctx context.Context) error {
			_, err := l.CountDown(ctx)
			return err
		}, s.other.Semaphores().CountDownLatch("latch").Await)
	}},
	{name: "stock", needs: untracked("asks when sold out"), try: sells},
	{name: "counter", needs: untracked("Cached asks"), try: func(ctx context.Context, s scene) error {
		k := s.red.Counters().Counter("counter", rcounter.CounterOptions{TTL: time.Minute})
		if _, err := k.Incr(ctx); err != nil {
			return err
		}
		for range 2 {
			if v, err := k.Cached(ctx, time.Second); err != nil || v != 1 {
				return fmt.Errorf("Cached is %d: %w", v, err)
			}
		}
		return nil
	}},
	{name: "rate limit", try: func(ctx context.Context, s scene) error {
		l := s.red.Limiters().Limiter("limit", ratelimit.LimiterOptions{Rate: 1})
		for _, want := range []bool{true, false} {
			if a, err := l.Allow(ctx, "user", 1); err != nil || a.Allowed != want {
				return fmt.Errorf("allowed is %v: %w", a.Allowed, err)
			}
		}
		return nil
	}},
	{name: "election", needs: polls, try: func(ctx context.Context, s scene) error {
		l, err := s.red.Elections().Election("leader").Campaign(ctx, "a")
		if err != nil {
			return err
		}
		if found, err := s.other.Elections().Election("leader").Leader(ctx); err != nil || found.Value != "a" {
			return fmt.Errorf("the leader is %q: %w", found.Value, err)
		}
		return after(ctx, l.Resign, func(ctx context.Context) error {
			l, err := s.other.Elections().Election("leader").Campaign(ctx, "b")
			if err != nil {
				return err
			}
			return l.Resign(ctx)
		})
	}},
	{name: "many at once", try: many, crowd: true},
	{name: "messages", try: func(ctx context.Context, s scene) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		sub, err := s.red.Hub().Subscribe(ctx, "news")
		if err != nil {
			return err
		}
		defer sub.Close()
		if _, err := s.other.Hub().Publish(ctx, "news", "m"); err != nil {
			return err
		}
		m, err := sub.Next(ctx)
		if err == nil && m.Payload != "m" {
			err = fmt.Errorf("the message is %q", m.Payload)
		}
		return err
	}},
}

// handed has one process hold l, and the other wait for it.
func handed(ctx context.Context, l, other *rlock.Lock) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	first, _ := h.Token()
	return after(ctx, h.Unlock, func(ctx context.Context) error {
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
func after(ctx context.Context, release, wait func(context.Context) error) error {
	waited := make(chan error, 1)
	go func() { waited <- wait(ctx) }()
	select {
	case err := <-waited:
		return fmt.Errorf("nothing was waited for: %w", err)
	case <-time.After(pollCap / 2):
	}
	return errors.Join(release(ctx), <-waited)
}

// sells sells a stock out by a reservation that is paid, and a claim.
func sells(ctx context.Context, s scene) error {
	sale := s.red.Stocks().Stock("stock")
	if _, err := sale.Open(ctx,
		stock.Spec{Limit: 2, OpenFor: time.Minute, Retain: time.Minute, Ledger: true}); err != nil {
		return err
	}
	if _, err := sale.Reserve(ctx, "ann", stock.Request{ID: "r", N: 1}, time.Minute); err != nil {
		return err
	}
	if _, err := sale.Confirm(ctx, "r"); err != nil {
		return err
	}
	for _, want := range []stock.Outcome{stock.Granted, stock.SoldOut, stock.SoldOut, stock.SoldOut} {
		g, err := s.other.Stocks().Stock("stock").ClaimAny(ctx, 1)
		if err != nil || g.Outcome != want {
			return fmt.Errorf("a claim is %v: %w", g.Outcome, err)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

var tries atomic.Int64

// many has many objects in each call: what is held is renewed, waited for, acquired, counted and limited in a crowd.
func many(ctx context.Context, s scene) error {
	const held, callers, rounds = 24, 24, 3
	try := tries.Add(1)
	names := func(of string, i int) string { return fmt.Sprint(of, "-", try, "-", i) }
	holds := make([]*rlock.Hold, held)
	for i := range holds {
		h, err := s.other.Locks().Reentrant(names("many", i)).Lock(ctx)
		if err != nil {
			return err
		}
		holds[i] = h
		defer func() { _ = h.Unlock(context.WithoutCancel(ctx)) }() // for another try, if this one fails
	}
	all, crowd := errgroup.WithContext(ctx)
	for i := range held {
		all.Go(func() error {
			return s.red.Locks().Reentrant(names("many", i)).Do(crowd, func(context.Context) error { return nil })
		})
	}
	all.Go(func() error {
		time.Sleep(watchdog * 4 / 3)
		for _, h := range holds {
			if err := h.Err(); err != nil {
				return err
			}
			if err := h.Unlock(crowd); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range callers {
		all.Go(func() error {
			l := s.red.Locks().Reentrant(names("crowd-lock", i))
			p := s.red.Semaphores().Semaphore(names("crowd-permit", i), 1)
			k := s.red.Counters().Counter(names("crowd", i%8), rcounter.CounterOptions{TTL: time.Minute})
			limit := s.red.Limiters().Limiter("crowd", ratelimit.LimiterOptions{Rate: 1000, Burst: rounds})
			for range rounds {
				err := l.Do(crowd, func(context.Context) error { return nil })
				if err == nil {
					err = p.Do(crowd, 1, func(context.Context) error { return nil })
				}
				if err == nil {
					_, err = k.Incr(crowd)
				}
				if err == nil {
					var a ratelimit.Admission
					if a, err = limit.Allow(crowd, names("", i), 1); err == nil && !a.Allowed {
						err = errors.New("a unit that is free was refused")
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for i := range 8 {
		if v, err := s.other.Counters().Counter(names("crowd", i),
			rcounter.CounterOptions{TTL: time.Minute}).Get(ctx); err != nil || v != callers/8*rounds {
			return fmt.Errorf("%d of a crowd counted %d: %w", callers/8*rounds, v, err)
		}
	}
	return together(ctx, s)
}

// together has several objects be one step, or an error that says that they cannot.
func together(ctx context.Context, s scene) error {
	l, err := rlock.Multi(s.red.Locks().Reentrant("multi1"), s.red.Locks().Reentrant("multi2"))
	if err != nil {
		return err
	}
	if err := l.Do(ctx, func(ctx context.Context) error {
		if _, err := s.other.Locks().Reentrant("multi2").TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			return fmt.Errorf("another acquires what is held: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	limit := s.red.Limiters().Limiter("all", ratelimit.LimiterOptions{Rate: 1})
	d, err := s.red.Limiters().AllowAll(ctx, ratelimit.Take{Limiter: limit, Key: "ann", N: 1},
		ratelimit.Take{Limiter: limit, Key: "bob", N: 1})
	apart := slices.ContainsFunc(s.red.Hub().Stats().Lacks, func(l pubsub.Lack) bool {
		return strings.HasSuffix(l.Command, "several slots")
	})
	if apart && errors.Is(err, redlatch.ErrInvalidName) { // as in a Cluster
		return nil
	}
	if err != nil || !d.Allowed || apart {
		return fmt.Errorf("of several limits, %v: %w", d, err)
	}
	return nil
}
