package redlatch_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// BenchmarkSafety is what SurviveFailover and its parts cost an uncontended lock and permit, of a primary with a
// replica. All take turns, ten cycles each, so that what else the machine does befalls them alike, in an order that is
// drawn; the metrics are the median of a turn over that of the first, and commands of the server in a cycle.
func BenchmarkSafety(b *testing.B) {
	primary, _ := pairOf(b)
	safe := redlatch.Options{SurviveFailover: true}
	lock := func(ctx context.Context, red *redlatch.Client) error {
		hold, err := red.Locks().Reentrant("l").Lock(ctx)
		if err != nil {
			return err
		}
		return hold.Unlock(ctx)
	}
	permit := func(change func(*rsemaphore.Semaphore) *rsemaphore.Semaphore) func(context.Context,
		*redlatch.Client) error {
		return func(ctx context.Context, red *redlatch.Client) error {
			p, err := change(red.Semaphores().Semaphore("s", 1)).Acquire(ctx, 1)
			if err != nil {
				return err
			}
			return p.Release(ctx)
		}
	}
	same := func(s *rsemaphore.Semaphore) *rsemaphore.Semaphore { return s }
	ways := []struct {
		name  string
		o     redlatch.Options
		cycle func(ctx context.Context, red *redlatch.Client) error
		of    int // what it is compared with
	}{
		{"lock", redlatch.Options{}, lock, 0},
		{"lock-fenced", redlatch.Options{Locks: func(o *rlock.Options) { o.Fenced = true }}, lock, 0},
		{"lock-replicated", redlatch.Options{MinReplicas: 1}, lock, 0},
		{"lock-safe", safe, lock, 0},
		{"permit", redlatch.Options{}, permit(same), 4},
		{"permit-fenced", redlatch.Options{}, permit((*rsemaphore.Semaphore).Fenced), 4},
		{"permit-safe", safe, permit(same), 4},
		{"permit-safe-fenced", safe, permit((*rsemaphore.Semaphore).Fenced), 4},
	}
	const turn = 10
	times, commands := make([][]time.Duration, len(ways)), make([]float64, len(ways))
	clients, admin := make([]*redlatch.Client, len(ways)), primary.Client(b)
	run := func(i, n int) time.Duration {
		began := time.Now()
		for range n {
			require.NoError(b, ways[i].cycle(b.Context(), clients[i]))
		}
		return time.Since(began)
	}
	for i, w := range ways {
		w.o.CallTimeout = 10 * time.Second // a busy machine keeps a replica from confirming in half of the default
		red := redistest.NoError(redlatch.Open(b.Context(), primary.Option(), w.o))(b)
		defer red.Close(context.Background())
		clients[i] = red
		run(i, turn)
		before, all := redistest.CommandCalls(b, admin), 0
		run(i, turn)
		for name, n := range redistest.CommandCalls(b, admin) {
			if name != "info" && name != "replconf" {
				all += n - before[name]
			}
		}
		commands[i] = float64(all) / turn
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(ways)) {
			times[i] = append(times[i], run(i, turn))
		}
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])/2])
	}
	for i, w := range ways {
		b.ReportMetric(median(i)/median(w.of), w.name+"/x")
		b.ReportMetric(commands[i], w.name+"/commands")
	}
	b.ReportMetric(median(0)/turn/1000, "lock/us")
}
