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
	s := &Semaphore{object: c.object(name), store: weights, capacity: capacity}
	s.refuse(s.checkCapacity(capacity))
	s.channel, s.grants = keyname.Prefix("redisson_sc", keyname.Own(s.key)), c.grants(s.key)
	s.permits, s.key = keyname.Suffix(s.key, "weights"), keyname.Suffix(s.key, "weighted")
	s.queue = keyname.Prefix("redlatch_queue", s.key)
	keys := []string{s.key, s.permits, s.queue}
	s.made.all, s.made.released, s.made.renewed = keys, keys, keys[1:2:2]
	return s.make()
}

// refuseWeights refuses what a WeightedSemaphore cannot be.
func (s *Semaphore) refuseWeights(what string) {
	if !s.store.perPermit {
		s.refuse(fmt.Errorf("%q: %w: a WeightedSemaphore cannot be %s", s.name, errs.ErrInvalidOption, what))
	}
}
