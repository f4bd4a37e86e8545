package redistest

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Take acquires an object that other callers want, too. It waits until ctx ends, or for wait if wait is not 0.
type Take func(ctx context.Context, wait time.Duration) (release func(), err error)

// GiveUp are the ways in which a caller waits for d at most.
var GiveUp = map[string]func(take Take, d time.Duration) (release func(), err error){
	"cancels": func(take Take, d time.Duration) (func(), error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer time.AfterFunc(d, cancel).Stop()
		return take(ctx, 0)
	},
	"has a deadline": func(take Take, d time.Duration) (func(), error) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return take(ctx, 0)
	},
	"has a waitTime": func(take Take, d time.Duration) (func(), error) {
		return take(context.Background(), d)
	},
}

// Impatient calls take, which waits for up to 5 ms and gives up in one of the ways of GiveUp.
func Impatient(rnd *rand.Rand, take Take) (release func(), err error) {
	ways := slices.Sorted(maps.Keys(GiveUp))
	return GiveUp[ways[rnd.IntN(len(ways))]](take, 1+time.Duration(rnd.Int64N(int64(5*time.Millisecond))))
}

// NotIdle has each of some processes take a thing, by one caller that is patient and by five that give up in one way,
// or in any if way is "", after up to 5 ms, and fails the test if no caller has it for bound.
func NotIdle(t testing.TB, bound time.Duration, way string, processes ...Take) {
	t.Helper()
	if _, longest := TakeTogether(t, 1, way, processes...); longest >= bound {
		t.Errorf("idle for %v while callers waited", longest)
	}
}

// TakeTogether has each of some processes take a thing, by so many callers that are patient, and by others as in
// NotIdle, six in all. It returns how often a caller had it, and for how long no caller did at most.
func TakeTogether(t testing.TB, patient int, way string, processes ...Take) (taken int, longest time.Duration) {
	t.Helper()
	until := time.Now().Add(Sized(100*time.Millisecond, 200*time.Millisecond, 2*time.Second))
	idle := idle{since: time.Now()}
	var gaveUp atomic.Int64
	var wg sync.WaitGroup
	for _, take := range processes {
		for i := range 6 {
			wg.Go(func() {
				for time.Now().Before(until) {
					var release func()
					var err error
					switch {
					case i < patient:
						release, err = take(context.Background(), time.Minute)
					case way == "":
						release, err = Impatient(rand.New(rand.NewPCG(rand.Uint64(), 0)), take)
					default:
						release, err = GiveUp[way](take, rand.N(5*time.Millisecond))
					}
					if err != nil {
						gaveUp.Add(1)
						continue
					}
					idle.change(+1)
					time.Sleep(rand.N(500 * time.Microsecond))
					idle.change(-1)
					release()
				}
			})
		}
	}
	wg.Wait()
	idle.change(+1) // ends the last window
	t.Logf("taken %d times, %d calls gave up; idle for %v at most", idle.taken-1, gaveUp.Load(), idle.longest)
	return idle.taken - 1, idle.longest
}

// idle measures for how long no caller holds the object.
type idle struct {
	mu             sync.Mutex
	holders, taken int
	since          time.Time // without holders
	longest        time.Duration
}

// change records that a caller has acquired the object (1), or is about to release it (-1).
func (i *idle) change(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n > 0 {
		i.taken++
		if i.holders == 0 {
			i.longest = max(i.longest, time.Since(i.since))
		}
	}
	if i.holders += n; i.holders == 0 {
		i.since = time.Now()
	}
}
