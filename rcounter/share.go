package rcounter

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// addition is one Add.
type addition struct {
	k *Counter
	d int64
}

// shareSlots is over how many batchers counters are spread where keys of several slots may share a call. INCRs of two
// counters in one script take longer than both in a row, so mostly those of one counter share a call.
const shareSlots = 4096

// newAdds makes the batcher of Adds.
func (c *Client) newAdds() *batch.Batcher[addition, int64] {
	return &batch.Batcher[addition, int64]{
		Options: &c.batch, Shared: c.calls.TellShared(""), What: "add", Key: "several counters", Run: c.addAll,
		Alone: func(ctx context.Context, a addition) (int64, error) { return a.k.addAlone(ctx, a.d) },
	}
}

// sum is several additions to one counter under the same options, all of which rise or all of which fall. They are
// added at once, and each gets the answer that a call of its own would have got, in their order:
//
//	Add(1)  Add(1)  Add(5)
//	   one Add(7) -> 107
//	 101     102     107
//
// On the server they are one step. So they are as calls between which no other came, which is one of the orders in
// which those calls could have run. If none passes the bound with the sum, none does alone, since they all move the
// same way.
//
// If the sum would pass the bound, the server says where the counter stands. Those of the additions that would pass it
// alone are refused: at that instant a call of their own would have been. The others are sent again, one by one in a
// call.
type sum struct {
	of       *Counter
	total    int64
	requests []*batch.Request[addition, int64]
}

// joins reports whether d may be added in the same step as s.
func (s *sum) joins(k *Counter, d int64) bool {
	return s.of.same(k) &&
		(s.total >= 0 && d >= 0 && s.total <= math.MaxInt64-d || s.total <= 0 && d <= 0 && s.total >= math.MinInt64-d)
}

// same reports whether two Counters are of one key and the same options.
func (k *Counter) same(o *Counter) bool {
	eq := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return k == o || k.key == o.key && k.initial == o.initial && k.ttl == o.ttl && eq(k.min, o.min) && eq(k.max, o.max)
}

// addAll makes one call for several additions, and a second one for those that a bound may still let pass.
func (c *Client) addAll(ctx context.Context, requests []*batch.Request[addition, int64]) {
	if len(requests) == 1 {
		r := requests[0]
		ctx, stop := batch.Lone(ctx, requests)
		defer stop()
		r.Answer, r.Err = r.Ask.k.addAlone(ctx, r.Ask.d)
		return
	}
	var sums []*sum
	last := map[string]*sum{} // of each key: additions keep their order there
	for _, r := range requests {
		s := last[r.Ask.k.key]
		if s == nil || !s.joins(r.Ask.k, r.Ask.d) {
			s = &sum{of: r.Ask.k}
			last[r.Ask.k.key] = s
			sums = append(sums, s)
		}
		s.total += r.Ask.d
		s.requests = append(s.requests, r)
	}
	c.addSums(ctx, sums)
	var single []*sum
	for _, s := range sums {
		for _, r := range s.again() {
			single = append(single, &sum{r.Ask.k, r.Ask.d, []*batch.Request[addition, int64]{r}})
		}
	}
	if single != nil {
		c.addSums(ctx, single)
	}
}

// addSums adds sums in one call.
func (c *Client) addSums(ctx context.Context, sums []*sum) {
	if len(sums) == 1 {
		s := sums[0]
		v, err := s.of.addAlone(ctx, s.total)
		s.answer(v, err)
		return
	}
	call := script.Call{Script: addManyScript, Once: true}
	for _, s := range sums {
		call.Keys = append(call.Keys, s.of.key)
		call.Args = append(call.Args, s.of.addArgs(s.total)...)
	}
	m, err := c.calls.Do(ctx, call)
	if script.AcrossSlots(err) { // nothing was added; the sums of one counter stay together, in their order
		script.BySlot(sums, func(s *sum) string { return s.of.key }, func(part []*sum) { c.addSums(ctx, part) })
		return
	}
	var v []string
	if err == nil {
		if v, err = m.AsStrSlice(); err != nil || len(v) != 2*len(sums) {
			err = malformed("add", call.Keys[0])
		}
	}
	for i, s := range sums {
		if err != nil {
			s.answer(0, err)
			continue
		}
		s.answer(s.read(v[2*i], v[2*i+1]))
	}
}

var addManyScript = script.Load("add", files, "addmany")

// addRefused is the code of addmany.lua for a key of another type, or a command that the server refuses.
const addRefused = "3"

// read is what a reply of addmany.lua says of the sum.
func (s *sum) read(code, text string) (int64, error) {
	if code == addRefused {
		return 0, addManyScript.Refusal(s.of.key, text)
	}
	n, err := strconv.ParseInt(code, 10, 64)
	if err != nil {
		return 0, malformed("add", s.of.key)
	}
	r, err := newAddReply(n, text, s.of.key)
	if err != nil {
		return 0, err
	}
	return s.of.added(s.total, r)
}

// answer gives each addition its answer, where v and err are those of the sum.
func (s *sum) answer(v int64, err error) {
	for i := len(s.requests) - 1; i >= 0; i-- {
		r := s.requests[i]
		if r.Answer, r.Err = v, err; err == nil {
			v -= r.Ask.d
		}
	}
}

// again returns the requests that are to be sent by themselves, because their sum was refused. It answers the others.
func (s *sum) again() (rest []*batch.Request[addition, int64]) {
	if len(s.requests) == 1 {
		return nil
	}
	switch err := s.requests[0].Err; {
	case errors.Is(err, errs.ErrOverflow):
		return s.requests
	case !errors.Is(err, errs.ErrOutOfRange):
		return nil
	}
	stands := s.requests[0].Answer
	for _, r := range s.requests {
		k, d := r.Ask.k, r.Ask.d
		if k.passes(stands, d) {
			rest = append(rest, r)
			continue
		}
		r.Answer, r.Err = k.added(d, addReply{code: addBeyond, value: stands})
	}
	return rest
}

// passes reports whether d may be added to v.
func (k *Counter) passes(v, d int64) bool {
	bound := k.ahead(d)
	switch {
	case bound == nil:
		return true
	case d > 0: // differences of 64-bit integers fit into 64 bits without a sign
		return v <= *bound && uint64(d) <= uint64(*bound)-uint64(v)
	}
	return v >= *bound && uint64(-d) <= uint64(v)-uint64(*bound)
}
