package rsemaphore_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// unhurried has a longer CallTimeout than any bound of these tests, and a PollCap: what waits for either is seen. soon
// bounds what takes some round trips, on a machine however busy.
var unhurried = rsemaphore.Options{CallTimeout: 5 * time.Second, PollCap: 10 * time.Second}

const soon = 2 * time.Second

// permits are the ways to have the only permit of a semaphore.
var permits = map[string]func(c *rsemaphore.Client) redistest.Take{
	"Semaphore": func(c *rsemaphore.Client) redistest.Take {
		return func(ctx context.Context, wait time.Duration) (func(), error) {
			if wait == 0 {
				wait = time.Minute
			}
			p, err := c.Semaphore("x", 1).TryAcquire(ctx, 1, wait, 0)
			if err != nil {
				return nil, err
			}
			return func() { p.Release(context.Background()) }, nil
		}
	},
	"WeightedSemaphore": func(c *rsemaphore.Client) redistest.Take {
		return func(ctx context.Context, wait time.Duration) (func(), error) {
			if wait == 0 {
				wait = time.Minute
			}
			p, err := c.WeightedSemaphore("x", 10).TryAcquire(ctx, 10, wait, 0)
			if err != nil {
				return nil, err
			}
			return func() { p.Release(context.Background()) }, nil
		}
	},
}

// A caller's context ends in any moment of its call: before the request is sent, while it is under way, after its
// reply.
func TestACancelledCallLeavesAFreePermitFree(t *testing.T) {
	t.Parallel()
	for kind, of := range permits {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			take := of(newRig(t, s, unhurried).c)
			failed := 0
			for n := 0; failed < redistest.Sized(12, 12, 5000) && n < redistest.Sized(800, 800, 100_000); n++ {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Duration(n%40)*10*time.Microsecond, cancel)
				release, err := take(ctx, 0)
				cancel()
				if err != nil {
					failed++
					began := time.Now()
					release, err = take(context.Background(), time.Minute)
					require.NoError(t, err)
					require.Less(t, time.Since(began), soon, "it is free, after %d calls of which %d were cancelled", n+1, failed)
				}
				release()
			}
		})
	}
}

// Each of three processes has one patient caller, and others that give up, for one permit.
func TestAPermitIsNotIdleWhileCallersGiveUp(t *testing.T) {
	t.Parallel()
	ways := slices.Sorted(maps.Keys(redistest.GiveUp))
	for i, kind := range slices.Sorted(maps.Keys(permits)) {
		of := permits[kind]
		for w, way := range ways {
			if w%len(permits) != i && !redistest.Long() {
				continue // each way with one of the kinds
			}
			t.Run(kind+"/"+way, func(t *testing.T) {
				s := redistest.Start(t)
				var processes []redistest.Take
				for range 3 {
					processes = append(processes, of(newRig(t, s, unhurried).c))
				}
				redistest.NotIdle(t, soon, way, processes...)
			})
		}
	}
}

// 64 callers want a permit, and none has the time to wait for all before it. What those leave behind that give up does
// not pile up in the queue, nor is the permit handed from one that has left to the next.
func TestAPermitIsHadByCallersWithLessPatienceThanItsQueueIsLong(t *testing.T) {
	t.Parallel()
	ways := slices.Sorted(maps.Keys(redistest.GiveUp))
	for i, kind := range slices.Sorted(maps.Keys(permits)) {
		of := permits[kind]
		for w, way := range ways {
			if w%len(permits) != i && !redistest.Long() {
				continue // each way with one of the kinds
			}
			t.Run(kind+"/"+way, func(t *testing.T) {
				s := redistest.Start(t)
				var processes []redistest.Take
				for range 4 {
					processes = append(processes, of(newRig(t, s, rsemaphore.Options{CallTimeout: 500 * time.Millisecond}).c))
				}
				longest := 0
				gaveUp := redistest.Hurry(t, way, redistest.Sized(10, 10, 300), func() {
					n, err := strconv.Atoi(s.Ask(t, "ZCARD", "redlatch_queue:{x}"))
					require.NoError(t, err)
					longest = max(longest, n)
				}, processes...)
				t.Logf("%d in the queue", longest)
				require.Less(t, int64(longest), 200+gaveUp/2,
					"64 callers, and what some have left behind that was not answered: less than would pile up")
			})
		}
	}
}
