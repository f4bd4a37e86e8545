package pages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Convert converts a video. All processes together convert at most five at a time.
func Convert(ctx context.Context, semaphores *rsemaphore.Client, convert func(context.Context) error) error {
	return semaphores.Semaphore("converters", 5).Do(ctx, 1, convert) // convert's ctx ends if the permit is lost
}

// Query asks a fragile service, or gives up after 200 ms.
func Query(ctx context.Context, semaphores *rsemaphore.Client, ask func(context.Context) error) error {
	permit, err := semaphores.Semaphore("legacy-api", 20).TryAcquire(ctx, 1, 200*time.Millisecond, 0)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer permit.Release(ctx)
	return ask(permit.Context(ctx))
}

// Train takes as much of 64 GiB as it needs, in MiB, and gives a part back when it needs less.
func Train(ctx context.Context, semaphores *rsemaphore.Client, mib int, load, run func(context.Context) error) error {
	share, err := semaphores.WeightedSemaphore("gpu-memory", 64<<10).Acquire(ctx, mib)
	if err != nil {
		return err
	}
	defer share.Release(ctx)
	if err := load(share.Context(ctx)); err != nil {
		return err
	}
	if err := share.ReleasePart(ctx, mib/2); err != nil {
		return err
	}
	return run(share.Context(ctx))
}

// Infer runs a customer's job on one of 64 GPUs. Large customers get three times the share of others. No customer has
// more than 16 at a time.
func Infer(ctx context.Context, semaphores *rsemaphore.Client, customer string, large bool,
	job func(context.Context) error) error {
	gpus := semaphores.Semaphore("gpus", 64).For(customer).WithMax(16)
	if large {
		gpus = gpus.WithWeight(3)
	}
	return gpus.Do(ctx, 1, job)
}

// Split starts parts, and returns when all of them are done.
func Split(ctx context.Context, semaphores *rsemaphore.Client, parts []string, start func(part string) error) error {
	done := semaphores.CountDownLatch("job:7")
	if _, err := done.TrySetCount(ctx, int64(len(parts)), time.Hour); err != nil { // before any process awaits
		return err
	}
	for _, part := range parts {
		if err := start(part); err != nil {
			return err
		}
	}
	return done.Await(ctx)
}

// Done reports that a part is done, from any process. It may be repeated: a part counts once.
func Done(ctx context.Context, semaphores *rsemaphore.Client, part string) error {
	_, err := semaphores.CountDownLatch("job:7").CountDownBy(ctx, part)
	return err
}

func TestConvert_FiveRun_SixthWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		semaphores := srv.Open().Semaphores()
		release := srv.TakeElsewhere("converters", 5, 5)
		converted := make(chan error, 1)
		go func() { converted <- Convert(t.Context(), semaphores, nothing) }()
		time.Sleep(time.Second)
		require.Empty(t, converted)
		release()
		require.NoError(t, <-converted)
	})
}

func TestQuery_AllPermitsTaken_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		semaphores := srv.Open().Semaphores()
		require.NoError(t, Query(t.Context(), semaphores, nothing))
		srv.TakeElsewhere("legacy-api", 20, 20)
		require.ErrorIs(t, Query(t.Context(), semaphores, nothing), errBusy)
	})
}

func TestTrain_ModelLoaded_ReturnsUnusedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		semaphores := redlatchtest.New(t).Open().Semaphores()
		left := func() int {
			n := redistest.NoError(semaphores.WeightedSemaphore("gpu-memory", 64<<10).Available(t.Context()))(t)
			return n
		}
		var loading, running int
		require.NoError(t, Train(t.Context(), semaphores, 48<<10,
			func(context.Context) error { loading = left(); return nil },
			func(context.Context) error { running = left(); return nil }))
		require.Equal(t, []int{16 << 10, 40 << 10, 64 << 10}, []int{loading, running, left()})
	})
}

func TestInfer_CustomerWithItsMaximum_LeavesTheRestToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		semaphores := redlatchtest.New(t).Open().Semaphores()
		permit := redistest.NoError(semaphores.Semaphore("gpus", 64).For("large").WithMax(16).Acquire(t.Context(), 16))(t)
		nothing := func(context.Context) error { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Infer(ctx, semaphores, "large", true, nothing), redlatch.ErrNotAcquired)
		require.NoError(t, Infer(t.Context(), semaphores, "small", false, nothing))
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, Infer(t.Context(), semaphores, "large", true, nothing))
	})
}

func TestSplit_PartsDone_ReturnsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		semaphores := redlatchtest.New(t).Open().Semaphores()
		require.NoError(t, Split(t.Context(), semaphores, []string{"a", "b"}, func(part string) error {
			if err := Done(t.Context(), semaphores, part); err != nil {
				return err
			}
			return Done(t.Context(), semaphores, part) // after an error that said nothing
		}))
	})
}
