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
// the ordinal it has, anybody else SoldOut. It looks at a small key, the flag, that the server writes when the last
// unit goes and removes when one comes back; with client-side caching the server tells of that change, and looking
// costs nothing. A unit that comes back can be claimed within milliseconds where that works, within Trust where its
// message is lost, and at once by the process that returned it. Without client-side caching (rueidis' DisableCache)
// one look in 10 ms is sent to the server.
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

// How often the flag is looked at while claims come, in rueidis' cache and on the server.
const (
	lookEvery   = int64(time.Millisecond)
	uncachedFor = int64(10 * time.Millisecond)
)

// memory is what a process knows of a stock's being sold out.
//
// The flag's text is unique: each time it is set the server counts a turn up. So if it reads the same before and after
// the winners were read, it was there all the while, nothing was granted or returned in between, and the winners are
// all the winners; and as long as it stays the same, they stay so.
type memory struct {
	c    *Client
	keys []string

	sold atomic.Pointer[soldOut]
	next atomic.Int64 // when to look again, ns after the client's base
	busy atomic.Bool  // somebody looks

	mu    sync.Mutex // for the writes of sold
	turns int        // counts forget: what was being looked up before one must not be kept after it
	swept bool       // a timer is set that forgets what nobody uses
}

// soldOut is never changed.
type soldOut struct {
	flag    string
	epoch   int64
	until   int64            // ns after the client's base: trusted no longer
	winners map[string]int64 // claimant -> ordinal; nil: too many
	ids     map[string]struct{}
}

// known is what is known for sure now, or nil. It has the flag looked at if it is time.
func (m *memory) known() *soldOut {
	k := m.sold.Load()
	if k == nil {
		return nil
	}
	now := m.c.now()
	if now >= m.next.Load() {
		m.look(now)
	}
	if now >= k.until {
		return nil
	}
	return k
}

// claim answers a claim if that can be done without the server.
func (m *memory) claim(claimant string) (Grant, bool) {
	k := m.known()
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
func (m *memory) any() (Grant, bool) {
	if k := m.known(); k != nil {
		return Grant{Outcome: SoldOut, Epoch: k.epoch}, true
	}
	return Grant{}, false
}

// request answers a request or reservation that the server has no record of.
func (m *memory) request(id string) (Grant, bool) {
	k := m.known()
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
	if o != SoldOut || m.c.soldOut.Off {
		return
	}
	if now := m.c.now(); now >= m.next.Load() {
		m.look(now)
	}
}

// forget is called when this process has given units back: it must be the first to see them.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	m.sold.Store(nil)
}

// look looks at the flag in the background. The claims that come meanwhile go by what is known, until Trust is over.
func (m *memory) look(now int64) {
	if !m.busy.CompareAndSwap(false, true) {
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
	if !cached && old != nil && sent-(old.until-int64(m.c.soldOut.Trust)) < int64(m.c.soldOut.Trust)/4 {
		m.next.Store(m.c.now() + uncachedFor) // it was read so recently that rueidis does not keep it
	}
	switch {
	case old == nil || old.flag != flag:
		return m.learn(ctx, flag)
	case cached: // says no more than when it was read
		if m.c.now() < old.until {
			return old, nil
		}
		// nobody had asked for longer than it is trusted
		sent = m.c.now()
		if flag, _, err = m.flag(ctx, false); err != nil || flag != old.flag {
			return nil, err
		}
	}
	k := *old
	k.until = sent + int64(m.c.soldOut.Trust)
	return &k, nil
}

// learn reads the winners of a stock whose flag was read.
func (m *memory) learn(ctx context.Context, flag string) (*soldOut, error) {
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
	sent := m.c.now()
	again, _, err := m.flag(ctx, false)
	if err != nil || again != flag {
		return nil, err
	}
	k.until = sent + int64(m.c.soldOut.Trust)
	return k, nil
}

// flag reads the flag, "" if there is none. Through rueidis' cache it registers for the news of its change.
func (m *memory) flag(ctx context.Context, cache bool) (value string, cached bool, err error) {
	client, key := m.c.client, m.keys[4]
	var r rueidis.RedisResult
	if cache {
		// kept for half of Trust, so that it is read again before what was read last is trusted no longer
		r = client.DoCache(ctx, client.B().Get().Key(key).Cache(), m.c.soldOut.Trust/2)
	} else {
		r = client.Do(ctx, client.B().Get().Key(key).Build())
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
	if k == nil || m.c.now() > k.until+4*int64(m.c.soldOut.Trust) {
		m.sold.Store(nil)
		m.swept = false
		return
	}
	time.AfterFunc(10*m.c.soldOut.Trust, m.sweep)
}
