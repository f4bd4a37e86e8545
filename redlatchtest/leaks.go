package redlatchtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// ledger counts what clients hold, by what their observers are told, under the key of each. A client's Close alone would not name
// what was forgotten, if the garbage collector found that out first.
type ledger struct {
	mu   sync.Mutex
	held map[string]int
}

func (l *ledger) add(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]int{}
	}
	l.held[key] += n
}

// left are the keys of what is still held. What was lost needs no release, and may have one: it counts twice then, so of two holds
// of a name, one lost and released and one left, nothing is said.
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
	lock, permit := cmp.Or(o.Locks.KeyPrefix, o.KeyPrefix), cmp.Or(o.Semaphores.KeyPrefix, o.KeyPrefix)
	o.Locks.Observer = rlock.Observer{
		Acquired: func(_ context.Context, name string, _ time.Duration) { l.add(lock+name, 1) },
		Released: func(_ context.Context, name string, _ time.Duration, _ error) { l.add(lock+name, -1) },
		Ended:    func(_ context.Context, name string, why error) { l.ended(lock+name, why) },
	}.And(o.Locks.Observer)
	o.Semaphores.Observer = rsemaphore.Observer{
		Acquired: func(_ context.Context, name string, _ int, _ time.Duration) { l.add(permit+name, 1) },
		Released: func(_ context.Context, name string, _ int, _ time.Duration, _ error) { l.add(permit+name, -1) },
		Ended:    func(_ context.Context, name string, why error) { l.ended(permit+name, why) },
	}.And(o.Semaphores.Observer)
}

// ended counts what was lost as given back, and what its client's Close has ended as still held.
func (l *ledger) ended(key string, why error) {
	if !errors.Is(why, rlock.ErrClosed) {
		l.add(key, -1)
	}
}
