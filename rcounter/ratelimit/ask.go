package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// request is units that are wanted at once.
type request struct {
	part
	upTo bool   // or as many as there are of them
	all  []part // of several limits, all or none: AllowAll; part is the first
}

// peeks reports whether the request takes nothing: Limiter.Peek.
func (r *request) peeks() bool { return r.all == nil && r.n == 0 }

// part is units of one limit.
type part struct {
	l   *Limiter
	t   *terms // as they are now
	key string // Redis'
	n   int64
	// silent is set if the server did not return the terms within AllowTimeout. Then it is not asked for the units either.
	silent error
}

// wants is how many units the server is asked for. For all that are too many for the limit it is the same number, with
// which the scripts' whole numbers stay exact.
func (p *part) wants() string { return strconv.FormatInt(min(p.n, p.t.burst+1), 10) }

// patience is how long the caller is to wait that was refused for so long. More units than the limit ever lets pass
// come again when the whole burst could pass: the limit may have been raised.
func (p *part) patience(wait time.Duration) time.Duration {
	if p.n > p.t.burst {
		return max(wait, p.t.window())
	}
	return wait
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
		return fmt.Errorf("%w: rate limit at %q", errs.ErrWrongType, key)
	case somethingElse:
		return fmt.Errorf("%w: rate limit at %q: it holds something else", errs.ErrWrongType, key)
	}
	return nil
}

// admission makes the caller's answer; upTo: it asked for as many as there are.
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

// newAsks makes the batcher of requests.
func (c *Client) newAsks() *batch.Batcher[request, answers] {
	return &batch.Batcher[request, answers]{
		Options: &c.batch, Tally: &c.tally, What: "take", Key: "several limits", Run: c.askAll, Alone: c.askAlone,
	}
}

// ask has a request answered by the server.
func (c *Client) ask(ctx context.Context, r request) (answers, error) {
	var a answers
	var err error
	if r.peeks() { // a call that Peek shared with Allow would have an unknown outcome
		a, err = c.askAlone(ctx, r)
	} else {
		a, err = c.asks.Of(r.key).Do(ctx, r)
	}
	if err != nil {
		return answers{}, err
	}
	for i, p := range r.parts() {
		one := &a.reply
		if r.all != nil {
			one = &a.all[i]
		}
		if err := one.refused(p.key); err != nil {
			return answers{}, err
		}
		if one.taken == tookNone {
			one.wait = p.patience(one.wait)
		}
	}
	return a, nil
}

func newReply(v []int64) reply {
	return reply{taken: v[0], wait: script.Micros(v[1]), free: v[2], empty: script.Micros(v[3])}
}

var errAllowTimeout = errors.New("no answer within AllowTimeout")

// within makes a call that lasts for AllowTimeout at most, however patient its caller is, and is repeated within that
// time.
func (c *Client) within(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	m, err := c.allows.DoWithin(ctx, call, c.allowTimeout, errAllowTimeout)
	if err == nil {
		c.calls.Answered()
	}
	return m, err
}
