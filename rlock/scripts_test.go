package rlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	alice = "0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d:1"
	bob   = "1a2b3c4d-5a1e-8c61-9d0a-6f4f3a2b1c0d:7"
	java  = "9c1d2e3f-0a4b-4c5d-8e6f-7a8b9c0d1e2f:42" // Redisson: a UUID of version 4 and a thread's id
)

// scriptRig sends scripts by hand and looks at the server around them.
type scriptRig struct {
	c   rueidis.Client
	hub *pubsub.Hub
	src map[string]string
	// exact: the server keeps an expiry as an instant. miniredis counts it down, and is off by what passes between the
	// looks at its clock.
	exact bool
}

func newScriptRig(t *testing.T, s *redistest.Server) *scriptRig {
	t.Helper()
	g := &scriptRig{c: s.Client(t), exact: s.Embedded == nil}
	var err error
	g.hub, err = pubsub.New(g.c, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { g.hub.Close(context.Background()) })
	g.src = sources(t, "renew", "locked", "join", "keep", "acquire", "release", "force")
	return g
}

func (g *scriptRig) do(t *testing.T, args ...string) rueidis.RedisResult {
	t.Helper()
	return g.c.Do(within(t), g.c.B().Arbitrary(args...).Build())
}

func (g *scriptRig) must(t *testing.T, args ...string) {
	t.Helper()
	require.NoError(t, g.do(t, args...).Error(), "%v", args)
}

func (g *scriptRig) run(t *testing.T, name string, keys []string, args ...string) ([]int64, error) {
	t.Helper()
	v, err := eval(t, g.c, g.src[name], keys, args...)
	if err == nil {
		v = inFull(t, name, v, args)
	}
	return v, err
}

// inFull spells out the reply to an acquire: of a lock that was free it is the server's time alone. The lease is that
// of the request, and nobody else waits for a read-write lock then.
func inFull(t *testing.T, script string, v []int64, args []string) []int64 {
	t.Helper()
	if len(v) != 1 || !slices.Contains([]string{"acquire", "plain_acquire", "rw_read", "rw_write"}, script) {
		return v
	}
	ms, err := strconv.ParseInt(args[1], 10, 64)
	require.NoError(t, err)
	v = []int64{1, ms, v[0]}
	if script == "rw_read" || script == "rw_write" {
		v = append(v, 1, 0)
	}
	return v
}

