package rlock_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	engine "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// source is the text of a script as it is sent.
func source(t testing.TB, name string) string {
	t.Helper()
	text, err := script.Compose(os.DirFS("."), name)
	require.NoError(t, err)
	return text
}

// sources are the texts of scripts.
func sources(t *testing.T, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		all[name] = source(t, name)
	}
	return all
}

func TestPlainScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := sources(t, "plain_acquire", "plain_release", "plain_renew", "plain_locked", "plain_force", "plain_keep")
		far := strconv.FormatInt(g.now(t)+86_400_000, 10)
		past := strconv.FormatInt(g.now(t)-86_400_000, 10)
		const left = -7 // any number of ms above 0
		for i, c := range []struct {
			name, script string
			before       string
			ttl          int64
			args         []string
			reply, again []int64 // of a second run; nil: the same
			after        string
			ttlAfter     int64
			told         bool
		}{
			{name: "free", script: "plain_acquire", args: []string{alice, "300000", "0", "c", "PUBLISH"},
				reply: []int64{1, left}, after: alice, ttlAfter: 300_000},
			{name: "in time", script: "plain_acquire", args: []string{alice, "300000", far, "c", "PUBLISH"},
				reply: []int64{1, left}, after: alice, ttlAfter: 300_000},
			{name: "too late", script: "plain_acquire", args: []string{alice, "300000", past, "c", "PUBLISH"},
				reply: []int64{2, 0}, ttlAfter: gone},
			{name: "held by another of ours", script: "plain_acquire", before: bob, ttl: 100_000,
				args: []string{alice, "300000", "0", "c", "PUBLISH"}, reply: []int64{0, left, 0, 0}, after: bob, ttlAfter: 100_000},
			{name: "held by another program", script: "plain_acquire", before: "xyz", ttl: 100_000,
				args: []string{alice, "300000", "0", "c", "PUBLISH"}, reply: []int64{0, left, 0, 1}, after: "xyz",
				ttlAfter: 100_000},
			{name: "held without end", script: "plain_acquire", before: bob,
				args: []string{alice, "300000", "0", "c", "PUBLISH"}, reply: []int64{0, -1, 0, 0}, after: bob, ttlAfter: endless},
			{name: "its own is raised", script: "plain_acquire", before: alice, ttl: 100_000,
				args: []string{alice, "300000", "0", "c", "PUBLISH"}, reply: []int64{1, left}, after: alice, ttlAfter: 300_000},
			{name: "its own is never shortened", script: "plain_acquire", before: alice, ttl: 900_000,
				args: []string{alice, "300000", "0", "c", "PUBLISH"}, reply: []int64{1, left}, after: alice, ttlAfter: 900_000},
			{name: "released", script: "plain_release", before: alice, ttl: 100_000,
				args: []string{alice, "CHANNEL", "PUBLISH"}, reply: []int64{1}, again: []int64{0}, ttlAfter: gone, told: true},
			{name: "gone before", script: "plain_release", args: []string{alice, "CHANNEL", "PUBLISH"}, reply: []int64{0},
				ttlAfter: gone, told: true},
			{name: "another's is not released", script: "plain_release", before: bob, ttl: 100_000,
				args: []string{alice, "CHANNEL", "PUBLISH"}, reply: []int64{0}, after: bob, ttlAfter: 100_000},
			{name: "renewed", script: "plain_renew", before: alice, ttl: 100_000, args: []string{alice, "300000"},
				reply: []int64{1}, after: alice, ttlAfter: 300_000},
			{name: "a longer lease stays", script: "plain_renew", before: alice, ttl: 900_000, args: []string{alice, "300000"},
				reply: []int64{1}, after: alice, ttlAfter: 900_000},
			{name: "looked at", script: "plain_renew", before: alice, ttl: 100_000, args: []string{alice, "0"},
				reply: []int64{1}, after: alice, ttlAfter: 100_000},
			{name: "no end stays none", script: "plain_renew", before: alice, args: []string{alice, "300000"},
				reply: []int64{1}, after: alice, ttlAfter: endless},
			{name: "another's is not renewed", script: "plain_renew", before: bob, ttl: 100_000,
				args: []string{alice, "300000"}, reply: []int64{0}, after: bob, ttlAfter: 100_000},
			{name: "what is gone is not renewed", script: "plain_renew", args: []string{alice, "300000"}, reply: []int64{0},
				ttlAfter: gone},
			{name: "asked", script: "plain_locked", before: alice, ttl: 100_000, reply: []int64{1}, after: alice,
				ttlAfter: 100_000},
			{name: "asked, and nobody has it", script: "plain_locked", reply: []int64{0}, ttlAfter: gone},
			{name: "kept, shorter", script: "plain_keep", before: alice, ttl: 900_000, args: []string{alice, "300000"},
				reply: []int64{1}, after: alice, ttlAfter: 300_000},
			{name: "kept, longer", script: "plain_keep", before: alice, ttl: 100_000, args: []string{alice, "300000"},
				reply: []int64{1}, after: alice, ttlAfter: 300_000},
			{name: "kept by an owner that goes on, longer", script: "plain_keep", before: alice, ttl: 100_000,
				args: []string{alice, "300000", "1"}, reply: []int64{1}, after: alice, ttlAfter: 300_000},
			{name: "kept by an owner that goes on, never shorter", script: "plain_keep", before: alice, ttl: 900_000,
				args: []string{alice, "300000", "1"}, reply: []int64{1}, after: alice, ttlAfter: 900_000},
			{name: "another's is not kept", script: "plain_keep", before: bob, ttl: 100_000, args: []string{alice, "300000"},
				reply: []int64{0}, after: bob, ttlAfter: 100_000},
			{name: "what is gone is not kept", script: "plain_keep", args: []string{alice, "300000"}, reply: []int64{0},
				ttlAfter: gone},
			{name: "forced", script: "plain_force", before: "xyz", ttl: 100_000,
				args: []string{"CHANNEL", "PUBLISH", "", "abc", "xyz"}, reply: []int64{1}, again: []int64{0}, ttlAfter: gone,
				told: true},
			{name: "who came later is left alone", script: "plain_force", before: "later", ttl: 100_000,
				args: []string{"CHANNEL", "PUBLISH", "", "abc"}, reply: []int64{0}, after: "later", ttlAfter: 100_000},
		} {
			t.Run(c.script+": "+c.name, func(t *testing.T) {
				key := "plain" + strconv.Itoa(i)
				channel := "redlatch_plain:{" + key + "}"
				if c.before != "" {
					g.must(t, "SET", key, c.before)
				}
				if c.ttl > 0 {
					g.must(t, "PEXPIRE", key, strconv.FormatInt(c.ttl, 10))
				}
				args := strings.Split(strings.ReplaceAll(strings.Join(c.args, "\x00"), "CHANNEL", channel), "\x00")
				for run, want := range [][]int64{c.reply, c.again} {
					if want == nil {
						want = c.reply
					}
					var got []int64
					var err error
					told := g.published(t, channel, func() { got, err = eval(t, g.c, src[c.script], []string{key}, args...) })
					require.NoError(t, err)
					if c.script == "plain_acquire" {
						got = inFull(t, c.script, got, args)
						require.InDelta(t, g.now(t), got[2], 30_000)
						got = append(got[:2:2], got[3:]...)
					}
					for j := range want {
						if want[j] == left {
							require.Positive(t, got[j])
						} else {
							require.Equal(t, want[j], got[j], "run %d: %v", run+1, got)
						}
					}
					require.Equal(t, c.told && (run == 0 || c.script == "plain_release"), len(told) == 1, "run %d: %v", run+1, told)
					after := g.look(t, key)
					require.Equal(t, c.after, after.text)
					requireTTL(t, c.ttlAfter, after, after)
				}
			})
		}
	})
}

