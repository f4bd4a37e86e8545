package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
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
	// RetryAfter is how long until all could pass, if not Allowed and no other request comes: the longest of Each that is
	// not of a Shadow limit.
	RetryAfter time.Duration
	// Each is the answer of each limit, in the order of the Takes. If not Allowed, its Allowed says whether that limit
	// would have let its units pass, and N is 0.
	Each []Admission
}

// mostTakes is how many limits one AllowAll has at most.
const mostTakes = 16

// AllowAll takes units of several limits, up to 16, such as 10 a second and 1,000 a day for a user: all if all may pass
// now, and none otherwise. It is one step on the server, and one round trip, which calls in a crowd share. A Shadow
// limit that would refuse takes none, and keeps nothing from the others.
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
	r, err := c.newRequest(ctx, takes, 0)
	if err != nil {
		return Decision{}, err
	}
	return c.decide(ctx, r)
}

// newRequest is the request for units of several limits, at least so many of each.
func (c *Client) newRequest(ctx context.Context, takes []Take, least int64) (*request, error) {
	if len(takes) == 0 || len(takes) > mostTakes {
		return nil, errs.InvalidOption("the number of limits", len(takes), fmt.Sprintf("1 to %d", mostTakes))
	}
	r := &request{parts: make([]part, 0, len(takes))}
	for i, t := range takes {
		if t.Limiter == nil || t.Limiter.c != c {
			return nil, errs.InvalidOption("Limiter", "nil, or of another client", "made by this client")
		}
		if err := r.add(ctx, t, least); err != nil {
			return nil, fmt.Errorf("limit %d, %q: %w", i, t.Limiter.name, err)
		}
		if slices.ContainsFunc(r.parts[:i], func(p part) bool { return p.key == r.parts[i].key }) {
			return nil, errs.InvalidOption("Key", fmt.Sprintf("%q of %q, twice", t.Key, t.Limiter.name),
				"of another limit each time")
		}
	}
	if c.allows.Apart() {
		return r, r.oneSlot()
	}
	return r, nil
}
