package rcounter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Defaults of SoldOutOptions.
const (
	DefaultTrust   = time.Second
	DefaultWinners = 100_000
)

// SoldOutOptions say how claims on a stock that is sold out are answered without asking the server.
//
// Once the server has said "sold out", the process reads the winners once, and then answers by itself: a winner gets
// the ordinal it has, anybody else SoldOut. The server writes a small key, the flag, when the last unit goes and
// removes it when one comes back.
//
// With client-side caching every such answer looks at the flag in rueidis' cache first, and is given only if it is the
// flag of when the winners were read. So once the server's message that a unit came back is here, which takes
// milliseconds, the server is asked again; where the message is lost, that takes Trust at most. Without client-side
// caching (rueidis' DisableCache) the flag is asked for every 5 ms while claims come, and an answer goes by what was
// asked for no more than 10 ms ago. The process that returned a unit sells it at once.
//
// The zero value is good.
type SoldOutOptions struct {
	// Off has every claim ask the server.
	Off bool
	// Trust is the longest time for which an answer of the server's stands without being confirmed, at least 10 ms.
	// Defaults to DefaultTrust.
	Trust time.Duration
	// Winners is how many claimants, and as many requests, a stock may have had for them to be read. Of a larger one only ClaimAny
	// is answered by the process. They take some 100 bytes each. Defaults to DefaultWinners; negative: none are read.
	Winners int
}

func (o *SoldOutOptions) check() error {
	if o.Trust == 0 {
		o.Trust = DefaultTrust
	}
	if o.Trust < 10*time.Millisecond || o.Trust > MaxLifetime {
		return errs.InvalidOption("SoldOut.Trust", o.Trust, "at least 10ms, or 0 for the default")
	}
	if o.Winners == 0 {
		o.Winners = DefaultWinners
	}
	return nil
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

// memory is what a process knows of a stock's being sold out.
//
// The flag's text is unique: each time it is set the server counts a turn up. So if it reads the same before and after
// the winners were read, it was there all the while, nothing was granted or returned in between, and the winners are
// all the winners; and as long as it stays the same, they stay so.
type memory struct {
	c    *Client
	keys []string
	get  rueidis.Cacheable // the flag

	sold  atomic.Pointer[soldOut]
	next  atomic.Int64 // when to look again, ns after the client's base
	there atomic.Int64 // until when the flag is in rueidis' cache, unless it has changed
	busy  atomic.Bool  // somebody looks

	// only for who looks
	rested int64 // when the winners may be read again
	broken int   // how often reading them has been broken off in a row

	mu    sync.Mutex // for the writes of sold
	turns int        // counts forget: what was being looked up before one must not be kept after it
	swept bool       // a timer is set that forgets what nobody uses
}

func newMemory(c *Client, keys []string) memory {
	return memory{c: c, keys: keys, get: c.client.B().Get().Key(keys[4]).Cache().Pin()}
}

// soldOut is never changed.
type soldOut struct {
	flag    string
	epoch   int64
	looked  int64            // ns after the client's base: when it was asked for last
	winners map[string]int64 // claimant -> ordinal; nil: too many
	ids     map[string]struct{}
}

// known is what is known for sure now, or nil: then the server is to be asked.
func (m *memory) known(ctx context.Context) *soldOut {
	k := m.sold.Load()
	if k == nil {
		return nil
	}
	now := m.c.now()
	age := now - k.looked
	switch {
	case !m.c.caches.Load():
		if age >= uncachedFor/2 {
			m.look(now)
		}
		if age < min(uncachedFor, int64(m.c.soldOut.Trust)) {
			return k
		}
	case age < int64(m.c.soldOut.Trust) && now < m.there.Load() && m.stands(ctx, k, now):
		return k
	default:
		m.look(now)
	}
	return nil
}

// stands reports whether the flag is still that of k, by rueidis' cache. It is called only while it should be in there.
// If it is not, it has changed, and the round trip that this takes goes to a server that was heard of a moment ago; or
// the connection is lost, and dialling is given no more time than a call.
func (m *memory) stands(ctx context.Context, k *soldOut, now int64) bool {
	ctx, done := script.Within(ctx, m.c.base.Add(time.Duration(now)+m.c.timeout))
	defer done()
	flag, err := m.c.client.DoCache(ctx, m.get, m.keep()).ToString()
	return err == nil && flag == k.flag
}

// keep is for how long rueidis keeps the flag: half of Trust, so that it is read again before what was read last is
// trusted no longer.
func (m *memory) keep() time.Duration { return m.c.soldOut.Trust / 2 }

// claim answers a claim if that can be done without the server.
func (m *memory) claim(ctx context.Context, claimant string) (Grant, bool) {
	k := m.known(ctx)
	if k == nil || k.winners == nil {
		return Grant{}, false
	}
	if ordinal, won := k.winners[claimant]; won {
		// what a replica may not have yet is the server's to confirm
		return Grant{Outcome: Replayed, Ordinal: ordinal, N: 1, Epoch: k.epoch}, m.c.replicas == 0
	}
	return Grant{Outcome: SoldOut, Epoch: k.epoch}, true
}

// any answers ClaimAny.
func (m *memory) any(ctx context.Context) (Grant, bool) {
	if k := m.known(ctx); k != nil {
		return Grant{Outcome: SoldOut, Epoch: k.epoch}, true
	}
	return Grant{}, false
}

// request answers a request or reservation that the server has no record of.
func (m *memory) request(ctx context.Context, id string) (Grant, bool) {
	k := m.known(ctx)
	if k == nil || k.ids == nil {
		return Grant{}, false
	}
	if _, there := k.ids[id]; there {
		return Grant{}, false
	}
	return Grant{Outcome: SoldOut, Epoch: k.epoch}, true
}

// heard is told of every answer of the server's.
func (m *memory) heard(o Outcome) {
	if o == SoldOut && !m.c.soldOut.Off {
		m.look(m.c.now())
	}
}

// forget is called when this process has given units back: it must be the first to see them.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	m.sold.Store(nil)
}

