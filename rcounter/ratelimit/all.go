package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Take is N units of Limiter's limit for Key.
type Take struct {
	Limiter *Limiter
	Key     string
	// N is 1 to the limiter's Burst, or 0 to look.
	N int64
}

// Decision is the answer of AllowAll.
type Decision struct {
	// Allowed reports whether all may pass, and then all have been taken.
	Allowed bool
	// RetryAfter is how long until all could pass, if not Allowed and no other request comes: the longest of Each.
	RetryAfter time.Duration
	// Each is the answer of each limit, in the order of the Takes. If not Allowed, its Allowed says whether that limit
	// would have let its units pass, and N is 0.
	Each []Admission
}

// mostTakes is how many limits one AllowAll has at most.
const mostTakes = 16

// AllowAll takes units of several limits, up to 16, such as 10 a second and 1,000 a day for a user: all if all may pass
// now, and none otherwise. It is one step on the server, and one round trip, which calls in a crowd share.
//
// In a Cluster the keys must be in one slot: those that are the same are, and those with the same {tag} in them, as
// "{acme}" and "{acme}:ann". Otherwise nothing is sent, and the error is ErrInvalidName. (A limit with the key "" is in
// a slot of its own.) So it is behind a proxy that hides a Cluster, from its first refusal of several slots on; that
// refusal is the same error, and nothing was taken.
//
// While the server does not answer, the strictest of the limiters' policies decides about all: Fail, Closed, Local and
// Open, in this order. Where it is Local, each of those limits decides by itself in this process, and all or none are
// taken there, too.
//
// Errors: those of Allow; ErrInvalidOption for no limit, more than 16, one that comes twice, and for limiters of
// another client.
func (c *Client) AllowAll(ctx context.Context, takes ...Take) (decision Decision, err error) {
	defer edge(&err)
	r, err := c.together(ctx, takes)
	if err != nil {
		return Decision{}, err
	}
	began := time.Now()
	d, err := c.judgeAll(ctx, r)
	if script.AcrossSlots(err) { // that this is a Cluster is known only now
		_, err = c.together(ctx, takes)
	}
	for i, p := range r.all {
		a := Admission{}
		if err == nil {
			a = d.Each[i]
		}
		c.report(ctx, p.l, a, began, err)
	}
	return d, err
}

// judgeAll answers a request of several limits, by the server or as the strictest policy says.
func (c *Client) judgeAll(ctx context.Context, r request) (Decision, error) {
	strictest := r.all[0].l
	for _, p := range r.all[1:] {
		if p.l.o.WhenDown.severity() > strictest.o.WhenDown.severity() {
			strictest = p.l
		}
	}
	if r.silent == nil && strictest.o.WhenDown != Fail && !c.down.asks(c.calls.Now()) {
		c.unanswered(ctx, strictest, errSilent)
		return c.insteadOfAll(errSilent, strictest.o.WhenDown, r.all), nil
	}
	sent := time.Now()
	var a answers
	err := r.silent
	if err == nil {
		a, err = c.ask(ctx, r)
	}
	if err == nil {
		c.answered(ctx, strictest)
		for i, p := range r.all {
			if a.all[i].taken == tookNone { // an Allow of as many would be refused, too
				c.refusals.learn(&request{part: p}, a.all[i], sent)
			}
		}
		return decide(a.all), nil
	}
	if !c.failed(ctx, strictest, err) {
		return Decision{}, err
	}
	return c.insteadOfAll(err, strictest.o.WhenDown, r.all), nil
}

// together is the request for units of several limits.
func (c *Client) together(ctx context.Context, takes []Take) (request, error) {
	if err := c.calls.Usable(nil); err != nil {
		return request{}, err
	}
	if len(takes) == 0 || len(takes) > mostTakes {
		return request{}, errs.InvalidOption("the number of limits", len(takes), fmt.Sprintf("1 to %d", mostTakes))
	}
	parts := make([]part, len(takes))
	var silent error
	for i, t := range takes {
		if t.Limiter == nil || t.Limiter.c != c {
			return request{}, errs.InvalidOption("Limiter", "nil, or of another client", "made by this client")
		}
		var err error
		if parts[i], err = t.Limiter.part(ctx, t.Key, t.N, 0); err != nil {
			return request{}, fmt.Errorf("limit %d, %q: %w", i, t.Limiter.name, err)
		}
		if parts[i].silent != nil && silent == nil { // the caller has waited, and waits for no other limiter's terms
			var stop context.CancelFunc
			silent = parts[i].silent
			ctx, stop = context.WithCancel(ctx)
			stop()
		}
		for _, p := range parts[:i] {
			if p.key == parts[i].key {
				return request{}, errs.InvalidOption("Key", fmt.Sprintf("%q of %q, twice", t.Key, t.Limiter.name),
					"of another limit each time")
			}
		}
		if c.allows.Apart() && keyname.Slot(parts[i].key) != keyname.Slot(parts[0].key) {
			return request{}, fmt.Errorf("%w: the limits of %q and %q are in different slots of the Cluster: give both the "+
				"same key, or keys with the same {tag}", errs.ErrInvalidName, takes[0].Key, t.Key)
		}
	}
	r := request{part: parts[0], all: parts}
	r.silent = silent
	return r, nil
}

// decide makes the caller's answer.
func decide(all []reply) Decision {
	d := Decision{Allowed: true, Each: make([]Admission, len(all))}
	for i, r := range all {
		d.Each[i] = r.admission(false)
		d.Allowed = d.Allowed && d.Each[i].Allowed
		d.RetryAfter = max(d.RetryAfter, d.Each[i].RetryAfter)
	}
	if !d.Allowed {
		for i := range d.Each {
			d.Each[i].N = 0
		}
	}
	return d
}

// severity orders the policies.
func (p Policy) severity() int { return slices.Index([]Policy{Open, Local, Closed, Fail}, p) }

// insteadOfAll is what policies answer of which the strictest is Closed, Local or Open.
func (c *Client) insteadOfAll(err error, strictest Policy, parts []part) Decision {
	edge(&err)
	d := Decision{Allowed: strictest != Closed, Each: make([]Admission, len(parts))}
	if strictest == Local {
		d = decide(c.local.take(&request{all: parts}))
	}
	for i, p := range parts {
		if strictest != Local {
			d.Each[i] = Admission{Allowed: d.Allowed, RetryAfter: c.allowTimeout, Remaining: p.t.burst, N: p.n}
		}
		if !d.Allowed {
			d.Each[i].N = 0
		}
		if d.Each[i].Allowed {
			d.Each[i].RetryAfter = 0
		}
		d.Each[i].Down = err
		d.RetryAfter = max(d.RetryAfter, d.Each[i].RetryAfter)
	}
	return d
}
