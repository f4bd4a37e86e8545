package rlock_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	engine "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
)

// newRWRig is a scriptRig with the scripts of read-write locks.
func newRWRig(t *testing.T, s *redistest.Server) *scriptRig {
	t.Helper()
	g := newScriptRig(t, s)
	files, err := os.ReadDir("lua")
	require.NoError(t, err)
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".lua"); ok && strings.HasPrefix(name, "rw_") {
			g.src[name] = source(t, name)
		}
	}
	return g
}

// trimmed is the reply of a script that ends or shortens a hold, without what it says of readers of Redisson's that are
// to be looked at. It does what the client does then.
func (g *scriptRig) trimmed(t *testing.T, script string, reply int64, key string) int64 {
	t.Helper()
	switch {
	case script == "rw_force" && reply < 0:
		reply = -reply
	case (script == "rw_release" || script == "rw_keep") && reply == 2:
		reply = 1
	default:
		return reply
	}
	keys := []string{key, "redlatch_rw:{" + key + "}", "redlatch_rwq:{" + key + "}"}
	args := []string{"redisson_rwlock:{" + key + "}", "PUBLISH", "grants:"}
	hash, err := g.do(t, "HGETALL", key).AsStrMap()
	require.NoError(t, err)
	for field, count := range hash {
		if n, err := strconv.Atoi(count); err == nil && !engine.Ours(field) && !strings.HasSuffix(field, ":write") {
			for k := range n {
				keys = append(keys, "{"+key+"}:"+field+":rwlock_timeout:"+strconv.Itoa(k+1))
			}
			args = append(args, field, count, count)
		}
	}
	for range 2 {
		got, err := g.run(t, "rw_trim", keys, args...)
		require.NoError(t, err)
		require.Equal(t, []int64{1}, got)
	}
	return reply
}

// rwState is a read-write lock on the server. Ends are ms from now.
type rwState struct {
	hash map[string]string
	ttl  int64 // of the hash; 0: none
	ends map[string]int64
	// of timeout keys, by "owner" or "owner:k"
	timeouts map[string]int64
}

func rwTimeout(key, owner string) string {
	k := "1"
	if strings.Count(owner, ":") == 2 {
		i := strings.LastIndexByte(owner, ':')
		owner, k = owner[:i], owner[i+1:]
	}
	return "{" + key + "}:" + owner + ":rwlock_timeout:" + k
}

func (st rwState) write(t *testing.T, g *scriptRig, key string) {
	t.Helper()
	for f, v := range st.hash {
		g.must(t, "HSET", key, f, v)
	}
	if st.ttl > 0 {
		g.must(t, "PEXPIRE", key, fmt.Sprint(st.ttl))
	}
	now := g.now(t)
	for m, off := range st.ends {
		g.must(t, "ZADD", "redlatch_rw:{"+key+"}", fmt.Sprint(now+off), m)
		g.must(t, "PEXPIRE", "redlatch_rw:{"+key+"}", "10000000")
	}
	for o, ms := range st.timeouts {
		g.must(t, "SET", rwTimeout(key, o), "1", "PX", fmt.Sprint(ms))
	}
}

// requireRW compares what the server has with want; ms are right if they are within the last half minute of it, which
// leases in the tables are far apart for.
func requireRW(t *testing.T, g *scriptRig, key string, want rwState) {
	t.Helper()
	near := func(what string, want, got int64) {
		t.Helper()
		require.LessOrEqual(t, got, want+10, what)
		require.Greater(t, got, want-30_000, what)
	}
	hash, err := g.do(t, "HGETALL", key).AsStrMap()
	require.NoError(t, err)
	if want.hash == nil {
		want.hash = map[string]string{}
	}
	require.Equal(t, want.hash, hash)
	ttl, err := g.do(t, "PTTL", key).AsInt64()
	require.NoError(t, err)
	switch {
	case len(want.hash) == 0:
		require.EqualValues(t, gone, ttl)
	case want.ttl == 0:
		require.EqualValues(t, endless, ttl)
	default:
		near("the lock's TTL", want.ttl, ttl)
	}
	ends := "redlatch_rw:{" + key + "}"
	scores, err := g.do(t, "ZRANGE", ends, "0", "-1", "WITHSCORES").AsZScores()
	require.NoError(t, err)
	left, err := g.do(t, "PTTL", ends).AsInt64() // before the clock is asked for: it only gets less
	require.NoError(t, err)
	now := g.now(t)
	var members []string
	most := int64(0)
	for _, z := range scores {
		members = append(members, z.Member)
		end := int64(z.Score)
		if off, ok := want.ends[z.Member]; ok {
			near(z.Member, off, end-now)
		}
		most = max(most, end-now)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want.ends)), members)
	if len(members) > 0 {
		require.GreaterOrEqual(t, left, most-1000, "the set lasts as long as what is in it")
	}
	timeouts := map[string]bool{}
	for o, ms := range want.timeouts {
		key := rwTimeout(key, o)
		timeouts[key] = true
		v, err := g.do(t, "PTTL", key).AsInt64()
		require.NoError(t, err)
		near(key, ms, v)
	}
	all, err := g.do(t, "KEYS", "{"+key+"}:*").AsStrSlice()
	require.NoError(t, err)
	for _, k := range all {
		require.True(t, timeouts[k], "%s is left", k)
	}
}

// rwRow is one line of a table: what there is, what is asked, the reply, and what there is then, also after a second
// run.
type rwRow struct {
	name   string
	script string
	before rwState
	// args of the script up to the channel. KEYS are the lock, its ends and, of a reader, the owner's timeout key.
	args  []string
	reply int64
	again int64 // of the second run; 0: the same
	after rwState
	told  string // the message, at every run; "": none
	once  bool   // nobody is told by the second run
}