func eval(t *testing.T, c rueidis.Client, src string, keys []string, args ...string) ([]int64, error) {
	t.Helper()
	m, err := c.Do(within(t),
		c.B().Eval().Script(src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToMessage()
	if err != nil {
		return nil, err
	}
	if v, err := m.AsInt64(); err == nil {
		return []int64{v}, nil
	}
	return m.AsIntSlice()
}

// snapshot is all there is to a key: what it holds and, in ms, when it ends (-1 never, -2 there is no key).
type snapshot struct {
	hash map[string]string
	text string
	left int64
	ends int64 // to the millisecond; 0 where it is not known so
}

func (g *scriptRig) look(t *testing.T, key string) snapshot {
	t.Helper()
	var s snapshot
	kind, err := g.do(t, "TYPE", key).ToString()
	require.NoError(t, err)
	switch kind {
	case "hash":
		s.hash, err = g.do(t, "HGETALL", key).AsStrMap()
		require.NoError(t, err)
	case "string":
		s.text, err = g.do(t, "GET", key).ToString()
		require.NoError(t, err)
	default:
		require.Equal(t, "none", kind)
	}
	s.left, err = g.do(t, "PTTL", key).AsInt64()
	require.NoError(t, err)
	if g.exact {
		s.ends, err = g.do(t, "PEXPIRETIME", key).AsInt64()
		require.NoError(t, err)
	}
	return s
}

func (g *scriptRig) now(t *testing.T) int64 {
	t.Helper()
	v, err := g.do(t, "TIME").AsStrSlice()
	require.NoError(t, err)
	sec, err := strconv.ParseInt(v[0], 10, 64)
	require.NoError(t, err)
	us, err := strconv.ParseInt(v[1], 10, 64)
	require.NoError(t, err)
	return sec*1000 + us/1000
}

// published returns what is published on channel while fn runs. A message of our own marks the end: a channel keeps
// its order.
func (g *scriptRig) published(t *testing.T, channel string, fn func()) []string {
	t.Helper()
	sub, err := g.hub.Subscribe(within(t), channel)
	require.NoError(t, err)
	defer sub.Close()
	fn()
	_, err = g.hub.Publish(within(t), channel, "end of test")
	require.NoError(t, err)
	var got []string
	for {
		m, err := sub.Next(within(t))
		require.NoError(t, err)
		if m.Payload == "end of test" {
			return got
		}
		got = append(got, m.Payload)
	}
}

// What became of the TTL. Leases in the tables are minutes apart, so that no stall of the machine blurs them.
const (
	untouched = -10 // where the server can tell, but for the ms that may pass between PTTL and PEXPIRE
	endless   = -1
	gone      = -2
)

func requireTTL(t *testing.T, want int64, before, after snapshot) {
	t.Helper()
	switch want {
	case untouched:
		require.GreaterOrEqual(t, after.ends, before.ends)
		require.LessOrEqual(t, after.ends, before.ends+5)
		require.LessOrEqual(t, after.left, before.left+5)
		require.Greater(t, after.left, before.left-30_000)
	case endless, gone:
		require.Equal(t, want, after.left)
	default:
		require.LessOrEqual(t, after.left, want)
		require.Greater(t, after.left, want-30_000)
	}
}

// row is one line of a script's table.
type row struct {
	name   string
	before map[string]string // the lock's hash
	ttl    int64             // of the lock before, ms; 0: none
	args   []string
	reply  []int64
	again  []int64 // the reply of a second run; nil: as the first
	after  map[string]string
	left   int64 // what became of the TTL
	told   bool  // whether waiters are told, at every run
}

func (r row) prepare(t *testing.T, g *scriptRig, key string) {
	t.Helper()
	for _, f := range slices.Sorted(maps.Keys(r.before)) {
		g.must(t, "HSET", key, f, r.before[f])
	}
	if r.ttl > 0 {
		g.must(t, "PEXPIRE", key, strconv.FormatInt(r.ttl, 10))
	}
}

// runTable runs each row's script twice; the second run must change nothing.
func runTable(t *testing.T, g *scriptRig, script string, rows []row,
	check func(t *testing.T, want, got []int64, before snapshot)) {
	t.Helper()
	for i, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			key := fmt.Sprintf("%s:%d", script, i)
			channel := "redisson_lock__channel:{" + key + "}"
			r.prepare(t, g, key)
			args := slices.Clone(r.args)
			for i, a := range args {
				if a == "CHANNEL" {
					args[i] = channel
				}
			}
			for n, want := range [][]int64{r.reply, r.again} {
				if want == nil {
					want = r.reply
				}
				before := g.look(t, key)
				started := g.now(t)
				var got []int64
				var err error
				told := g.published(t, channel, func() { got, err = g.run(t, script, []string{key}, args...) })
				require.NoError(t, err)
				ended := g.now(t)
				check(t, want, got, before)
				if script == "acquire" {
					require.GreaterOrEqual(t, got[2], started, "the server's own time")
					require.LessOrEqual(t, got[2], ended)
				}
				after := g.look(t, key)
				require.Equal(t, r.after, after.hash, "run %d", n+1)
				requireTTL(t, r.left, before, after)
				if r.told {
					require.Equal(t, []string{"0"}, told, "run %d", n+1)
				} else {
					require.Empty(t, told, "run %d", n+1)
				}
			}
		})
	}
}

