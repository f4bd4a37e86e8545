package stock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// soldOutOptions say how claims on a stock that is sold out are answered without asking the server.
//
// Once the server has said "sold out", the process reads the winners once, and then answers SoldOut by itself to every
// claimant who is none of them. Whoever may be one asks the server: the process never says by itself that somebody has
// a unit. The server writes a small key, the flag, when the last unit goes and removes it when one comes back.
//
// With client-side caching every such answer looks at the flag in rueidis' cache first, and is given only if it is the
// flag of when the winners were read. So once the server's message that a unit came back is here, which takes
// milliseconds, the server is asked again; where the message is lost, that takes trust at most. Without client-side
// caching (rueidis' DisableCache) the flag is asked for every 5 ms while claims come, and an answer goes by what was
// asked for no more than 10 ms ago. The process that returned a unit sells it at once.
type soldOutOptions struct {
	off     bool
	trust   time.Duration
	winners int
}

type freshKey struct{}

// Fresh has the claims and reservations made with the context ask the server, whatever the process knows: for a
// claimant who asks a second time.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

func (o *Options) soldOut() (soldOutOptions, error) {
	s := soldOutOptions{off: o.SoldOutTrust < 0, trust: o.SoldOutTrust, winners: o.MaxWinners}
	if s.trust <= 0 {
		s.trust = time.Second
	}
	if s.trust < 10*time.Millisecond || s.trust > maxLifetime {
		return s, errs.InvalidOption("SoldOutTrust", o.SoldOutTrust, "at least 10ms, 0 for the default, or negative for none")
	}
	if s.winners == 0 {
		s.winners = 1_000_000
	}
	return s, nil
}

const (
	// lookEvery is the least time between two looks at the flag.
	lookEvery = int64(time.Millisecond)
	// uncachedFor is how long ago a look may have begun by whose result an answer goes, where nothing is cached. The next
	// one begins at half of it, so that it is there in time.
	uncachedFor = int64(10 * time.Millisecond)
	// restFor is the longest pause after the winners were read.
	restFor = int64(10 * time.Second)
)

// cache is what a process knows of a stock's being sold out.
//
// The flag's text is unique: each time nothing is left any more the server begins a new turn. So if the turn reads the
// same before and after the winners were read, the flag was there all the while, nothing was granted or returned in
// between, and the winners are all the winners; and as long as it stays the same, they stay so. Likewise the ids, as
// long as all of the text stays the same: a Cancel that comes before its Reserve adds one within a turn.
type cache struct {
	c    *Client
	keys []string
	get  rueidis.Cacheable // the flag

	sold  atomic.Pointer[soldOut]
	next  atomic.Int64 // when to look again, ns after the client's base
	there atomic.Int64 // until when the flag is in rueidis' cache, unless it has changed
	busy  atomic.Bool  // somebody looks

	rested atomic.Int64 // when the winners may be read again
	broken int          // how often reading them has been broken off in a row; only for who looks

	mu    sync.Mutex // for the writes of sold
	turns int        // counts forget: what was being looked up before one must not be kept after it
	swept bool       // a timer is set that forgets what nobody uses
}

func newCache(c *Client, keys []string) cache {
	return cache{c: c, keys: keys, get: c.calls.Hub.Client().B().Get().Key(keys[4]).Cache().Pin()}
}

// soldOut is never changed.
type soldOut struct {
	flag    string
	epoch   int64
	looked  int64   // ns after the client's base: when it was asked for last
	winners *filter // nil: too many
	ids     *filter // of requests and reservations; nil: too many, or not all of them are known
	behind  bool    // ids can be read
}

// turn is the flag's text without the number of requests.
func turn(flag string) string { return flag[:max(0, strings.LastIndexByte(flag, ';'))] }

// known is what is known for sure now, or nil: then the server is to be asked.
func (m *cache) known(ctx context.Context) *soldOut {
	k := m.sold.Load()
	if k == nil || ctx.Value(freshKey{}) != nil {
		return nil
	}
	now := m.c.calls.Now()
	age := now - k.looked
	switch {
	case !m.c.caches.Load():
		if age >= uncachedFor/2 {
			m.look(now)
		}
		if age < min(uncachedFor, int64(m.c.soldOut.trust)) {
			return k
		}
	case age < int64(m.c.soldOut.trust) && now < m.there.Load():
		switch flag := m.cached(ctx, now); {
		case flag == k.flag:
			return k
		case flag != "" && turn(flag) == turn(k.flag):
			m.look(now)
			winnersOnly := *k
			winnersOnly.ids, winnersOnly.behind = nil, false
			return &winnersOnly
		}
		m.look(now)
	default:
		m.look(now)
	}
	return nil
}

