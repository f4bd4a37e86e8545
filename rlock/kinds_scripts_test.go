package rlock_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	engine "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
)

// composed are the texts of scripts, by name.
var composed sync.Map

// source is the text of a script as it is sent.
func source(t testing.TB, name string) string {
	t.Helper()
	if text, ok := composed.Load(name); ok {
		return text.(string)
	}
	text, err := script.Compose(os.DirFS("."), name)
	require.NoError(t, err)
	composed.Store(name, text)
	return text
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

func TestFairPoll_ManyWait_CostsTheSame(t *testing.T) {
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
			[]string{alice, "300000", "0", "PUBLISH", "c", "3000", "g:", fairEntry(alice, 4000, 3000)})
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
		if name != "ping" { // which a client sends when the machine is slow
			require.Equal(t, few[name], many[name], name)
		}
	}
	require.Less(t, most, 10*usec, "50 polls among 10: %d µs, among 5000: %d µs", usec, most)
}

// Dead waiters are passed over, and no single call is long for it.
func TestFairQueue_ManyWaitersDead_AreDroppedInFewCalls(t *testing.T) {
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
			left := wire.Number(t, g.c, "LLEN", keys[1])
			require.Less(t, left, before)
			require.Greater(t, left, before-300)
			before = left
		}
		require.Equal(t, map[string]string{alice: "1"}, wire.Hash(t, g.c, "l"))
		left := wire.Number(t, g.c, "EXISTS", keys[1], keys[2], keys[3])
		require.Zero(t, left)
	})
}

// The scripts and the client must have one idea of who is an owner of this library: the client removes, when a
// heartbeat is missing, the holds of those that it takes for ours, and a script tells waiters whether the holder is
// one.
func TestOwners_InLuaAndGo_AreRecognizedAlike(t *testing.T) {
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
			"is_ours(id) and 1 or 0\nend\nreturn r\n")},
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