const (
	rwLease = "300000"
	aliceW  = alice + ":write"
	bobW    = bob + ":write"
	javaW   = java + ":write"
)

func runRWTable(t *testing.T, rows []rwRow) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		for i, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				key := fmt.Sprint("rw", i)
				channel := "redisson_rwlock:{" + key + "}"
				r.before.write(t, g, key)
				keys := []string{key, "redlatch_rw:{" + key + "}", "redlatch_rwq:{" + key + "}"}
				args := slices.Clone(r.args)
				switch r.script {
				case "rw_read":
					keys = append(keys, rwTimeout(key, args[0]))
					args = append(args[:3:3], channel, args[3], "", "PUBLISH", "grants:", "")
				case "rw_write":
					args = append(args, channel, "PUBLISH", "grants:", "")
				case "rw_release":
					if !strings.HasSuffix(args[0], ":write") {
						keys = append(keys, rwTimeout(key, args[0]))
					}
					args = append(args[:1:1], channel, args[1], "PUBLISH", "grants:", "")
				case "rw_read_renew":
					keys = []string{rwTimeout(key, args[0]), keys[0], keys[1]}
				case "rw_write_renew":
					keys = keys[:2]
				case "rw_keep":
					keys[2] = key
					if !strings.HasSuffix(args[0], ":write") {
						keys[2] = rwTimeout(key, args[0])
					}
				case "rw_force":
					for _, f := range args {
						if !strings.HasSuffix(f, ":write") {
							keys = append(keys, rwTimeout(key, f))
						}
					}
					args = append([]string{channel, "PUBLISH", "grants:"}, args...)
				}
				for n := range 2 {
					want := r.reply
					if n == 1 && r.again != 0 {
						want = max(r.again, 0)
					}
					var got []int64
					var err error
					told := g.published(t, channel, func() {
						if got, err = g.run(t, r.script, keys, args...); err == nil {
							got[0] = g.trimmed(t, r.script, got[0], key)
						}
					})
					require.NoError(t, err)
					require.Equal(t, want, got[0], "run %d: %v", n+1, got)
					requireRW(t, g, key, r.after)
					if r.told != "" && !(n == 1 && r.once) {
						require.Equal(t, []string{r.told}, told, "run %d", n+1)
					} else {
						require.Empty(t, told, "run %d", n+1)
					}
				}
			})
		}
	})
}

// no is the reply 0 of a second run that follows another first.
const no = -1

func h(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func e(kv ...any) map[string]int64 {
	m := map[string]int64{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = int64(kv[i+1].(int))
	}
	return m
}

const (
	farFuture = "9999999999999"
	longAgo   = "1"
)

func TestReadAcquireScriptTable(t *testing.T) {
	t.Parallel()
	read := func(owner, notAfter, under string) []string {
		return []string{owner, rwLease, notAfter, under}
	}
	one := rwState{hash: h("mode", "read", alice, "1"), ttl: 300_000, ends: e(alice, 300_000), timeouts: e(alice, 300_000)}
	bobReads := rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}
	bobWrites := rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000}
	both := rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 300_000, ends: e(alice, 300_000, bob, 100_000),
		timeouts: e(alice, 300_000, bob, 100_000)}
	rows := []rwRow{
		{name: "a free lock is granted for the lease", args: read(alice, "0", ""), reply: 1, after: one},
		{name: "in time is granted", args: read(alice, farFuture, ""), reply: 1, after: one},
		{name: "too late does nothing", args: read(alice, longAgo, ""), reply: 2},
		{name: "too late does nothing for the holder either", before: bobReads, args: read(bob, longAgo, ""), reply: 2,
			after: bobReads},
		{name: "beside another reader, whose end stays", before: bobReads, args: read(alice, "0", ""), reply: 1, after: both},
		{name: "a shorter lease beside a longer one leaves that",
			before: rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000, ends: e(bob, 900_000)}, args: read(alice, "0", ""),
			reply: 1,
			after: rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 900_000, ends: e(alice, 300_000, bob, 900_000),
				timeouts: e(alice, 300_000)}},
		{name: "beside a reader of Java's",
			before: rwState{hash: h("mode", "read", java, "2"), ttl: 100_000,
				timeouts: e(java+":1", 50_000, java+":2", 100_000)}, args: read(alice, "0", ""), reply: 1,
			after: rwState{hash: h("mode", "read", java, "2", alice, "1"), ttl: 300_000, ends: e(alice, 300_000),
				timeouts: e(java+":1", 50_000, java+":2", 100_000, alice, 300_000)}},
		{name: "a writer keeps readers out", before: bobWrites, args: read(alice, "0", ""), reply: 0, after: bobWrites},
		{name: "a writer of Java's too", before: rwState{hash: h("mode", "write", javaW, "1"), ttl: 100_000},
			args: read(alice, "0", ""), reply: 0, after: rwState{hash: h("mode", "write", javaW, "1"), ttl: 100_000}},
		{name: "another kind of lock too", before: rwState{hash: h(bob, "1"), ttl: 100_000}, args: read(alice, "0", ""),
			reply: 0, after: rwState{hash: h(bob, "1"), ttl: 100_000}},
		{name: "a second run raises the lease", before: bobReads, args: read(bob, "0", ""), reply: 1,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 300_000, ends: e(bob, 300_000), timeouts: e(bob, 300_000)}},
		{name: "a second run never shortens", before: bobReads, args: []string{bob, "50000", "0", ""}, reply: 1,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}},
		{name: "a second run leaves the count as it is",
			before: rwState{hash: h("mode", "read", bob, "3"), ttl: 300_000, ends: e(bob, 300_000)}, args: read(bob, "0", ""),
			reply: 1,
			after: rwState{hash: h("mode", "read", bob, "3"), ttl: 300_000, ends: e(bob, 300_000), timeouts: e(bob, 300_000)}},
		{name: "the writer reads, and keeps its own end", before: bobWrites, args: read(alice, "0", bob), reply: 1,
			after: rwState{hash: h("mode", "write", bobW, "1", alice, "1"), ttl: 300_000,
				ends: e(bobW, 100_000, alice, 300_000), timeouts: e(alice, 300_000)}},
		{name: "reading under a write hold that is over is lost", before: bobReads, args: read(alice, "0", carol), reply: 3,
			after: bobReads},
		{name: "reading under a write hold whose own end has passed is lost",
			before: rwState{hash: h("mode", "write", bobW, "1", carol, "1"), ttl: 900_000,
				ends: e(bobW, -5000, carol, 900_000)}, args: read(alice, "0", bob), reply: 3,
			after: rwState{hash: h("mode", "write", bobW, "1", carol, "1"), ttl: 900_000, ends: e(bobW, -5000, carol, 900_000)}},
		{name: "a writer whose own end has passed keeps nobody out",
			before: rwState{hash: h("mode", "write", bobW, "1", carol, "1"), ttl: 900_000,
				ends: e(bobW, -5000, carol, 900_000)}, args: read(alice, "0", ""), reply: 1, told: "1", once: true,
			after: rwState{hash: h("mode", "read", alice, "1", carol, "1"), ttl: 900_000,
				ends: e(alice, 300_000, carol, 900_000), timeouts: e(alice, 300_000)}},
		{name: "what a deleted lock left of its ends is gone with the next",
			before: rwState{ends: e(bob, 900_000, carol+":write", 900_000)}, args: read(alice, "0", ""), reply: 1, after: one},
	}
	for i := range rows {
		rows[i].script = "rw_read"
	}
	runRWTable(t, rows)
}

