package election_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

// beat is the heartbeat of the workers here: the default.
const beat = time.Second

// coverage is how well the n shards of a division were assigned, by a look in a tenth of a beat.
type coverage struct {
	fewest  int           // shards that had a worker
	longest time.Duration // that a shard had none
	idle    time.Duration // shard-seconds without a worker
	moves   int           // functions that have begun
}

func (c coverage) String() string {
	return fmt.Sprintf("fewest assigned %d, longest without a worker %v, shard-seconds without one %.1f, moves %d",
		c.fewest, c.longest, c.idle.Seconds(), c.moves)
}

// watch looks at the division for that long.
func (d *division) watch(n int, lasts time.Duration) coverage {
	const step = beat / 10
	c := coverage{fewest: n}
	without := make([]time.Duration, n)
	_, begun := d.now()
	for range lasts / step {
		time.Sleep(step)
		d.mu.Lock()
		c.fewest = min(c.fewest, len(d.owner))
		for i := range n {
			if _, has := d.owner[i]; has {
				without[i] = 0
				continue
			}
			without[i] += step
			c.idle += step
			c.longest = max(c.longest, without[i])
		}
		d.mu.Unlock()
	}
	_, c.moves = d.now()
	c.moves -= begun
	return c
}

// crew are workers of one process each.
type crew struct {
	t      *testing.T
	server *redistest.Server
	d      *division
	n      int
	came   int
	there  []func() // each has a worker leave
}

func (c *crew) come() {
	p := start(c.t, c.server, election.Options{CallTimeout: 500 * time.Millisecond})
	name := fmt.Sprint("w", c.came)
	c.came++
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.elections.Shards("jobs", c.n).Run(ctx, name, c.d.work(name))
	}()
	c.there = append(c.there, func() { cancel(); <-ended })
}

func (c *crew) leave() {
	c.there[0]()
	c.there = c.there[1:]
}

func (c *crew) end() {
	for len(c.there) > 0 {
		c.leave()
	}
}

// crewed runs fn with workers that have divided n shards.
func crewed(t *testing.T, workers, n int, fn func(c *crew)) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		c := &crew{t: t, server: servers[0], d: newDivision(t), n: n}
		for range workers {
			c.come()
		}
		time.Sleep(settled)
		fn(c)
		c.end()
	})
}

// TestShards_RollingDeploy_StayAssigned: a worker is stopped and another one started in each interval.
func TestShards_RollingDeploy_StayAssigned(t *testing.T) {
	t.Parallel()
	n, workers := redistest.Sized(20, 40, 40), redistest.Sized(5, 10, 10)
	speeds := []time.Duration{beat, 2 * beat, beat / 2, 5 * beat}[:redistest.Sized(1, 2, 4)]
	if redistest.RaceEnabled { // in a longer bubble Go 1.26's race detector crashes by itself at times
		n, workers, speeds = 20, 5, speeds[:1]
	}
	for _, every := range speeds {
		for _, gap := range []time.Duration{0, beat / 2} { // from the stop to the start
			t.Run(fmt.Sprintf("every %v, gap %v", every, gap), func(t *testing.T) {
				t.Parallel()
				var seen coverage
				var each map[string]int
				crewed(t, workers, n, func(c *crew) {
					watched := make(chan coverage)
					go func() { watched <- c.d.watch(n, time.Duration(2*workers)*every+5*beat) }()
					for range 2 * workers {
						c.leave()
						time.Sleep(gap)
						c.come()
						time.Sleep(max(0, every-gap))
					}
					seen = <-watched
					time.Sleep(settled)
					each, _ = c.d.now()
				})
				t.Log(seen)
				// A shard waits for two beats, and again if its next worker leaves as it is to have it. With five workers
				// that happens three times in a row now and then, so the sum says more than the longest wait.
				require.LessOrEqual(t, seen.longest, 8*beat)
				require.LessOrEqual(t, seen.idle, time.Duration(7*n)*beat, "4 to 5 beats for each shard")
				require.GreaterOrEqual(t, seen.fewest, n/4)
				require.LessOrEqual(t, seen.moves, 4*n, "each leaving and each coming moves one share")
				all := 0
				for _, has := range each {
					all += has
					require.Equal(t, n/workers, has, "%v", each)
				}
				require.Equal(t, n, all)
			})
		}
	}
}

// TestShards_CrashLoop_StayAssigned: one worker restarts for as long as the test lasts.
func TestShards_CrashLoop_StayAssigned(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{9 * beat / 10, beat / 2, 13 * beat / 10}[:redistest.Sized(1, 3, 3)] {
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprintf("every %v, cold %v", every, cold), func(t *testing.T) {
				t.Parallel()
				const n = 12
				looping := func(c *crew, lasts time.Duration) (loop *crew) {
					loop = &crew{t: c.t, server: c.server, d: c.d, n: n, came: 1000}
					for range lasts / every {
						loop.come()
						time.Sleep(every)
						loop.leave()
					}
					return loop
				}
				workers, late := 3, 0
				if cold {
					workers, late = 0, 2
				}
				crewed(t, workers, n, func(c *crew) {
					for range late {
						c.come()
					}
					watched := make(chan coverage, 1)
					if !cold {
						c.leave()
					}
					looped := make(chan struct{})
					go func() { looping(c, 20*beat); close(looped) }()
					time.Sleep(5 * beat)
					watched <- c.d.watch(n, 10*beat)
					<-looped
					seen := <-watched
					t.Log(seen)
					each, _ := c.d.now()
					if seen.fewest < n || len(each) != 2 {
						t.Errorf("%v: %v", seen, each)
					}
				})
			})
		}
	}
}

// TestShards_OneUnusableKey_LeavesTheOthers: a shard whose lock is refused costs no worker, and is served when it can
// be.
func TestShards_OneUnusableKey_LeavesTheOthers(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		const n = 8
		bad := servers[0].Embedded
		redistest.NoError(bad.Push("jobs:3", "x"))(t)
		c := &crew{t: t, server: servers[0], d: newDivision(t), n: n}
		for range 4 {
			c.come()
		}
		time.Sleep(2 * settled)
		c.d.mu.Lock()
		var has []int
		for i := range c.d.owner {
			has = append(has, i)
		}
		c.d.mu.Unlock()
		slices.Sort(has)
		each, begun := c.d.now()
		time.Sleep(time.Minute)
		_, after := c.d.now()
		bad.Del("jobs:3")
		time.Sleep(settled)
		every, _ := c.d.now()
		c.end()
		require.Equal(t, []int{0, 1, 2, 4, 5, 6, 7}, has, "%v", each)
		require.Equal(t, begun, after, "none moves")
		require.Len(t, every, 4)
		for _, shards := range every {
			require.Equal(t, 2, shards)
		}
	})
}
