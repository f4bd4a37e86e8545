package rlock_test

import (
	"context"
	"fmt"
	"math"
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

func (x *scramble) least() (least, mean int) {
	n := 0
	least = 1 << 30
	for _, list := range x.count {
		for _, c := range list {
			least, mean, n = min(least, c), mean+c, n+1
		}
	}
	return least, mean / n
}

// turn is how many acquisitions a process has in a row, on average: a single one can be longer, where the others were
// not back in the queue yet.
func (x *scramble) turn() float64 {
	turns := 1
	for i, p := range x.order {
		if i > 0 && p != x.order[i-1] {
			turns++
		}
	}
	return float64(len(x.order)) / float64(turns)
}

func newRigs(t testing.TB, s *redistest.Server, n int, o rlock.Options) []*rig {
	t.Helper()
	rigs := make([]*rig, n)
	for i := range rigs {
		rigs[i] = newRig(t, s, o).warmUp(t)
	}
	return rigs
}

func TestProcessesTakeTurnsAndNobodyStarves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rigs := newRigs(t, s, 2, rlock.Options{})
	for _, workers := range []int{8, 64} {
		x := &scramble{rigs: rigs, workers: workers, name: "l"}
		turn := math.Inf(1)
		for range 4 { // a busy machine has more tries
			x.run(t, within(t), max(800, 20*workers))
			// while the other process gets no processor it is not in the queue
			if turn = x.turn(); turn < 60 && x.jain() > 0.7 {
				break
			}
		}
		least, mean := x.least()
		t.Logf("%d workers each: Jain %.3f, least %d of mean %d, %.1f in a turn", workers, x.jain(), least, mean, turn)
		require.Greater(t, least, mean/10)
		require.Greater(t, x.jain(), 0.7)
		require.Less(t, turn, 60.0, "a turn has an end while others queue")
	}
	redistest.Eventually(t, 20*time.Second, "no queue is left", func() bool { return len(keys(t, s.Client(t))) == 1 })
}

// TestAHotLockIsNeverIdle: a waiter that does not hear of its grant finds it when it polls, and until then the lock
// serves nobody. Here a poll is 30 s away.
func TestAHotLockIsNeverIdle(t *testing.T) {
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
	t.Run("when subscriptions are cut", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		c := s.Client(t)
		x := &scramble{workers: 2, name: "l"}
		for range 3 {
			x.rigs = append(x.rigs, newRig(t, s, rlock.Options{PollCap: pollCap}))
		}
		for range starts {
			done := make(chan struct{})
			go func() {
				defer close(done)
				time.Sleep(20 * time.Millisecond) // somewhere in the middle
				c.Do(within(t), c.B().ClientKill().TypePubsub().Build())
			}()
			run(t, x)
			<-done
		}
	})
}

func TestInOneProcessAnAcquisitionIsOneCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	x := &scramble{rigs: newRigs(t, s, 1, rlock.Options{}), workers: 8, name: "l"}
	x.run(t, within(t), 100)
	x.count = nil
	fewest := math.Inf(1)
	for range 4 { // a busy machine makes waiters look, which only adds
		before := scriptCalls(t, c)
		x.run(t, within(t), 500)
		calls := float64(scriptCalls(t, c)-before) / float64(len(x.order))
		t.Logf("%.2f calls per acquisition, Jain %.3f", calls, x.jain())
		fewest = min(fewest, calls)
	}
	require.Less(t, fewest, 1.5, "a lock and an unlock of their own would be two")
	require.Greater(t, x.jain(), 0.7)
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

