package rsemaphore

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// WeightedSemaphore describes the weighted semaphore of that name: an amount that processes share, such as bytes, cores
// or tokens. Each acquisition takes as much of it as it weighs. It is a Semaphore with these differences:
//
//   - The server keeps one record of an acquisition whatever its weight, and a part of it may be released
//     ([Permit.ReleasePart]).
//   - One call can acquire all of the capacity.
//   - The layout is this library's own, and Java does not read it, so it is never Shared, nor Fenced
//     (ErrInvalidOption).
//
// capacity is the total amount, 1 to 2⁵³-1 (2³¹-1 where an int has 32 bits). The first acquisition writes it. Every
// other call must bring the same (ErrCapacityMismatch), until a Resize. If the name or capacity cannot be used, every
// call returns the error. Its keys are its own: another kind may have the same name.
func (c *Client) WeightedSemaphore(name string, capacity int) *Semaphore {
	key, bad := c.session.Key(name)
	at := site{c: c, name: name, key: keyname.Suffix(key, "weighted"), store: weights}
	at.permits, at.channel = keyname.Suffix(key, "weights"), keyname.Prefix("redisson_sc", keyname.Own(key))
	keys := []string{at.key, at.permits, keyname.Prefix("redlatch_queue", at.key)}
	at.allKeys, at.releaseKeys, at.renewKeys = keys, keys, keys[1:2:2]
	return c.semaphore(at, capacity, bad)
}

// refuseWeights refuses an option that a WeightedSemaphore cannot have.
func (s *Semaphore) refuseWeights(option string) {
	if !s.store.perPermit {
		s.refuse(fmt.Errorf("%q: %w: a WeightedSemaphore cannot be %s", s.name, errs.ErrInvalidOption, option))
	}
}