// look looks at the flag in the background, if it is time.
func (m *memory) look(now int64) {
	if now < m.next.Load() || !m.busy.CompareAndSwap(false, true) {
		return
	}
	m.next.Store(now + lookEvery)
	m.mu.Lock()
	turns := m.turns
	m.mu.Unlock()
	m.c.tasks.spawn(func() {
		defer m.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), m.c.bound)
		defer cancel()
		k, err := m.read(ctx, m.sold.Load())
		if err != nil {
			m.next.Store(m.c.now() + uncachedFor)
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
			time.AfterFunc(10*m.c.soldOut.Trust, m.sweep)
		}
	})
}

// read is what is known after a look at the flag, nil if the stock sells; old is what was known.
func (m *memory) read(ctx context.Context, old *soldOut) (*soldOut, error) {
	sent := m.c.now()
	flag, cached, err := m.flag(ctx, true)
	if err != nil || flag == "" {
		return nil, err
	}
	switch {
	case old == nil || old.flag != flag:
		return m.learn(ctx, flag)
	case cached: // says no more than when it was read
		if m.c.now()-old.looked < int64(m.c.soldOut.Trust) {
			return old, nil
		}
		// somebody else has it kept for longer than it is trusted
		sent = m.c.now()
		if flag, _, err = m.flag(ctx, false); err != nil || flag != old.flag {
			return nil, err
		}
	}
	k := *old
	k.looked = sent
	return &k, nil
}

// learn reads the winners of a stock whose flag was read. It rests for nine times as long as that takes before it does
// so again, and after one that was broken off for longer each time, up to restFor: a stock whose last unit comes and
// goes would have its winners read all the time.
func (m *memory) learn(ctx context.Context, flag string) (*soldOut, error) {
	began := m.c.now()
	if began < m.rested {
		m.next.Store(m.rested)
		return nil, nil
	}
	k, err := m.winners(ctx, flag)
	now := m.c.now()
	rest := 9 * (now - began)
	if k == nil {
		m.broken = min(m.broken+1, 10)
		rest = max(rest, uncachedFor<<m.broken)
	} else {
		m.broken = 0
	}
	m.rested = now + min(rest, restFor)
	return k, err
}

