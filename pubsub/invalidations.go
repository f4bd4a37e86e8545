package pubsub

import (
	"sync"

	"github.com/redis/rueidis"
)

// invalidations observes the invalidations of a client with client-side caching. Its zero value is ready for use.
type invalidations struct {
	mu   sync.RWMutex
	next int
	fns  map[int]func(keys []string)
}

// option returns o with its OnInvalidations chained: a function that is there already is called first.
func (i *invalidations) option(o rueidis.ClientOption) rueidis.ClientOption {
	before := o.OnInvalidations
	o.OnInvalidations = func(msgs []rueidis.RedisMessage) {
		if before != nil {
			before(msgs)
		}
		i.deliver(msgs)
	}
	return o
}

// watch calls fn for every invalidation until stop is called; see accessor.Hub.
func (i *invalidations) watch(fn func(keys []string)) (stop func()) {
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

func (i *invalidations) deliver(msgs []rueidis.RedisMessage) {
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