func TestWriteAcquireScriptTable(t *testing.T) {
	t.Parallel()
	write := func(owner, notAfter string) []string {
		return []string{owner, rwLease, notAfter}
	}
	one := rwState{hash: h("mode", "write", aliceW, "1"), ttl: 300_000}
	reads := rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}
	writes := rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000}
	rows := []rwRow{
		{name: "a free lock is granted for the lease", args: write(alice, "0"), reply: 1, after: one},
		{name: "readers keep a writer out", before: reads, args: write(alice, "0"), reply: 0, after: reads},
		{name: "a reader keeps itself out", before: reads, args: write(bob, "0"), reply: 0, after: reads},
		{name: "a reader of Java's keeps a writer out", before: rwState{hash: h("mode", "read", java, "1"), ttl: 100_000},
			args: write(alice, "0"), reply: 0, after: rwState{hash: h("mode", "read", java, "1"), ttl: 100_000}},
		{name: "another writer does", before: writes, args: write(alice, "0"), reply: 0, after: writes},
		{name: "another kind of lock does", before: rwState{hash: h(bob, "1"), ttl: 100_000}, args: write(alice, "0"),
			reply: 0, after: rwState{hash: h(bob, "1"), ttl: 100_000}},
		{name: "a second run raises the lease, and the two do not add up", before: writes, args: write(bob, "0"), reply: 1,
			after: rwState{hash: h("mode", "write", bobW, "1"), ttl: 300_000}},
		{name: "a second run never shortens", before: rwState{hash: writes.hash, ttl: 900_000}, args: write(bob, "0"),
			reply: 1, after: rwState{hash: h("mode", "write", bobW, "1"), ttl: 900_000}},
		{name: "a second run of one that reads too raises its own end",
			before: rwState{hash: h("mode", "write", bobW, "1", alice, "1"), ttl: 900_000,
				ends: e(bobW, 100_000, alice, 900_000)}, args: write(bob, "0"), reply: 1,
			after: rwState{hash: h("mode", "write", bobW, "1", alice, "1"), ttl: 900_000,
				ends: e(bobW, 300_000, alice, 900_000)}},
		{name: "a dead reader keeps nobody out",
			before: rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000, ends: e(bob, -5000)}, args: write(alice, "0"),
			reply: 1, told: "1", once: true, after: one},
		{name: "a dead reader is forgotten beside a living one",
			before: rwState{hash: h("mode", "read", bob, "1", carol, "2"), ttl: 900_000, ends: e(bob, -5000, carol, 900_000)},
			args:   write(alice, "0"), reply: 0,
			after: rwState{hash: h("mode", "read", carol, "2"), ttl: 900_000, ends: e(carol, 900_000)}},
		{name: "a reader whose end is not known lives as long as the lock",
			before: rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000}, args: write(alice, "0"), reply: 0,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000}},
	}
	for i := range rows {
		rows[i].script = "rw_write"
	}
	runRWTable(t, rows)
}