// winners reads the winners. It returns nil if they changed meanwhile.
func (m *memory) winners(ctx context.Context, flag string) (*soldOut, error) {
	parts := strings.Split(flag, ";")
	var n [4]int64
	if len(parts) != len(n) {
		return nil, malformed("get", m.keys[4])
	}
	for i := range n {
		v, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return nil, malformed("get", m.keys[4])
		}
		n[i] = v
	}
	k := &soldOut{flag: flag, epoch: n[0]}
	most := int64(m.c.soldOut.Winners)
	if n[2] <= most {
		k.winners = make(map[string]int64, n[2])
		err := m.c.scan(ctx, m.keys[1], func(claimant, record string) error {
			text, _, _ := strings.Cut(record, ";")
			ordinal, err := strconv.ParseInt(text, 10, 64)
			if ordinal > 0 { // 0: returned
				k.winners[claimant] = ordinal
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if n[3] <= most {
		k.ids = map[string]struct{}{}
		err := m.c.scan(ctx, m.keys[2], func(field, _ string) error {
			if id, ok := strings.CutPrefix(field, "r:"); ok {
				k.ids[id] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	k.looked = m.c.now()
	again, _, err := m.flag(ctx, false)
	if err != nil || again != flag {
		return nil, err
	}
	// It was read through the cache before. So this tells whether there is one.
	if _, _, err := m.flag(ctx, true); err != nil {
		return nil, err
	}
	return k, nil
}

// flag reads the flag, "" if there is none. Through rueidis' cache it registers for the news of its change.
func (m *memory) flag(ctx context.Context, cache bool) (value string, cached bool, err error) {
	client := m.c.client
	var r rueidis.RedisResult
	if cache {
		sent := m.c.now()
		if r = client.DoCache(ctx, m.get, m.keep()); r.IsCacheHit() {
			m.c.caches.Store(true)
			m.there.Store(sent + r.CachePTTL()*int64(time.Millisecond))
		} else if r.Error() == nil {
			m.there.Store(sent + int64(m.keep()))
		}
	} else {
		r = client.Do(ctx, client.B().Get().Key(m.keys[4]).Build())
	}
	value, err = r.ToString()
	if rueidis.IsRedisNil(err) {
		return "", r.IsCacheHit(), nil
	}
	return value, r.IsCacheHit(), err
}

var hscanScript = script.Plain("hscan")

// scan reads all of a hash that does not change meanwhile, in parts, so that the server does other things in between.
// A field may come more than once.
func (c *Client) scan(ctx context.Context, key string, each func(field, value string) error) error {
	for cursor := uint64(0); ; {
		m, err := c.do(ctx, script.Call{Script: hscanScript, Keys: []string{key}, Command: func(b rueidis.Builder) rueidis.Completed {
			return b.Hscan().Key(key).Cursor(cursor).Count(1000).Build()
		}})
		if err != nil {
			return err
		}
		e, err := m.AsScanEntry()
		if err != nil {
			return malformed("hscan", key)
		}
		for i := 0; i+1 < len(e.Elements); i += 2 {
			if err := each(e.Elements[i], e.Elements[i+1]); err != nil {
				return fmt.Errorf("%w: %q has a record that is none", ErrCorrupt, key)
			}
		}
		if cursor = e.Cursor; cursor == 0 {
			return nil
		}
	}
}

// sweep forgets what nobody has asked for in a while. Until it does, its timer keeps what is known alive though no
// Stock value refers to it: programs make those anew for every use.
func (m *memory) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.sold.Load()
	if k == nil || m.c.now() > k.looked+5*int64(m.c.soldOut.Trust) {
		m.sold.Store(nil)
		m.swept = false
		return
	}
	time.AfterFunc(10*m.c.soldOut.Trust, m.sweep)
}
