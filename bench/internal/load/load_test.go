package load_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/stretchr/testify/require"
)

func TestHistogram_RandomTimes_QuantilesAreExactToABucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h, half load.Histogram
	var all []time.Duration
	for i := range 20000 {
		d := time.Duration(r.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			half.Add(d)
		}
	}
	h.Merge(half)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := all[int(q*float64(len(all)))]
		require.InEpsilon(t, float64(exact), float64(h.Quantile(q)), 0.02, "%v", q)
	}
	require.Equal(t, all[len(all)-1], h.Max)
	require.Equal(t, h.Max, h.Quantile(1))
	require.EqualValues(t, len(all), h.Count)
	require.Zero(t, new(load.Histogram).Quantile(0.5))
}

func TestJain_EqualOrStarvedShares_IsOneOrOneNth(t *testing.T) {
	require.InDelta(t, 1, load.Jain([]int64{7, 7, 7, 7}), 1e-9)
	require.InDelta(t, 0.25, load.Jain([]int64{9, 0, 0, 0}), 1e-9)
	require.InDelta(t, 1, load.Jain([]int64{0, 0}), 1e-9)
	require.InDelta(t, 0.9, load.Jain([]int64{1, 2}), 1e-9)
}

// drive runs workers on a lock of this process.
func drive(t *testing.T, acquire load.Acquire) (load.Outcome, *load.Watch) {
	t.Helper()
	watch := load.NewWatch(&load.Words{}, load.NewClock())
	watch.Begin()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	return load.Run(ctx, load.Spec{
		Workers: 8, Name: func(int) string { return "k" }, Acquire: acquire, Watch: watch, Alone: true,
		Inside: func(context.Context) error { time.Sleep(100 * time.Microsecond); return nil },
	}), watch
}

func TestRun_ExclusiveLock_ReportsNoOverlap(t *testing.T) {
	gate := make(chan struct{}, 1)
	out, watch := drive(t, func(ctx context.Context, _ string) (load.Release, error) {
		select {
		case gate <- struct{}{}:
			return func(context.Context) error { <-gate; return nil }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	overlaps, lost := watch.Broken()
	require.Zero(t, overlaps)
	require.Zero(t, lost)
	require.Zero(t, out.Errors)
	require.Positive(t, out.Ops)
	var sum int64
	for _, n := range out.Shares {
		sum += n
	}
	require.Equal(t, out.Ops, sum)
	require.Equal(t, out.Ops+out.Unfinished, out.Waits.Count)
}

func TestRun_LockAdmitsTwo_ReportsOverlaps(t *testing.T) {
	_, watch := drive(t, func(context.Context, string) (load.Release, error) {
		return func(context.Context) error { return nil }, nil
	})
	overlaps, _ := watch.Broken()
	require.Positive(t, overlaps)
}

func TestWatch_SecondWorkerInside_IsCounted(t *testing.T) {
	now := int64(0)
	w := load.NewWatch(&load.Words{}, func() int64 { return now })
	first, second := w.Enter(1), w.Enter(2) // while it warms up, nothing is judged
	w.Leave(2, second)
	w.Leave(1, first)
	w.Begin()
	now = 30
	w.Leave(1, w.Enter(1))
	now = 50
	w.Leave(2, w.Enter(2))
	overlaps, lost := w.Broken()
	require.Zero(t, overlaps)
	require.Zero(t, lost)
	first, second = w.Enter(0), w.Enter(3)
	w.Leave(0, first)
	w.Leave(3, second)
	overlaps, lost = w.Broken()
	require.EqualValues(t, 1, overlaps)
	require.EqualValues(t, 1, lost)
	require.EqualValues(t, 30, w.End(), "the longest of the times in which the lock was free")
	require.False(t, w.Counts())
}

func TestRun_WaiterNeverServed_CountsItsWholeWait(t *testing.T) {
	var once sync.Once
	out, _ := drive(t, func(ctx context.Context, _ string) (load.Release, error) {
		first := false
		once.Do(func() { first = true })
		if !first {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return func(context.Context) error { <-ctx.Done(); return nil }, nil
	})
	require.EqualValues(t, 7, out.Unfinished)
	require.Greater(t, out.Waits.Quantile(0.5), out.Waits.Max/2) // all but one waited from the start to the end
	require.InDelta(t, 0.125, load.Jain(out.Shares), 1e-9)
}

func TestRun_AcquireFails_CountsErrorsAndKeepsTheFirst(t *testing.T) {
	out, _ := drive(t, func(context.Context, string) (load.Release, error) { return nil, errors.New("no such luck") })
	require.Zero(t, out.Ops)
	require.Positive(t, out.Errors)
	require.Equal(t, "no such luck", out.FirstError)
}
