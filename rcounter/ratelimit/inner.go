package ratelimit

import (
	"cmp"
	"slices"

	"github.com/redlatch/redlatch/internal/accessor"
)

// inner is what a Client shows the debug page: what is known in this process anyway.
type inner Client

// Refused implements accessor.Limits.
func (c *inner) Refused(match func(string) bool) (all []accessor.Refused) {
	f := &c.refusals
	f.mu.RLock()
	for _, k := range f.keys {
		if !match(k.l.name) && !match(k.own) {
			continue
		}
		all = append(all, accessor.Refused{Limiter: k.l, Name: k.l.name, Key: k.own, Algorithm: string(k.t.algorithm),
			Burst: k.t.burst, N: k.n,
			At: f.base.Add(k.at), Passes: f.base.Add(k.at + k.wait)})
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b accessor.Refused) int { return b.At.Compare(a.At) })
	return all
}

// Answering implements accessor.Limits.
func (c *inner) Answering() (all []accessor.Answering) {
	c.down.mu.Lock()
	for name, p := range c.down.limiters {
		all = append(all, accessor.Answering{Name: name, Policy: string(p.policy), Last: c.calls.At(int64(p.last))})
	}
	c.down.mu.Unlock()
	slices.SortFunc(all, func(a, b accessor.Answering) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
