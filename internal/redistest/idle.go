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

// takenAlone is the median of how long a call takes when nothing else wants what it takes.
func takenAlone(t testing.TB, processes []Take) time.Duration {
	var alone []time.Duration
	for n := range 21 {
		began := time.Now()
		release, err := processes[n%len(processes)](context.Background(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, time.Since(began))
		release()
	}
	slices.Sort(alone)
	return alone[len(alone)/2]
}

// open reports whether c is not closed.
func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// spin keeps a processor busy for d.
func spin(d time.Duration) {
	start := time.Now()
	for time.Since(start) < d { //nolint:revive // it waits without giving the processor away
	}
}

// Hurry has 16 callers of each of some processes take a thing for 100 µs, and give up, in that way, when they have
// waited for ten times as long as it takes when no other caller wants it (thirty times, if they cancel), half to one
// and a half of that; and then again at once, until they have had it often enough. look is called every 5 ms. It
// returns how many calls gave up, and fails the test if all takes a minute.
func Hurry(t testing.TB, way string, enough int, look func(), processes ...Take) (gaveUp int64) {
	t.Helper()
	first := max(2*time.Millisecond, 10*takenAlone(t, processes))
	if RaceEnabled { // what is measured alone says less of a crowd
		first *= 2
	}
	if way == "cancels" { // it is not known before, so what is handed to one that leaves costs a round trip each time
		first *= 3
	}
	var taken, left, patience atomic.Int64
	patience.Store(int64(first))
	var wg sync.WaitGroup
	began, over := time.Now(), make(chan struct{})
	for _, take := range processes {
		for range 16 {
			wg.Go(func() {
				for open(over) {
					d := time.Duration(patience.Load())
					release, err := GiveUp[way](take, d/2+rand.N(d))
					if err != nil {
						left.Add(1)
						continue
					}
					taken.Add(1)
					spin(100 * time.Microsecond)
					release()
				}
			})
		}
	}
	for had, since := int64(0), began; taken.Load() < int64(enough) && time.Since(began) < time.Minute; {
		time.Sleep(5 * time.Millisecond)
		look()
		switch n := taken.Load(); {
		case n > had:
			had, since = n, time.Now()
		case time.Since(since) > time.Second: // by now the machine is slower than it was when it was measured
			patience.Store(2 * patience.Load())
			since = time.Now()
		}
	}
	close(over)
	wg.Wait()
	if t.Logf("taken %d times, %d calls gave up after %v, %v in the end, in %v", taken.Load(), left.Load(), first,
		time.Duration(patience.Load()), time.Since(began)); taken.Load() < int64(enough) {
		t.Errorf("taken %d times in %v", taken.Load(), time.Since(began))
	}
	return left.Load()
}
