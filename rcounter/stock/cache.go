package stock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

type freshKey struct{}

// Fresh returns a context that says that the claimant and the id of a claim or reservation are new: neither has been
// used on this stock before, so neither can have units. Under it the process may answer SoldOut by itself, as it does
// to ClaimAny. It is for crowds whose ids are made for each request. A repeated request asks without Fresh: a claimant
// who has units may hear SoldOut under it.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

func isFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }

// soldOutTrust is o.SoldOutTrust with its default; negative if the server is always asked.
func (o *Options) soldOutTrust() (time.Duration, error) {
	switch t := o.SoldOutTrust; {
	case t < 0:
		return -1, nil
	case t == 0:
		return time.Second, nil
	case t < 10*time.Millisecond || t > maxLifetime:
		return 0, errs.InvalidOption("SoldOutTrust", t, "at least 10ms, 0 for the default, or negative for none")
	default:
		return t, nil
	}
}

// lookEvery is the shortest time between two looks at the flag: where there is no cache, each of them is in vain.
const lookEvery = int64(10 * time.Millisecond)

// cache is what a process knows of a stock that is sold out: that the flag is in rueidis' cache. See "Sold out" in the
// package comment.
type cache struct {
	c    *Client
	get  rueidis.Cacheable // the flag
	next atomic.Int64      // when to look again, ns after the client's base
	busy atomic.Bool       // a look is under way

	there atomic.Int64 // until when the flag is in rueidis' cache, unless it has changed; 0: it is not known to be
	dials atomic.Int64 // script.Runner.Dials then: the cache goes with its connection
	mu    sync.Mutex   // for the writes of there
	turns atomic.Int64 // counts forget: what was heard before one must not be kept after it
}

func newCache(c *Client, keys []string) cache {
	return cache{c: c, get: c.calls.Hub.Client().B().Get().Key(keys[4]).Cache().Pin()}
}

// soldOut reports whether nothing is left, and the epoch of the stock, as far as rueidis' cache tells. Otherwise the
// server must be asked.
//
// It asks the cache only while the flag should be in there. If it is not, the flag has changed a moment ago, and this
// takes a round trip to a server that answered then; or the connection is lost, and dialling gets no more time than a
// call. While another dials it does not ask: it would wait for that as long as the other does. If it was not answered,
// until is when the patience of its caller ends, which has begun with it, and for whom the server is asked next;
// otherwise it is zero.
func (m *cache) soldOut(ctx context.Context) (epoch int64, yes bool, until time.Time) {
	now := m.c.calls.Now()
	if now >= m.there.Load() || m.dials.Load() != m.c.calls.Runner.Dials() {
		return 0, false, until
	}
	ctx, done := context.WithDeadline(ctx, m.c.calls.At(now).Add(m.c.calls.CallTimeout))
	defer done()
	r := m.c.calls.Hub.Client().DoCache(ctx, m.get, m.c.trust)
	if epoch = flagged(r); !r.IsCacheHit() || epoch <= 0 {
		m.there.Store(0)
	}
	if r.NonRedisError() != nil {
		until = m.c.calls.At(now).Add(m.c.calls.Bound())
	}
	return epoch, epoch > 0, until
}

// untilContext is ctx until then, if that is not zero.
func untilContext(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, until, session.ErrPatience)
}

// flagged is the epoch that the flag tells, or 0.
func flagged(r rueidis.RedisResult) int64 {
	text, err := r.ToString()
	if err != nil {
		return 0
	}
	return max(number(text), 0)
}

// observe gets every answer of the server, and the number of turns when it was asked for. (A Reserve can be SoldOut
// while some units are left, but fewer than it wants.) It looks at the flag in the background: the first look brings it
// into rueidis' cache, unless another did, and the second tells whether there is a cache.
//
// This process returns a unit, and must sell it at once, before the news of it comes back from the server
// (TestSoldOut_OwnReturn_EndsItAtOnce): an answer that was asked for before forget says nothing about the time
// after it, and neither does an older flag in the cache.
func (m *cache) observe(g Grant, turns int64) {
	now := m.c.calls.Now()
	if g.Outcome != SoldOut || g.Remaining != 0 || m.c.trust < 0 || now < m.there.Load() || now < m.next.Load() ||
		!m.busy.CompareAndSwap(false, true) {
		return
	}
	m.next.Store(now + lookEvery)
	m.c.calls.Finish(func() {
		defer m.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), m.c.calls.Bound())
		defer cancel()
		client, dials := m.c.calls.Hub.Client(), m.c.calls.Runner.Dials()
		r := client.DoCache(ctx, m.get, m.c.trust)
		if !r.IsCacheHit() && flagged(r) > 0 {
			r = client.DoCache(ctx, m.get, m.c.trust)
		}
		// Other code may read the flag through the same cache, and keep it for longer than is trusted here.
		left := min(time.Duration(r.CachePTTL())*time.Millisecond, m.c.trust)
		if !r.IsCacheHit() || flagged(r) == 0 || left <= 0 {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.turns.Load() != turns {
			return
		}
		m.dials.Store(dials)
		m.there.Store(m.c.calls.Now() + int64(left))
		// Until then m is kept, even if no Stock value refers to it: programs make Stock values anew for every use.
		time.AfterFunc(left, func() { runtime.KeepAlive(m) })
	})
}

// forget is called when this process has returned units.
func (m *cache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns.Add(1)
	m.there.Store(0)
}