// line is a fair queue: owners and, for each, in how many ms it counts as dead.
type line []struct {
	owner string
	dead  int64
}

func TestFencedAcquireScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "fenced_acquire")
		const far = int64(9_000_000_000_000_000) // µs, some centuries from now
		for i, c := range []struct {
			name     string
			before   map[string]string
			ttl      int64
			last     string // token
			lastTTL  int64  // 0: none
			alone    bool   // no key but the lock's
			status   int64
			token    int64 // 0: none, -1: the server's µs
			kept     int64 // what becomes of the token's TTL
			after    map[string]string
			afterTTL int64
		}{
			{name: "free, no token before", status: 1, token: -1, kept: 900_000, after: h(alice, "1"), afterTTL: 300_000},
			{name: "free, a token before", last: "41", lastTTL: 100_000, status: 1, token: -1, kept: 900_000,
				after: h(alice, "1"), afterTTL: 300_000},
			{name: "free, a token before that the clock is behind", last: strconv.FormatInt(far, 10), lastTTL: 100_000,
				status: 1, token: far + 1, kept: 900_000, after: h(alice, "1"), afterTTL: 300_000},
			{name: "Redisson's token has no end", last: strconv.FormatInt(far, 10), status: 1, token: far + 1, kept: endless,
				after: h(alice, "1"), afterTTL: 300_000},
			{name: "while a slot is being migrated", alone: true, status: 1, token: -1, kept: gone, after: h(alice, "1"),
				afterTTL: 300_000},
			{name: "held by another", before: h(bob, "1"), ttl: 100_000, kept: gone, after: h(bob, "1"), afterTTL: 100_000},
		} {
			t.Run(c.name, func(t *testing.T) {
				key := fmt.Sprint("f", i)
				keys := []string{key, "redlatch_queue:{" + key + "}", "redisson_lock_token:{" + key + "}"}
				row{before: c.before, ttl: c.ttl}.prepare(t, g, key)
				if c.last != "" {
					g.must(t, "SET", keys[2], c.last)
				}
				if c.lastTTL > 0 {
					g.must(t, "PEXPIRE", keys[2], strconv.FormatInt(c.lastTTL, 10))
				}
				token := c.token
				for range 2 {
					before, us := g.look(t, key), g.nowMicros(t)
					got, err := eval(t, g.c, src, keys[:map[bool]int{true: 1, false: 3}[c.alone]], alice, "300000", "0", "PUBLISH",
						"g:", "", "900000")
					require.NoError(t, err)
					require.Equal(t, c.status, got[0])
					if token == 0 {
						require.Less(t, len(got), 6)
					} else if token == -1 {
						require.GreaterOrEqual(t, got[5], us)
						require.LessOrEqual(t, got[5], g.nowMicros(t)+1)
					} else {
						require.Equal(t, token, got[5])
						token++ // a second run mints another
					}
					after := g.look(t, key)
					require.Equal(t, c.after, after.hash)
					requireTTL(t, c.afterTTL, before, after)
					requireTTL(t, c.kept, before, g.look(t, keys[2]))
				}
			})
		}
	})
}

