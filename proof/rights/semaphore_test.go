package rights_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// semaphores uses all of a semaphore. watchdog is the length of its leases, too.
func semaphores(ctx context.Context, hub *pubsub.Hub, prefix string, watchdog time.Duration) {
	c := redistest.Got(rsemaphore.New(hub, rsemaphore.Options{KeyPrefix: prefix, WatchdogTimeout: watchdog,
		CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}))
	defer closeSoon(c)
	for _, name := range []string{"s", "t{1}"} {
		s := c.Semaphore(name, 3).WithLabel("l")
		short := redistest.Got(s.TryAcquire(ctx, 1, 0, watchdog)) // whose lease is over when others come
		<-short.Done()
		time.Sleep(10 * time.Millisecond)
		p := redistest.Got(s.Shared().Acquire(ctx, 3))
		waited := make(chan error, 1)
		go func() { // subscribes
			q, e := s.TryAcquire(ctx, 1, 20*time.Second, time.Minute)
			if e == nil {
				e = q.Release(ctx)
			}
			waited <- e
		}()
		redistest.Must(p.Extend(ctx, time.Minute))
		time.Sleep(watchdog/2 + 5*time.Millisecond) // a renewal
		redistest.Got(s.Available(ctx))
		redistest.Got(s.Inspect(ctx))
		redistest.Must(s.ExtendIDs(ctx, time.Minute, p.IDs()...))
		redistest.Got(s.InspectIDs(ctx, p.IDs()...))
		redistest.Must(s.ReleaseIDs(ctx, p.IDs()...))
		redistest.Must(<-waited)
		redistest.Got(s.Resize(ctx, 2))
		redistest.Got(s.AddPermits(ctx, 1))
		x := redistest.Got(c.Semaphore(name+"x", 1).Fenced().TryAcquire(ctx, 1, 0, time.Minute))
		redistest.Must(x.Release(ctx))
		redistest.Got(counting.New(c, name+"n").Inspect(ctx))
		weights(ctx, c, name, watchdog)
	}
}

// weights uses all of a semaphore of weights.
func weights(ctx context.Context, c *rsemaphore.Client, name string, watchdog time.Duration) {
	s := c.WeightedSemaphore(name, 1<<40).WithLabel("l")
	short := redistest.Got(s.TryAcquire(ctx, 5, 0, watchdog)) // whose lease is over when others come
	<-short.Done()
	time.Sleep(10 * time.Millisecond)
	p := redistest.Got(s.Acquire(ctx, 1<<40))
	waited := make(chan error, 1)
	go func() {
		q, e := s.For("tenant").WithMax(7).TryAcquire(ctx, 1, 20*time.Second, time.Minute)
		if e == nil {
			e = q.Release(ctx)
		}
		waited <- e
	}()
	time.Sleep(watchdog/2 + 5*time.Millisecond) // a renewal
	redistest.Must(p.Extend(ctx, time.Minute))
	redistest.Got(s.Inspect(ctx))
	redistest.Got(s.Available(ctx))
	redistest.Must(p.ReleasePart(ctx, 7))
	redistest.Must(<-waited)
	redistest.Got(s.Resize(ctx, 20))
	redistest.Must(p.Release(ctx))
}