func TestAcquireScriptTable(t *testing.T) {
	t.Parallel()
	const lease = "300000"
	h := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	past := strconv.FormatInt(time.Now().Add(-24*time.Hour).UnixMilli(), 10)
	rows := []row{
		{name: "a free lock is granted for the lease", args: []string{alice, lease, "0"}, reply: []int64{1, 300_000},
			after: h(alice, "1"), left: 300_000},
		{name: "in time is granted", args: []string{alice, lease, far}, reply: []int64{1, 300_000}, after: h(alice, "1"),
			left: 300_000},
		{name: "too late does nothing on a free lock", args: []string{alice, lease, past}, reply: []int64{2, 0}, left: gone},
		{name: "too late does nothing for the holder either", before: h(alice, "1"), ttl: 100_000,
			args: []string{alice, lease, past}, reply: []int64{2, 0}, after: h(alice, "1"), left: untouched},
		{name: "held by another is refused with what is left", before: h(bob, "1"), ttl: 100_000,
			args: []string{alice, lease, "0"}, reply: []int64{0, 100_000}, after: h(bob, "1"), left: untouched},
		{name: "held by Java is refused", before: h(java, "3"), ttl: 100_000, args: []string{alice, lease, "0"},
			reply: []int64{0, 100_000}, after: h(java, "3"), left: untouched},
		{name: "held without end is refused with -1", before: h(bob, "1"), args: []string{alice, lease, "0"},
			reply: []int64{0, -1}, after: h(bob, "1"), left: endless},
		{name: "a second run raises a shorter lease", before: h(alice, "1"), ttl: 100_000, args: []string{alice, lease, "0"},
			reply: []int64{1, 300_000}, after: h(alice, "1"), left: 300_000},
		{name: "a second run never shortens", before: h(alice, "1"), ttl: 900_000, args: []string{alice, lease, "0"},
			reply: []int64{1, 900_000}, after: h(alice, "1"), left: untouched},
		{name: "a second run leaves a lock without end without one", before: h(alice, "1"),
			args: []string{alice, lease, "0"}, reply: []int64{1, -1}, after: h(alice, "1"), left: endless},
		{name: "a second run leaves the count as it is", before: h(alice, "3"), ttl: 100_000,
			args: []string{alice, lease, "0"}, reply: []int64{1, 300_000}, after: h(alice, "3"), left: 300_000},
		{name: "a late acquisition of an owner that is through is lost, and raises nothing",
			before: h(alice, "1", alice+"!", "-"+far), ttl: 100_000, args: []string{alice, lease, "0"}, reply: []int64{3, 0},
			after: h(alice, "1", alice+"!", "-"+far), left: untouched},
		{name: "a late acquisition of an owner whose own lease is over is lost",
			before: h(alice, "1", alice+"!", past, bob, "1", bob+"!", far), ttl: 900_000, args: []string{alice, lease, "0"},
			reply: []int64{3, 0}, after: h(alice, "1", alice+"!", past, bob, "1", bob+"!", far), left: untouched},
		{name: "a second run never shortens a joined owner's own lease",
			before: h(alice, "1", alice+"!", far, bob, "1", bob+"!", far), ttl: 900_000, args: []string{alice, lease, "0"},
			reply: []int64{1, 900_000}, after: h(alice, "1", alice+"!", far, bob, "1", bob+"!", far), left: untouched},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runTable(t, newScriptRig(t, s), "acquire", rows, func(t *testing.T, want, got []int64, before snapshot) {
			require.Equal(t, want[0], got[0])
			if got[0] == 0 {
				require.Len(t, got, 5)
				foreign := int64(0)
				if _, ok := before.hash[java]; ok {
					foreign = 1
				}
				require.Equal(t, []int64{0, foreign}, got[3:], "no place was asked for; only Java's release is not ours to hear of")
			} else {
				require.Len(t, got, 3)
			}
			if want[1] <= 0 {
				require.Equal(t, want[1], got[1])
				return
			}
			require.LessOrEqual(t, got[1], want[1])
			require.Greater(t, got[1], want[1]-30_000)
		})
	})
}