func TestFairScriptTable(t *testing.T) {
	t.Parallel()
	const (
		carol = "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:9"
		far   = 600_000
	)
	one := func(owner, count string) map[string]string { return map[string]string{owner: count} }
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := sources(t, "fair_acquire", "fair_release", "fair_force")
		acquire := func(owner, patience string) []string {
			return []string{owner, "300000", "0", "PUBLISH", "CHANNEL", patience, "g:", ""}
		}
		release := func(owner, leave string) []string {
			return []string{owner, "CHANNEL", "PUBLISH", leave, "g:"}
		}
		for i, c := range []struct {
			name, script string
			before       map[string]string
			ttl          int64
			line         line
			args         []string
			reply, again []int64 // the first and, where it is not negative here, the second number; again nil: the same
			after        map[string]string
			order        []string // who stands in line afterwards
			told         string   // who is told that the lock is free, at every run
		}{
			{name: "free and nobody waits", script: "fair_acquire", args: acquire(alice, "3000"), reply: []int64{1, 300_000},
				after: one(alice, "1")},
			{name: "held: stands in line", script: "fair_acquire", before: one(bob, "1"), ttl: 100_000,
				args: acquire(alice, "3000"), reply: []int64{0}, after: one(bob, "1"), order: []string{alice}},
			{name: "held: behind those who were first", script: "fair_acquire", before: one(bob, "1"), ttl: 100_000,
				line: line{{java, far}, {carol, far}}, args: acquire(alice, "3000"), reply: []int64{0}, after: one(bob, "1"),
				order: []string{java, carol, alice}},
			{name: "held: keeps its place", script: "fair_acquire", before: one(bob, "1"), ttl: 100_000,
				line: line{{alice, far}, {carol, far}}, args: acquire(alice, "3000"), reply: []int64{0}, after: one(bob, "1"),
				order: []string{alice, carol}},
			{name: "held: asks once", script: "fair_acquire", before: one(bob, "1"), ttl: 100_000, args: acquire(alice, ""),
				reply: []int64{0}, after: one(bob, "1")},
			{name: "free, another is first: stands in line and tells it", script: "fair_acquire", line: line{{carol, far}},
				args: acquire(alice, "3000"), reply: []int64{0}, order: []string{carol, alice}, told: carol},
			{name: "free, another is first: asks once", script: "fair_acquire", line: line{{carol, far}},
				args: acquire(alice, ""), reply: []int64{0}, order: []string{carol}, told: carol},
			{name: "free and first: takes it", script: "fair_acquire", line: line{{alice, far}, {carol, far}},
				args: acquire(alice, "3000"), reply: []int64{1, 300_000}, after: one(alice, "1"), order: []string{carol}},
			{name: "free, the first are dead", script: "fair_acquire", line: line{{bob, -1000}, {java, -1}, {alice, far}},
				args: acquire(alice, "3000"), reply: []int64{1, 300_000}, after: one(alice, "1")},
			{name: "free, a dead one behind a living one is left", script: "fair_acquire",
				line: line{{carol, far}, {bob, -1000}}, args: acquire(alice, ""), reply: []int64{0}, order: []string{carol, bob},
				told: carol},
			{name: "a second run raises the lease", script: "fair_acquire", before: one(alice, "1"), ttl: 100_000,
				line: line{{carol, far}}, args: acquire(alice, "3000"), reply: []int64{1, 300_000}, after: one(alice, "1"),
				order: []string{carol}},
			{name: "a retry", script: "fair_acquire", before: one(alice, "1"), ttl: 300_000, args: acquire(alice, "3000"),
				reply: []int64{1, 300_000}, after: one(alice, "1")},
			{name: "a late acquisition of an owner that is through", script: "fair_acquire",
				before: h(alice, "1", alice+"!", "-"+farFuture), ttl: 100_000, args: acquire(alice, "3000"), reply: []int64{3, 0},
				after: h(alice, "1", alice+"!", "-"+farFuture)},
			{name: "a late acquisition of an owner whose own lease is over", script: "fair_acquire",
				before: h(alice, "1", alice+"!", longAgo, bob, "1", bob+"!", farFuture), ttl: 100_000,
				args: acquire(alice, "3000"), reply: []int64{3, 0},
				after: h(alice, "1", alice+"!", longAgo, bob, "1", bob+"!", farFuture)},
			{name: "a second run never shortens a joined owner's own lease", script: "fair_acquire",
				before: h(alice, "1", alice+"!", farFuture, bob, "1", bob+"!", farFuture), ttl: 100_000,
				args: acquire(alice, "3000"), reply: []int64{1, 300_000},
				after: h(alice, "1", alice+"!", farFuture, bob, "1", bob+"!", farFuture)},

			{name: "released to nobody", script: "fair_release", before: one(alice, "1"), ttl: 100_000,
				args: release(alice, ""), reply: []int64{1}, again: []int64{0}},
			{name: "released: the first is told", script: "fair_release", before: one(alice, "1"), ttl: 100_000,
				line: line{{carol, far}, {bob, far}}, args: release(alice, ""), reply: []int64{1}, again: []int64{0},
				order: []string{carol, bob}, told: carol},
			{name: "released: the first that is alive", script: "fair_release", before: one(alice, "1"), ttl: 100_000,
				line: line{{carol, -1}, {java, far}}, args: release(alice, ""), reply: []int64{1}, again: []int64{0},
				order: []string{java}, told: java},
			{name: "not held any more: the first is told", script: "fair_release", line: line{{carol, far}},
				args: release(alice, ""), reply: []int64{0}, order: []string{carol}, told: carol},
			{name: "another's", script: "fair_release", before: one(bob, "1"), ttl: 100_000, line: line{{carol, far}},
				args: release(alice, ""), reply: []int64{0}, after: one(bob, "1"), order: []string{carol}},
			{name: "released with its end, and the other stays", script: "fair_release",
				before: h(alice, "1", alice+"!", farFuture, bob, "1", bob+"!", farFuture), ttl: 100_000, line: line{{carol, far}},
				args: release(alice, ""), reply: []int64{1}, again: []int64{0}, after: h(bob, "1", bob+"!", farFuture),
				order: []string{carol}},
			{name: "released, and the dead go with it", script: "fair_release",
				before: h(alice, "1", alice+"!", farFuture, bob, "1", bob+"!", longAgo), ttl: 100_000, line: line{{carol, far}},
				args: release(alice, ""), reply: []int64{1}, again: []int64{0}, order: []string{carol}, told: carol},
			{name: "leaves the line", script: "fair_release", before: one(bob, "1"), ttl: 100_000,
				line: line{{carol, far}, {alice, far}}, args: release(alice, "3000"), reply: []int64{0}, after: one(bob, "1"),
				order: []string{carol}},

			{name: "forced", script: "fair_force", before: one(java, "2"), ttl: 100_000, line: line{{carol, far}},
				args: []string{"CHANNEL", "PUBLISH", "", java}, reply: []int64{1}, again: []int64{0}, order: []string{carol},
				told: carol},
			{name: "forced with their ends", script: "fair_force",
				before: h(alice, "1", alice+"!", farFuture, bob, "1", bob+"!", "-"+farFuture), ttl: 100_000,
				line: line{{carol, far}}, args: []string{"CHANNEL", "PUBLISH", "", alice, bob}, reply: []int64{2},
				again: []int64{0}, order: []string{carol}, told: carol},
			{name: "who came later is left alone", script: "fair_force", before: one(bob, "1"), ttl: 100_000,
				line: line{{carol, far}}, args: []string{"CHANNEL", "PUBLISH", "", java}, reply: []int64{0}, after: one(bob, "1"),
				order: []string{carol}},
		} {
			t.Run(c.script+": "+c.name, func(t *testing.T) {
				key := "fair" + strconv.Itoa(i)
				queue, timeouts, channel := "redisson_lock_queue:{"+key+"}", "redisson_lock_timeout:{"+key+"}",
					"redisson_lock__channel:{"+key+"}"
				for f, v := range c.before {
					g.must(t, "HSET", key, f, v)
				}
				if c.ttl > 0 {
					g.must(t, "PEXPIRE", key, strconv.FormatInt(c.ttl, 10))
				}
				for _, w := range c.line {
					g.must(t, "RPUSH", queue, w.owner)
					g.must(t, "ZADD", timeouts, strconv.FormatInt(g.now(t)+w.dead, 10), w.owner)
				}
				args := strings.Split(strings.ReplaceAll(strings.Join(c.args, "\x00"), "CHANNEL", channel), "\x00")
				for run, want := range [][]int64{c.reply, c.again} {
					if want == nil {
						want = c.reply
					}
					first := c.told
					if first == "" {
						first = carol
					}
					var got []int64
					var err error
					told := g.published(t, channel+":"+first, func() {
						got, err = eval(t, g.c, src[c.script], []string{key, queue, timeouts}, args...)
					})
					require.NoError(t, err)
					require.Equal(t, want[0], got[0], "run %d: %v", run+1, got)
					if len(want) > 1 {
						require.InDelta(t, want[1], got[1], 30_000)
					}
					if c.told != "" {
						require.Equal(t, []string{"0"}, told, "run %d", run+1)
					} else {
						require.Empty(t, told, "run %d", run+1)
					}
					require.Equal(t, c.after, g.look(t, key).hash, "run %d", run+1)
					order, err := g.do(t, "LRANGE", queue, "0", "-1").AsStrSlice()
					require.NoError(t, err)
					require.ElementsMatch(t, c.order, order)
					if len(c.order) > 0 {
						require.Equal(t, c.order, order)
					}
					members, err := g.do(t, "ZRANGE", timeouts, "0", "-1").AsStrSlice()
					require.NoError(t, err)
					require.ElementsMatch(t, c.order, members)
				}
			})
		}
	})
}

