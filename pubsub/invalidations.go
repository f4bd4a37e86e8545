package pubsub

import (
	"sync"

	"github.com/redis/rueidis"
)

// invalidations passes the invalidations of a client with client-side caching on to observers. Its zero value is ready
// for use.
type invalidations struct {
	mu        sync.RWMutex
	nextID    int
	observers map[int]func(keys []string)
}

// withObservers returns option with an OnInvalidations that calls the observers. A function that option has already is
// called first.
func (i *invalidations) withObservers(option rueidis.ClientOption) rueidis.ClientOption {
	before := option.OnInvalidations
	option.OnInvalidations = func(msgs []rueidis.RedisMessage) {
		if before != nil {
			before(msgs)
		}
		i.deliver(msgs)
	}
	return option
}

// watch calls fn for every invalidation until stop is called; see accessor.Hub.
func (i *invalidations) watch(fn func(keys []string)) (stop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.observers == nil {
		i.observers = map[int]func([]string){}
	}
	id := i.nextID
	i.nextID++
	i.observers[id] = fn
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.observers, id)
	}
}

func (i *invalidations) deliver(msgs []rueidis.RedisMessage) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if len(i.observers) == 0 {
		return
	}
	var keys []string
	if msgs != nil {
		keys = make([]string, 0, len(msgs))
		for _, msg := range msgs {
			if key, err := msg.ToString(); err == nil {
				keys = append(keys, key)
			}
		}
	}
	for _, fn := range i.observers {
		fn(keys)
	}
}