func TestReleaseScriptTable(t *testing.T) {
	t.Parallel()
	one := func(owner, count string) map[string]string { return map[string]string{owner: count} }
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	past := strconv.FormatInt(time.Now().Add(-24*time.Hour).UnixMilli(), 10)
	args := func(owner string) []string { return []string{owner, "CHANNEL", "PUBLISH"} }
	rows := []row{
		{name: "the last release removes the lock and tells the waiters", before: one(alice, "1"), ttl: 100_000,
			args: args(alice), reply: []int64{1}, again: []int64{0}, left: gone, told: true},
		{name: "whatever the count was", before: one(alice, "5"), ttl: 100_000, args: args(alice), reply: []int64{1},
			again: []int64{0}, left: gone, told: true},
		{name: "also a lock without end", before: one(alice, "1"), args: args(alice), reply: []int64{1}, again: []int64{0},
			left: gone, told: true},
		{name: "what is gone is not held, and the waiters hear of it", args: args(alice), reply: []int64{0}, left: gone,
			told: true},
		{name: "another's lock is not touched", before: one(bob, "1"), ttl: 100_000, args: args(alice), reply: []int64{0},
			after: one(bob, "1"), left: untouched},
		{name: "Java's lock is not touched", before: one(java, "2"), ttl: 100_000, args: args(alice), reply: []int64{0},
			after: one(java, "2"), left: untouched},
		{name: "of two joined owners the other stays",
			before: map[string]string{alice: "1", alice + "!": far, bob: "1", bob + "!": far}, ttl: 100_000, args: args(alice),
			reply: []int64{1}, again: []int64{0}, after: map[string]string{bob: "1", bob + "!": far}, left: 24 * 3600_000},
		{name: "of two joined owners the other stays, to its end, that is through",
			before: map[string]string{alice: "1", alice + "!": far, bob: "1", bob + "!": "-" + far}, ttl: 100_000,
			args: args(alice), reply: []int64{1}, again: []int64{0}, after: map[string]string{bob: "1", bob + "!": "-" + far},
			left: 24 * 3600_000},
		{name: "one that is through goes when its end has passed",
			before: map[string]string{alice: "1", alice + "!": far, bob: "1", bob + "!": "-" + past}, ttl: 100_000,
			args: args(alice), reply: []int64{1}, again: []int64{0}, left: gone, told: true},
		{name: "one that is through is released", before: map[string]string{alice: "1", alice + "!": "-" + far},
			ttl: 100_000, args: args(alice), reply: []int64{1}, again: []int64{0}, left: gone, told: true},
		{name: "a dead joiner goes with the last living owner",
			before: map[string]string{alice: "1", alice + "!": far, bob: "1", bob + "!": past}, ttl: 100_000, args: args(alice),
			reply: []int64{1}, again: []int64{0}, left: gone, told: true},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runTable(t, newScriptRig(t, s), "release", rows, func(t *testing.T, want, got []int64, _ snapshot) {
			require.Equal(t, want, got)
		})
	})
}

func TestForceScriptTable(t *testing.T) {
	t.Parallel()
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	past := strconv.FormatInt(time.Now().Add(-24*time.Hour).UnixMilli(), 10)
	args := func(owners ...string) []string { return append([]string{"CHANNEL", "PUBLISH", "grants:"}, owners...) }
	rows := []row{
		{name: "all owners, with their ends", before: h(alice, "1", alice+"!", far, bob, "1", bob+"!", far), ttl: 100_000,
			args: args(alice, bob), reply: []int64{2}, again: []int64{0}, left: gone, told: true},
		{name: "one that is through", before: h(alice, "1", alice+"!", "-"+far), ttl: 100_000, args: args(alice),
			reply: []int64{1}, again: []int64{0}, left: gone, told: true},
		{name: "Java's", before: h(java, "3"), args: args(java), reply: []int64{1}, again: []int64{0}, left: gone,
			told: true},
		{name: "the other keeps the lock to its own end", before: h(alice, "1", alice+"!", far, bob, "1", bob+"!", far),
			ttl: 100_000, args: args(alice), reply: []int64{1}, again: []int64{0}, after: h(bob, "1", bob+"!", far),
			left: 24 * 3600_000},
		{name: "the dead go with it", before: h(alice, "1", alice+"!", far, bob, "1", bob+"!", past), ttl: 100_000,
			args: args(alice), reply: []int64{1}, again: []int64{0}, left: gone, told: true},
		{name: "one without an end keeps the lock's",
			before: h(alice, "1", alice+"!", far, bob, "1", java, "1", java+"!", far), args: args(alice), reply: []int64{1},
			again: []int64{0}, after: h(bob, "1", java, "1", java+"!", far), left: endless},
		{name: "who came later is left alone", before: h(bob, "1"), ttl: 100_000, args: args(alice), reply: []int64{0},
			after: h(bob, "1"), left: untouched},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runTable(t, newScriptRig(t, s), "force", rows, func(t *testing.T, want, got []int64, _ snapshot) {
			require.Equal(t, want, got)
		})
	})
}

