package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// request is units that are wanted in one step: of one limit, or of several, all or none.
type request struct {
	parts []part
	upTo  bool   // or as many as there are of the one limit
	id    string // of a charge; "": the units are not settled later
	// silent is set if the server did not return the terms within AllowTimeout. Then it is not asked for the units either.
	silent error
	// one and each are room for one limit, which most requests are for, and its answer.
	one  [1]part
	each [1]Admission
}

// part is units of one limit.
type part struct {
	l   *Limiter
	t   *terms // as they are now
	key string // Redis'
	own string // the caller's
	n   int64
}

// add adds units of a limit, at least so many, under the terms that count now. A caller that has waited in vain for the
// terms of one limit waits for no other's.
func (r *request) add(ctx context.Context, take Take, least int64) error {
	l, n := take.Limiter, take.N
	if err := l.usable(take.Key); err != nil {
		return err
	}
	t := l.terms
	if l.o.Stored {
		t = l.stored(ctx, r)
	}
	// If an operator has lowered the limit, a request within the program's own limit is refused, and is no mistake.
	if n < least || n > t.burst && n > l.terms.burst {
		most := "Burst"
		if t.algorithm != GCRA {
			most = "Rate"
		}
		return errs.InvalidOption("n", n, fmt.Sprintf("between %d and %s, which is %d", least, most, t.burst))
	}
	if r.parts == nil {
		r.parts = r.one[:0]
	}
	r.parts = append(r.parts, part{l, t, l.key(take.Key), take.Key, n})
	return nil
}

// looks reports whether the request takes nothing.
func (r *request) looks() bool {
	return !slices.ContainsFunc(r.parts, func(p part) bool { return p.n > 0 })
}

// oneSlot is the error of a request for limits of several slots.
func (r *request) oneSlot() error {
	first := r.parts[0]
	for _, p := range r.parts[1:] {
		if keyname.Slot(p.key) != keyname.Slot(first.key) {
			return fmt.Errorf("%w: the limits of %q and %q are in different slots of the Cluster: give both the "+
				"same key, or keys with the same {tag}", errs.ErrInvalidName, first.own, p.own)
		}
	}
	return nil
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

// reply is what take.lua, reserve.lua and cancel.lua say of one limit.
type reply struct {
	taken, free int64
	wait, empty time.Duration
}

const (
	tookNone      = -1
	somethingElse = -2
)

// refused is why the key of a limit cannot be used.
func (r reply) refused(key string) error {
	if r.taken == somethingElse {
		return fmt.Errorf("%w: rate limit at %q: the key is not a rate limit", errs.ErrWrongType, key)
	}
	return nil
}

// admission makes the caller's answer; upTo: it asked for as many as there are.
func (r reply) admission(upTo bool) Admission {
	a := Admission{N: max(0, r.taken), Remaining: r.free, ResetAfter: r.empty}
	if a.Allowed = r.taken > 0 || r.taken == 0 && !upTo; !a.Allowed {
		a.RetryAfter = r.wait
	}
	return a
}

// decision makes the callers' answer of the replies for each limit; down: why the server did not give them.
func (r *request) decision(replies []reply, down error) Decision {
	d := Decision{Allowed: true, Each: r.each[:0]}
	for i, one := range replies {
		a := one.admission(r.upTo)
		a.Down = down
		if p := r.parts[i]; p.l.o.Shadow {
			a.WouldRefuse = down == nil && (!a.Allowed || r.upTo && a.N < p.n)
			a.Allowed, a.N = true, p.n
		} else {
			d.Allowed, d.RetryAfter = d.Allowed && a.Allowed, max(d.RetryAfter, a.RetryAfter)
		}
		d.Each = append(d.Each, a)
	}
	for i := range d.Each {
		if !d.Allowed {
			d.Each[i].N = 0
		}
	}
	return d
}

// newAsks makes the batcher of requests.
func (c *Client) newAsks() *batch.Batcher[*request, []reply] {
	return &batch.Batcher[*request, []reply]{
		Options: &c.batch, Shared: c.calls.TellShared(""), What: "take", Key: "several limits",
		Run: c.askAll, Alone: c.askAlone,
	}
}

// ask has a request answered by the server, for each limit.
func (c *Client) ask(ctx context.Context, r *request) (replies []reply, err error) {
	if r.looks() { // a call that a look shared with an Allow would have an unknown outcome
		replies, err = c.askAlone(ctx, r)
	} else {
		replies, err = c.asks.Of(r.parts[0].key).Do(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	for i, p := range r.parts {
		one := &replies[i]
		if err := one.refused(p.key); err != nil {
			return nil, err
		}
		if one.taken == tookNone {
			one.wait = p.patience(one.wait)
		}
	}
	return replies, nil
}

var errAllowTimeout = errors.New("no answer within AllowTimeout")
