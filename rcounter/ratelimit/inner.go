package ratelimit

import (
	"cmp"
	"slices"

	"github.com/redlatch/redlatch/internal/inside"
)

// inner is what a Client shows the debug page: what is known in this process anyway.
type inner Client

// Refused implements inside.Limits.
func (c *inner) Refused(match func(string) bool) (all []inside.Refused) {
	f := &c.refusals
	f.mu.RLock()
	for key, k := range f.keys {
		own := k.l.callersKey(key)
		if !match(k.l.name) && !match(own) {
			continue
		}
		all = append(all, inside.Refused{Limiter: k.l, Name: k.l.name, Key: own, Algorithm: k.t.algorithm.String(),
			Burst: k.t.burst, N: k.n,
			At: f.base.Add(k.at), Passes: f.base.Add(k.passes)})
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b inside.Refused) int { return b.At.Compare(a.At) })
	return all
}

// Answering implements inside.Limits.
func (c *inner) Answering() (all []inside.Answering) {
	c.down.mu.Lock()
	for name, p := range c.down.limiters {
		all = append(all, inside.Answering{Name: name, Policy: p.policy.String(), Last: c.calls.At(int64(p.last))})
	}
	c.down.mu.Unlock()
	slices.SortFunc(all, func(a, b inside.Answering) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