func TestTheCostOfAnAcquisitionDoesNotGrowWithTheWaiters(t *testing.T) {
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

// lock waits as Redisson does.
func (j *redissonWaiter) lock(ctx context.Context, messages <-chan struct{}) error {
	for {
		left, err := j.try()
		if err != nil || left == 0 {
			return err
		}
		timer := time.NewTimer(left)
		select {
		case <-messages:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// listen hears releases as one subscription of Redisson does for all threads of its process: one message, one wake-up.
func (j *redissonWaiter) listen(t testing.TB, ctx context.Context) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 1)
	dc, cancel := j.c.Dedicate()
	confirmed := make(chan struct{}, 1)
	dc.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(rueidis.PubSubMessage) {
			select {
			case woken <- struct{}{}:
			default:
			}
		},
		OnSubscription: func(rueidis.PubSubSubscription) { confirmed <- struct{}{} },
	})
	require.NoError(t, dc.Do(ctx, dc.B().Subscribe().Channel(j.channel()).Build()).Error())
	<-confirmed
	t.Cleanup(cancel)
	return woken
}

// TestAReleaseByJavaServesTheFirstInLine: our waiters listen for it, and whoever comes first keeps the order.
func TestAReleaseByJavaServesTheFirstInLine(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	j := &redissonWaiter{owner: java, c: c, name: "l"}
	rigs := newRigs(t, s, 3, rlock.Options{PollCap: 30 * time.Second})
	for range 5 {
		left, err := j.try()
		require.NoError(t, err)
		require.Zero(t, left)
		var waiters []<-chan result
		for i, r := range rigs {
			waiters = append(waiters, queueUp(t, c, r.locks.Reentrant("l"), within(t), i+1))
		}
		redistest.Eventually(t, 20*time.Second, "all listen", func() bool {
			n, err := c.Do(within(t), c.B().PubsubNumsub().Channel(j.channel()).Build()).AsIntMap()
			return err == nil && n[j.channel()] == 3
		})
		line := queued(t, c, "l")
		began := time.Now()
		require.NoError(t, j.unlock())
		for i, w := range waiters {
			got := <-w
			require.NoError(t, got.err)
			require.EqualValues(t, line[i], got.hold.Owner())
			got.unlock(t)
		}
		require.Less(t, time.Since(began), 20*time.Second, "by message, not by poll")
	}
}

func TestGoAndJavaShareALockUnderContention(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		processes int
		work      time.Duration
		enough    int
	}{
		{1, time.Millisecond, 60}, // whose releases all name somebody of their own
		// the first tenure, which nobody waits for yet, has up to 300 turns in its 20 ms
		{4, 0, 700},
	} {
		t.Run(fmt.Sprintf("%d processes", v.processes), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			x := &scramble{rigs: newRigs(t, s, v.processes, rlock.Options{}), workers: 4, name: "l", work: v.work}
			ctx, stop := context.WithTimeout(within(t),
				redistest.Sized(2800*time.Millisecond, 2800*time.Millisecond, 5*time.Second))
			defer stop()
			var javas atomic.Int32
			var wg sync.WaitGroup
			for i := range 2 {
				j := &redissonWaiter{owner: fmt.Sprintf("9c1d2e3f-0a4b-4c5d-8e6f-7a8b9c0d1e2%d:42", i), c: s.Client(t), name: "l"}
				messages := j.listen(t, ctx)
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := j.lock(ctx, messages); err != nil {
							if ctx.Err() == nil {
								t.Error(err)
							}
							continue
						}
						javas.Add(1)
						if err := j.c.Do(context.Background(), j.c.B().Incr().Key("work of l").Build()).Error(); err != nil {
							t.Error(err)
						}
						time.Sleep(v.work)
						if err := j.unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			x.run(t, ctx, redistest.Sized(v.enough, v.enough, 1_000_000))
			stop()
			wg.Wait()
			java, golang := int(javas.Load()), len(x.order)
			t.Logf("%d processes of 4 workers: Go %d, Java %d (%.1f %%); Jain of Go %.3f", v.processes, golang, java,
				100*float64(java)/float64(java+golang), x.jain())
			require.Greater(t, java, (java+golang)/100, "Java gets its share")
			require.Greater(t, golang, (java+golang)/20, "and Go goes on")
			n, err := x.rigs[0].redis.Do(within(t), x.rigs[0].redis.B().Get().Key("work of l").Build()).AsInt64()
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, int64(java+golang))
		})
	}
}