// fairQueue writes a queue of so many waiters, every other one Redisson's, all dead at the same time from now.
func fairQueue(t *testing.T, g *scriptRig, key string, n int, dead time.Duration) {
	t.Helper()
	_, err := eval(t, g.c, `
for i = 1, tonumber(ARGV[1]) do
  local owner = (i % 2 == 0 and ARGV[3] or ARGV[4]) .. i
  redis.call('RPUSH', KEYS[1], owner)
  redis.call('ZADD', KEYS[2], ARGV[2], owner)
  if i % 2 == 1 then
    redis.call('HSET', KEYS[3], owner, i .. ' 4000 3000')
  end
end
return 1`, fairKeys(key)[1:], strconv.Itoa(n), strconv.FormatInt(g.now(t)+dead.Milliseconds(), 10), java, bob)
	require.NoError(t, err)
}

func TestAPollOfAFairWaiterCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	g := newScriptRig(t, redistest.Start(t))
	src := source(t, "fair_acquire")
	sha, err := g.do(t, "SCRIPT", "LOAD", src).ToString()
	require.NoError(t, err)
	g.must(t, "HSET", "holder", bob, "1")
	const polls = 50
	cost := func(n int) (calls map[string]int, usec int) {
		key := "l" + strconv.Itoa(n)
		g.must(t, "COPY", "holder", key)
		g.must(t, "PEXPIRE", key, "1000000")
		fairQueue(t, g, key, n, time.Hour)
		poll := slices.Concat([]string{"EVALSHA", sha, "4"}, fairKeys(key),
			[]string{alice, "300000", "0", "PUBLISH", "c", "3000", "g:", "4000"})
		g.must(t, poll...) // comes
		least := 0
		for range 5 { // of the time the least counts: the machine is busy
			g.must(t, "CONFIG", "RESETSTAT")
			for range polls {
				g.must(t, poll...)
			}
			stats, err := g.do(t, "INFO", "commandstats").ToString()
			require.NoError(t, err)
			_, of, _ := strings.Cut(stats, "cmdstat_evalsha:")
			var spent int
			_, err = fmt.Sscanf(of, "calls="+strconv.Itoa(polls)+",usec=%d", &spent)
			require.NoError(t, err)
			if least == 0 || spent < least {
				least = spent
			}
			calls = redistest.CommandCalls(t, g.c)
		}
		return calls, least
	}
	few, usec := cost(10)
	many, most := cost(5000)
	require.Zero(t, many["lrange"], "nobody goes through the queue")
	for name := range many {
		require.Equal(t, few[name], many[name], name)
	}
	require.Less(t, most, 10*usec, "50 polls among 10: %d µs, among 5000: %d µs", usec, most)
}