func TestReadWriteReleaseScriptTable(t *testing.T) {
	t.Parallel()
	readOut := func(owner string) []string { return []string{owner, "0"} }
	writeOut := func(owner string) []string { return []string{owner + ":write", "1"} }
	rows := []rwRow{
		{name: "the last reader frees the lock and says so as Redisson does",
			before: rwState{hash: h("mode", "read", alice, "5"), ttl: 100_000, ends: e(alice, 100_000),
				timeouts: e(alice, 100_000)},
			args: readOut(alice), reply: 1, again: no, told: "0"},
		{name: "one of two readers leaves the other its end, in both directions: shorter",
			before: rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 900_000, ends: e(alice, 900_000, bob, 100_000),
				timeouts: e(alice, 900_000, bob, 100_000)},
			args: readOut(alice), reply: 1, again: no,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}},
		{name: "and longer", before: rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 900_000,
			ends: e(alice, 100_000, bob, 900_000), timeouts: e(alice, 100_000, bob, 900_000)},
			args: readOut(alice), reply: 1, again: no,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000, ends: e(bob, 900_000), timeouts: e(bob, 900_000)}},
		{name: "with none but the dead left the lock is free",
			before: rwState{hash: h("mode", "read", alice, "1", bob, "3"), ttl: 900_000, ends: e(alice, 900_000, bob, -5000)},
			args:   readOut(alice), reply: 1, again: no, told: "0"},
		{name: "a reader whose end is not known is not shortened",
			before: rwState{hash: h("mode", "read", alice, "1", bob, "1", carol, "1"), ttl: 900_000,
				ends: e(alice, 900_000, bob, 100_000)},
			args: readOut(alice), reply: 1, again: no,
			after: rwState{hash: h("mode", "read", bob, "1", carol, "1"), ttl: 900_000, ends: e(bob, 100_000)}},
		{name: "a reader of Java's keeps its end",
			before: rwState{hash: h("mode", "read", alice, "1", java, "2"), ttl: 900_000, ends: e(alice, 900_000),
				timeouts: e(alice, 900_000, java+":1", 50_000, java+":2", 400_000)},
			args: readOut(alice), reply: 1, again: no,
			after: rwState{hash: h("mode", "read", java, "2"), ttl: 400_000,
				timeouts: e(java+":1", 50_000, java+":2", 400_000)}},
		{name: "a dead reader of Java's keeps nobody out",
			before: rwState{hash: h("mode", "read", alice, "1", java, "2"), ttl: 900_000, ends: e(alice, 900_000),
				timeouts: e(alice, 900_000)},
			args: readOut(alice), reply: 1, again: no, told: "0"},
		{name: "what the writer read goes, and the lock has the writer's end again",
			before: rwState{hash: h("mode", "write", bobW, "1", alice, "1"), ttl: 900_000,
				ends: e(bobW, 100_000, alice, 900_000), timeouts: e(alice, 900_000)},
			args: readOut(alice), reply: 1, again: no,
			after: rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000, ends: e(bobW, 100_000)}},
		{name: "a reader that holds nothing releases nothing",
			before: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000)}, args: readOut(alice),
			reply: 0,
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000)}},
		{name: "of a lock that went otherwise somebody has to tell", args: readOut(alice), reply: 0, told: "0"},

		{name: "the writer frees the lock and says so as Redisson does",
			before: rwState{hash: h("mode", "write", aliceW, "3"), ttl: 100_000}, args: writeOut(alice), reply: 1, again: no,
			told: "1"},
		{name: "a writer that reads leaves the lock to readers, and they are told",
			before: rwState{hash: h("mode", "write", aliceW, "1", carol, "1"), ttl: 900_000,
				ends: e(aliceW, 900_000, carol, 100_000), timeouts: e(carol, 100_000)},
			args: writeOut(alice), reply: 1, again: no, told: "1", once: true,
			after: rwState{hash: h("mode", "read", carol, "1"), ttl: 100_000, ends: e(carol, 100_000),
				timeouts: e(carol, 100_000)}},
		{name: "a writer that holds nothing releases nothing",
			before: rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000}, args: writeOut(alice), reply: 0,
			after: rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000}},
	}
	for i := range rows {
		rows[i].script = "rw_release"
	}
	runRWTable(t, rows)
}

