package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

type asked = batch.Request[request, answers]

var (
	takeScript = script.Load("take", files, "take")
	peekScript = takeScript.Reads() // of no units
)

// askAlone makes a call for one request.
func (c *Client) askAlone(ctx context.Context, r request) (answers, error) {
	if r.all == nil { // as the rest of the function would, and makes less that has to be collected
		s := takeScript
		if r.peeks() {
			s = peekScript
		}
		args := r.t.args(append(make([]string, 0, 7), callID()))
		m, err := c.within(ctx,
			script.Call{Script: s, Keys: []string{r.key}, Args: append(args, r.many(1), r.wants())})
		if err != nil {
			return answers{}, err
		}
		v, err := m.AsIntSlice()
		if err != nil || len(v) != 4 {
			return answers{}, unexpected(r.key)
		}
		a := takeReply(v, r.t)
		return answers{reply: r.answer(a, a.taken)}, nil
	}
	t := takeCall{requests: []*asked{{Ask: r}}}
	c.take(ctx, &t)
	return t.requests[0].Answer, t.requests[0].Err
}

// askAll makes the calls for several requests: one, unless a key comes under terms that differ.
func (c *Client) askAll(ctx context.Context, requests []*asked) {
	ctx, stop := batch.Lone(ctx, requests)
	defer stop()
	for rest := requests; len(rest) > 0; {
		var t takeCall
		t.requests, rest = alike(rest)
		c.take(ctx, &t)
	}
}

// alike returns those requests that can share a call, because each key comes under the same terms, and the rest.
func alike(requests []*asked) (now, rest []*asked) {
	first := &requests[0].Ask
	if len(requests) == 1 {
		return requests, nil
	}
	plain := true // the same limit: no map is needed
	for _, r := range requests {
		plain = plain && r.Ask.all == nil && r.Ask.key == first.key && r.Ask.t.same(first.t)
	}
	if plain {
		return requests, nil
	}
	known := make(map[string]*terms, len(requests))
	now = make([]*asked, 0, len(requests))
	for _, r := range requests {
		fits := true
		for _, p := range r.Ask.parts() {
			t := known[p.key]
			fits = fits && (t == nil || t.same(p.t))
		}
		if !fits {
			rest = append(rest, r)
			continue
		}
		for _, p := range r.Ask.parts() {
			known[p.key] = p.t
		}
		now = append(now, r)
	}
	return now, rest
}

// takeCall is a call of take.lua.
type takeCall struct {
	requests []*asked
	call     script.Call
	runs     []run
	replies  int // of how many the answer consists
}

// run is requests for one limit that want the same, one after the other.
type run []*asked

// take makes a call for requests that have the same terms for each key.
func (c *Client) take(ctx context.Context, t *takeCall) {
	t.call.Script = takeScript
	t.call.Args = append(make([]string, 0, 8+len(t.requests)), callID())
	t.write()
	m, err := c.within(ctx, t.call)
	if script.AcrossSlots(err) {
		c.takeApart(ctx, t.requests, err)
		return
	}
	var v []int64
	if err == nil {
		if v, err = m.AsIntSlice(); err != nil || len(v) != 4*t.replies {
			err = unexpected(t.call.Keys[0])
		}
	}
	if err != nil {
		for _, r := range t.requests {
			r.Err = err
		}
		return
	}
	t.read(v)
}

// takeApart makes the calls for requests of several slots, one for each, because the server refused one for all by err.
// It refuses a request for limits of several slots, too.
func (c *Client) takeApart(ctx context.Context, requests []*asked, err error) {
	var rest []*asked
	for _, r := range requests {
		if r.Ask.spans() {
			r.Err = err
		} else {
			rest = append(rest, r)
		}
	}
	script.BySlot(rest, func(r *asked) string { return r.Ask.key }, func(part []*asked) {
		c.take(ctx, &takeCall{requests: part})
	})
}

// spans reports whether the limits of a request are of several slots.
func (r *request) spans() bool {
	return slices.ContainsFunc(r.all, func(p part) bool { return keyname.Slot(p.key) != keyname.Slot(r.key) })
}

func unexpected(key string) error { return fmt.Errorf("unexpected reply to take on %q", key) }

// many are the script's arguments for k requests like r.
func (r *request) many(k int) string {
	if r.upTo {
		k = -k
	}
	return strconv.Itoa(k)
}

