package bench_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// All goroutines of one process want one lock. The holder sends one INCR. After its release a goroutine pauses for
// 1 ms, otherwise a lock that its last holder takes again at once would look best.
func BenchmarkContended(b *testing.B) { runs(b, contended) }

var contended = []workload{
	{"2", func(b *testing.B) { contend(b, 2) }},
	{"64", func(b *testing.B) { contend(b, 64) }},
	{"256", func(b *testing.B) { contend(b, 256) }},
}

func contend(b *testing.B, workers int) {
	s := start(b)
	c := s.Client(b)
	locks := openLocks(b, s.Option(), rlock.Options{})
	watch := load.NewWatch(&load.Words{}, load.NewClock())
	watch.Begin()
	until(b, s, load.Spec{
		Workers: workers, Think: time.Millisecond, Watch: watch, Alone: true,
		Name: func(int) string { return "contended" },
		Acquire: func(ctx context.Context, name string) (load.Release, error) {
			return held(ctx, locks.Reentrant(name))
		},
		Inside: func(ctx context.Context) error { return c.Do(ctx, c.B().Incr().Key("inside").Build()).Error() },
	}, "incr")
	overlaps, lost := watch.Broken()
	require.Zero(b, overlaps)
	require.Zero(b, lost)
}

// until runs the workers until they have acquired b.N times.
func until(b *testing.B, s *redistest.Server, spec load.Spec, except ...string) load.Outcome {
	run, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ops atomic.Int64
	inside := spec.Inside
	spec.Inside = func(ctx context.Context) error {
		if ops.Add(1) == int64(b.N) {
			cancel()
		}
		return inside(ctx)
	}
	m := newMeter(b, s)
	m.resume(b)
	b.ResetTimer()
	out := load.Run(run, spec)
	b.StopTimer()
	m.pause(b, except...)
	require.Zero(b, out.Errors, out.FirstError)
	m.report(b, float64(out.Ops), "op")
	reportTimes(b, &out.Waits)
	b.ReportMetric(load.Jain(out.Shares), "jain")
	return out
}

// The goroutines of four clients wait in line for a permit, to read or write, or in their order: near the server, and
// 1 ms away, because loopback hides round trips.
func BenchmarkQueues(b *testing.B) { runs(b, queues) }

// line is what the goroutines wait for.
type line struct {
	name     string
	workers  int
	capacity int64 // how many may be inside at one time
	writer   int   // the goroutine that must be alone; -1: none
	hold     time.Duration
	acquire  func(ctx context.Context, l *rlock.Client, s *rsemaphore.Client, worker int) (load.Release, error)
}

var lines = []line{
	{"semaphore", 32, permits, -1, 5 * time.Millisecond,
		func(ctx context.Context, _ *rlock.Client, s *rsemaphore.Client, _ int) (load.Release, error) {
			return permit(ctx, s.Semaphore("queue", permits))
		}},
	{"readwrite", 33, 1 << 20, 0, time.Millisecond,
		func(ctx context.Context, l *rlock.Client, _ *rsemaphore.Client, worker int) (load.Release, error) {
			if worker == 0 {
				return held(ctx, l.ReadWrite("queue").Write())
			}
			return held(ctx, l.ReadWrite("queue").Read())
		}},
	{"fair", 16, 1, -1, time.Millisecond,
		func(ctx context.Context, l *rlock.Client, _ *rsemaphore.Client, _ int) (load.Release, error) {
			return held(ctx, l.Fair("queue"))
		}},
}

var queues = func() (out []workload) {
	for _, l := range lines {
		out = append(out,
			workload{l.name, func(b *testing.B) {
				s := start(b)
				l.queue(b, s, s.Option())
			}},
			workload{l.name + "-1ms-away", func(b *testing.B) {
				s, client := away(b)
				l.queue(b, s, client)
			}})
	}
	return out
}()

