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

// refusal is one of them.
type refusal struct {
	part
	reply
	upTo      bool
	at, until time.Duration // it was asked for, and is trusted, after base
}

// mostRefusals is how many are remembered.
const mostRefusals = 1 << 16

// find returns what the server would answer for units of one limit, if that is known.
func (f *refusals) find(r *request) (reply, bool) {
	if f.trust < 0 || len(r.parts) > 1 {
		return reply{}, false
	}
	p := r.parts[0]
	f.mu.RLock()
	k, ok := f.keys[p.key]
	f.mu.RUnlock()
	now := time.Since(f.base)
	if !ok || now >= k.until || k.n != p.n || k.upTo != r.upTo || !k.t.same(p.t) {
		return reply{}, false
	}
	return reply{taken: tookNone, free: k.free, wait: k.at + k.wait - now, empty: k.at + k.empty - now}, true
}

// learn remembers the limits that refused a request sent at a time: an Allow of as many would be refused, too.
func (f *refusals) learn(r *request, replies []reply, sent time.Time) {
	if f.trust < 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := sent.Sub(f.base)
	for i, p := range r.parts {
		a := replies[i]
		if a.wait <= 0 {
			continue
		}
		if f.keys == nil || len(f.keys) >= mostRefusals { // what is forgotten costs a call
			f.keys = map[string]refusal{}
		}
		// The server said so after the request was sent: what lasts for a.wait from then on lasts until sent + a.wait at
		// least.
		f.keys[p.key] = refusal{p, a, r.upTo, at, at + min(a.wait, f.trust)}
	}
}

// forget forgets what is known of a key.
func (f *refusals) forget(key string) {
	f.mu.Lock()
	delete(f.keys, key)
	f.mu.Unlock()
}
