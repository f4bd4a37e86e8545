package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

// request is units that are wanted at once.
type request struct {
	part
	upTo bool   // or as many as there are of them
	all  []part // of several limits, all or none: AllowAll; part is the first
}

// part is units of one limit.
type part struct {
	l   *Limiter
	t   *terms // as they are now
	key string // Redis'
	n   int64
}

// parts are the limits of which a request wants units.
func (r *request) parts() []part {
	if r.all != nil {
		return r.all
	}
	return []part{r.part}
}

// reply is what take.lua, reserve.lua and cancel.lua say of one limit.
type reply struct {
	taken, free int64
	wait, empty time.Duration
}

// answers are the replies for a request.
type answers struct {
	reply
	all []reply // of AllowAll
}

const (
	tookNone      = -1
	anotherType   = -2
	somethingElse = -3
)

// refused is why the key of a limit cannot be used.
func (r reply) refused(key string) error {
	switch r.taken {
	case anotherType:
		return fmt.Errorf("%w: rate limit at %q", ErrWrongType, key)
	case somethingElse:
		return fmt.Errorf("%w: rate limit at %q: it holds something else", ErrWrongType, key)
	}
	return nil
}

// admission is what the caller is told; upTo: it asked for as many as there are.
func (r reply) admission(upTo bool) Admission {
	a := Admission{Allowed: r.taken >= 0, N: max(0, r.taken), Remaining: r.free, ResetAfter: r.empty}
	if upTo && r.taken == 0 {
		a.Allowed = false
	}
	if !a.Allowed {
		a.RetryAfter = r.wait
	}
	return a
}

const (
	// shareFrom is how many requests must be under way before they share calls; with fewer, each is as fast alone.
	shareFrom = 4
	// shareCalls is how many shared calls are under way at most; nearCall is a call for which two are enough.
	shareCalls = 4
	nearCall   = 200 * time.Microsecond
)

var shareOptions = func() *batch.Options {
	o := &batch.Options{MaxCalls: shareCalls}
	if err := o.Check(); err != nil {
		panic(err)
	}
	return o
}()

// newAsks makes the batcher of requests.
func (c *Client) newAsks() *batch.Batcher[request, answers] {
	return &batch.Batcher[request, answers]{
		Options: shareOptions, From: shareFrom, Halves: true, Near: nearCall, Tally: &c.tally, Spawn: c.calls.Finish, Bound: c.allowTimeout, Patience: errAllowTimeout,
		What: "take", Key: "several limits", Run: c.askAll, Alone: c.askAlone,
	}
}

// ask has a request answered by the server, or in this process if its limit is of the process.
func (c *Client) ask(ctx context.Context, r request) (answers, error) {
	if r.l.o.PerProcess {
		if ctx.Err() != nil {
			return answers{}, unasked(ctx, r.key)
		}
		return answers{reply: c.local().take(r.t, r.key, r.n, r.upTo)}, nil
	}
	a, err := c.asks.Of(r.key).Do(ctx, r)
	if err != nil {
		return answers{}, err
	}
	for i, p := range r.parts() {
		one := a.reply
		if r.all != nil {
			one = a.all[i]
		}
		if err := one.refused(p.key); err != nil {
			return answers{}, err
		}
	}
	return a, nil
}

// askAlone makes a call for one request.
func (c *Client) askAlone(ctx context.Context, r request) (answers, error) {
	requests := [1]*batch.Request[request, answers]{{Ask: r}}
	c.take(ctx, requests[:])
	return requests[0].Answer, requests[0].Err
}

// askAll makes the calls for several requests: one, unless a key comes under terms that differ.
func (c *Client) askAll(ctx context.Context, requests []*batch.Request[request, answers]) {
	if len(requests) == 1 && !requests[0].Until.IsZero() { // the call may be meant for others too, who left before it was sent
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, requests[0].Until)
		defer stop()
	}
	for rest := requests; len(rest) > 0; {
		requests, rest = rest, nil
		known := map[string]*terms{}
		now := requests[:0:0]
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
		c.take(ctx, now)
	}
}

var takeScript = script.Load("take", files, "take")

// take runs take.lua for requests that have the same terms for each key.
func (c *Client) take(ctx context.Context, requests []*batch.Request[request, answers]) {
	call := script.Call{Script: takeScript, Keys: make([]string, 0, len(requests)), Args: make([]string, 1, 1+8*len(requests))}
	call.Args[0] = callID()
	asked := make([]string, 0, 4*len(requests))
	index, n := map[string]string(nil), 0
	if len(requests) > 1 || requests[0].Ask.all != nil {
		index = make(map[string]string, len(requests))
	}
	for _, r := range requests {
		parts := r.Ask.parts()
		if r.Ask.upTo {
			asked = append(asked, "0")
		} else {
			asked = append(asked, strconv.Itoa(len(parts)))
		}
		for _, p := range parts {
			at, known := index[p.key]
			if !known {
				call.Keys = append(call.Keys, p.key)
				call.Args = p.t.args(call.Args)
				if at = strconv.Itoa(len(call.Keys)); index != nil {
					index[p.key] = at
				}
			}
			asked = append(asked, at, strconv.FormatInt(p.n, 10))
		}
		n += len(parts)
	}
	call.Args = append(call.Args, asked...)
	m, err := c.within(ctx, call)
	var v []int64
	if err == nil {
		if v, err = m.AsIntSlice(); err != nil || len(v) != 4*n {
			err = fmt.Errorf("unexpected reply to take on %q", call.Keys[0])
		}
	}
	for _, r := range requests {
		if r.Err = err; err != nil {
			continue
		}
		if r.Ask.all == nil {
			r.Answer.reply, v = newReply(v), v[4:]
			continue
		}
		for range r.Ask.all {
			r.Answer.all, v = append(r.Answer.all, newReply(v)), v[4:]
		}
	}
}

func newReply(v []int64) reply {
	return reply{taken: v[0], wait: script.Micros(v[1]), free: v[2], empty: script.Micros(v[3])}
}

var errAllowTimeout = errors.New("no answer within AllowTimeout")

// within makes a call that lasts for AllowTimeout at most, however patient its caller is, and is repeated within that time.
func (c *Client) within(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	m, err := c.allows.DoWithin(ctx, call, c.allowTimeout, errAllowTimeout)
	if err == nil {
		c.calls.Answered()
	}
	return m, err
}