// cached is the flag by rueidis' cache. It is called only while it should be in there.
// If it is not, it has changed, and the round trip that this takes goes to a server that was heard of a moment ago; or
// the connection is lost, and dialling is given no more time than a call.
func (m *cache) cached(ctx context.Context, now int64) string {
	ctx, done := script.Within(ctx, m.c.calls.At(now).Add(m.c.calls.CallTimeout))
	defer done()
	flag, err := m.c.calls.Hub.Client().DoCache(ctx, m.get, m.keep()).ToString()
	if err != nil {
		return ""
	}
	return flag
}

// keep is for how long rueidis keeps the flag: half of Trust, so that it is read again before what was read last is
// trusted no longer.
func (m *cache) keep() time.Duration { return m.c.soldOut.trust / 2 }

// claim is what is known, if claimant can be told SoldOut without asking the server: claimant has no unit. The process
// never says by itself that a claimant has a unit. Limit 1: X wins, returns the unit in another process, Y claims it there,
// and X asks here before the news has come; X and Y would both have it. SoldOut of a moment ago gives nobody a unit
// (TestNobodyIsToldOfAUnitThatSomebodyElseHas).
func (m *cache) claim(ctx context.Context, claimant string) *soldOut {
	if k := m.known(ctx); k != nil && k.winners != nil && !k.winners.has(claimant) {
		return k
	}
	return nil
}

// request is the same for a request or reservation: the server has no record of its id.
func (m *cache) request(ctx context.Context, id string) *soldOut {
	k := m.known(ctx)
	switch {
	case k == nil:
	case k.ids != nil && !k.ids.has(id):
		return k
	case k.behind:
		if now := m.c.calls.Now(); now >= m.rested.Load() {
			m.look(now)
		}
	}
	return nil
}

// heard gets every answer of the server's. (A Reserve can be SoldOut while fewer units are left than it wants.)
func (m *cache) heard(g Grant) {
	if g.Outcome == SoldOut && g.Remaining == 0 && !m.c.soldOut.off {
		m.look(m.c.calls.Now())
	}
}

// forget is called when this process has given units back: it must be the first to see them.
func (m *cache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	m.sold.Store(nil)
}

// forgetIDs is called when this process has made an id known to the server that no request had: it must be the first to
// ask the server about it.
func (m *cache) forgetIDs() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	if k := m.sold.Load(); k != nil && k.ids != nil {
		winnersOnly := *k
		winnersOnly.ids, winnersOnly.behind = nil, true
		m.sold.Store(&winnersOnly)
	}
}

// look looks at the flag in the background, if it is time.
func (m *cache) look(now int64) {
	if now < m.next.Load() || !m.busy.CompareAndSwap(false, true) {
		return
	}
	m.next.Store(now + lookEvery)
	m.mu.Lock()
	turns := m.turns
	m.mu.Unlock()
	m.c.calls.Finish(func() {
		defer m.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), m.c.calls.Bound())
		defer cancel()
		k, err := m.read(ctx, m.sold.Load())
		if err != nil {
			m.next.Store(m.c.calls.Now() + uncachedFor)
			return // what was known is trusted until its time is over
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.turns != turns {
			return
		}
		m.sold.Store(k)
		if k != nil && !m.swept {
			m.swept = true
			time.AfterFunc(10*m.c.soldOut.trust, m.sweep)
		}
	})
}

// sweep forgets what nobody has asked for in a while. Until it does, its timer keeps what is known alive though no
// Stock value refers to it: programs make those anew for every use.
func (m *cache) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.sold.Load()
	if k == nil || m.c.calls.Now() > k.looked+5*int64(m.c.soldOut.trust) {
		m.sold.Store(nil)
		m.swept = false
		return
	}
	time.AfterFunc(10*m.c.soldOut.trust, m.sweep)
}