func (l line) queue(b *testing.B, s *redistest.Server, client rueidis.ClientOption) {
	const clients = 4
	var locks []*rlock.Client
	var semaphores []*rsemaphore.Client
	for range clients {
		locks = append(locks, openLocks(b, client, rlock.Options{}))
		semaphores = append(semaphores, openSemaphores(b, client))
	}
	var inside, over atomic.Int64
	until(b, s, load.Spec{
		Workers: l.workers, Think: time.Millisecond, Name: strconv.Itoa,
		Acquire: func(ctx context.Context, name string) (load.Release, error) {
			worker, _ := strconv.Atoi(name)
			release, err := l.acquire(ctx, locks[worker%clients], semaphores[worker%clients], worker)
			if err != nil {
				return nil, err
			}
			weight := int64(1)
			if worker == l.writer {
				weight = l.capacity
			}
			if inside.Add(weight) > l.capacity {
				over.Add(1)
			}
			return func(ctx context.Context) error {
				inside.Add(-weight)
				return release(ctx)
			}, nil
		},
		Inside: func(context.Context) error { time.Sleep(l.hold); return nil },
	})
	require.Zero(b, over.Load(), "too many were inside")
}

// ns/op is the time from the call of Unlock until a goroutine that has waited for some milliseconds has the lock.
func BenchmarkHandover(b *testing.B) { runs(b, handovers) }

var handovers = []workload{
	{"two-clients", func(b *testing.B) { handover(b, 2) }},
	{"one-client", func(b *testing.B) { handover(b, 1) }},
}

func handover(b *testing.B, clients int) {
	s := start(b)
	holder := openLocks(b, s.Option(), rlock.Options{}).Reentrant("handover")
	waiter := holder
	if clients == 2 {
		waiter = openLocks(b, s.Option(), rlock.Options{}).Reentrant("handover")
	}
	hold, err := holder.Lock(b.Context())
	require.NoError(b, err)
	pass := func() time.Duration {
		next, at := waits(b, waiter)
		time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
		began := time.Now()
		require.NoError(b, hold.Unlock(b.Context()))
		hold, holder, waiter = <-next, waiter, holder
		return (<-at).Sub(began)
	}
	pass() // subscriptions
	pass()
	var h load.Histogram
	var sum time.Duration
	m := newMeter(b, s)
	m.resume(b)
	for range b.N {
		d := pass()
		h.Add(d)
		sum += d
	}
	m.pause(b)
	m.report(b, float64(b.N), "op")
	reportTimes(b, &h)
	b.ReportMetric(float64(sum)/float64(b.N), "ns/op")
	require.NoError(b, hold.Unlock(b.Context()))
}

// waits acquires in a goroutine, and says when it has.
func waits(b *testing.B, l *rlock.Lock) (hold chan *rlock.Hold, at chan time.Time) {
	hold, at = make(chan *rlock.Hold, 1), make(chan time.Time, 1)
	go func() {
		h, err := l.Lock(b.Context())
		at <- time.Now()
		if err != nil {
			b.Error(err)
		}
		hold <- h
	}()
	return hold, at
}

// crashLease is how long a killed holder's lock lasts at most.
const crashLease = 500 * time.Millisecond

// The process that holds the lock is killed. ns/op is the time from there until another has the lock; %lease is its
// part of the lease.
func BenchmarkCrash(b *testing.B) { runs(b, crashes) }

var crashes = []workload{{"kill", func(b *testing.B) {
	s := start(b)
	l := openLocks(b, s.Option(), rlock.Options{WatchdogTimeout: crashLease}).Reentrant("crash")
	var sum time.Duration
	for range b.N {
		process := redistest.Spawn(b, "holder", s)
		require.Equal(b, "holding", process.Line(b))
		next, at := waits(b, l)
		time.Sleep(50 * time.Millisecond)
		process.Signal(b, syscall.SIGKILL)
		killed := time.Now()
		sum += (<-at).Sub(killed)
		require.NoError(b, (<-next).Unlock(b.Context()))
	}
	mean := float64(sum) / float64(b.N)
	b.ReportMetric(mean, "ns/op")
	b.ReportMetric(100*mean/float64(crashLease), "%lease")
}}}
