package redlatch

import (
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// surviveFailover sets the options of SurviveFailover, before the functions for the packages can change them.
func (o *Options) surviveFailover() {
	if o.MinReplicas == 0 {
		o.MinReplicas = 1
	}
	o.Hub = first(func(h *pubsub.Options) { h.Strict, h.Durable = true, true }, o.Hub)
	o.Locks = first(func(l *rlock.Options) { l.Fenced = true }, o.Locks)
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
