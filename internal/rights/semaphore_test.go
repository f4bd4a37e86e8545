package rights_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// semaphores uses all of a semaphore.
func semaphores(ctx context.Context, hub *pubsub.Hub, prefix string, must func(what string, e error)) {
	c, e := rsemaphore.New(hub,
		rsemaphore.Options{KeyPrefix: prefix, Logger: slog.New(slog.DiscardHandler), WatchdogTimeout: 210 * time.Millisecond})
	must("semaphores", e)
	if e != nil {
		return
	}
	defer c.Close(ctx)
	for _, name := range []string{"s", "t{1}"} {
		s := c.Semaphore(name, 3).WithLabel("l")
		short, e := s.TryAcquire(ctx, 1, 0, 200*time.Millisecond) // whose lease is over when others come
		must("acquire for a while", e)
		if e != nil {
			return
		}
		<-short.Done()
		time.Sleep(10 * time.Millisecond)
		p, e := s.Shared().Acquire(ctx, 3)
		must("acquire", e)
		if e != nil {
			return
		}
		waited := make(chan error, 1)
		go func() { // subscribes
			q, e := s.TryAcquire(ctx, 1, 5*time.Second, 5*time.Second)
			if e == nil {
				e = q.Release(ctx)
			}
			waited <- e
		}()
		must("extend", p.Extend(ctx, time.Second))
		time.Sleep(110 * time.Millisecond) // a renewal
		_, e = s.Available(ctx)
		must("query", e)
		_, e = s.Inspect(ctx)
		must("inspect", e)
		must("extend by id", s.ExtendIDs(ctx, time.Second, p.IDs()...))
		_, e = s.InspectIDs(ctx, p.IDs()...)
		must("inspect by id", e)
		must("release by id", s.ReleaseIDs(ctx, p.IDs()...))
		must("waiter", <-waited)
		_, e = s.Resize(ctx, 2)
		must("resize", e)
		_, e = s.AddPermits(ctx, 1)
		must("add permits", e)
		x, e := c.Semaphore(name+"x", 1).Fenced().TryAcquire(ctx, 1, 0, time.Second)
		must("acquire with a token", e)
		if e == nil {
			must("release with a token", x.Release(ctx))
		}
		_, e = c.CountingSemaphore(name + "n").Inspect(ctx)
		must("inspect a count", e)
		weights(ctx, c, name, must)
	}
}

// weights uses all of a semaphore of weights.
func weights(ctx context.Context, c *rsemaphore.Client, name string, must func(what string, e error)) {
	s := c.WeightedSemaphore(name, 1<<40).WithLabel("l")
	short, e := s.TryAcquire(ctx, 5, 0, 200*time.Millisecond) // whose lease is over when others come
	must("weights: acquire for a while", e)
	if e != nil {
		return
	}
	<-short.Done()
	time.Sleep(10 * time.Millisecond)
	p, e := s.Acquire(ctx, 1<<40)
	must("weights: acquire", e)
	if e != nil {
		return
	}
	waited := make(chan error, 1)
	go func() {
		q, e := s.TryAcquire(ctx, 1, 5*time.Second, 5*time.Second)
		if e == nil {
			e = q.Release(ctx)
		}
		waited <- e
	}()
	time.Sleep(110 * time.Millisecond) // a renewal
	must("weights: extend", p.Extend(ctx, time.Second))
	_, e = s.Inspect(ctx)
	must("weights: inspect", e)
	_, e = s.Available(ctx)
	must("weights: available", e)
	must("weights: release a part", p.ReleasePart(ctx, 7))
	must("weights: waiter", <-waited)
	_, e = s.Resize(ctx, 20)
	must("weights: resize", e)
	must("weights: release", p.Release(ctx))
}
