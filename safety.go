package redlatch

import (
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// Safety is a set of options that belong together.
type Safety int

// SurviveFailover is for work that two owners must not do at once when a primary fails. SurviveFailover sets
//
//   - MinReplicas to 1, unless it is set: a replica confirms grants, renewals and the answers of sales, or they do not
//     count;
//   - Strict and Durable of the hub: Open refuses a server that evicts keys, that keeps no append-only file, or that
//     goes on without replicas (min-replicas-to-write);
//   - Fenced of locks: Reentrant makes Fenced locks, so that the resource can refuse late writes, and WithOwner is
//     refused.
//
// The functions for the packages come after it, and can take each of these back.
//
// Some gaps stay. A replica that did not confirm a grant may be promoted: with more than one replica, set
// MinReplicas to as many as there are. Two owners may act then, and only the resource can refuse the older one, by its
// token. Counters, limits, latches and CountingSemaphores are not confirmed by replicas. With one replica nothing is
// granted while the replica is away, so have two. The page safety.md says what each part costs.
const SurviveFailover Safety = 1

// apply sets the options of Safety, before the functions for the packages can change them.
func (o *Options) apply() error {
	switch o.Safety {
	case 0:
		return nil
	case SurviveFailover:
	default:
		return errs.InvalidOption("Safety", int(o.Safety), "0 or SurviveFailover")
	}
	if o.MinReplicas == 0 {
		o.MinReplicas = 1
	}
	o.Hub = first(func(h *pubsub.Options) { h.Strict, h.Durable = true, true }, o.Hub)
	o.Locks = first(func(l *rlock.Options) { l.Fenced = true }, o.Locks)
	return nil
}

// first is the function of a package that comes after set.
func first[O any](set, then func(*O)) func(*O) {
	return func(o *O) {
		set(o)
		if then != nil {
			then(o)
		}
	}
}
