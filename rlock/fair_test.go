package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

func TestFair_SeveralProcesses_AreServedInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var rigs []*rig
	for range 4 {
		rigs = append(rigs, newRig(t, s, rlock.Options{PollCap: 10 * time.Second, WatchdogTimeout: lease}))
	}
	holder := rigs[0]
	h := lock(t, holder.locks.Fair("l"), within(t))
	grantChannels := func() []string {
		channels, err := holder.redis.Do(within(t), holder.redis.B().PubsubChannels().Build()).AsStrSlice()
		require.NoError(t, err)
		return channels
	}
	for _, process := range rigs { // otherwise a slow first subscription makes a waiter listen to its own channel
		_, err := process.locks.Fair("l").TryLock(within(t), 10*time.Millisecond, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
	}
	redistest.Eventually(t, 20*time.Second, "all listen", func() bool { return len(grantChannels()) == len(rigs) })
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
	require.Len(t, grantChannels(), 4, "one for each process, not for each waiter")
	began, before := time.Now(), redistest.ScriptCalls(t, holder.redis)
	require.NoError(t, h.Unlock(within(t)))
	wg.Wait()
	calls := redistest.ScriptCalls(t, holder.redis) - before
	require.True(t, slices.IsSorted(order), "%v", order)
	require.Less(t, time.Since(began), 15*time.Second, "woken each, not by their polls")
	t.Logf("33 releases, of which each hands the lock over: %d calls", calls)
	require.Less(t, calls, 2*33, "a release is one call, and the next holder needs none")
	require.Empty(t, keys(t, holder.redis), "nothing is left")
}

func TestFair_WaitersDead_CostOnePatienceTogether(t *testing.T) {
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

// Callers of ordinary patience give up while another caller holds the lock for long. They do not keep later callers of
// their process from the server's queue.
func TestFair_PatientCallersGiveUp_LaterAreServedInOrder(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		const pollCap = 500 * time.Millisecond
		first := newRig(t, servers[0], rlock.Options{PollCap: pollCap, WatchdogTimeout: lease})
		second := newRig(t, servers[0], rlock.Options{PollCap: pollCap, WatchdogTimeout: lease})
		held := lock(t, first.locks.Fair("l"), within(t))
		var mu sync.Mutex
		var order []int
		var callers, leaving sync.WaitGroup
		call := func(process *rig, i int) {
			callers.Go(func() {
				require.NoError(t, process.locks.Fair("l").Do(within(t), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				}))
			})
			time.Sleep(pollCap / 10)
		}
		call(first, 0)
		for range 8 {
			leaving.Go(func() {
				_, err := first.locks.Fair("l").TryLock(within(t), 2*pollCap, 0)
				require.ErrorIs(t, err, errs.ErrNotAcquired)
			})
		}
		leaving.Wait()
		call(first, 1)
		call(first, 2)
		call(first, 3)
		call(second, 4)
		require.NoError(t, held.Unlock(within(t)))
		callers.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
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
