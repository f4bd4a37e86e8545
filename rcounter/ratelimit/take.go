package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

type asked = batch.Request[*request, []reply]

var (
	takeScript = script.Load("take", files, "take")
	lookScript = takeScript.Reads() // of no units
)

// askAlone makes a call for one request.
func (c *Client) askAlone(ctx context.Context, r *request) ([]reply, error) {
	one := &asked{Ask: r}
	c.take(ctx, []*asked{one})
	return one.Answer, one.Err
}

// askAll makes the calls for several requests.
func (c *Client) askAll(ctx context.Context, requests []*asked) {
	ctx, stop := batch.Lone(ctx, requests)
	defer stop()
	c.take(ctx, requests)
}

// take makes the calls for requests: one, unless a key comes under terms that differ, or the server refuses one call
// for several slots.
func (c *Client) take(ctx context.Context, requests []*asked) {
	for len(requests) > 0 {
		var t takeCall
		requests = t.add(requests)
		m, err := c.allows.DoWithin(ctx, t.write(), c.allowTimeout, errAllowTimeout)
		if script.AcrossSlots(err) {
			c.takeApart(ctx, t.requests)
			continue
		}
		var v []int64
		if err == nil {
			c.calls.Answered()
			if v, err = m.AsIntSlice(); err != nil || len(v) != 4*t.replies {
				err = fmt.Errorf("unexpected reply to take on %q", t.limits[0].key)
			}
		}
		for _, r := range t.requests {
			r.Err = err
		}
		if err == nil {
			t.read(v)
		}
	}
}

// takeApart makes the calls for requests of several slots, one for each. A request for limits of several slots is
// refused.
func (c *Client) takeApart(ctx context.Context, requests []*asked) {
	var rest []*asked
	for _, r := range requests {
		if r.Err = r.Ask.oneSlot(); r.Err == nil {
			rest = append(rest, r)
		}
	}
	script.BySlot(rest, func(r *asked) string { return r.Ask.parts[0].key }, func(slot []*asked) { c.take(ctx, slot) })
}

// takeCall is a call of take.lua.
type takeCall struct {
	requests []*asked
	limits   []takenLimit // of KEYS
	several  bool         // some of the requests are for several limits, or charges
	charges  bool         // some are charges
	runs     []run
	replies  int // in the server's answer
}

// takenLimit is a limit of which a call takes units.
type takenLimit struct {
	part           // the first of the limit's
	asked []*asked // by which of the requests, in their order
}

// run is requests that want the same of one limit, one after the other; or one request.
type run []*asked

// limit is the index of a key's limit; -1: the call has none. Calls have few, so no map is needed.
func (t *takeCall) limit(key string) int {
	return slices.IndexFunc(t.limits, func(l takenLimit) bool { return l.key == key })
}

// add adds those requests that can share the call, because each key comes under the same terms, and returns the rest.
func (t *takeCall) add(requests []*asked) (rest []*asked) {
	t.requests = make([]*asked, 0, len(requests))
	for _, r := range requests {
		if slices.ContainsFunc(r.Ask.parts, func(p part) bool {
			i := t.limit(p.key)
			return i >= 0 && !t.limits[i].t.same(p.t)
		}) {
			rest = append(rest, r)
			continue
		}
		t.requests, t.charges = append(t.requests, r), t.charges || r.Ask.id != ""
		t.several = t.several || t.charges || len(r.Ask.parts) > 1
		for _, p := range r.Ask.parts {
			i := t.limit(p.key)
			if i < 0 {
				i = len(t.limits)
				t.limits = append(t.limits, takenLimit{part: p})
			}
			t.limits[i].asked = append(t.limits[i].asked, r)
		}
	}
	return rest
}

// write writes the call: for each limit its terms and runs, or after the terms of all limits each request.
func (t *takeCall) write() script.Call {
	call := script.Call{Script: takeScript, Args: append(make([]string, 0, 8+len(t.requests)), callID())}
	if len(t.requests) == 1 && t.requests[0].Ask.looks() {
		call.Script = lookScript
	}
	add := func(r run, args ...string) {
		call.Args = append(call.Args, args...)
		t.runs, t.replies = append(t.runs, r), t.replies+len(r[0].Ask.parts)
	}
	for _, l := range t.limits {
		call.Keys, call.Args = append(call.Keys, l.key), l.t.args(call.Args)
		for rest := l.asked; len(rest) > 0 && !t.several; {
			alike := alike(rest)
			add(alike, rest[0].Ask.count(len(alike)), rest[0].Ask.parts[0].wants())
			rest = rest[len(alike):]
		}
	}
	if !t.several {
		return call
	}
	if t.charges {
		for _, l := range t.limits {
			call.Keys = append(call.Keys, chargesKey(l.key))
		}
	}
	call.Args = append(call.Args, "&")
	for i, r := range t.requests {
		if r.Ask.id != "" {
			call.Args = append(call.Args, "#"+r.Ask.id)
		}
		add(t.requests[i:i+1], r.Ask.count(len(r.Ask.parts)))
		for _, p := range r.Ask.parts {
			index := t.limit(p.key) + 1
			if p.l.o.Shadow && !r.Ask.upTo {
				index = -index
			}
			call.Args = append(call.Args, strconv.Itoa(index), p.wants())
		}
	}
	return call
}

// alike returns the run with which requests for units of one limit begin.
func alike(requests []*asked) run {
	first, k := requests[0].Ask, 1
	for k < len(requests) && requests[k].Ask.parts[0].n == first.parts[0].n && requests[k].Ask.upTo == first.upTo {
		k++
	}
	return requests[:k]
}

// count is a number as the script reads it: negative of requests for as many units as there are.
func (r *request) count(n int) string {
	if r.upTo {
		n = -n
	}
	return strconv.Itoa(n)
}

// read gives each request its answer.
func (t *takeCall) read(v []int64) {
	for _, r := range t.runs {
		n := len(r[0].Ask.parts)
		all := make([]reply, n*len(r))
		for k, q := range r {
			q.Answer = all[k*n : (k+1)*n]
		}
		for i := range n {
			r.read(i, v)
			v = v[4:]
		}
	}
}

// read gives each request of a run its answer for one limit. The reply is that of the last, and says how many units all
// have taken: so what was free after each of them, and the level, are known, too.
func (r run) read(i int, v []int64) {
	t := r[0].Ask.parts[i].t
	last := reply{taken: v[0], wait: script.Micros(v[1]), free: v[2], empty: script.Micros(-1 - v[3])}
	left := last.taken // by this request and those after it
	for _, q := range r {
		a := q.Ask.answer(i, last, left)
		if last.taken >= 0 {
			left -= max(0, a.taken)
			a.free = min(last.free+left, t.burst)
		}
		if v[3] >= 0 {
			a.empty = script.Micros(ceilDiv(v[3]-max(0, left)*t.per, t.rate))
		}
		q.Answer[i] = a
	}
}

// answer is the answer of a request, which is the last of a run, or comes before the last: a is the answer of the last,
// and left is how many units those from this request on have taken. They took them one after the other, each n or, as
// soon as there were too few, none; with upTo what was left. Of several limits the server answers for each by itself.
func (r *request) answer(i int, a reply, left int64) reply {
	if a.taken < 0 || len(r.parts) > 1 {
		return a
	}
	n := r.parts[i].n
	switch a.taken = min(n, left); {
	case r.upTo && a.taken > 0, a.taken == n:
		a.wait = 0
	case !r.upTo:
		a.taken = tookNone
	}
	return a
}
