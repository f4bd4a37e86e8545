package rsemaphore

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// WeightedSemaphore describes the weighted semaphore of that name: an amount that processes share, such as bytes, cores
// or tokens, of which each acquisition takes as much as it weighs. It is a Semaphore in all but this: the server keeps
// one record of an acquisition whatever its weight, a part of it may be released ([Permit.ReleasePart]), one call can
// acquire all of the capacity, and the layout is this library's own, which Java does not read; so it is never Shared,
// nor Fenced (ErrInvalidOption).
//
// capacity is how much there is in all, 1 to 2⁵³-1 (2³¹-1 where an int has 32 bits). The first acquisition writes it;
// every other call must bring the same (ErrCapacityMismatch), until a Resize. A name or capacity that cannot be used is
// reported by every call on it. Its keys are its own: another kind may have the same name.
func (c *Client) WeightedSemaphore(name string, capacity int) *Semaphore {
	key, bad := c.session.Key(name)
	at := site{c: c, name: name, key: keyname.Suffix(key, "weighted"), store: weights}
	at.permits, at.channel = keyname.Suffix(key, "weights"), keyname.Prefix("redisson_sc", keyname.Own(key))
	keys := []string{at.key, at.permits, keyname.Prefix("redlatch_queue", at.key)}
	at.allKeys, at.releaseKeys, at.renewKeys = keys, keys, keys[1:2:2]
	return c.semaphore(at, capacity, bad)
}

// refuseWeights refuses what a WeightedSemaphore cannot be.
func (s *Semaphore) refuseWeights(what string) {
	if !s.store.perPermit {
		s.refuse(fmt.Errorf("%q: %w: a WeightedSemaphore cannot be %s", s.name, errs.ErrInvalidOption, what))
	}
}