func TestReadWriteRenewScriptTable(t *testing.T) {
	t.Parallel()
	two := rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 100_000, ends: e(alice, 100_000, bob, 50_000),
		timeouts: e(alice, 100_000, bob, 50_000)}
	under := rwState{hash: h("mode", "write", aliceW, "1", bob, "1"), ttl: 900_000,
		ends: e(aliceW, 100_000, bob, 900_000), timeouts: e(bob, 900_000)}
	rows := []rwRow{
		{name: "a reader's lease is raised, another's is not", script: "rw_read_renew", before: two,
			args: []string{alice, rwLease}, reply: 1,
			after: rwState{hash: two.hash, ttl: 300_000, ends: e(alice, 300_000, bob, 50_000),
				timeouts: e(alice, 300_000, bob, 50_000)}},
		{name: "a renewal never shortens", script: "rw_read_renew",
			before: rwState{hash: two.hash, ttl: 900_000, ends: e(alice, 900_000, bob, 50_000),
				timeouts: e(alice, 900_000, bob, 50_000)}, args: []string{alice, rwLease}, reply: 1,
			after: rwState{hash: two.hash, ttl: 900_000, ends: e(alice, 900_000, bob, 50_000),
				timeouts: e(alice, 900_000, bob, 50_000)}},
		{name: "a look writes nothing", script: "rw_read_renew", before: two, args: []string{alice, "0"}, reply: 1,
			after: two},
		{name: "a reader that holds nothing", script: "rw_read_renew", before: two, args: []string{carol, rwLease}, reply: 0,
			after: two},
		{name: "a reader whose own end has passed has lost its hold though others keep the lock", script: "rw_read_renew",
			before: rwState{hash: two.hash, ttl: 900_000, ends: e(alice, -5000, bob, 900_000)}, args: []string{alice, rwLease},
			reply: 0,
			after: rwState{hash: two.hash, ttl: 900_000, ends: e(alice, -5000, bob, 900_000)}},
		{name: "what is missing beside a reader is put back", script: "rw_read_renew",
			before: rwState{hash: two.hash, ttl: 100_000}, args: []string{alice, rwLease}, reply: 1,
			after: rwState{hash: two.hash, ttl: 300_000, ends: e(alice, 300_000), timeouts: e(alice, 300_000)}},
		{name: "no lock, nothing renewed", script: "rw_read_renew", args: []string{alice, rwLease}, reply: 0},
		{name: "the writer's lease is raised", script: "rw_write_renew",
			before: rwState{hash: h("mode", "write", aliceW, "1"), ttl: 100_000}, args: []string{alice, rwLease}, reply: 1,
			after: rwState{hash: h("mode", "write", aliceW, "1"), ttl: 300_000}},
		{name: "the writer's own end is raised where it reads, and what it reads is not", script: "rw_write_renew",
			before: under, args: []string{alice, rwLease}, reply: 1,
			after: rwState{hash: under.hash, ttl: 900_000, ends: e(aliceW, 300_000, bob, 900_000), timeouts: under.timeouts}},
		{name: "what the writer reads is renewed alone", script: "rw_read_renew",
			before: rwState{hash: under.hash, ttl: 100_000, ends: e(aliceW, 100_000, bob, 100_000), timeouts: e(bob, 100_000)},
			args:   []string{bob, rwLease}, reply: 1,
			after: rwState{hash: under.hash, ttl: 300_000, ends: e(aliceW, 100_000, bob, 300_000), timeouts: e(bob, 300_000)}},
		{name: "a look at the writer writes nothing", script: "rw_write_renew", before: under, args: []string{alice, "0"},
			reply: 1, after: under},
		{name: "a reader is no writer", script: "rw_write_renew", before: two, args: []string{alice, rwLease}, reply: 0,
			after: two},
		{name: "a writer whose own end has passed has lost its hold though it reads", script: "rw_write_renew",
			before: rwState{hash: under.hash, ttl: 900_000, ends: e(aliceW, -5000, bob, 900_000)},
			args:   []string{alice, rwLease}, reply: 0,
			after: rwState{hash: under.hash, ttl: 900_000, ends: e(aliceW, -5000, bob, 900_000)}},
	}
	runRWTable(t, rows)
}

func TestReadWriteKeepScriptTable(t *testing.T) {
	t.Parallel()
	keep := func(field string) []string { return []string{field, rwLease} }
	begin := func(field string) []string { return []string{field, rwLease, "1"} } // of an owner that goes on
	reads := func(alice0, bob0, ttl int) rwState {
		return rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: int64(ttl), ends: e(alice, alice0, bob, bob0),
			timeouts: e(alice, alice0, bob, bob0)}
	}
	writes := func(ttl int64) rwState { return rwState{hash: h("mode", "write", aliceW, "1"), ttl: ttl} }
	under := func(alice0 int) rwState {
		return rwState{hash: h("mode", "write", aliceW, "1", bob, "1"), ttl: 900_000, ends: e(aliceW, alice0, bob, 900_000),
			timeouts: e(bob, 900_000)}
	}
	rows := []rwRow{
		{name: "a reader's end is set, and another's is not", before: reads(900_000, 100_000, 900_000), args: keep(alice),
			reply: 1, after: reads(300_000, 100_000, 300_000)},
		{name: "a reader that begins lasts longer, and another does not", before: reads(100_000, 50_000, 100_000),
			args: begin(alice), reply: 1, after: reads(300_000, 50_000, 300_000)},
		{name: "a reader that begins keeps an end that is later", before: reads(900_000, 100_000, 900_000),
			args: begin(alice), reply: 1, after: reads(900_000, 100_000, 900_000)},
		{name: "a reader that holds nothing does not begin", before: reads(900_000, 100_000, 900_000), args: begin(carol),
			reply: 0, after: reads(900_000, 100_000, 900_000)},
		{name: "a reader whose own end has passed does not begin", args: begin(alice), reply: 0,
			before: rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 900_000, ends: e(alice, -5000, bob, 900_000),
				timeouts: e(bob, 900_000)},
			after: rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 900_000, ends: e(alice, -5000, bob, 900_000),
				timeouts: e(bob, 900_000)}},
		{name: "the writer's end is set", before: writes(900_000), args: keep(aliceW), reply: 1, after: writes(300_000)},
		{name: "a writer that begins lasts longer", before: writes(100_000), args: begin(aliceW), reply: 1,
			after: writes(300_000)},
		{name: "a writer that begins keeps an end that is later", before: writes(900_000), args: begin(aliceW), reply: 1,
			after: writes(900_000)},
		{name: "the end of a writer that reads is set", before: under(600_000), args: keep(aliceW), reply: 1,
			after: under(300_000)},
		{name: "a writer that reads and begins lasts longer", before: under(100_000), args: begin(aliceW), reply: 1,
			after: under(300_000)},
		{name: "a writer that reads and begins keeps its own end if that is later", before: under(600_000),
			args: begin(aliceW), reply: 1, after: under(600_000)},
		{name: "no lock, nothing begins", args: begin(aliceW), reply: 0},
	}
	for i := range rows {
		rows[i].script = "rw_keep"
	}
	runRWTable(t, rows)
}

