package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// maxWeight is up to where the server's Lua counts exactly.
const maxWeight = min(1<<53-1, math.MaxInt)

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
	s := &Semaphore{object: c.object(name), weighted: true, capacity: capacity}
	s.refuse(s.checkCapacity(capacity))
	s.channel, s.grants = keyname.Prefix("redisson_sc", keyname.Own(s.key)), c.grants(s.key)
	s.permits, s.key = keyname.Suffix(s.key, "weights"), keyname.Suffix(s.key, "weighted")
	s.queue = keyname.Prefix("redlatch_queue", s.key)
	return s.make()
}

// weighted is a semaphore of weights for the debug page, which tells the kinds apart.
type weighted struct{ *Semaphore }

// Kind is what it is, to people.
func (weighted) Kind() string { return "WeightedSemaphore" }

// unweighted refuses what a semaphore of weights cannot be.
func (s *Semaphore) unweighted(what string) {
	if s.weighted {
		s.refuse(fmt.Errorf("%q: %w: a WeightedSemaphore cannot be %s", s.name, errs.ErrInvalidOption, what))
	}
}

func (s *Semaphore) weightedResizeExchange(capacity int, notAfter int64, id string) exchange[resizeReply] {
	args := append([]string{strconv.Itoa(capacity), strconv.Itoa(s.capacity), script.Millis(resizeKept), decimal(notAfter),
		s.channel, s.c.session.Inner.PublishCommand(), id}, s.self()...)
	return exchange[resizeReply]{script.Call{Script: weightedResizeScript, Keys: s.made.all, Args: args}, s.decodeResize}
}

// weightedInspectExchange looks at all that is out, or at what is out under bases, whether or not it is.
func (s *Semaphore) weightedInspectExchange(all bool, bases ...string) exchange[SemaphoreState] {
	return exchange[SemaphoreState]{script.Call{Script: weightedInspectScript, Keys: []string{s.key, s.permits},
		Args: append([]string{flag(all)}, bases...)}, func(m rueidis.RedisMessage) (SemaphoreState, error) {
		v, err := m.ToArray()
		if err != nil || len(v)%3 != 0 || len(v) == 0 {
			return SemaphoreState{}, malformed("inspect", s.key, &m)
		}
		now, _ := v[0].AsInt64()
		capacity, _ := v[1].AsInt64()
		used, err := v[2].AsInt64()
		if capacity == 0 {
			capacity = int64(s.capacity)
		}
		st := SemaphoreState{Capacity: int(capacity), Available: int(capacity - used)}
		for i := 3; i < len(v); i += 3 {
			base, _ := v[i].ToString()
			end, _ := v[i+1].AsInt64()
			text, _ := v[i+2].ToString()
			h, bad := weightHolder(base, text, end, now)
			err = errors.Join(err, bad)
			st.Permits = append(st.Permits, h)
		}
		if err != nil {
			return SemaphoreState{}, malformed("inspect", s.key, &m)
		}
		return st, nil
	}}
}

// allOrNone gives back all of several acquisitions, or nothing of any.
const allOrNone = -1

// runWeightedRelease keeps so much of an acquisition, 0: nothing. It returns what was held; -1 with allOrNone, if not
// all were. others: base and entry of each that is released with it.
func (s *Semaphore) runWeightedRelease(ctx context.Context, base string, kept int64, entry string,
	others ...string) (int64, error) {
	args := append([]string{base, decimal(kept), s.channel, s.c.session.Inner.PublishCommand(), s.grants, s.c.session.ID,
		entry}, others...)
	return s.releaseBy(ctx, script.Call{Script: weightedReleaseScript, Keys: s.made.released, Args: args})
}
