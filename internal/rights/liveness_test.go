package rights_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// liveness takes a lock over from a client that is gone, and leaves one that is kept.
func liveness(ctx context.Context, hub *pubsub.Hub, prefix string, must func(what string, e error)) {
	o := rlock.Options{
		KeyPrefix: prefix, Liveness: true, Heartbeat: 50 * time.Millisecond, WatchdogTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{"alive", "alive{1}"} {
		gone, e := rlock.New(hub, o)
		must("liveness", e)
		here, e := rlock.New(hub, o)
		must("liveness", e)
		hold, e := gone.Reentrant(name).Lock(ctx)
		must("liveness: lock", e)
		if e != nil {
			return
		}
		time.Sleep(2 * o.Heartbeat)
		_, e = here.Reentrant(name).Inspect(ctx)
		must("liveness: inspect", e)
		over, cancel := context.WithCancel(ctx)
		cancel()
		gone.Close(over) // without an Unlock: what is held is left as it is
		_ = hold
		taken, e := here.Reentrant(name).TryLock(ctx, 10*time.Second, 0)
		must("liveness: take over", e)
		if e == nil {
			must("liveness: unlock after", taken.UnlockAfter(ctx, 20*time.Millisecond))
		}
		must("liveness: close", here.Close(ctx))
	}
}

// livePermits takes permits and weights over from a client that is gone.
func livePermits(ctx context.Context, hub *pubsub.Hub, prefix string, must func(what string, e error)) {
	o := rsemaphore.Options{
		KeyPrefix: prefix, Liveness: true, Heartbeat: 50 * time.Millisecond, WatchdogTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{"live permits", "live permits{1}"} {
		gone, e := rsemaphore.New(hub, o)
		must("live permits", e)
		here, e := rsemaphore.New(hub, o)
		must("live permits", e)
		_, e = gone.Semaphore(name, 1).Acquire(ctx, 1)
		must("live permits: acquire", e)
		_, e = gone.WeightedSemaphore(name, 1).Acquire(ctx, 1)
		must("live permits: acquire a weight", e)
		if e != nil {
			return
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		gone.Close(over) // without a Release: what is held is left as it is
		p, e := here.Semaphore(name, 1).TryAcquire(ctx, 1, 10*time.Second, 0)
		must("live permits: take over", e)
		if e == nil {
			must("live permits: release", p.Release(ctx))
		}
		w, e := here.WeightedSemaphore(name, 1).TryAcquire(ctx, 1, 10*time.Second, 0)
		must("live permits: take a weight over", e)
		if e == nil {
			must("live permits: release a weight", w.Release(ctx))
		}
		must("live permits: close", here.Close(ctx))
	}
}
