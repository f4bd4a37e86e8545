package rlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// scramble has workers of several processes use one lock over and over: one INCR and some work under it, thought
// outside it.
type scramble struct {
	rigs    []*rig
	workers int // of each
	name    string
	work    time.Duration // under the lock, beside the INCR
	think   time.Duration

	mu    sync.Mutex
	order []int         // the process of each acquisition
	count [][]int       // of each worker, in all runs: one run says little of who gets a processor
	last  time.Time     // when the lock was last acquired
	idle  time.Duration // the longest time between two acquisitions, or before the first
}

// run lasts until there were so many acquisitions, and ctx has not ended.
func (x *scramble) run(t testing.TB, ctx context.Context, enough int) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if x.count == nil {
		x.count = make([][]int, len(x.rigs))
		for p := range x.count {
			x.count[p] = make([]int, x.workers)
		}
	}
	x.order, x.last, x.idle = nil, time.Now(), 0
	var inside atomic.Int32
	var wg sync.WaitGroup
	for p, r := range x.rigs {
		for w := range x.workers {
			wg.Go(func() {
				l := r.locks.Reentrant(x.name)
				for ctx.Err() == nil {
					h, err := l.Lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
							stop()
						}
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					if err := r.redis.Do(context.WithoutCancel(ctx),
						r.redis.B().Incr().Key("work of "+x.name).Build()).Error(); err != nil {
						t.Error(err)
					}
					time.Sleep(x.work)
					x.mu.Lock()
					x.order = append(x.order, p)
					x.last, x.idle = time.Now(), max(x.idle, time.Since(x.last))
					x.count[p][w]++
					done := len(x.order) >= enough
					x.mu.Unlock()
					inside.Add(-1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
						stop()
					}
					if done {
						stop()
					}
					time.Sleep(x.think)
				}
			})
		}
	}
	wg.Wait()
}

// jain is Jain's index of fairness over all workers: 1 if all had the same.
func (x *scramble) jain() float64 {
	var sum, squares, n float64
	for _, list := range x.count {
		for _, c := range list {
			sum += float64(c)
			squares += float64(c) * float64(c)
			n++
		}
	}
	return sum * sum / (n * squares)
}

func newRigs(t testing.TB, s *redistest.Server, n int, o rlock.Options) []*rig {
	t.Helper()
	rigs := make([]*rig, n)
	for i := range rigs {
		rigs[i] = newRig(t, s, o).warmUp(t)
	}
	return rigs
}

// TestHandOver_HotLock_IsNeverIdle: a waiter that does not hear of its grant finds it when it polls, and until then the
// lock serves nobody. Here a poll is 30 s away.
func TestHandOver_HotLock_IsNeverIdle(t *testing.T) {
	t.Parallel()
	const pollCap = 30 * time.Second
	starts := redistest.Sized(4, 5, 200)
	run := func(t *testing.T, x *scramble) {
		x.work, x.think = 500*time.Microsecond, time.Millisecond
		x.run(t, within(t), 40)
		require.Less(t, x.idle, pollCap/3)
	}
	t.Run("when its processes start", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		for range starts {
			x := &scramble{workers: 2, name: "l"}
			for range 3 {
				x.rigs = append(x.rigs, newRig(t, s, rlock.Options{PollCap: pollCap}))
			}
			run(t, x)
			for _, r := range x.rigs {
				// Where a grant overtook the answer to a question, it goes on for a call timeout to give back what the question
				// may bring.
				soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_ = r.locks.Close(soon)
				cancel()
				require.NoError(t, r.hub.Close(context.Background()))
			}
		}
	})
	t.Run("when it is first used in a Cluster, where each has a channel of its own", func(t *testing.T) {
		t.Parallel()
		s := redistest.Cluster(t)
		x := &scramble{workers: 2}
		for range 3 {
			x.rigs = append(x.rigs, newRig(t, s, rlock.Options{PollCap: pollCap}))
		}
		for i := range starts {
			x.name = fmt.Sprint("l", i)
			run(t, x)
		}
	})
}

// serverCommands are the commands run since before, those inside scripts included, without the test's own.
func serverCommands(before, after map[string]int) int {
	n := 0
	for name, calls := range after {
		switch name {
		case "info", "incr", "config|resetstat":
		default:
			n += calls - before[name]
		}
	}
	return n
}

func TestHandOver_MoreWaiters_CostsNoMoreCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	rigs := newRigs(t, s, 32, rlock.Options{})
	for _, n := range redistest.Sized([]int{2, 64}, []int{2, 64}, []int{2, 16, 64, 256}) {
		x := &scramble{rigs: rigs[:min(n, len(rigs))], workers: max(1, n/len(rigs)), name: fmt.Sprint("l", n),
			think: time.Millisecond}
		x.run(t, within(t), 2*n) // everybody has been there, and hears
		x.count = nil
		var each float64
		// a busy machine makes waiters look, which only adds, and a process that gets no processor misses its turns
		for range 6 {
			before := redistest.CommandCalls(t, c)
			x.run(t, within(t), max(400, 5*n))
			after := redistest.CommandCalls(t, c)
			each = float64(serverCommands(before, after)) / float64(len(x.order))
			t.Logf("%3d waiters in %2d processes: %.1f commands, %.2f calls per acquisition, Jain %.3f", n, len(x.rigs), each,
				float64(after["evalsha"]-before["evalsha"])/float64(len(x.order)), x.jain())
			if each <= 20 && x.jain() > 0.8 {
				break
			}
		}
		require.LessOrEqual(t, each, 40.0, "%d waiters", n) // a dozen, usually
		require.Greater(t, x.jain(), 0.7, "%d waiters", n)
	}
}

// redissonWaiter is a thread of Redisson: it listens, tries, and waits for a message or the end of the lease.
type redissonWaiter struct {
	owner string
	c     rueidis.Client
	name  string
}

// Redisson's own steps, in our words: see its RLock.
const (
	redissonTry = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end return redis.call('pttl', KEYS[1])`
	redissonUnlock = `if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1`
)

func (j *redissonWaiter) channel() string { return "redisson_lock__channel:{" + j.name + "}" }

// try returns 0 if the lock was taken, or how long somebody else's lease lasts.
func (j *redissonWaiter) try() (time.Duration, error) {
	left, err := j.c.Do(context.Background(),
		j.c.B().Eval().Script(redissonTry).Numkeys(1).Key(j.name).Arg("30000", j.owner).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return time.Duration(max(left, 1)) * time.Millisecond, err
}

func (j *redissonWaiter) unlock() error {
	n, err := j.c.Do(context.Background(),
		j.c.B().Eval().Script(redissonUnlock).Numkeys(2).Key(j.name, j.channel()).Arg(j.owner).Build()).AsInt64()
	if err == nil && n != 1 {
		return fmt.Errorf("Redisson's unlock says %d", n)
	}
	return err
}
