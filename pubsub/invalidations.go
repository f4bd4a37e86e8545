package pubsub

import (
	"sync"

	"github.com/redis/rueidis"
)

// Invalidations observes the invalidations of client-side caching of a client that you build yourself. Its zero value
// is ready; put it into the client's options and into the hub's:
//
//	var inv pubsub.Invalidations
//	client, err := rueidis.NewClient(inv.Option(option))
//	hub, err := pubsub.NewHub(client, pubsub.Options{Invalidations: &inv})
//
// It must not be copied after first use. It is safe for concurrent use.
type Invalidations struct {
	mu   sync.RWMutex
	next int
	fns  map[int]func(keys []string)
}

// Option returns o with its OnInvalidations chained: a function that is there already is called first.
func (i *Invalidations) Option(o rueidis.ClientOption) rueidis.ClientOption {
	before := o.OnInvalidations
	o.OnInvalidations = func(msgs []rueidis.RedisMessage) {
		if before != nil {
			before(msgs)
		}
		i.deliver(msgs)
	}
	return o
}

// Watch calls fn for every invalidation until stop is called: with the keys that changed or went, or with nil when
// anything may have (FLUSHALL, or a connection was lost and with it what it tracked). An invalidation is a hint, never
// proof. fn runs on the connection's reader: it must return at once and must not call the client.
func (i *Invalidations) Watch(fn func(keys []string)) (stop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fns == nil {
		i.fns = map[int]func([]string){}
	}
	id := i.next
	i.next++
	i.fns[id] = fn
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.fns, id)
	}
}

func (i *Invalidations) deliver(msgs []rueidis.RedisMessage) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if len(i.fns) == 0 {
		return
	}
	var keys []string
	if msgs != nil {
		keys = make([]string, 0, len(msgs))
		for _, m := range msgs {
			if k, err := m.ToString(); err == nil {
				keys = append(keys, k)
			}
		}
	}
	for _, fn := range i.fns {
		fn(keys)
	}
}