// Dead waiters are passed over, and no single call is long for it.
func TestManyDeadFairWaitersAreDroppedByAFewCalls(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "fair_acquire")
		keys := fairKeys("l")
		fairQueue(t, g, "l", 1000, -time.Second)
		for before := int64(1001); ; {
			got, err := eval(t, g.c, src, keys, alice, "300000", "0", "PUBLISH", "c", "3000", "g:", "")
			require.NoError(t, err)
			if got[0] == 1 {
				break
			}
			require.Zero(t, got[1], "to be asked again at once")
			left, err := g.do(t, "LLEN", keys[1]).AsInt64()
			require.NoError(t, err)
			require.Less(t, left, before)
			require.Greater(t, left, before-300)
			before = left
		}
		require.Equal(t, map[string]string{alice: "1"}, g.look(t, "l").hash)
		left, err := g.do(t, "EXISTS", keys[1], keys[2], keys[3]).AsInt64()
		require.NoError(t, err)
		require.Zero(t, left)
	})
}

// One of the two keys may be evicted or deleted alone.
func TestHalfAFairQueueKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	const carol = "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:9"
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "fair_acquire")
		keys := []string{"l", "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}"}
		for _, lost := range keys[1:] {
			g.must(t, "FLUSHALL")
			g.must(t, "HSET", "l", java, "1")
			for _, gone := range []string{"", lost} {
				if gone != "" {
					g.must(t, "DEL", gone)
				}
				for range 2 {
					for _, owner := range []string{bob, alice, carol} {
						_, err := eval(t, g.c, src, keys, owner, "300000", "0", "PUBLISH", "c", "3000", "g:", "")
						require.NoError(t, err)
					}
				}
				order, err := g.do(t, "LRANGE", keys[1], "0", "-1").AsStrSlice()
				require.NoError(t, err)
				require.Equal(t, []string{bob, alice, carol}, order, "without %s", gone)
				known, err := g.do(t, "ZCARD", keys[2]).AsInt64()
				require.NoError(t, err)
				require.EqualValues(t, 3, known)
			}
		}
	})
}

