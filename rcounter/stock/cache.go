package stock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// soldOutTrust is Options.SoldOutTrust with its default; negative if the server is always asked.
func soldOutTrust(trust time.Duration) (time.Duration, error) {
	switch {
	case trust < 0:
		return -1, nil
	case trust == 0:
		return time.Second, nil
	case trust < 10*time.Millisecond || trust > maxLifetime:
		return 0, errs.InvalidOption("SoldOutTrust", trust, "at least 10ms, 0 for the default, or negative for none")
	}
	return trust, nil
}

// lookEvery is the shortest time between two looks at a flag. Without a cache each look is in vain.
const lookEvery = int64(10 * time.Millisecond)

// soldOutCache is what a process knows of the items that are sold out.
type soldOutCache struct {
	c     *Client
	flags string       // the key
	items sync.Map     // item -> *itemFlag
	mu    sync.Mutex   // for the writes of itemFlag.there
	turns atomic.Int64 // counts forget: an answer that was asked for before one must not be kept after it
}

// itemFlag is what a process knows of one item: that its flag is in rueidis' cache. The cached flag must end with its
// key, whose end is the next deadline of a reservation: units come back then without a write. So the flag has no static
// TTL, and a read takes five commands in place of two, once in SoldOutTrust.
type itemFlag struct {
	get     rueidis.Cacheable
	next    atomic.Int64 // when to look again, ns after the client's base
	looking atomic.Bool
	there   atomic.Int64 // until when the flag is in rueidis' cache, unless it has changed; 0: it is not known to be
	dials   atomic.Int64 // script.Runner.Dials then: the cache goes with its connection
}

func (m *soldOutCache) of(item string) *itemFlag {
	f, ok := m.items.Load(item)
	if !ok {
		f, _ = m.items.LoadOrStore(item,
			&itemFlag{get: m.c.calls.Hub.Client().B().Hget().Key(m.flags).Field(item).Cache().Pin()})
	}
	return f.(*itemFlag)
}

// isSoldOut reports whether nothing of an item is left, and the epoch, as far as rueidis' cache tells. Otherwise the
// server must be asked.
//
// The cache is asked only while the flag should be in there. If the flag is not, it has changed a moment ago, and this
// takes a round trip to a server that answered then; or the connection is lost, and dialling gets no more time than a
// call. While another caller dials, the cache is not asked, because the call would wait as long as the other. If the
// cache did not answer, until is when the patience of the caller ends; otherwise it is zero.
func (m *soldOutCache) isSoldOut(ctx context.Context, item string) (epoch int64, yes bool, until time.Time) {
	calls, f := m.c.calls, m.of(item)
	now := calls.Now()
	if now >= f.there.Load() || f.dials.Load() != calls.Runner.Dials() {
		return 0, false, until
	}
	bounded := script.NewLazyDeadline(ctx, calls.At(now).Add(calls.CallTimeout))
	defer bounded.End()
	r := calls.Hub.Client().DoCache(bounded, f.get, m.c.trust) //nolint:contextcheck // it is ctx, with an end
	if epoch = flaggedEpoch(r); !r.IsCacheHit() || epoch <= 0 {
		f.there.Store(0)
	}
	if r.NonRedisError() != nil {
		until = calls.At(now).Add(calls.Bound())
	}
	return epoch, epoch > 0, until
}

// flaggedEpoch is the epoch in a flag, or 0.
func flaggedEpoch(r rueidis.RedisResult) int64 {
	epoch, err := r.AsInt64()
	if err != nil {
		return 0
	}
	return max(epoch, 0)
}

// observe gets answers of the server, and the number of turns when they were asked for. observe looks at the flag in
// the background: the first look brings it into rueidis' cache, and the second tells whether there is a cache.
//
// When this process returns a unit it must sell it at once, before the news of it comes back from the server: an answer
// that was asked for before forget says nothing about the time after it, and neither does an older flag in the cache.
func (m *soldOutCache) observe(a Answer, turns int64) {
	if m.c.trust < 0 || a.Why != SoldOut || len(a.Lines) != 1 || a.Lines[0].N != 0 {
		return
	}
	calls, f := m.c.calls, m.of(a.Lines[0].Item)
	now := calls.Now()
	if now < f.there.Load() || now < f.next.Load() || !f.looking.CompareAndSwap(false, true) {
		return
	}
	f.next.Store(now + lookEvery)
	calls.Finish(func() {
		defer f.looking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), calls.Bound())
		defer cancel()
		client, dials := calls.Hub.Client(), calls.Runner.Dials()
		r := client.DoCache(ctx, f.get, m.c.trust)
		if !r.IsCacheHit() && flaggedEpoch(r) > 0 {
			r = client.DoCache(ctx, f.get, m.c.trust)
		}
		// Other code may read the flag through the same cache, and keep it for longer than is trusted here.
		left := min(script.Duration(r.CachePTTL()), m.c.trust)
		if !r.IsCacheHit() || flaggedEpoch(r) == 0 || left <= 0 {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.turns.Load() != turns {
			return
		}
		f.dials.Store(dials)
		f.there.Store(calls.Now() + int64(left))
		// Until then m is kept, even if no Sale value refers to it: programs make Sale values anew for every use.
		time.AfterFunc(left, func() { runtime.KeepAlive(m) })
	})
}

// forget is called when this process has returned units.
func (m *soldOutCache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns.Add(1)
	for _, f := range m.items.Range {
		f.(*itemFlag).there.Store(0)
	}
}

// obtain answers an order: SoldOut by the process itself if it may say so and knows it, otherwise as the server answers
// (ask).
func (s *Sale) obtain(ctx context.Context, o Order, ask func(context.Context) (Answer, error)) (Answer, error) {
	m := &s.processState().cache
	if (o.New || o.Anyone) && len(o.Lines) == 1 && m.c.trust >= 0 {
		epoch, yes, until := m.isSoldOut(ctx, o.Lines[0].Item)
		if yes {
			s.c.calls.Tell(ctx, errs.Event{Kind: errs.EventAnsweredLocally, Name: s.name, Outcome: SoldOut})
			return Answer{ID: o.ID, State: Refused, Why: SoldOut, Lines: []Line{{Item: o.Lines[0].Item}}, Epoch: epoch}, nil
		}
		if !until.IsZero() {
			var done context.CancelFunc
			ctx, done = context.WithDeadlineCause(ctx, until, session.ErrPatience)
			defer done()
		}
	}
	var began time.Time
	turns := m.turns.Load()
	if s.c.calls.Observer != nil {
		began = time.Now()
	}
	a, err := ask(ctx)
	m.observe(a, turns)
	if s.c.calls.Observer != nil {
		s.c.calls.Tell(ctx, errs.Event{Kind: errs.EventClaimed, Name: s.name, Outcome: outcome(a), N: a.units(),
			Took: time.Since(began), Again: a.Again, Err: edged(err)})
	}
	return a, err
}

// outcome is the answer to an order as an Event says it.
func outcome(a Answer) string {
	if a.State == Refused {
		return a.Why
	}
	return string(a.State)
}

// units are those that an order has.
func (a Answer) units() (n int64) {
	if a.Won() {
		for _, l := range a.Lines {
			n += l.N
		}
	}
	return n
}