func TestRenewScriptTable(t *testing.T) {
	t.Parallel()
	one := func(owner, count string) map[string]string { return map[string]string{owner: count} }
	past := strconv.FormatInt(time.Now().Add(-24*time.Hour).UnixMilli(), 10)
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	rows := []row{
		{name: "a shorter lease is raised", before: one(alice, "1"), ttl: 100_000, args: []string{alice, "300000"},
			reply: []int64{1}, after: one(alice, "1"), left: 300_000},
		{name: "a longer lease is never shortened", before: one(alice, "1"), ttl: 900_000, args: []string{alice, "300000"},
			reply: []int64{1}, after: one(alice, "1"), left: untouched},
		{name: "a look changes nothing", before: one(alice, "1"), ttl: 100_000, args: []string{alice, "0"},
			reply: []int64{1}, after: one(alice, "1"), left: untouched},
		{name: "a lock without end keeps having none", before: one(alice, "1"), args: []string{alice, "300000"},
			reply: []int64{1}, after: one(alice, "1"), left: endless},
		{name: "what is gone is not held and not made", args: []string{alice, "300000"}, reply: []int64{0}, left: gone},
		{name: "another's lease is not touched", before: one(bob, "1"), ttl: 100_000, args: []string{alice, "300000"},
			reply: []int64{0}, after: one(bob, "1"), left: untouched},
		{name: "Java's lease is not touched", before: one(java, "1"), ttl: 100_000, args: []string{alice, "300000"},
			reply: []int64{0}, after: one(java, "1"), left: untouched},
		{name: "an owner that is through holds nothing, and keeps the lock to its end",
			before: map[string]string{alice: "1", alice + "!": "-" + far}, ttl: 100_000, args: []string{alice, "300000"},
			reply: []int64{0}, after: map[string]string{alice: "1", alice + "!": "-" + far}, left: untouched},
		{name: "an owner among joined ones whose own lease is over holds nothing",
			before: map[string]string{alice: "1", alice + "!": past, bob: "1", bob + "!": far}, ttl: 100_000,
			args: []string{alice, "300000"}, reply: []int64{0}, after: map[string]string{bob: "1", bob + "!": far},
			left: untouched},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runTable(t, newScriptRig(t, s), "renew", rows, func(t *testing.T, want, got []int64, _ snapshot) {
			require.Equal(t, want, got)
		})
	})
}

func TestLockedScriptTable(t *testing.T) {
	t.Parallel()
	rows := []row{
		{name: "a free lock", reply: []int64{0}, left: gone},
		{name: "a lock that is held", before: map[string]string{java: "2"}, ttl: 100_000, reply: []int64{1},
			after: map[string]string{java: "2"}, left: untouched},
		{name: "without end", before: map[string]string{alice: "1"}, reply: []int64{1}, after: map[string]string{alice: "1"},
			left: endless},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runTable(t, newScriptRig(t, s), "locked", rows, func(t *testing.T, want, got []int64, _ snapshot) {
			require.Equal(t, want, got)
		})
	})
}

func TestNoScriptTouchesAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		g.must(t, "SET", "k", "a string")
		before := g.look(t, "k")
		for script, args := range map[string][]string{
			"acquire": {alice, "300000", "0"},
			"release": {alice, "channel", "PUBLISH"},
			"locked":  {},
		} {
			_, err := g.run(t, script, []string{"k"}, args...)
			require.ErrorContains(t, err, "WRONGTYPE", script)
		}
		got, err := g.run(t, "renew", []string{"k"}, alice, "300000")
		require.NoError(t, err)
		require.Equal(t, []int64{-2}, got)
		after := g.look(t, "k")
		require.Equal(t, "a string", after.text)
		requireTTL(t, untouched, before, after)
	})
}