// A score of ours that is further ahead than a waiter of ours can be patient, before all of Redisson's, is of a clock
// that stepped back, or was to outlast one of Redisson's that has died: the dead go with the patience that is the
// longest.
func TestAFairWaiterOfOursThatIsFirstDiesInThirtySeconds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "fair_acquire")
		keys := []string{"l", "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}"}
		now := g.now(t)
		for _, w := range []string{bob, bob + "1", java, bob + "2"} {
			g.must(t, "RPUSH", keys[1], w)
			g.must(t, "ZADD", keys[2], strconv.FormatInt(now+3_600_000, 10), w)
		}
		got, err := eval(t, g.c, src, keys, alice, "300000", "0", "PUBLISH", "c", "3000", "g:", "")
		require.NoError(t, err)
		require.Equal(t, int64(0), got[0])
		require.LessOrEqual(t, got[1], int64(30_000))
		ends := map[string]int64{}
		for _, w := range []string{bob, bob + "1", java, bob + "2", alice} {
			v, err := g.do(t, "ZSCORE", keys[2], w).AsFloat64()
			require.NoError(t, err)
			ends[w] = int64(v) - now
		}
		require.Less(t, ends[bob], int64(60_000))
		require.Equal(t, ends[bob], ends[bob+"1"], "together")
		for _, w := range []string{java, bob + "2", alice} {
			require.GreaterOrEqual(t, ends[w], int64(3_600_000),
				"Redisson's patience is its own, and is taken off those behind it")
		}
	})
}