func TestReadWriteForceScriptTable(t *testing.T) {
	t.Parallel()
	rows := []rwRow{
		{name: "readers are removed with what belongs to them",
			before: rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 900_000, ends: e(alice, 900_000, bob, 100_000),
				timeouts: e(alice, 900_000, bob, 100_000)},
			args: []string{alice, bob}, reply: 2, again: no, told: "1"},
		{name: "who came since stays",
			before: rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 900_000, ends: e(alice, 900_000, bob, 100_000),
				timeouts: e(alice, 900_000, bob, 100_000)},
			args: []string{alice}, reply: 1, again: no, told: "1",
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}},
		{name: "a reader of Java's that stays keeps its end",
			before: rwState{hash: h("mode", "read", alice, "1", java, "1"), ttl: 900_000, ends: e(alice, 900_000),
				timeouts: e(alice, 900_000, java+":1", 50_000)},
			args: []string{alice}, reply: 1, again: no, told: "1",
			after: rwState{hash: h("mode", "read", java, "1"), ttl: 50_000, timeouts: e(java+":1", 50_000)}},
		{name: "without its writer a lock is its readers'",
			before: rwState{hash: h("mode", "write", aliceW, "1", bob, "1"), ttl: 900_000,
				ends: e(aliceW, 900_000, bob, 100_000)},
			args: []string{aliceW}, reply: 1, again: no, told: "1",
			after: rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000)}},
		{name: "a writer of Java's", before: rwState{hash: h("mode", "write", javaW, "1"), ttl: 900_000},
			args: []string{javaW}, reply: 1, again: no, told: "1"},
	}
	for i := range rows {
		rows[i].script = "rw_force"
	}
	runRWTable(t, rows)
}

// Between the look at the hash and rw_trim a reader of Redisson's may have come, or may have read once more: nothing is
// done then.
func TestALockIsTrimmedOnlyIfAllItsReadersAreKnown(t *testing.T) {
	t.Parallel()
	const other = "0b7c2d3e-1111-4222-8333-444455556666:7"
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		for name, hash := range map[string]map[string]string{
			"one has come":             h("mode", "read", java, "1", other, "1"),
			"one has read again":       h("mode", "read", java, "2"),
			"one of ours has no end":   h("mode", "read", java, "1", carol, "1"),
			"no one is left":           h("mode", "read", other, "1"),
			"another one in its place": h("mode", "read", other, "1", carol, "1"),
		} {
			g.must(t, "FLUSHALL")
			before := rwState{hash: hash, ttl: 900_000, timeouts: e(java+":1", 50_000)}
			before.write(t, g, "rw")
			for range 2 {
				_, err := g.run(t, "rw_trim", []string{"rw", "redlatch_rw:{rw}", "redlatch_rwq:{rw}", rwTimeout("rw", java)},
					"redisson_rwlock:{rw}", "PUBLISH", "grants:", java, "1", "1")
				require.NoError(t, err, name)
				requireRW(t, g, "rw", before)
			}
		}
	})
}

func TestReadWriteLockedScriptTable(t *testing.T) {
	t.Parallel()
	two := rwState{hash: h("mode", "read", alice, "2", bob, "1", java, "4"), ttl: 900_000,
		ends: e(alice, 900_000, bob, -5000)}
	under := rwState{hash: h("mode", "write", aliceW, "3", bob, "1"), ttl: 900_000, ends: e(aliceW, 100_000, bob, 900_000)}
	rows := []struct {
		name    string
		before  rwState
		readers int64
		writers int64
	}{
		{"free", rwState{}, 0, 0},
		{"another kind of lock", rwState{hash: h(alice, "1"), ttl: 100_000}, 0, 0},
		{"readers, without the dead", two, 2, 0},
		{"a writer that reads, too", under, 1, 1},
		{"a writer that does not", rwState{hash: h("mode", "write", aliceW, "1"), ttl: 100_000}, 0, 1},
		{"a dead writer", rwState{hash: under.hash, ttl: 900_000, ends: e(aliceW, -5000, bob, 900_000)}, 1, 0},
		{"without end", rwState{hash: h("mode", "write", javaW, "1")}, 0, 1},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		for i, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				key := fmt.Sprint("q", i)
				r.before.write(t, g, key)
				for side, want := range map[string]int64{"read": r.readers, "write": r.writers} {
					got, err := g.run(t, "rw_locked", []string{key, "redlatch_rw:{" + key + "}"}, side)
					require.NoError(t, err)
					require.Equal(t, []int64{want}, got, side)
					requireRW(t, g, key, r.before)
				}
			})
		}
	})
}

func TestARenewBatchOfReadersAnswersForEachAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 100_000, ends: e(alice, 100_000, bob, 100_000),
			timeouts: e(alice, 100_000, bob, 100_000)}.write(t, g, "l")
		g.must(t, "SET", "text", "x")
		g.must(t, "SET", "redlatch_rw:{odd}", "x")
		g.must(t, "HSET", "odd", "mode", "read", alice, "1")
		var keys, args []string
		for _, c := range [][2]string{{"l", alice}, {"text", alice}, {"odd", alice}, {"l", carol}, {"none", bob},
			{"l", bob}} {
			keys = append(keys, rwTimeout(c[0], c[1]), c[0], "redlatch_rw:{"+c[0]+"}")
			args = append(args, c[1], strconv.Itoa(200_000))
		}
		got, err := g.run(t, "rw_read_renew", keys, args...)
		require.NoError(t, err)
		require.Equal(t, []int64{1, -2, -2, 0, 0, 1}, got)
		requireRW(t, g, "l", rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 200_000,
			ends: e(alice, 200_000, bob, 200_000), timeouts: e(alice, 200_000, bob, 200_000)})
	})
}

