package rights_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// liveness takes a lock over from a client that is gone, and leaves one that is kept.
func liveness(ctx context.Context, hub *pubsub.Hub, prefix string) {
	o := rlock.Options{
		KeyPrefix: prefix, Liveness: true, Heartbeat: 50 * time.Millisecond, WatchdogTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{"alive", "alive{1}"} {
		gone := redistest.Got(rlock.New(hub, o))
		here := redistest.Got(rlock.New(hub, o))
		hold := redistest.Got(gone.Reentrant(name).Lock(ctx))
		time.Sleep(2 * o.Heartbeat)
		redistest.Got(here.Reentrant(name).Inspect(ctx))
		over, cancel := context.WithCancel(ctx)
		cancel()
		gone.Close(over) // without an Unlock: what is held is left as it is
		_ = hold
		taken := redistest.Got(here.Reentrant(name).TryLock(ctx, 10*time.Second, 0))
		redistest.Must(taken.UnlockAfter(ctx, 20*time.Millisecond))
		redistest.Must(here.Close(ctx))
	}
}

// deadlock has two callers wait for each other's locks, until one of them is told so.
func deadlock(ctx context.Context, hub *pubsub.Hub, prefix string) {
	o := rlock.Options{KeyPrefix: prefix, PollCap: 60 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	here, other := redistest.Got(rlock.New(hub, o)), redistest.Got(rlock.New(hub, o))
	first, second := redistest.Got(here.Reentrant("a").Lock(ctx)), redistest.Got(other.Plain("b").Lock(ctx))
	waited := make(chan error)
	wait := func(l *rlock.Lock, carried *rlock.Hold) {
		h, e := l.Lock(carried.Context(ctx))
		if e == nil {
			e = h.Unlock(ctx)
		}
		_ = carried.Unlock(ctx)
		waited <- e
	}
	go wait(here.Plain("b"), first)
	go wait(other.Reentrant("a"), second)
	one, another := <-waited, <-waited
	var found *rlock.DeadlockError
	if !errors.As(errors.Join(one, another), &found) {
		redistest.Must(fmt.Errorf("no deadlock: %w", errors.Join(one, another)))
	}
	redistest.Must(here.Close(ctx))
	redistest.Must(other.Close(ctx))
}

// livePermits takes permits and weights over from a client that is gone.
func livePermits(ctx context.Context, hub *pubsub.Hub, prefix string) {
	o := rsemaphore.Options{
		KeyPrefix: prefix, Liveness: true, Heartbeat: 50 * time.Millisecond, WatchdogTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{"live permits", "live permits{1}"} {
		gone := redistest.Got(rsemaphore.New(hub, o))
		here := redistest.Got(rsemaphore.New(hub, o))
		redistest.Got(gone.Semaphore(name, 1).Acquire(ctx, 1))
		redistest.Got(gone.WeightedSemaphore(name, 1).Acquire(ctx, 1))
		over, cancel := context.WithCancel(ctx)
		cancel()
		gone.Close(over) // without a Release: what is held is left as it is
		p := redistest.Got(here.Semaphore(name, 1).TryAcquire(ctx, 1, 10*time.Second, 0))
		redistest.Must(p.Release(ctx))
		w := redistest.Got(here.WeightedSemaphore(name, 1).TryAcquire(ctx, 1, 10*time.Second, 0))
		redistest.Must(w.Release(ctx))
		redistest.Must(here.Close(ctx))
	}
}
