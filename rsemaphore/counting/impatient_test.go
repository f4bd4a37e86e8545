package counting_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// unhurried has a longer CallTimeout than any bound of these tests, and a PollCap: what waits for either is seen. soon
// bounds what takes some round trips, on a machine however busy.
var unhurried = rsemaphore.Options{CallTimeout: 5 * time.Second, PollCap: 10 * time.Second}

const soon = 2 * time.Second

// ofCounts is a way to have the only permit of a CountingSemaphore. The suite does the same with permits.
func ofCounts(c *rsemaphore.Client) redistest.Take {
	s := counting.New(c, "x")
	_, _ = s.TrySetPermits(context.Background(), 1, time.Hour) // each process does, and the first one counts
	return func(ctx context.Context, wait time.Duration) (func(), error) {
		return func() { s.Release(context.Background(), 1) }, s.TryAcquire(ctx, 1, cmp.Or(wait, time.Minute))
	}
}

// Each of three processes has one patient caller, and others that give up, for one permit.
func TestCountingSemaphore_CallersGiveUp_IsNotIdle(t *testing.T) {
	t.Parallel()
	for _, way := range slices.Sorted(maps.Keys(redistest.GiveUp)) {
		t.Run(way, func(t *testing.T) {
			s := redistest.Start(t)
			var processes []redistest.Take
			for range 3 {
				processes = append(processes, ofCounts(newRig(t, s, unhurried).c))
			}
			redistest.NotIdle(t, soon, way, processes...)
		})
	}
}
