package bench_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Many workers of four clients wait in line: for a permit, to read or write, or in order. Loopback hides round trips,
// so each is measured again with 1 ms added to each way; and medians hide stalls, so each reports its worst window of
// 100 ms, as a share of the median one, and its longest wait. An operation is an acquisition. bench/peers has other
// libraries beside them.
func BenchmarkQueues(b *testing.B) {
	for _, o := range queues {
		b.Run(o.name, o.run)
	}
}

// line is what is waited for: worker 0 of a lock for readers and writers writes.
type line struct {
	name     string
	workers  int
	capacity int64 // who may be inside at one time
	writer   int64 // who counts for all of them; -1: nobody
	hold     time.Duration
	acquire  func(ctx context.Context, locks *rlock.Client, semaphores *rsemaphore.Client,
		worker int) (load.Release, error)
}

func held(l *rlock.Lock, ctx context.Context) (load.Release, error) {
	h, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return h.Unlock, nil
}

const (
	permits = 8
	stall   = 10 * time.Second // of the machine, which is not an error of what is measured
)

var lines = []line{
	{"semaphore", 32, permits, -1, 5 * time.Millisecond,
		func(ctx context.Context, _ *rlock.Client, semaphores *rsemaphore.Client, _ int) (load.Release, error) {
			p, err := semaphores.Semaphore("queue", permits).Acquire(ctx, 1)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}},
	{"counting", 32, permits, -1, 5 * time.Millisecond,
		func(ctx context.Context, _ *rlock.Client, semaphores *rsemaphore.Client, _ int) (load.Release, error) {
			s := semaphores.CountingSemaphore("queue")
			if err := s.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, nil
		}},
	{"readwrite", 33, 1 << 20, 0, time.Millisecond,
		func(ctx context.Context, locks *rlock.Client, _ *rsemaphore.Client, worker int) (load.Release, error) {
			if worker == 0 {
				return held(locks.ReadWrite("queue").Write(), ctx)
			}
			return held(locks.ReadWrite("queue").Read(), ctx)
		}},
	{"fair", 16, 1, -1, time.Millisecond,
		func(ctx context.Context, locks *rlock.Client, _ *rsemaphore.Client, _ int) (load.Release, error) {
			return held(locks.Fair("queue"), ctx)
		}},
}

var queues = func() (out []workload) {
	for _, l := range lines {
		out = append(out, workload{l.name, func(b *testing.B) { queue(b, l, 0) }})
		if haveRedis() {
			out = append(out, workload{l.name + "-1ms-away", func(b *testing.B) { queue(b, l, time.Millisecond) }})
		}
	}
	return out
}()

func queue(b *testing.B, l line, away time.Duration) {
	s := start(b)
	server := s.Option()
	if away > 0 {
		through, stop, err := load.Delay(s.Addr(), away)
		require.NoError(b, err)
		b.Cleanup(stop)
		server = rueidis.ClientOption{InitAddress: []string{through}}
	}
	const clients = 4
	var locks []*rlock.Client
	var semaphores []*rsemaphore.Client
	for range clients {
		locks = append(locks, openWith(b, server, rlock.Options{CallTimeout: stall}))
		semaphores = append(semaphores, openSemaphores(b, server))
	}
	if l.name == "counting" {
		_, err := semaphores[0].CountingSemaphore("queue").TrySetPermits(context.Background(), permits, 0)
		require.NoError(b, err)
	}
	run, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ops, inside, over, written atomic.Int64
	m := newMeter(b, s)
	windows, worst := load.NewWindows(100*time.Millisecond), 0.0
	began := time.Now()
	b.ResetTimer()
	out := load.Run(run, load.Spec{
		Workers: l.workers, Think: time.Millisecond,
		Name: func(i int) string { return string(rune(i)) },
		Acquire: func(ctx context.Context, name string) (load.Release, error) {
			worker := int([]rune(name)[0])
			weight := int64(1)
			release, err := l.acquire(ctx, locks[worker%clients], semaphores[worker%clients], worker)
			if err != nil {
				return nil, err
			}
			if int64(worker) == l.writer {
				weight = l.capacity
				written.Add(1)
			}
			if inside.Add(weight) > l.capacity {
				over.Add(1)
			}
			return func(ctx context.Context) error {
				inside.Add(-weight)
				return release(ctx)
			}, nil
		},
		Inside: func(context.Context) error {
			windows.Add()
			if ops.Add(1) == int64(b.N) {
				worst = windows.Slowest()
				cancel()
			}
			time.Sleep(l.hold)
			return nil
		},
	})
	b.StopTimer()
	took := time.Since(began)
	require.Zero(b, out.Errors, out.FirstError)
	require.Zero(b, over.Load(), "too many were inside")
	m.report(b, out.Ops)
	reportTimes(b, &out.Waits)
	b.ReportMetric(float64(out.Waits.Max.Microseconds()), "longest-us")
	b.ReportMetric(worst, "worst-window")
	b.ReportMetric(load.Jain(out.Shares), "jain")
	if l.writer >= 0 {
		b.ReportMetric(float64(out.Ops-written.Load())/took.Seconds(), "reads/s")
		b.ReportMetric(float64(written.Load())/took.Seconds(), "writes/s")
	}
}

func openSemaphores(b *testing.B, server rueidis.ClientOption) *rsemaphore.Client {
	b.Helper()
	hub, err := pubsub.Dial(b.Context(), server, pubsub.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { hub.Close(context.Background()) })
	c, err := rsemaphore.New(hub, rsemaphore.Options{CallTimeout: stall})
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is still held runs out
		c.Close(ctx)
	})
	return c
}
