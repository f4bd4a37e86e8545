package rcounter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Cached returns the value from the client-side cache of rueidis: as it was at most maxStale ago, which is at least 1
// ms. A change is seen earlier, as soon as the server's message about it arrives, which takes milliseconds. No round
// trip while the value is cached, one otherwise. Use it for numbers that are shown and read far more often than they
// change: the server notifies every process that reads a counter this way of every change. It notifies of an expiry
// when it removes the key, which may take seconds; of a counter with CounterOptions.TTL the process knows the expiry
// itself.
//
// Without client-side caching, and while the counter is missing, Cached is Get, with its errors. ErrInvalidOption says
// that maxStale is too short, and nothing is sent.
func (k *Counter) Cached(ctx context.Context, maxStale time.Duration) (value int64, err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused); err != nil {
		return 0, err
	}
	if maxStale < time.Millisecond {
		return 0, errs.InvalidOption("maxStale", maxStale, "at least 1ms")
	}
	ctx, cancel := k.c.calls.Bounded(ctx)
	defer cancel()
	text, err := k.cached(ctx, maxStale.Truncate(time.Millisecond))
	if v, ok := integer(text); err == nil && ok {
		return v, nil
	}
	return k.Get(ctx) // which says what is wrong, if anything is
}

// tracked is how callers with the same maxStale read a counter through the cache.
type tracked struct {
	age   time.Duration
	get   rueidis.Cacheable
	there atomic.Int64 // until when it is in the cache unless it has changed, ns after the client's base
	dials atomic.Int64 // script.Runner.Dials then: the cache goes with its connection
}

// cached is the counter's text, at most age old.
func (k *Counter) cached(ctx context.Context, age time.Duration) (string, error) {
	t := k.tracked.Load()
	if t == nil || t.age != age {
		// An entry of the cache lasts for as long as the caller that read it wanted. Its name is the command with all
		// arguments. With one name for all, a caller with maxStale of 10 ms would be answered by the entry of a caller with
		// an hour (TestCached_MaxStale_IsKept). So each age reads a range of its own, which is all of the value in any
		// case.
		get := k.c.calls.Hub.Client().B().Getrange().Key(k.key).Start(0).End(1000 + age.Milliseconds()).Cache()
		// A read asks for the key's expiry, too, in a MULTI, which makes five commands of two. Without it the entry would
		// outlast the key until the server notices that the key has expired: for seconds, if many keys do.
		if k.ttl == "0" {
			get = get.ToStaticTTL()
		}
		t = &tracked{age: age, get: get.Pin()}
		k.tracked.Store(t)
	}
	now, dials := k.c.calls.Now(), k.c.calls.Runner.Dials()
	if now < t.there.Load() && dials == t.dials.Load() { // while another dials, this would wait for as long as that does
		bounded, done := context.WithDeadline(ctx, k.c.calls.At(now).Add(k.c.calls.CallTimeout))
		defer done()
		return k.c.calls.Hub.Client().DoCache(bounded, t.get, age).ToString()
	}
	m, err := k.c.calls.Runner.Attempt(ctx,
		script.Call{Script: getrangeScript, Keys: []string{k.key}, Cached: t.get, CachedFor: age})
	if err != nil {
		return "", err
	}
	// Only a hit shows that there is a cache: without one a call in place would wait for as long as another dials.
	if m.IsCacheHit() {
		t.dials.Store(dials)
		t.there.Store(now + min(int64(age), m.CachePTTL()*int64(time.Millisecond)))
	}
	return m.ToString()
}

var getrangeScript = script.Plain("getrange")
