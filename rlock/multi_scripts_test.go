package rlock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMultiAcquireScriptTable(t *testing.T) {
	t.Parallel()
	const carol = "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:9"
	one := func(owner string) map[string]string { return map[string]string{owner: "1"} }
	type lock struct {
		before map[string]string
		ttl    int64 // ms; 0: none
		queue  string
		there  bool              // the process of who is in the queue
		after  map[string]string // nil: as before
		left   int64             // what became of the TTL
	}
	entry := func(owner string) string { return owner + " 60000 2500" }
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "several_acquire")
		for i, c := range []struct {
			name     string
			locks    [2]lock // of alice and bob
			notAfter int64
			reply    [2]int64 // status, which
			left     int64    // roughly
			again    []int64  // the status of a second run, if it is another
		}{
			{name: "all free", reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{after: one(alice), left: 300_000}, {after: one(bob), left: 300_000}}},
			{name: "the first is held", reply: [2]int64{0, 1}, left: 100_000,
				locks: [2]lock{{before: one(carol), ttl: 100_000, left: untouched}, {left: gone}}},
			{name: "the second is held", reply: [2]int64{0, 2}, left: 100_000,
				locks: [2]lock{{left: gone}, {before: one(carol), ttl: 100_000, left: untouched}}},
			{name: "held without end", reply: [2]int64{0, 2}, left: -1,
				locks: [2]lock{{left: gone}, {before: one(java), left: endless}}},
			{name: "a second run after the first", reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{before: one(alice), ttl: 200_000, after: one(alice), left: 300_000},
					{before: one(bob), ttl: 200_000, after: one(bob), left: 300_000}}},
			{name: "a second run shortens nothing", reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{before: one(alice), ttl: 600_000, left: untouched},
					{before: one(bob), ttl: 600_000, left: untouched}}},
			{name: "a second run after one was lost to another", reply: [2]int64{0, 2}, left: 100_000,
				locks: [2]lock{{before: one(alice), ttl: 200_000, left: untouched},
					{before: one(carol), ttl: 100_000, left: untouched}}},
			{name: "a second run after one of its owners was through", reply: [2]int64{0, 1}, left: 100_000,
				locks: [2]lock{{before: h(alice, "1", alice+"!", "-"+farFuture), ttl: 100_000, left: untouched}, {left: gone}}},
			{name: "others wait for the second", reply: [2]int64{0, 2}, left: 60_000,
				locks: [2]lock{{left: gone}, {queue: entry(carol), there: true, after: one(carol), left: 60_000}}},
			{name: "the dead wait for the second", reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{after: one(alice), left: 300_000}, {queue: entry(carol), after: one(bob), left: 300_000}}},
			{name: "the second is left to others for a moment", reply: [2]int64{0, 2}, left: 60_000,
				locks: [2]lock{{left: gone}, {queue: "!open", left: gone}}},
			{name: "unless the clock stepped back", reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{after: one(alice), left: 300_000}, {queue: "!stepped", after: one(bob), left: 300_000}}},
			{name: "too late", notAfter: -1000, reply: [2]int64{2, 0}, locks: [2]lock{{left: gone}, {left: gone}}},
			{name: "in time", notAfter: 60_000, reply: [2]int64{1, 0}, left: 300_000,
				locks: [2]lock{{after: one(alice), left: 300_000}, {after: one(bob), left: 300_000}}},
		} {
			t.Run(c.name, func(t *testing.T) {
				src, keys, before := src, []string{}, []snapshot{}
				args := []string{"300000", "0", "PUBLISH"}
				if c.notAfter != 0 {
					args[1] = strconv.FormatInt(g.now(t)+c.notAfter, 10)
				}
				names := []string{fmt.Sprint("m", i, "a"), fmt.Sprint("m", i, "b")}
				for j, l := range c.locks {
					key := names[j]
					row{before: l.before, ttl: l.ttl}.prepare(t, g, key)
					queue := "redlatch_queue:{" + key + "}"
					switch l.queue {
					case "":
					case "!open":
						long := longOpen.Replace(src)
						require.NotEqual(t, src, long)
						src = long
						g.must(t, "ZADD", queue, strconv.FormatInt(-(g.now(t)+60_000), 10), "!open")
						g.must(t, "ZADD", queue, strconv.FormatInt(g.now(t)*1000, 10), entry(carol))
					case "!stepped":
						g.must(t, "ZADD", queue, strconv.FormatInt(-(g.now(t)+3_600_000), 10), "!open")
					default:
						g.must(t, "ZADD", queue, strconv.FormatInt(g.now(t)*1000, 10), l.queue)
					}
					keys = append(keys, key, queue)
					if l.there {
						_, stop := overhear(t, g.c, []string{"redlatch_grant:" + carol[:36]}, "")
						defer stop()
					}
					args = append(args, []string{alice, bob}[j], "redlatch_grant:")
					before = append(before, g.look(t, key))
				}
				for run := range 2 {
					got, err := eval(t, g.c, src, keys, args...)
					require.NoError(t, err)
					require.Equal(t, c.reply, [2]int64{got[0], got[3]}, "run %d: %v", run+1, got)
					if c.left < 0 {
						require.Equal(t, c.left, got[1])
					} else {
						require.InDelta(t, c.left, got[1], 30_000)
					}
					require.InDelta(t, g.now(t), got[2], 30_000)
					for j, l := range c.locks {
						after := g.look(t, names[j])
						want := l.after
						if want == nil {
							want = l.before
						}
						require.Equal(t, want, after.hash, "run %d, lock %d", run+1, j+1)
						requireTTL(t, l.left, before[j], after)
					}
				}
			})
		}
	})
}

func TestQuorumAcquireScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "vote_acquire")
		run := func() int64 {
			info, err := g.do(t, "INFO", "server").ToString()
			require.NoError(t, err)
			_, id, _ := strings.Cut(info, "run_id:")
			n, err := strconv.ParseInt(id[:13], 16, 64)
			require.NoError(t, err)
			return n
		}()
		const old, young = "-5000", "1000000000" // ms up that are asked for
		for i, c := range []struct {
			name   string
			before map[string]string
			ttl    int64
			args   []string
			reply  []int64 // status, and where it is not -1 what is left of the lease
			after  map[string]string
			left   int64
		}{
			{"free", nil, 0, []string{alice, "300000", "0", old}, []int64{1, 300_000}, map[string]string{alice: "1"}, 300_000},
			{"free, but the server is young", nil, 0, []string{alice, "300000", "0", young}, []int64{4, -1}, nil, gone},
			{"held", map[string]string{bob: "1"}, 100_000, []string{alice, "300000", "0", old}, []int64{0, 100_000},
				map[string]string{bob: "1"}, untouched},
			{"held, and the server is young", map[string]string{bob: "1"}, 100_000, []string{alice, "300000", "0", young},
				[]int64{4, -1}, map[string]string{bob: "1"}, untouched},
			{"too late", nil, 0, []string{alice, "300000", "1", old}, []int64{2, 0}, nil, gone},
		} {
			t.Run(c.name, func(t *testing.T) {
				key := fmt.Sprint("v", i)
				row{before: c.before, ttl: c.ttl}.prepare(t, g, key)
				before := g.look(t, key)
				args := append(append(c.args[:3:3], "PUBLISH", "redlatch_grant:"), c.args[3], "redisson_lock__channel:{"+key+"}")
				for again := range 2 {
					got, err := eval(t, g.c, src, []string{key, "redlatch_queue:{" + key + "}"}, args...)
					require.NoError(t, err)
					require.Equal(t, c.reply[0], got[0], "run %d: %v", again+1, got)
					if got[0] == 0 {
						require.Len(t, got, 8)
						require.EqualValues(t, 0, got[7], "who listens")
					} else {
						require.Len(t, got, 7)
					}
					if c.reply[1] >= 0 {
						require.InDelta(t, c.reply[1], got[1], 30_000)
					}
					if got[0] == 4 {
						require.Positive(t, got[1])
						require.Less(t, time.Duration(got[1])*time.Millisecond, 12*24*time.Hour)
					}
					require.InDelta(t, g.now(t), got[2], 30_000)
					require.Zero(t, got[3]+got[4]+got[5])
					require.Equal(t, run, got[6])
					after := g.look(t, key)
					require.Equal(t, c.after, after.hash)
					requireTTL(t, c.left, before, after)
				}
			})
		}
	})
}
