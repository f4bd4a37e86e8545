package stock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
)

// soldOutOptions say how the process answers claims on a sold-out stock without the server. "Sold out" in the package comment
// has the protocol.
type soldOutOptions struct {
	off     bool
	trust   time.Duration
	winners int
}

type freshKey struct{}

// Fresh returns a context with which claims and reservations always ask the server, even if the process could answer SoldOut by
// itself. It is for a claimant who asks a second time.
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
	// lookEvery is the shortest time between two looks at the flag.
	lookEvery = int64(time.Millisecond)
	// uncachedFor is how old a look at the flag may be when an answer goes by it, where nothing is cached. The next look begins
	// at half of that age, so that its result arrives in time.
	uncachedFor = int64(10 * time.Millisecond)
	// restFor is the longest pause after the winners were read.
	restFor = int64(10 * time.Second)
)

// cache is what a process knows of a stock that is sold out.
//
// The flag's text is 'epoch;turn;recorded;requests;us'. A turn is the time during which nothing is left: the server begins a new
// one, with a name never used before, each time the last unit goes. If the flag has the same turn before and after the winners
// were read, no unit was granted or returned in between, so these are all winners. They stay so as long as the turn stays the
// same. The ids stay so as long as the whole text stays the same: a Cancel that comes before its Reserve adds an id within a
// turn (TestWhatIsCancelledBeforeItIsReservedIsCancelledOnASoldOutStock).
type cache struct {
	c    *Client
	keys []string
	get  rueidis.Cacheable // the flag

	sold  atomic.Pointer[soldOut]
	next  atomic.Int64 // when to look again, ns after the client's base
	there atomic.Int64 // until when the flag is in rueidis' cache, unless it has changed
	busy  atomic.Bool  // a look is under way

	rested atomic.Int64 // when the winners may be read again
	broken int          // how often in a row reading them was broken off; used only by the look that is under way

	mu    sync.Mutex // for the writes of sold
	turns int        // counts forget: a look that began before one must not be kept after it
	swept bool       // a timer is set that drops what is not used
}

func newCache(c *Client, keys []string) cache {
	return cache{c: c, keys: keys, get: c.calls.Hub.Client().B().Get().Key(keys[4]).Cache().Pin()}
}

// soldOut is what one look has found. A soldOut is never changed.
type soldOut struct {
	flag    string
	epoch   int64
	looked  int64   // ns after the client's base: when the flag was last asked for
	winners *filter // nil: too many
	ids     *filter // of requests and reservations; nil: too many, or not all of them are known
	behind  bool    // ids can be read
}

// turn is the flag's text as far as it is the same throughout a turn: without the number of requests and the time in us.
func turn(flag string) string {
	at := 0
	for range 3 {
		next := strings.IndexByte(flag[at:], ';')
		if next < 0 {
			return ""
		}
		at += next + 1
	}
	return flag[:at]
}

// known is what is certain now, or nil: then the server must be asked.
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

// cached is the flag in rueidis' cache. It is called only while the flag should be in there. If it is not, either the flag has
// changed, and this takes a round trip to a server that answered a moment ago; or the connection is lost, and dialling gets no
// more time than a call.
func (m *cache) cached(ctx context.Context, now int64) string {
	ctx, done := m.c.calls.Runner.Within(ctx, m.c.calls.At(now).Add(m.c.calls.CallTimeout))
	defer done()
	flag, err := m.c.calls.Hub.Client().DoCache(ctx, m.get, m.keep()).ToString()
	if err != nil {
		return ""
	}
	return flag
}

// keep is how long rueidis keeps the flag: half of the trust, so that the flag is read again before that ends.
func (m *cache) keep() time.Duration { return m.c.soldOut.trust / 2 }

// claim is what is known if claimant can be told SoldOut without the server, since it has no unit; otherwise nil. The process
// never says by itself that a claimant has a unit. Limit 1: X wins, returns the unit in another process, Y claims it there,
// and X asks here before the news has come; X and Y would both have it. SoldOut of a moment ago gives nobody a unit
// (TestNobodyIsToldOfAUnitThatSomebodyElseHas).
func (m *cache) claim(ctx context.Context, claimant string) *soldOut {
	if k := m.known(ctx); k != nil && k.winners != nil && !k.winners.has(claimant) {
		return k
	}
	return nil
}

// request is the same for a request or reservation: the server has no record of that id.
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

// heard gets every answer of the server. (A Reserve can be SoldOut while some units are left, but fewer than it wants.)
func (m *cache) heard(g Grant) {
	if g.Outcome == SoldOut && g.Remaining == 0 && !m.c.soldOut.off {
		m.look(m.c.calls.Now())
	}
}

// forget is called when this process has returned units. This process must sell them at once, before the news of them comes
// back from the server (TestAReturnIsSeenAtOnceByItsOwnProcess).
func (m *cache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	m.sold.Store(nil)
}

// forgetIDs is called when this process has cancelled an id before its Reserve. From now on this process must ask the server
// about that id.
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

// sweep drops what was not used for a while. Until then its timer keeps it alive even if no Stock value refers to it, because
// programs make Stock values anew for every use.
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