// answer is what r gets, which is the last of a run, or comes before the last: a is the answer of the last, and left
// is how many units those from r on have taken. They took them one after the other, each n or, as soon as there were
// too few, none; with upTo what was left.
func (r *request) answer(a reply, left int64) reply {
	if a.taken < 0 { // the key cannot be used
		return a
	}
	switch a.taken = min(r.n, left); {
	case r.upTo && a.taken > 0, a.taken == r.n:
		a.wait = 0
	case !r.upTo:
		a.taken = tookNone
	}
	return a
}

// write writes the arguments.
func (t *takeCall) write() {
	first := &t.requests[0].Ask
	several, one := false, true
	for _, r := range t.requests {
		several = several || r.Ask.all != nil
		one = one && r.Ask.key == first.key
	}
	switch {
	case several:
		t.writeAll()
	case one:
		t.call.Keys = []string{first.key}
		t.writeRuns(t.requests)
	default:
		for _, of := range byKey(t.requests) {
			t.call.Keys = append(t.call.Keys, of[0].Ask.key)
			t.writeRuns(of)
		}
	}
}

// byKey returns the requests of each key, in their order.
func byKey(requests []*asked) (all [][]*asked) {
	index := make(map[string]int, len(requests))
	for _, r := range requests {
		i, known := index[r.Ask.key]
		if !known {
			i = len(all)
			index[r.Ask.key] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], r)
	}
	return all
}

// writeRuns writes the terms of a limit, and the runs of which the requests for it consist.
func (t *takeCall) writeRuns(requests []*asked) {
	t.call.Args = requests[0].Ask.t.args(t.call.Args)
	for len(requests) > 0 {
		a, k := &requests[0].Ask, 1
		for k < len(requests) && requests[k].Ask.n == a.n && requests[k].Ask.upTo == a.upTo {
			k++
		}
		t.call.Args = append(t.call.Args, a.many(k), a.wants())
		t.runs = append(t.runs, requests[:k])
		requests = requests[k:]
	}
	t.replies = len(t.runs)
}

// writeAll writes requests of which some are for several limits.
func (t *takeCall) writeAll() {
	index := make(map[string]string, len(t.requests))
	rest := make([]string, 1, 1+4*len(t.requests))
	rest[0] = "&"
	for _, r := range t.requests {
		parts := r.Ask.parts()
		if r.Ask.upTo {
			rest = append(rest, "0")
		} else {
			rest = append(rest, strconv.Itoa(len(parts)))
		}
		for _, p := range parts {
			at, known := index[p.key]
			if !known {
				t.call.Keys = append(t.call.Keys, p.key)
				t.call.Args = p.t.args(t.call.Args)
				at = strconv.Itoa(len(t.call.Keys))
				index[p.key] = at
			}
			rest = append(rest, at, p.wants())
		}
		t.replies += len(parts)
	}
	t.call.Args = append(t.call.Args, rest...)
}

// read gives each request its answer.
func (t *takeCall) read(v []int64) {
	for i := range t.runs {
		t.runs[i].read(v)
		v = v[4:]
	}
	if t.runs != nil {
		return
	}
	for _, r := range t.requests {
		if r.Ask.all == nil {
			r.Answer.reply, v = takeReply(v, r.Ask.t), v[4:]
			continue
		}
		for _, p := range r.Ask.all {
			r.Answer.all, v = append(r.Answer.all, takeReply(v, p.t)), v[4:]
		}
	}
}

// takeReply reads one reply of take.lua.
func takeReply(v []int64, t *terms) reply {
	r := reply{taken: v[0], wait: script.Micros(v[1]), free: v[2], empty: script.Micros(-1 - v[3])}
	if v[3] >= 0 {
		r.empty = script.Micros(ceilDiv(v[3], t.rate))
	}
	return r
}

// read gives each request of a run its answer. The reply is that of the last, and says how many units all have taken:
// so what was free after each of them, and the level, are known, too.
func (r run) read(v []int64) {
	t := r[0].Ask.t
	last := takeReply(v, t)
	left := last.taken // by this request and those after it
	for _, q := range r {
		a := q.Ask.answer(last, left)
		if last.taken >= 0 {
			left -= max(0, a.taken)
			a.free = min(last.free+left, t.burst)
			if v[3] >= 0 {
				a.empty = script.Micros(ceilDiv(v[3]-left*t.per, t.rate))
			}
		}
		q.Answer.reply = a
	}
}