// What no client sends would leave a lock without an end, or one that nobody can release: it is refused before anything
// is done, on a free lock and on one that is held.
func TestScriptsRefuseWhatNoClientSends(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		maps.Copy(g.src, sources(t, "several_acquire", "fenced_acquire", "vote_acquire"))
		maps.Copy(g.src, sources(t, "fair_acquire", "fair_release"))
		maps.Copy(g.src, sources(t, "plain_acquire", "plain_release", "plain_keep"))
		const queue, timeouts, ends = "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}", "redlatch_rw:{l}"
		leases := []string{"0", "-1", "-300000", "0.5", "1.5", "nan", "inf", "1e300", "", "x"}
		for _, c := range []struct {
			script         string
			keys, args     []string
			owners, leases []int // which of args are one
		}{
			{"acquire", []string{"l", "redlatch_queue:{l}"}, []string{alice, "300000", "0", "PUBLISH", "c"}, []int{0}, []int{1}},
			{"release", []string{"l", "redlatch_queue:{l}"},
				[]string{alice, "c", "PUBLISH", "g:", "", bob, entryOf(bob), "300000", farFuture, "1"}, []int{0, 5}, []int{7}},
			{"keep", []string{"l"}, []string{alice, "300000"}, []int{0}, []int{1}},
			{"join", []string{"l"}, []string{alice, bob, "300000", "0"}, []int{0, 1}, []int{2}},
			{"fenced_acquire", []string{"l", "redlatch_queue:{l}", "token"},
				[]string{alice, "300000", "0", "PUBLISH", "c", "", "300000"}, []int{0}, []int{1}},
			{"vote_acquire", []string{"l", "redlatch_queue:{l}"}, []string{alice, "300000", "0", "PUBLISH", "c", "-5000"},
				[]int{0}, []int{1}},
			{"several_acquire", []string{"l", "redlatch_queue:{l}"}, []string{"300000", "0", "PUBLISH", alice, "g:"}, []int{3},
				[]int{0}},
			{"fair_acquire", []string{"l", queue, timeouts}, []string{alice, "300000", "0", "PUBLISH", "c", "3000", "g:", ""},
				[]int{0}, []int{1}},
			{"fair_release", []string{"l", queue, timeouts}, []string{alice, "c", "PUBLISH", "", "g:"}, []int{0}, nil},
			{"plain_acquire", []string{"p"}, []string{alice, "300000", "0", "c", "PUBLISH"}, []int{0}, []int{1}},
			{"plain_release", []string{"p"}, []string{alice, "c", "PUBLISH"}, []int{0}, nil},
			{"plain_keep", []string{"p"}, []string{alice, "300000"}, []int{0}, []int{1}},
			{"rw_read", []string{"r", ends, "{r}:t"}, []string{alice, "300000", "0", "c", "", ""}, []int{0}, []int{1}},
			{"rw_write", []string{"r", ends}, []string{alice, "300000", "0", "c", "PUBLISH"}, []int{0}, []int{1}},
			{"rw_release", []string{"r", ends, "{r}:t"}, []string{alice, "c", "0"}, []int{0}, nil},
			{"rw_keep", []string{"r", ends, "{r}:t"}, []string{alice, "300000"}, []int{0}, []int{1}},
		} {
			for _, held := range []bool{false, true} {
				g.must(t, "FLUSHALL")
				if held {
					g.must(t, "HSET", "l", alice, "1")
					g.must(t, "PEXPIRE", "l", "100000")
					g.must(t, "HSET", "r", "mode", "read", alice, "1")
					g.must(t, "PEXPIRE", "r", "100000")
					g.must(t, "SET", "p", alice, "PX", "100000")
				}
				all := func() []string {
					names, err := g.do(t, "KEYS", "*").AsStrSlice()
					require.NoError(t, err)
					slices.Sort(names)
					return names
				}
				names, before := all(), []snapshot{g.look(t, "l"), g.look(t, "r"), g.look(t, "p")}
				try := func(at []int, values []string) {
					t.Helper()
					for _, i := range at {
						for _, v := range values {
							args := slices.Clone(c.args)
							args[i] = v
							_, err := g.run(t, c.script, c.keys, args...)
							require.ErrorContains(t, err, "nothing that can be asked for", "%s %q", c.script, args)
							require.Equal(t, names, all(), "%s %q", c.script, args)
							for j, key := range []string{"l", "r", "p"} {
								after := g.look(t, key)
								require.Equal(t, []any{before[j].hash, before[j].text}, []any{after.hash, after.text})
								requireTTL(t, untouched, before[j], after)
							}
						}
					}
				}
				try(c.owners, []string{""})
				try(c.leases, leases)
			}
		}
	})
}

func TestARenewBatchAnswersForEachKeyAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		g.must(t, "HSET", "mine", alice, "1")
		g.must(t, "PEXPIRE", "mine", "100000")
		g.must(t, "SET", "string", "x")
		g.must(t, "HSET", "theirs", bob, "1")
		g.must(t, "PEXPIRE", "theirs", "100000")
		g.must(t, "HSET", "last", alice, "1")
		g.must(t, "PEXPIRE", "last", "100000")
		for range 2 {
			got, err := g.run(t, "renew", []string{"mine", "string", "theirs", "gone", "last"},
				alice, "300000", alice, "300000", alice, "300000", alice, "300000", alice, "600000")
			require.NoError(t, err)
			require.Equal(t, []int64{1, -2, 0, 0, 1}, got)
			requireTTL(t, 300_000, snapshot{}, g.look(t, "mine"))
			requireTTL(t, 100_000, snapshot{}, g.look(t, "theirs"))
			requireTTL(t, 600_000, snapshot{}, g.look(t, "last"))
			requireTTL(t, endless, snapshot{}, g.look(t, "string"))
			requireTTL(t, gone, snapshot{}, g.look(t, "gone"))
		}
	})
}

