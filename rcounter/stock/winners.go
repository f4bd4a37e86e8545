package stock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// read looks at the flag and returns what is then known, nil if the stock sells. old is what was known before.
func (m *cache) read(ctx context.Context, old *soldOut) (*soldOut, error) {
	sent := m.c.calls.Now()
	flag, cached, err := m.flag(ctx, true)
	if err != nil || flag == "" {
		return nil, err
	}
	if old == nil || turn(old.flag) != turn(flag) {
		return m.learn(ctx, flag, nil)
	}
	if cached { // the cache tells what the flag was when it was read
		if sent = old.looked; m.c.calls.Now()-sent >= int64(m.c.soldOut.trust) {
			// other code reads this key through the cache and keeps it for longer than the trust
			sent = m.c.calls.Now()
			if flag, _, err = m.flag(ctx, false); err != nil || turn(flag) != turn(old.flag) {
				return nil, err
			}
		}
	}
	k := *old
	k.looked = sent
	if flag != old.flag {
		k.flag, k.ids, k.behind = flag, nil, true
	}
	if k.behind {
		return m.learn(ctx, flag, &k)
	}
	return &k, nil
}

// learn reads the winners and the ids of a stock whose flag was read. If known is given, it is of the same turn, and only the
// ids are read. Then learn rests nine times as long as that took. After a reading that was broken off it rests longer each
// time, up to restFor. Without the rest a stock whose last unit comes and goes would have its winners read all the time
// (TestALastUnitThatComesAndGoesDoesNotHaveTheWinnersReadAllTheTime).
func (m *cache) learn(ctx context.Context, flag string, known *soldOut) (*soldOut, error) {
	began := m.c.calls.Now()
	if rested := m.rested.Load(); began < rested {
		if known == nil {
			m.next.Store(rested)
		}
		return known, nil
	}
	k, err := m.winners(ctx, flag, known)
	now := m.c.calls.Now()
	rest := 9 * (now - began)
	if k == nil || k.behind {
		m.broken = min(m.broken+1, 10)
		rest = max(rest, uncachedFor<<m.broken)
	} else {
		m.broken = 0
	}
	m.rested.Store(now + min(rest, restFor))
	return k, err
}

// winners reads the winners, unless they are known, and the ids. It returns nil if the turn ended while it read.
func (m *cache) winners(ctx context.Context, flag string, known *soldOut) (*soldOut, error) {
	var n [4]int64 // epoch, turn, winners' records, records of requests
	parts := strings.Split(flag, ";")
	for i := range n {
		if len(parts) < len(n) || number(parts[i]) < 0 {
			return nil, malformed("get", m.keys[4])
		}
		n[i] = number(parts[i])
	}
	k := &soldOut{epoch: n[0]}
	most := int64(m.c.soldOut.winners)
	switch {
	case known != nil:
		k.winners = known.winners
	case n[2] <= most:
		k.winners = newFilter(n[2])
		err := m.c.scan(ctx, m.keys[1], func(claimant, record string) error {
			if record == "" || record[0] < '0' || record[0] > '9' {
				return ErrCorrupt
			}
			if record[0] != '0' { // returned
				k.winners.add(claimant)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if n[3] <= most {
		k.ids = newFilter(n[3])
		err := m.c.scan(ctx, m.keys[2], func(field, _ string) error {
			if id, ok := strings.CutPrefix(field, "r:"); ok {
				k.ids.add(id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	k.looked = m.c.calls.Now()
	again, _, err := m.flag(ctx, false)
	if err != nil || again == "" || turn(again) != turn(flag) {
		return nil, err
	}
	if k.flag = again; again != flag && k.ids != nil {
		k.ids, k.behind = nil, true
	}
	// The flag was read through the cache before. So this read tells whether there is a cache.
	if _, _, err := m.flag(ctx, true); err != nil {
		return nil, err
	}
	return k, nil
}

// flag reads the flag, "" if there is none. With cache it reads through rueidis' cache, so the server will tell of a change.
func (m *cache) flag(ctx context.Context, cache bool) (value string, cached bool, err error) {
	client := m.c.calls.Hub.Client()
	var r rueidis.RedisResult
	if cache {
		sent := m.c.calls.Now()
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

// scan reads all of a hash in parts, so that the server can do other work in between. The hash must not change while it is
// read. each may get a field more than once.
func (c *Client) scan(ctx context.Context, key string, each func(field, value string) error) error {
	for cursor := uint64(0); ; {
		m, err := c.calls.Do(ctx, script.Call{Script: hscanScript, Keys: []string{key}, Command: func(b rueidis.Builder) rueidis.Completed {
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
			switch err := each(e.Elements[i], e.Elements[i+1]); {
			case err == errEnough:
				return err
			case err != nil:
				return fmt.Errorf("%w: %q has a record that is none", ErrCorrupt, key)
			}
		}
		if cursor = e.Cursor; cursor == 0 {
			return nil
		}
	}
}
