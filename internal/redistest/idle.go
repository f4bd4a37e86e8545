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

// Take takes what others want, too. It waits until ctx ends, or for wait if that is not 0.
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

// Impatient has take wait for up to 5 ms, and give up in one of the ways.
func Impatient(rnd *rand.Rand, take Take) (release func(), err error) {
	ways := slices.Sorted(maps.Keys(GiveUp))
	return GiveUp[ways[rnd.IntN(len(ways))]](take, 1+time.Duration(rnd.Int64N(int64(5*time.Millisecond))))
}

// NotIdle has each of some processes take a thing, by one caller that is patient and by five that give up, in that way
// or in any if it is empty, after up to 5 ms, and fails the test if it is idle for bound.
func NotIdle(t testing.TB, bound time.Duration, way string, processes ...Take) {
	t.Helper()
	until := time.Now().Add(Sized(100*time.Millisecond, 200*time.Millisecond, 2*time.Second))
	idle := NewIdle()
	var gaveUp atomic.Int64
	var wg sync.WaitGroup
	for _, take := range processes {
		for i := range 6 {
			rnd := rand.New(rand.NewPCG(rand.Uint64(), 0))
			wg.Go(func() {
				for time.Now().Before(until) {
					var release func()
					var err error
					switch {
					case i == 0:
						release, err = take(context.Background(), time.Minute)
					case way == "":
						release, err = Impatient(rnd, take)
					default:
						release, err = GiveUp[way](take, rand.N(5*time.Millisecond))
					}
					if err != nil {
						gaveUp.Add(1)
						continue
					}
					idle.Taken()
					time.Sleep(rand.N(500 * time.Microsecond))
					idle.Left()
					release()
				}
			})
		}
	}
	wg.Wait()
	longest, total, taken := idle.Stop()
	if t.Logf("taken %d times, %d calls gave up; idle for %v at most, %v in all", taken, gaveUp.Load(), longest,
		total); longest >= bound {
		t.Errorf("idle for %v while callers waited", longest)
	}
}

// Idle measures for how long no caller holds what is waited for. Its first window begins when it is made.
type Idle struct {
	mu      sync.Mutex
	holders int
	since   time.Time
	longest time.Duration
	total   time.Duration
	taken   int
}

// NewIdle returns one whose first window begins now.
func NewIdle() *Idle { return &Idle{since: time.Now()} }

// Taken says that a caller holds it.
func (i *Idle) Taken() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.holders == 0 {
		i.end()
	}
	i.holders++
	i.taken++
}

// Left says that a caller is about to release it.
func (i *Idle) Left() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.holders--; i.holders == 0 {
		i.since = time.Now()
	}
}

func (i *Idle) end() {
	d := time.Since(i.since)
	i.longest = max(i.longest, d)
	i.total += d
}

// Stop ends the last window, if one is open, and returns the longest, the sum of all, and how often it was taken.
func (i *Idle) Stop() (longest, total time.Duration, taken int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.holders == 0 {
		i.end()
		i.since = time.Now()
	}
	return i.longest, i.total, i.taken
}
