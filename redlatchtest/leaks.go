package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// ledger counts what clients hold, by what their observers get, under the key of each. A client's Close alone
// would not name what was forgotten, if the garbage collector found that out first.
type ledger struct {
	mu        sync.Mutex
	held      map[string]int
	releasing map[string]int // of those
}

func (l *ledger) add(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held, l.releasing = map[string]int{}, map[string]int{}
	}
	l.held[key] += n
}

// release counts a release that begins, or with -1 one that has ended.
func (l *ledger) release(key string, n int) {
	l.add(key, min(n, 0))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing[key] += n
}

// forgotten reports whether any of these keys is held though it is not released.
func (l *ledger) forgotten(keys []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(keys, func(key string) bool { return l.held[key] > l.releasing[key] })
}

// left are the keys of what is still held. What was lost needs no release, and may have one: it counts twice then, so
// of two holds of a name, one lost and released and one left, nothing is said.
func (l *ledger) left() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, n := range l.held {
		if n > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// unreleased names what is among earlier, and is still held.
func (l *ledger) unreleased(earlier []string) error {
	now := l.left()
	if list := slices.DeleteFunc(earlier, func(key string) bool { return !slices.Contains(now, key) }); len(list) > 0 {
		return fmt.Errorf("acquired and never released: %q", list)
	}
	return nil
}

// watch has the clients of o tell what they hold.
func (l *ledger) watch(o *redlatch.Options) {
	o.Locks = after(o.Locks, func(o *rlock.Options) {
		o.Observer = l.observer(o.KeyPrefix).And(o.Observer)
	})
	o.Semaphores = after(o.Semaphores, func(o *rsemaphore.Options) {
		o.Observer = l.observer(o.KeyPrefix).And(o.Observer)
	})
}

// observer enters the events of the locks or semaphores of a client with that prefix.
func (l *ledger) observer(prefix string) redlatch.Observer {
	return func(_ context.Context, e redlatch.Event) context.Context {
		key := prefix + e.Name
		switch e.Kind {
		case redlatch.EventAcquired:
			l.add(key, 1)
		case redlatch.EventReleasing:
			l.release(key, 1)
		case redlatch.EventReleased:
			l.release(key, -1)
		case redlatch.EventEnded:
			// what was lost is given back, what Close has ended is still held
			if !errors.Is(e.Err, redlatch.ErrClosed) {
				l.add(key, -1)
			}
		}
		return nil
	}
}

// after returns a function of redlatch.Options that calls first, which may be nil, and then then.
func after[O any](first, then func(*O)) func(*O) {
	return func(o *O) {
		if first != nil {
			first(o)
		}
		then(o)
	}
}
