package ratelimit

import (
	"sync"
	"time"
)

// refusals are what the server refused a moment ago. A level only falls with time, whichever client takes, so as many
// units are refused for as long as the server said. What makes it fall at once is units that are given back, a Reset,
// and new numbers: so nothing is trusted for longer than Options.RefusalTrust.
type refusals struct {
	trust time.Duration // negative: none
	base  time.Time

	mu   sync.RWMutex
	keys map[string]refusal
}

// refusal is one of them; times are after base.
type refusal struct {
	l              *Limiter
	t              *terms
	n, free        int64
	upTo           bool
	at             time.Duration // it was asked for
	until          time.Duration // it is trusted
	passes, resets time.Duration // when n units could pass, and when all would have drained
}

// mostRefusals is how many are remembered.
const mostRefusals = 1 << 16

// find returns what the server would answer, if that is known.
func (f *refusals) find(r *request) (reply, bool) {
	if f.trust < 0 {
		return reply{}, false
	}
	f.mu.RLock()
	k, ok := f.keys[r.key]
	f.mu.RUnlock()
	if !ok || k.n != r.n || k.upTo != r.upTo || !k.t.same(r.t) {
		return reply{}, false
	}
	now := time.Since(f.base)
	if now >= k.until {
		return reply{}, false
	}
	return reply{taken: tookNone, free: k.free, wait: k.passes - now, empty: k.resets - now}, true
}

// learn remembers an answer to a request sent at a time.
func (f *refusals) learn(r *request, a reply, sent time.Time) {
	if f.trust < 0 || a.wait <= 0 {
		return
	}
	at := sent.Sub(f.base)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = map[string]refusal{}
	}
	if len(f.keys) >= mostRefusals {
		now := time.Since(f.base)
		for key, k := range f.keys {
			if now >= k.until {
				delete(f.keys, key)
			}
		}
		if len(f.keys) >= mostRefusals/2 {
			clear(f.keys)
		}
	}
	// The server said so after the request was sent: what lasts for a.wait from then on lasts until sent + a.wait at
	// least.
	f.keys[r.key] = refusal{r.l, r.t, r.n, a.free, r.upTo, at, at + min(a.wait, f.trust), at + a.wait, at + a.empty}
}

// forget forgets what is known of a key.
func (f *refusals) forget(key string) {
	f.mu.Lock()
	delete(f.keys, key)
	f.mu.Unlock()
}
