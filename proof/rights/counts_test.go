package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// useOfCounts uses all of counting semaphores, latches and barriers.
func useOfCounts(ctx context.Context, hub *pubsub.Hub, prefix string) {
	c := redistest.Got(rsemaphore.New(hub, rsemaphore.Options{KeyPrefix: prefix, CallTimeout: 10 * time.Second,
		WatchdogTimeout: 600 * time.Millisecond, PollCap: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}))
	defer closeSoon(c)
	var others sync.WaitGroup
	defer others.Wait()
	ctx, cancel := context.WithCancel(ctx) // of what goes on beside it
	defer cancel()
	java := func(command, name string, args ...string) {
		b := hub.Client().B().Arbitrary(command).Keys(prefix + name).Args(args...)
		redistest.Must(hub.Client().Do(ctx, b.Build()).Error())
	}
	ttls := []time.Duration{0, time.Minute, 30 * time.Millisecond} // the last one expires
	for _, name := range []string{"counted", "counted{1}"} {       // in a Cluster: on several nodes
		several(ctx, c.Semaphore("several "+name, 3))
		shrinks(ctx, c.Semaphore("shrinks "+name, 3))
		s, waited := counting.New(c, name), make(chan error, 1)
		go func() { waited <- s.TryAcquire(ctx, 2, 10*time.Second) }()
		time.Sleep(20 * time.Millisecond)
		redistest.Got(s.TrySetPermits(ctx, 1, time.Minute))
		redistest.Must(s.Release(ctx, 2))
		redistest.Must(<-waited)
		redistest.Got(s.AddPermits(ctx, 1))
		redistest.Got(s.Available(ctx))
		redistest.Got(s.Inspect(ctx))
		for _, ttl := range ttls {
			useOfLatch(ctx, c.CountDownLatch("latch "+name), ttl, &others)
			latchesOfJava(ctx, c, "latch "+name, ttl, java)
		}
		ttls = ttls[:2]

		b := c.CyclicBarrier("barrier "+name, 2)
		for _, leaves := range []time.Duration{10 * time.Second, 20 * time.Millisecond} {
			waits, cancel := context.WithTimeout(ctx, leaves)
			others.Go(func() { defer cancel(); b.Await(waits) })
			time.Sleep(300 * time.Millisecond) // a renewal
			redistest.Got(b.Inspect(ctx))
			waits, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			b.Await(waits)
			cancel()
		}
	}
}

// several acquires several permits at once.
func several(ctx context.Context, s *rsemaphore.Semaphore) {
	for _, n := range []int{1, 2} { // the second finds the count, and knows the server's time
		p := redistest.Got(s.Acquire(ctx, n))
		defer p.Release(ctx)
	}
}

// shrinks has a waiter want more than there is since a resize.
func shrinks(ctx context.Context, s *rsemaphore.Semaphore) {
	p := redistest.Got(s.TryAcquire(ctx, 1, 0, time.Minute))
	waited := make(chan error, 1)
	go func() { waited <- errOf(s.TryAcquire(ctx, 3, 10*time.Second, 0)) }()
	time.Sleep(50 * time.Millisecond)
	redistest.Got(s.Resize(ctx, 2))
	if e := <-waited; !errors.Is(e, rsemaphore.ErrCapacityMismatch) {
		redistest.Must(e)
	}
	redistest.Must(p.Release(ctx))
}

// useOfLatch uses a latch, which may expire meanwhile.
func useOfLatch(ctx context.Context, l *rsemaphore.CountDownLatch, ttl time.Duration, others *sync.WaitGroup) {
	may(errOf(l.TrySetCount(ctx, 2, ttl)))
	others.Go(func() { l.Await(ctx) })
	time.Sleep(60 * time.Millisecond)
	may(errOf(l.Count(ctx)))
	may(errOf(l.CountDownBy(ctx, "a")))
	may(errOf(l.CountDown(ctx)))
	may(errOf(l.TrySetCount(ctx, 1, ttl)))
	may(errOf(l.Delete(ctx)))
	may(errOf(l.TrySetCount(ctx, 1, ttl)))
	may(errOf(l.CountDownBy(ctx, "b")))
}

// latchesOfJava has Java, which knows no record, open a latch, set one over another with a TTL, and set one first.
func latchesOfJava(ctx context.Context, c *rsemaphore.Client, name string, ttl time.Duration,
	java func(command, name string, args ...string)) {
	l := c.CountDownLatch(name)
	may(errOf(l.TrySetCount(ctx, 1, ttl)))
	java("DEL", name)
	may(errOf(l.CountDown(ctx)))
	may(errOf(l.TrySetCount(ctx, 1, ttl)))
	java("SET", name, "2")
	may(errOf(l.CountDownBy(ctx, "c")))
	may(errOf(l.Delete(ctx)))
	java("SET", name+" of Java", "2")
	for _, participant := range []string{"d", "e"} {
		may(errOf(c.CountDownLatch(name+" of Java").CountDownBy(ctx, participant)))
	}
}

// may ends the use with an error, unless the latch has expired.
func may(e error) {
	if !errors.Is(e, rsemaphore.ErrLatchExpired) {
		redistest.Must(e)
	}
}
