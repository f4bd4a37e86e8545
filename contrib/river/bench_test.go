package redlatchriver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// limited is a worker whose jobs do nothing, at most so many at a time over all processes.
type limited struct {
	river.WorkerDefaults[Poll]
	limit *rsemaphore.Semaphore // nil: there is no limit
	left  atomic.Int64          // jobs
	ended chan struct{}         // closed when no job is left
}

func (w *limited) Work(ctx context.Context, _ *river.Job[Poll]) error {
	if w.limit != nil {
		permit, err := w.limit.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer permit.Release(context.WithoutCancel(ctx))
	}
	if w.left.Add(-1) == 0 {
		close(w.ended)
	}
	return nil
}

// What a limit over all processes costs River (riverqueue/river#1145): jobs that do nothing, worked by 64 goroutines,
// without a limit, and with 32 permits for all.
func BenchmarkLimit(b *testing.B) {
	for _, name := range []string{"none", "permits"} {
		b.Run(name, func(b *testing.B) {
			worker, workers := &limited{ended: make(chan struct{})}, river.NewWorkers()
			worker.left.Store(int64(b.N))
			if name == "permits" {
				server := redistest.Start(b)
				red := redistest.NoError(redlatch.Open(b.Context(), server.Option(), redlatch.Options{}))(b)
				b.Cleanup(func() { _ = red.Close(context.Background()) })
				worker.limit = red.Semaphores().Semaphore("jobs", 32)
			}
			river.AddWorker(workers, worker)
			client := redistest.NoError(river.NewClient(riverpgxv5.New(schema(b)), &river.Config{Logger: quiet,
				Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 64}},
				FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond}))(b) // by default 10 fetches a second
			for from := 0; from < b.N; from += 1000 {
				jobs := make([]river.InsertManyParams, min(1000, b.N-from))
				for i := range jobs {
					jobs[i].Args = Poll{"limit"}
				}
				redistest.NoError(client.InsertMany(b.Context(), jobs))(b)
			}
			b.ResetTimer()
			require.NoError(b, client.Start(b.Context()))
			<-worker.ended
			b.StopTimer()
			require.NoError(b, client.Stop(context.WithoutCancel(b.Context())))
		})
	}
}