func TestAReadOrWriteHoldIsRenewedKeyByKeyAsItIsWithAllOfThem(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		n := 0
		two := rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 100_000, ends: e(alice, 100_000, bob, 50_000),
			timeouts: e(alice, 100_000, bob, 50_000)}
		under := rwState{hash: h("mode", "write", aliceW, "1", bob, "1"), ttl: 100_000,
			ends: e(aliceW, 100_000, bob, 50_000), timeouts: e(bob, 50_000)}
		for _, r := range []struct {
			name, script, owner, lease string
			before                     rwState
			reply                      []int64 // by key
			after                      rwState
		}{
			{"a reader's", "rw_read_renew", alice, rwLease, two, []int64{1, 1, 1},
				rwState{hash: two.hash, ttl: 300_000, ends: e(alice, 300_000, bob, 50_000),
					timeouts: e(alice, 300_000, bob, 50_000)}},
			{"never shortened", "rw_read_renew", alice, "1000", two, []int64{1, 1, 1}, two},
			{"a look at a reader", "rw_read_renew", alice, "0", two, []int64{1, 1, 1}, two},
			{"what is missing beside a reader is put back", "rw_read_renew", alice, rwLease,
				rwState{hash: two.hash, ttl: 100_000}, []int64{1, 1, 1},
				rwState{hash: two.hash, ttl: 300_000, ends: e(alice, 300_000), timeouts: e(alice, 300_000)}},
			{"a look at one that holds nothing", "rw_read_renew", carol, "0", two, []int64{1, 0, 1}, two},
			{"a reader whose end has passed", "rw_read_renew", alice, "0",
				rwState{hash: two.hash, ttl: 100_000, ends: e(alice, -5000)}, []int64{1, 1, 0},
				rwState{hash: two.hash, ttl: 100_000, ends: e(alice, -5000)}},
			{"a writer's", "rw_write_renew", alice, rwLease, rwState{hash: h("mode", "write", aliceW, "1"), ttl: 100_000},
				[]int64{1, 1},
				rwState{hash: h("mode", "write", aliceW, "1"), ttl: 300_000}},
			{"of a writer who reads", "rw_write_renew", alice, rwLease, under, []int64{1, 1},
				rwState{hash: under.hash, ttl: 300_000, ends: e(aliceW, 300_000, bob, 50_000), timeouts: e(bob, 50_000)}},
			{"a look at a writer", "rw_write_renew", alice, "0", under, []int64{1, 1}, under},
			{"a reader is no writer", "rw_write_renew", alice, rwLease, two, []int64{0, 1}, two},
			{"a writer whose end has passed", "rw_write_renew", alice, "0",
				rwState{hash: under.hash, ttl: 100_000, ends: e(aliceW, -5000)}, []int64{1, 0},
				rwState{hash: under.hash, ttl: 100_000, ends: e(aliceW, -5000)}},
		} {
			t.Run(r.name, func(t *testing.T) {
				n++
				key := "l" + strconv.Itoa(n)
				r.before.write(t, g, key)
				keys := []string{key, "redlatch_rw:{" + key + "}"}
				if r.script == "rw_read_renew" {
					keys = append([]string{rwTimeout(key, r.owner)}, keys...)
				}
				for range 2 {
					for i, k := range keys {
						got, err := g.run(t, r.script, []string{k}, r.owner, r.lease, strconv.Itoa(i+1))
						require.NoError(t, err)
						require.Equal(t, r.reply[i:i+1], got, "key %d", i+1)
					}
				}
				requireRW(t, g, key, r.after)
			})
		}
		g.must(t, "SET", "text", "x")
		for _, c := range [][]string{{"rw_read_renew", "2"}, {"rw_read_renew", "3"}, {"rw_write_renew", "1"},
			{"rw_write_renew", "2"}} {
			got, err := g.run(t, c[0], []string{"text"}, alice, rwLease, c[1])
			require.NoError(t, err)
			require.Equal(t, []int64{-2}, got, "%v", c)
		}
	})
}

// The watchdog asks so after the machine may have slept. What ends first counts: the key, or the owner's own end.
func TestALookThatAsksForHowLongIsToldByEveryKind(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		at := func(off int64) string { return strconv.FormatInt(g.now(t)+off, 10) }
		g.must(t, "HSET", "one", alice, "1")
		g.must(t, "HSET", "endless", alice, "1")
		g.must(t, "HSET", "joined", alice, "1", alice+"!", at(200_000), bob, "1", bob+"!", at(900_000))
		g.must(t, "SET", "plain", alice)
		for key, ms := range map[string]string{"one": "100000", "joined": "900000", "plain": "300000"} {
			g.must(t, "PEXPIRE", key, ms)
		}
		rwState{hash: h("mode", "read", alice, "1", bob, "1"), ttl: 900_000, ends: e(alice, 400_000, bob, 900_000)}.write(t,
			g, "r")
		rwState{hash: h("mode", "read", alice, "1"), ttl: 450_000}.write(t, g, "java")
		rwState{hash: h("mode", "write", aliceW, "1"), ttl: 500_000}.write(t, g, "w")
		rwState{hash: h("mode", "write", aliceW, "1", bob, "1"), ttl: 900_000,
			ends: e(aliceW, 600_000, bob, 900_000)}.write(t, g, "under")
		ends := func(n string) string { return "redlatch_rw:{" + n + "}" }
		for _, c := range []struct {
			script string
			keys   []string
			which  string
			left   int64 // 0: not said
		}{
			{"renew", []string{"one"}, "", 100_000},
			{"renew", []string{"endless"}, "", 0},
			{"renew", []string{"joined"}, "", 200_000},
			{"plain_renew", []string{"plain"}, "", 300_000},
			{"rw_read_renew", []string{rwTimeout("r", alice), "r", ends("r")}, "", 400_000},
			{"rw_read_renew", []string{rwTimeout("java", alice), "java", ends("java")}, "", 450_000},
			{"rw_write_renew", []string{"w", ends("w")}, "", 500_000},
			{"rw_write_renew", []string{"under", ends("under")}, "", 600_000},
			{"rw_read_renew", []string{rwTimeout("r", alice)}, "1", 0},
			{"rw_read_renew", []string{"r"}, "2", 900_000},
			{"rw_read_renew", []string{ends("r")}, "3", 400_000},
			{"rw_write_renew", []string{"under"}, "1", 900_000},
			{"rw_write_renew", []string{ends("under")}, "2", 600_000},
			{"rw_write_renew", []string{ends("w")}, "2", 0},
		} {
			if g.src[c.script] == "" {
				g.src[c.script] = source(t, c.script)
			}
			args := []string{alice, "-1"}
			if c.which != "" {
				args = append(args, c.which)
			}
			for range 2 {
				got, err := g.run(t, c.script, c.keys, args...)
				require.NoError(t, err)
				if c.left == 0 {
					require.Equal(t, []int64{1}, got, "%v", c)
					continue
				}
				require.LessOrEqual(t, got[0], 1+c.left, "%v", c)
				require.Greater(t, got[0], c.left-30_000, "%v", c)
			}
		}
	})
}