// Redisson takes the patience of whoever is served off all other scores: ours must outlast that.
func TestFairScoresOutlastRedissonsSubtractions(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := sources(t, "fair_acquire")
		key, queue, timeouts := "l", "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}"
		g.must(t, "HSET", key, bob, "1")
		g.must(t, "PEXPIRE", key, "100000")
		now := g.now(t)
		for i, owner := range []string{java, java + "1"} {
			g.must(t, "RPUSH", queue, owner)
			g.must(t, "ZADD", timeouts, strconv.FormatInt(now+100_000+int64(i+1)*300_000, 10), owner)
		}
		score := func(owner string) int64 {
			t.Helper()
			v, err := g.do(t, "ZSCORE", timeouts, owner).AsFloat64()
			require.NoError(t, err)
			return int64(v)
		}
		for _, owner := range []string{alice, "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:9"} {
			_, err := eval(t, g.c, src["fair_acquire"], []string{key, queue, timeouts}, owner, "300000", "0", "PUBLISH", "c",
				"3000", "g:", "")
			require.NoError(t, err)
			require.InDelta(t, now+100_000+2*300_000+3000, score(owner), 30_000, "after both of Java's, not after each other")
		}
		left, err := g.do(t, "PTTL", queue).AsInt64()
		require.NoError(t, err)
		require.Greater(t, time.Duration(left)*time.Millisecond, time.Hour, "longer than anybody in it can wait")
	})
}

// The scripts and the client must have one idea of who is an owner of this library: the client removes, when a
// heartbeat is missing, the holds of those that it takes for ours, and a script tells waiters whether the holder is
// one.
func TestLuaAndGoHaveOneIdeaOfOurs(t *testing.T) {
	t.Parallel()
	const id = "0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d"
	table := map[string]bool{
		alice: true, bob: true, id + ":0": true, id + ":18446744073709551615": true,
		id + ":1:": true, id + ":1:label": true, id + ":1:Label, of any case:1": true, id + ":1:a\nb": true,
		id + ":1:\xff": true,
		strings.Replace(id, "9d0a", "8d0a", 1) + ":1": true, strings.Replace(id, "9d0a", "bd0a", 1) + ":1": true,
		java: false, "": false, id: false, id + ":": false, id + ":x": false, id + ":1x": false, id + ":1!": false,
		id + ":1 ": false, id + ":-1": false,
		id + ":1:la!bel": false, id + ":1:{label": false, id + ":1:label}": false, id + ":1\n": false,
		strings.ToUpper(id) + ":1": false, strings.Replace(id, "8c61", "8C61", 1) + ":1:label": false,
		" " + id + ":1": false, "x" + id + ":1": false, id + "0:1": false, id[1:] + ":1": false,
		strings.ReplaceAll(id, "-", "") + ":1":        false,
		strings.Replace(id, "8c61", "7c61", 1) + ":1": false, strings.Replace(id, "9d0a", "cd0a", 1) + ":1": false,
		strings.Replace(id, "9d0a", "7d0a", 1) + ":1": false,
		strings.Replace(id, "0f8b", "0g8b", 1) + ":1": false, "0123456789abcd800a0123456789abcdef012345:1": false,
	}
	owners, err := os.ReadFile("lua/lib/owners.lua")
	require.NoError(t, err)
	text, err := script.Compose(fstest.MapFS{
		"lua/lib/owners.lua": {Data: owners},
		"lua/ours.lua": {Data: []byte("-- uses: owners\nlocal r = {}\nfor i, id in ipairs(ARGV) do\n  r[i] = " +
			"ours(id) and 1 or 0\nend\nreturn r\n")},
	}, "ours")
	require.NoError(t, err)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ids := slices.Sorted(maps.Keys(table))
		said, err := eval(t, s.Client(t), text, []string{"k"}, ids...)
		require.NoError(t, err)
		for i, id := range ids {
			require.Equal(t, table[id], engine.Ours(id), "Go: %q", id)
			require.Equal(t, table[id], said[i] == 1, "Lua: %q", id)
		}
	})
}

