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

// ledger counts the holds of clients for each key, by the events of their observers. A client's Close alone would not
// name a forgotten hold that the garbage collector found first.
type ledger struct {
	mu        sync.Mutex
	held      map[string]int
	releasing map[string]int // how many of held are being released
}

func (l *ledger) add(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held, l.releasing = map[string]int{}, map[string]int{}
	}
	l.held[key] += n
}

// release counts a release that begins, or with -1 a release that has ended.
func (l *ledger) release(key string, n int) {
	l.add(key, min(n, 0))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing[key] += n
}

// forgotten reports whether any of the keys is held and not being released.
func (l *ledger) forgotten(keys []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(keys, func(key string) bool { return l.held[key] > l.releasing[key] })
}

// left returns the keys that are still held. A lost hold needs no release. If it is released all the same, it counts
// twice. So if a name has a hold that was lost and released, and a hold that was left, left does not report the name.
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

// unreleased returns an error with those keys of earlier that are still held.
func (l *ledger) unreleased(earlier []string) error {
	now := l.left()
	if list := slices.DeleteFunc(earlier, func(key string) bool { return !slices.Contains(now, key) }); len(list) > 0 {
		return fmt.Errorf("acquired and never released: %q", list)
	}
	return nil
}

// watch adds the ledger's observer to the options of locks and semaphores.
func (l *ledger) watch(o *redlatch.Options) {
	o.Locks = after(o.Locks, func(o *rlock.Options) {
		o.Observer = l.observer(o.KeyPrefix).And(o.Observer)
	})
	o.Semaphores = after(o.Semaphores, func(o *rsemaphore.Options) {
		o.Observer = l.observer(o.KeyPrefix).And(o.Observer)
	})
}

// observer returns an observer that counts the holds of a client with that prefix.
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
			// A lost hold needs no release. A hold that Close ended is still held on the server.
			if !errors.Is(e.Err, redlatch.ErrClosed) {
				l.add(key, -1)
			}
		}
		return nil
	}
}

// after returns a function of redlatch.Options that calls first, unless it is nil, and then calls then.
func after[O any](first, then func(*O)) func(*O) {
	return func(o *O) {
		if first != nil {
			first(o)
		}
		then(o)
	}
}