func TestWhileASlotMovesReadsWaitAndWritersUseTheLockAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		_, err := g.run(t, "rw_read", []string{"l"}, alice, rwLease, "0", "c", "", "")
		require.ErrorContains(t, err, "TRYAGAIN")
		requireRW(t, g, "l", rwState{})
		got, err := g.run(t, "rw_write", []string{"l"}, alice, rwLease, "0", "c", "PUBLISH")
		require.NoError(t, err)
		require.EqualValues(t, 1, got[0])
		got, err = g.run(t, "rw_write", []string{"l"}, bob, rwLease, "0", "c", "PUBLISH")
		require.NoError(t, err)
		require.EqualValues(t, 0, got[0])
		requireRW(t, g, "l", rwState{hash: h("mode", "write", aliceW, "1"), ttl: 300_000})
		got, err = g.run(t, "rw_release", []string{"l"}, aliceW, "c", "1")
		require.NoError(t, err)
		require.EqualValues(t, 1, got[0])
		requireRW(t, g, "l", rwState{})
		rwState{hash: h("mode", "read", alice, "1"), ttl: 100_000, ends: e(alice, 100_000)}.write(t, g, "l")
		got, err = g.run(t, "rw_release", []string{"l"}, alice, "c", "0")
		require.NoError(t, err)
		require.EqualValues(t, 1, got[0])
		requireRW(t, g, "l", rwState{ends: e(alice, 100_000)})
	})
}

func TestAFullServerStillRenewsAndReleasesReadersAndWriters(t *testing.T) {
	t.Parallel()
	g := newRWRig(t, redistest.Start(t))
	rwState{hash: h("mode", "read", alice, "2", bob, "1"), ttl: 100_000, ends: e(alice, 100_000, bob, 100_000),
		timeouts: e(alice, 100_000)}.write(t, g, "r")
	rwState{hash: h("mode", "write", aliceW, "2", bob, "1"), ttl: 900_000,
		ends: e(aliceW, 100_000, bob, 900_000)}.write(t, g, "w")
	g.must(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	g.must(t, "CONFIG", "SET", "maxmemory", "1")
	ends := func(n string) string { return "redlatch_rw:{" + n + "}" }
	line := func(n string) string { return "redlatch_rwq:{" + n + "}" }
	for _, c := range []struct {
		script string
		keys   []string
		args   []string
		want   int64
	}{
		{"rw_read_renew", []string{rwTimeout("r", alice), "r", ends("r")}, []string{alice, rwLease}, 1},
		{"rw_read_renew", []string{rwTimeout("r", bob), "r", ends("r")}, []string{bob, "200000"}, 1},
		{"rw_write_renew", []string{"w", ends("w")}, []string{alice, rwLease}, 1},
		{"rw_read_renew", []string{rwTimeout("other", alice)}, []string{alice, "1000", "1"}, 1},
		{"rw_read_renew", []string{"r"}, []string{alice, "310000", "2"}, 1},
		{"rw_read_renew", []string{ends("r")}, []string{alice, "310000", "3"}, 1},
		{"rw_write_renew", []string{"w"}, []string{alice, "310000", "1"}, 1},
		{"rw_write_renew", []string{ends("w")}, []string{alice, "310000", "2"}, 1},
		{"rw_release", []string{"r", ends("r"), line("r"), rwTimeout("r", alice)},
			[]string{alice, "c", "0", "PUBLISH", "g:", ""}, 1},
		{"rw_release", []string{"w", ends("w"), line("w")}, []string{aliceW, "c", "1", "PUBLISH", "g:", ""}, 1},
	} {
		got, err := g.run(t, c.script, c.keys, c.args...)
		require.NoError(t, err, c.script)
		require.Equal(t, []int64{c.want}, got, c.script)
	}
	requireRW(t, g, "r", rwState{hash: h("mode", "read", bob, "1"), ttl: 200_000, ends: e(bob, 200_000),
		timeouts: e(bob, 200_000)})
	requireRW(t, g, "w", rwState{hash: h("mode", "read", bob, "1"), ttl: 900_000, ends: e(bob, 900_000)})
	for script, args := range map[string][]string{"rw_read": {"c", "", "", "PUBLISH", "g:", ""},
		"rw_write": {"c", "PUBLISH", "g:", ""}} {
		_, err := g.run(t, script, []string{"new", ends("new"), line("new"), "{new}:t"},
			append([]string{carol, rwLease, "0"}, args...)...)
		require.ErrorContains(t, err, "OOM")
		requireRW(t, g, "new", rwState{})
	}
}
