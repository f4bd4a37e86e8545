package rlock_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// Where very many waiters or holders have died, no script takes out all of them. A waiter that is alive is served by
// messages all the same, and does not have to poll.
func TestWaiter_VeryManyDied_IsServedWithoutPoll(t *testing.T) {
	t.Parallel()
	const died = 1000
	read := func(c *rlock.Client) *rlock.Lock { return c.ReadWrite("l").Read() }
	write := func(c *rlock.Client) *rlock.Lock { return c.ReadWrite("l").Write() }
	plain := func(c *rlock.Client) *rlock.Lock { return c.Plain("l") }
	reentrant := func(c *rlock.Client) *rlock.Lock { return c.Reentrant("l") }
	score := func(us int64) string { return strconv.FormatInt(us, 10) }
	for name, x := range map[string]struct {
		held, wanted func(*rlock.Client) *rlock.Lock
		line         string                                // where the waiter stands
		dead         func(owner string, us int64) []string // adds one that came then, and died
	}{
		"waiters": {reentrant, reentrant, "redlatch_queue:{l}", func(owner string, us int64) []string {
			return []string{"ZADD", "redlatch_queue:{l}", score(us), entryOf(owner)}
		}},
		"waiters of a Plain lock": {plain, plain, "redlatch_queue:{l}", func(owner string, us int64) []string {
			return []string{"ZADD", "redlatch_queue:{l}", score(us), plainEntryOf(owner, 100*time.Millisecond)}
		}},
		"writers that wait": {read, write, "redlatch_rwq:{l}", func(owner string, us int64) []string {
			return []string{"ZADD", "redlatch_rwq:{l}", score(3e15 + us), entryOf(owner)}
		}},
		"readers that wait": {write, read, "redlatch_rwq:{l}", func(owner string, us int64) []string {
			return []string{"ZADD", "redlatch_rwq:{l}", score(us), entryOf(owner)}
		}},
		"readers": {read, write, "redlatch_rwq:{l}", func(owner string, us int64) []string {
			add := "redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])"
			return []string{"EVAL", add, "2", "l", "redlatch_rw:{l}", owner, score(us / 1000)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				holder := newRig(t, servers[0], rlock.Options{}).warmUp(t)
				waiter := newRig(t, servers[0], rlock.Options{PollCap: 30 * time.Second}).warmUp(t)
				h := lock(t, x.held(holder.locks), within(t))
				got := make(chan result, 1)
				go func() {
					h, err := x.wanted(waiter.locks).Lock(within(t))
					got <- result{h, err, time.Now()}
				}()
				redistest.Eventually(t, 20*time.Second, "it stands in line", func() bool {
					n, err := holder.redis.Do(within(t), holder.redis.B().Exists().Key(x.line).Build()).AsInt64()
					return err == nil && n == 1
				})
				time.Sleep(time.Second)                 // it has asked again since it subscribed, and sleeps
				now := time.Now().Add(-2 * time.Second) // they came before
				for i := 1; i <= died; i++ {
					owner := fmt.Sprintf("%08x-5a1e-8c61-9d0a-6f4f3a2b1c0d:1", i)
					require.NoError(t, holder.redis.Do(within(t),
						holder.redis.B().Arbitrary(x.dead(owner, now.UnixMicro()-int64(i))...).Build()).Error())
				}
				began := time.Now()
				require.NoError(t, h.Unlock(within(t)))
				w := <-got
				require.NoError(t, w.err)
				require.Less(t, w.at.Sub(began), 5*time.Second)
				w.unlock(t)
			})
		})
	}
}

// Of very many holds that are over a script takes out some, oldest first. A reader does not share one that is left.
func TestReadScript_VeryManyDied_SharesNoneOfThem(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		end := func(off int64) string { return strconv.FormatInt(g.now(t)+off, 10) }
		g.must(t, "HSET", "l", "mode", "read", carol, "1", bob, "1")
		g.must(t, "ZADD", "redlatch_rw:{l}", end(900_000), carol, end(-100), bob)
		for i := range 1000 {
			owner := fmt.Sprintf("%08x-5a1e-8c61-9d0a-6f4f3a2b1c0d:1", i)
			g.must(t, "HSET", "l", owner, "1")
			g.must(t, "ZADD", "redlatch_rw:{l}", end(-5000), owner)
		}
		g.must(t, "PEXPIRE", "l", "900000")
		g.must(t, "PEXPIRE", "redlatch_rw:{l}", "10000000")
		keys := []string{"l", "redlatch_rw:{l}", "redlatch_rwq:{l}", "{l}:" + alice + ":rwlock_timeout:1"}
		for joined, status := range map[string]int64{bob: 1, carol: 5} {
			got, err := g.run(t, "rw_read", keys, alice, "1000", "0", "c", "", joined, "PUBLISH", "g:", "")
			require.NoError(t, err)
			require.Equal(t, status, got[0])
			g.must(t, "HDEL", "l", alice)
		}
	})
}