// A holder that has no more of our shape than the digit of our version at its place is another program's: we listen for
// its release, heed its place in a fair queue, and look for its end where Redisson has it.
func TestWhoIsOursIsToldByTheWholeShape(t *testing.T) {
	t.Parallel()
	const digits = "0123456789abcd800a0123456789abcdef012345"
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		for _, foreign := range []string{digits, digits + ":1", "9c1d2e3f-0a4b-8c5d-ce6f-7a8b9c0d1e2f:42"} {
			g.must(t, "FLUSHALL")
			g.must(t, "HSET", "l", foreign, "1")
			g.must(t, "PEXPIRE", "l", "100000")
			got, err := g.run(t, "acquire", []string{"l", "redlatch_queue:{l}"}, alice, "300000", "0", "PUBLISH", "c")
			require.NoError(t, err)
			require.Equal(t, []int64{0, 1}, []int64{got[0], got[4]}, "its release has to be listened for")

			g.must(t, "SET", "p", foreign, "PX", "100000")
			got, err = eval(t, g.c, source(t, "plain_acquire"), []string{"p"}, alice, "300000", "0", "c", "PUBLISH")
			require.NoError(t, err)
			require.Equal(t, []int64{0, 1}, []int64{got[0], got[4]})

			now := g.now(t)
			g.must(t, "RPUSH", "redisson_lock_queue:{l}", foreign)
			g.must(t, "ZADD", "redisson_lock_timeout:{l}", strconv.FormatInt(now+400_000, 10), foreign)
			_, err = eval(t, g.c, source(t, "fair_acquire"),
				[]string{"l", "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}"},
				alice, "300000", "0", "PUBLISH", "c", "3000", "g:", "")
			require.NoError(t, err)
			score, err := g.do(t, "ZSCORE", "redisson_lock_timeout:{l}", alice).AsFloat64()
			require.NoError(t, err)
			require.GreaterOrEqual(t, int64(score), now+400_000+3000,
				"after who was first, whose patience is taken off when it is served")

			h := func(of ...string) map[string]string {
				m := map[string]string{}
				for i := 1; i < len(of); i += 2 {
					m[of[i-1]] = of[i]
				}
				return m
			}
			rwState{hash: h("mode", "read", alice, "1", foreign, "1"), ttl: 900_000, ends: map[string]int64{alice: 900_000},
				timeouts: map[string]int64{alice: 900_000}}.write(t, g, "rw")
			g.must(t, "SET", "{rw}:"+foreign+":rwlock_timeout:1", "1", "PX", "50000")
			got, err = g.run(t, "rw_release", []string{"rw", "redlatch_rw:{rw}", "redlatch_rwq:{rw}", rwTimeout("rw", alice)},
				alice, "c", "0", "PUBLISH", "g:", "")
			require.NoError(t, err)
			require.Equal(t, []int64{2}, got, "its end has to be looked at")
			g.trimmed(t, "rw_release", got[0], "rw")
			left, err := g.do(t, "PTTL", "rw").AsInt64()
			require.NoError(t, err)
			require.LessOrEqual(t, left, int64(50_000), "the end of its timeout key")
		}
	})
}
