package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/rsemaphore"
)

// The judges of fair shares, for tenants of the same weight whose calls are for one permit each:
//
//   - of a tenant with a maximum, never more is held: a resource of its own, which the oracle judges as any other;
//   - no permit is idle while a tenant waits that may hold more: lookAtFree;
//   - a tenant waits at most two service times, however many calls of others wait: meanwhile each permit is granted to
//     others twice at most.
//
// The last counts from two round trips after the tenant's first call began, when the call has its place on the server
// and grants that were on their way have come, or from the tenant's last permit. A call of the waiting tenant that gave
// up may have been granted its permit before.

const (
	sharedPermits = 2
	mayTurn       = 2 // how often each permit is granted to others, while a tenant waits: two service times
)

// shared makes the kind of a semaphore whose tenants have shares. Of eight calls, one is of a light tenant, and one is
// of a tenant with a maximum of one permit.
func shared() *kind {
	k := holding("shares", sharedPermits, func(r *rand.Rand, s *Step) { s.ID = r.IntN(8) },
		func(o *object, s Step) map[*resource]int {
			units := map[*resource]int{o.parts[0]: s.N}
			if tenantOf(s) == "capped" {
				units[o.parts[1]] = s.N
			}
			return units
		},
		func(ctx context.Context, c *client, object string, s Step) (held, error) {
			sem := c.red.Semaphores().Semaphore(object, sharedPermits).For(tenantOf(s))
			if tenantOf(s) == "capped" {
				sem = sem.WithMax(1)
			}
			return permit(sem.TryAcquire(ctx, s.N, s.patience(), s.Lease))
		})
	k.tenantOf = tenantOf
	k.make = func(w *world, o *object) {
		limit := w.resource(o.name+"capped", 1, w.nodes[:1])
		limit.isLimit = true
		o.parts = append(o.parts, w.resource(o.name, sharedPermits, w.nodes[:1]), limit)
	}
	return k
}

// tenantOf is the tenant of a step of the kind shares.
func tenantOf(s Step) string {
	switch s.ID {
	case 0:
		return "light"
	case 1:
		return "capped"
	}
	return "heavy"
}

// permit returns what an acquisition has got.
func permit(p *rsemaphore.Permit, err error) (held, error) {
	if err != nil {
		return held{}, err
	}
	return held{lease: p, release: p.Release, ids: bases(p.IDs())}, nil
}

// passes is how often others have passed a waiting claim.
type passes struct {
	grants int // to other tenants
	left   int // calls of its own tenant that may have been before it, and gave up
}

// passed judges how often others have passed the waiting tenants, when c has got a permit or given up. Where no client
// hears of grants, no call has a place on the server, and nothing is promised.
func (w *world) passed(c *claim, got bool) {
	if c.tenant == "" || !w.plan.Crowd || w.plan.Mute {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range c.units {
		switch {
		case r.isLimit:
		case got:
			w.lookAtPasses(r, c, time.Now())
		default:
			for waiter := range r.waiting {
				if waiter.tenant == c.tenant && c.began.Before(w.placed(waiter)) {
					waiter.passes.left++
				}
			}
		}
	}
}

// placed is when a waiting claim has its place on the server: two round trips after its call began.
func (w *world) placed(c *claim) time.Time { return c.began.Add(4 * w.plan.Longest) }

// lookAtPasses judges how often the tenant of c has passed the first claim of each other. Called with mu held.
func (w *world) lookAtPasses(r *resource, c *claim, now time.Time) {
	first := map[string]*claim{}
	for waiter := range r.waiting {
		if waiter.tenant == c.tenant {
			waiter.passes = passes{}
		} else if known := first[waiter.tenant]; known == nil || waiter.began.Before(known.began) {
			first[waiter.tenant] = waiter
		}
	}
	for tenant, waiter := range first {
		if tenant == "capped" || now.Before(w.placed(waiter)) {
			continue
		}
		waiter.passes.grants++
		passed, left := waiter.passes.grants, waiter.passes.left
		w.figures.MostPassed = max(w.figures.MostPassed, passed-left)
		if passed > mayTurn*r.capacity+left {
			w.violation("%s: step %d, of tenant %s, waits, and others have passed it %d times, while %d of its own calls "+
				"gave up", r.name, waiter.step, tenant, passed, left)
			waiter.passes = passes{}
		}
	}
}

// hasRoom reports whether a waiting claim finds room in its resources other than r.
func (c *claim) hasRoom(r *resource) bool {
	for other, units := range c.units {
		used := 0
		for active := range other.active {
			used += active.units[other]
		}
		if other != r && used+units > other.capacity {
			return false
		}
	}
	return true
}