func TestTwoOwnersOfOneKeyInOneRenewBatchAreToldApart(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		g.must(t, "HSET", "k", bob, "1")
		g.must(t, "PEXPIRE", "k", "100000")
		got, err := g.run(t, "renew", []string{"k", "k"}, alice, "900000", bob, "300000")
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1}, got)
		requireTTL(t, 300_000, snapshot{}, g.look(t, "k"))
	})
}

func TestAFullServerStillRenewsAndReleasesAndRefusesToAcquire(t *testing.T) {
	t.Parallel()
	g := newScriptRig(t, redistest.Start(t, "--maxmemory-policy", "noeviction"))
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	near := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for _, key := range []string{"held", "deep"} {
		g.must(t, "HSET", key, alice, "2")
		g.must(t, "PEXPIRE", key, "100000")
	}
	g.must(t, "HSET", "joined", alice, "1", alice+"!", near, bob, "1", bob+"!", far)
	g.must(t, "PEXPIRE", "joined", "100000")
	g.must(t, "CONFIG", "SET", "maxmemory", "1")
	require.ErrorContains(t, g.do(t, "SET", "k", "v").Error(), "OOM", "memory is full")

	_, err := g.run(t, "acquire", []string{"free"}, alice, "300000", "0")
	require.ErrorContains(t, err, "OOM")
	requireTTL(t, gone, snapshot{}, g.look(t, "free"))
	got, err := g.run(t, "acquire", []string{"held"}, bob, "300000", "0")
	require.NoError(t, err, "a refusal needs no memory")
	require.EqualValues(t, 0, got[0])
	got, err = g.run(t, "locked", []string{"held"})
	require.NoError(t, err)
	require.Equal(t, []int64{1}, got)

	got, err = g.run(t, "renew", []string{"joined"}, alice, "7200000")
	require.NoError(t, err)
	require.Equal(t, []int64{-1}, got, "a joined owner's own lease cannot be written, and is said not to be")
	require.Equal(t, near, g.look(t, "joined").hash[alice+"!"])
	got, err = g.run(t, "renew", []string{"held", "deep"}, alice, "300000", alice, "300000")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, got)
	requireTTL(t, 300_000, snapshot{}, g.look(t, "held"))
	requireTTL(t, 300_000, snapshot{}, g.look(t, "deep"))

	g.must(t, "CONFIG", "SET", "maxmemory", "0") // from Redis 8.6 on a full server refuses SUBSCRIBE, too
	told := g.published(t, "channel", func() {
		g.must(t, "CONFIG", "SET", "maxmemory", "1")
		for _, want := range []int64{1, 0} {
			got, err := g.run(t, "release", []string{"held"}, alice, "channel", "PUBLISH")
			require.NoError(t, err)
			require.Equal(t, []int64{want}, got)
		}
	})
	require.Equal(t, []string{"0", "0"}, told)
	requireTTL(t, gone, snapshot{}, g.look(t, "held"))
	got, err = g.run(t, "release", []string{"joined"}, alice, "channel", "PUBLISH")
	require.NoError(t, err)
	require.Equal(t, []int64{1}, got)
	require.Equal(t, map[string]string{bob: "1", bob + "!": far}, g.look(t, "joined").hash)
}

func TestAUserWithoutRightsOnTheChannelCanStillRelease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	g.must(t, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels")
	o := s.Option()
	o.Username, o.Password = "limited", "secret"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.ErrorContains(t, c.Do(within(t), c.B().Publish().Channel("channel").Message("0").Build()).Error(), "NOPERM")
	g.must(t, "HSET", "l", alice, "1")
	for _, want := range []int64{1, 0} {
		got, err := eval(t, c, g.src["release"], []string{"l"}, alice, "channel", "PUBLISH")
		require.NoError(t, err)
		require.Equal(t, []int64{want}, got)
		requireTTL(t, gone, snapshot{}, g.look(t, "l"))
	}
}

