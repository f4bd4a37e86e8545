package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func (r *rig) queue(t testing.TB, name string) []string {
	t.Helper()
	list, err := r.redis.Do(within(t),
		r.redis.B().Lrange().Key("redisson_lock_queue:{"+name+"}").Start(0).Stop(-1).Build()).AsStrSlice()
	require.NoError(t, err)
	return list
}

// queued waits until so many stand in the fair queue of name.
func (r *rig) queued(t testing.TB, name string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprint(n, " queue"), func() bool { return len(r.queue(t, name)) == n })
}

func TestFairLockServesInTheOrderOfAsking(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var rigs []*rig
	for range 4 {
		rigs = append(rigs, newRig(t, s, rlock.Options{PollCap: 10 * time.Second, WatchdogTimeout: lease}))
	}
	holder := rigs[0]
	h := lock(t, holder.locks.Fair("l"), within(t))
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			err := rigs[i%4].locks.Fair("l").Do(within(t), func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		holder.queued(t, "l", i+1)
	}
	_, err := holder.locks.Fair("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.Len(t, holder.queue(t, "l"), 32, "who asks once does not queue")
	channels, err := holder.redis.Do(within(t), holder.redis.B().PubsubChannels().Build()).AsStrSlice()
	require.NoError(t, err)
	require.Len(t, channels, 4, "one for each process, not for each waiter")
	began, before := time.Now(), scriptCalls(t, holder.redis)
	require.NoError(t, h.Unlock(within(t)))
	wg.Wait()
	calls := scriptCalls(t, holder.redis) - before
	require.True(t, slices.IsSorted(order), "%v", order)
	require.Less(t, time.Since(began), 15*time.Second, "woken each, not by their polls")
	t.Logf("33 releases, of which each hands the lock over: %d calls", calls)
	require.Less(t, calls, 2*33, "a release is one call, and the next holder needs none")
	require.Empty(t, keys(t, holder.redis), "nothing is left")
}

func TestAFairWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{PollCap: 10 * time.Second, WatchdogTimeout: lease})
	l := r.locks.Fair("l")
	h := lock(t, l, within(t))
	first := pass(t, l)
	r.queued(t, "l", 1)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { _, err := l.Lock(ctx); left <- err }()
	r.queued(t, "l", 2)
	last := pass(t, l)
	r.queued(t, "l", 3)
	cancel()
	require.ErrorIs(t, <-left, errs.ErrNotAcquired)
	r.queued(t, "l", 2)
	require.NoError(t, h.Unlock(within(t)))
	require.NoError(t, <-first)
	require.NoError(t, <-last)
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}

func TestDeadFairWaitersCostTheirPatienceTogether(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		const pollCap = 500 * time.Millisecond
		r := newRig(t, s, rlock.Options{PollCap: pollCap, WatchdogTimeout: lease})
		h := lock(t, r.locks.Fair("l"), within(t))
		p := redistest.NewProxy(t, s)
		// a hand-over writes four of each
		dying := newRig(t, p.Server(), rlock.Options{PollCap: pollCap, CallTimeout: pollCap})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for range 50 {
			go dying.locks.Fair("l").Lock(ctx)
		}
		r.queued(t, "l", 50)
		got := pass(t, r.locks.Fair("l"))
		r.queued(t, "l", 51)
		p.BlackHole(redistest.Up) // as good as killed: it says nothing any more
		require.NoError(t, h.Unlock(within(t)))
		began := time.Now()
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 50*pollCap/2, "one after the other would take 50 times their patience")
		p.Heal()
		cancel()
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
	})
}

func TestAFairWaiterIsWokenByExpiryAndByAPollAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	holder := newRig(t, s, rlock.Options{})
	r := newRig(t, p.Server(), rlock.Options{PollCap: 500 * time.Millisecond})
	h, err := holder.locks.Fair("l").TryLock(within(t), 0, 300*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, r.locks.Fair("l").Do(within(t), func(context.Context) error {
		return nil
	}), "after expiry, which nobody tells")
	require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)

	p.SwallowPushes()
	h = lock(t, holder.locks.Fair("l"), within(t))
	got := pass(t, r.locks.Fair("l"))
	r.queued(t, "l", 1)
	require.NoError(t, h.Unlock(within(t)))
	began := time.Now()
	require.NoError(t, <-got)
	require.Less(t, time.Since(began), 10*time.Second)
	p.Heal()
}

func TestFairLockIsReenteredRenewedLostAndForced(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{PollCap: time.Second, WatchdogTimeout: lease})
		l := r.locks.Fair("l")
		h := lock(t, l, within(t))
		in := lock(t, l, h.Context(within(t)))
		require.Equal(t, h.Owner(), in.Owner())
		require.Equal(t, 1, timesHeld(t, l, h), "the server counts it once")
		require.NoError(t, in.Unlock(within(t)))
		require.NoError(t, h.Extend(within(t), 2*lease))
		got := pass(t, l)
		r.queued(t, "l", 1)
		ok, err := l.ForceUnlock(within(t))
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, <-got)
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		_, err = l.Lock(l.WithOwner(within(t), alice))
		require.ErrorIs(t, err, errs.ErrInvalidOption)
	})
}

func TestFairCancellationsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 1500 * time.Millisecond, PollCap: 50 * time.Millisecond})
	var won, gaveUp atomic.Int32
	var wg sync.WaitGroup
	for w := range 30 {
		rnd := rand.New(rand.NewPCG(uint64(w), 11))
		wg.Go(func() {
			for range redistest.Sized(10, 10, 40) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(40_000))*time.Microsecond)
				h, err := r.locks.Fair(fmt.Sprint("l", rnd.IntN(3))).Lock(ctx)
				if err == nil {
					won.Add(1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				} else {
					gaveUp.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Positive(t, won.Load())
	require.Positive(t, gaveUp.Load())
	redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
		return r.locks.Owed() == 0 && len(keys(t, r.redis)) == 0
	})
}

// javaFair speaks Redisson's fair scripts, as its layout is described: its own clock, sums of patience as scores.
type javaFair struct {
	r     *rig
	owner string
	wait  int64 // ms
}

const javaFairAcquire = `
while true do
  local head = redis.call('LINDEX', KEYS[2], 0)
  if not head then break end
  local till = redis.call('ZSCORE', KEYS[3], head)
  if till and tonumber(till) <= tonumber(ARGV[4]) then
    redis.call('ZREM', KEYS[3], head)
    redis.call('LPOP', KEYS[2])
  else
    break
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 and (redis.call('EXISTS', KEYS[2]) == 0 or redis.call('LINDEX', KEYS[2], 0) == ARGV[2]) then
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
  for _, other in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    redis.call('ZINCRBY', KEYS[3], -tonumber(ARGV[3]), other)
  end
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -1
end
if redis.call('ZSCORE', KEYS[3], ARGV[2]) then
  return math.max(0, redis.call('PTTL', KEYS[1]))
end
local last = redis.call('LINDEX', KEYS[2], -1)
local base
if last then
  base = tonumber(redis.call('ZSCORE', KEYS[3], last)) - tonumber(ARGV[4])
else
  base = redis.call('PTTL', KEYS[1])
end
if redis.call('ZADD', KEYS[3], base + ARGV[3] + ARGV[4], ARGV[2]) == 1 then
  redis.call('RPUSH', KEYS[2], ARGV[2])
end
return base`

const javaFairRelease = `
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
local head = redis.call('LINDEX', KEYS[2], 0)
if head then redis.call('PUBLISH', KEYS[4] .. ':' .. head, '0') end
return 1`

func (j *javaFair) keys(name string) []string {
	return []string{name, "redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}",
		"redisson_lock__channel:{" + name + "}"}
}

func (j *javaFair) try(t testing.TB, name string) bool {
	v, err := eval(t.(*testing.T), j.r.redis, javaFairAcquire, j.keys(name)[:3], "300000", j.owner, fmt.Sprint(j.wait),
		fmt.Sprint(time.Now().UnixMilli()))
	require.NoError(t, err)
	return v[0] == -1
}

func (j *javaFair) release(t testing.TB, name string) {
	v, err := eval(t.(*testing.T), j.r.redis, javaFairRelease, j.keys(name), j.owner)
	require.NoError(t, err)
	require.EqualValues(t, 1, v[0])
}

func TestFairQueueIsSharedWithRedisson(t *testing.T) {
	t.Parallel()
	const poll = 300 * time.Millisecond // who has not asked for three of them counts as dead: so not on a busy machine
	o := rlock.Options{PollCap: poll, WatchdogTimeout: lease}
	bubble(t, 1, o, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		r := rigs[0]
		l := r.locks.Fair("l")
		uuid := strings.TrimSuffix(java, ":42")
		j := func(n int) *javaFair { return &javaFair{r, fmt.Sprint(uuid, ":", n), 300_000} }
		h := lock(t, l, within(t))
		j1, j2, j3 := j(1), j(2), j(3)
		// Go, Java, Java, Go, Java, Go
		g1 := pass(t, l)
		r.queued(t, "l", 1)
		require.False(t, j1.try(t, "l"))
		require.False(t, j2.try(t, "l"))
		g2 := pass(t, l)
		r.queued(t, "l", 4)
		require.False(t, j3.try(t, "l"))
		g3 := pass(t, l)
		r.queued(t, "l", 6)
		sub, err := r.hub.Subscribe(within(t), "redisson_lock__channel:{l}:"+j1.owner)
		require.NoError(t, err)
		defer sub.Close()
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-g1)
		m, err := sub.Next(within(t))
		require.NoError(t, err)
		require.Equal(t, "0", m.Payload, "Java is told on its own channel")
		for _, x := range []*javaFair{j1, j2} {
			require.False(t, j3.try(t, "l"), "not before its turn")
			require.True(t, x.try(t, "l"))
			time.Sleep(2 * poll) // those of ours come by, and find themselves alive
			x.release(t, "l")
		}
		require.NoError(t, <-g2, "served after Redisson took its patience off the scores twice")
		redistest.Eventually(t, time.Second, "Java's turn", func() bool { return j3.try(t, "l") })
		require.Len(t, r.queue(t, "l"), 1)
		j3.release(t, "l")
		require.NoError(t, <-g3)
		redistest.Eventually(t, time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
	})
}