// An owner that goes on has the lock for as long at least, and can be joined and renewed as before.
func TestKeepScriptTableOfAnOwnerThatGoesOn(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		for i, c := range []struct {
			name        string
			before      map[string]string
			ttl         int64
			reply, left int64
		}{
			{name: "shorter than its lease", before: map[string]string{alice: "1"}, ttl: 900_000, reply: 1, left: 900_000},
			{name: "longer than its lease", before: map[string]string{alice: "1"}, ttl: 100_000, reply: 1, left: 200_000},
			{name: "what is gone", reply: 0, left: gone},
			{name: "another's", before: map[string]string{bob: "1"}, ttl: 100_000, reply: 0, left: 100_000},
		} {
			key := fmt.Sprintf("begin:%d", i)
			row{before: c.before, ttl: c.ttl}.prepare(t, g, key)
			for range 2 {
				got, err := g.run(t, "keep", []string{key, key + ":kept"}, alice, "200000", "1")
				require.NoError(t, err, c.name)
				require.Equal(t, []int64{c.reply}, got, c.name)
				after := g.look(t, key)
				if c.left == gone {
					require.EqualValues(t, gone, after.left, c.name)
				} else {
					require.InDelta(t, c.left, after.left, 30_000, c.name)
				}
				if c.before != nil {
					require.Equal(t, c.before, after.hash, c.name)
				}
				require.Equal(t, c.reply == 1, g.look(t, key+":kept").left > 0, c.name)
			}
		}
	})
}

func TestKeepScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		now := g.now(t)
		ms := func(after int64) string { return strconv.FormatInt(now+after, 10) }
		near := func(want int64, got string) {
			t.Helper()
			v, err := strconv.ParseInt(got, 10, 64)
			require.NoError(t, err)
			require.InDelta(t, want, v, 30_000)
		}
		for i, c := range []struct {
			name      string
			before    map[string]string
			ttl       int64
			reply     int64
			end, left int64 // the owner's and the lock's, ms from now
			sweeps    bool  // the other one goes
		}{
			{name: "shorter than its lease", before: map[string]string{alice: "1"}, ttl: 900_000, reply: 1, end: 200_000,
				left: 200_000},
			{name: "longer than its lease", before: map[string]string{alice: "3"}, ttl: 100_000, reply: 1, end: 200_000,
				left: 200_000},
			{name: "beside one that joined for longer",
				before: map[string]string{alice: "1", alice + "!": ms(100_000), bob: "1", bob + "!": ms(900_000)}, ttl: 900_000,
				reply: 1, end: 200_000, left: 900_000},
			{name: "beside one that is through for longer",
				before: map[string]string{alice: "1", alice + "!": ms(900_000), bob: "1", bob + "!": "-" + ms(400_000)},
				ttl:    900_000, reply: 1, end: 200_000, left: 400_000},
			{name: "beside one that is dead",
				before: map[string]string{alice: "1", alice + "!": ms(900_000), bob: "1", bob + "!": ms(-5000)}, ttl: 900_000,
				reply: 1, end: 200_000, left: 200_000, sweeps: true},
			{name: "what its own end has passed of",
				before: map[string]string{alice: "1", alice + "!": ms(-5000), bob: "1", bob + "!": ms(900_000)}, ttl: 900_000,
				reply: 0, left: 900_000},
			{name: "what is gone", reply: 0, left: gone},
			{name: "another's", before: map[string]string{bob: "1"}, ttl: 900_000, reply: 0, left: 900_000},
		} {
			t.Run(c.name, func(t *testing.T) {
				key := fmt.Sprintf("keep:%d", i)
				row{before: c.before, ttl: c.ttl}.prepare(t, g, key)
				for range 2 {
					got, err := g.run(t, "keep", []string{key}, alice, "200000")
					require.NoError(t, err)
					require.Equal(t, []int64{c.reply}, got)
					after := g.look(t, key)
					if c.left == gone {
						require.EqualValues(t, gone, after.left)
					} else {
						require.InDelta(t, c.left, after.left, 30_000)
					}
					require.Equal(t, c.before[alice], after.hash[alice])
					if c.sweeps {
						require.NotContains(t, after.hash, bob)
						require.NotContains(t, after.hash, bob+"!")
					} else {
						require.Equal(t, c.before[bob+"!"], after.hash[bob+"!"])
					}
					if c.reply == 1 {
						near(-now-c.end, after.hash[alice+"!"])
						joined, err := g.run(t, "join", []string{key}, alice, bob+"9", "200000", "0")
						require.NoError(t, err)
						require.EqualValues(t, 3, joined[0])
					}
				}
			})
		}
	})
}
