package rlock_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// fairPlace is a waiter in a fair queue.
type fairPlace struct {
	owner  string
	dead   int64 // counts as dead in so many ms
	ticket int64 // 0: it has no place, and cannot be handed the lock
}

// fairFirst and fairPatience are in all places of the tables, in ms.
const (
	fairFirst    = 40_000
	fairPatience = 28_000
)

func fairKeys(name string) []string {
	return []string{name, "redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}",
		"redlatch_fair:{" + name + "}"}
}

func (g *scriptRig) fairLine(t *testing.T, keys []string, line ...fairPlace) {
	t.Helper()
	for _, w := range line {
		g.must(t, "RPUSH", keys[1], w.owner)
		g.must(t, "ZADD", keys[2], strconv.FormatInt(g.now(t)+w.dead, 10), w.owner)
		if w.ticket > 0 {
			g.must(t, "HSET", keys[3], w.owner, fmt.Sprintf("%d %d %d", w.ticket, fairFirst, fairPatience))
		}
	}
}

// fairOrder is who stands in line, and who of them has a place.
func (g *scriptRig) fairOrder(t *testing.T, keys []string) (order, places []string) {
	t.Helper()
	order, err := g.do(t, "LRANGE", keys[1], "0", "-1").AsStrSlice()
	require.NoError(t, err)
	scores, err := g.do(t, "ZRANGE", keys[2], "0", "-1").AsStrSlice()
	require.NoError(t, err)
	require.ElementsMatch(t, order, scores)
	m, err := g.do(t, "HGETALL", keys[3]).AsStrMap()
	require.NoError(t, err)
	return order, slices.Sorted(maps.Keys(m))
}

func TestFairScriptsHandTheLockOver(t *testing.T) {
	t.Parallel()
	one := func(owner string) map[string]string { return map[string]string{owner: "1"} }
	// Those of bob and carol hear grants, dave's process is gone.
	const dave = "3c4d5e6f-5a1e-8c61-9d0a-6f4f3a2b1c0d:4"
	// of one that asked just now; for more than half its patience not
	const asked, silent, far = fairPatience, fairPatience / 4, 600_000
	acquire := func(owner, patience, first string) []string {
		return []string{owner, "300000", "0", "PUBLISH", "CHANNEL", patience, "grants:", first}
	}
	waits := acquire(alice, "3000", "4000")
	release := []string{alice, "CHANNEL", "PUBLISH", "", "grants:"}
	granted := func(owner string, ticket int64) string {
		return fmt.Sprintf("grants:%s %d %d %s", owner[:36], ticket, fairFirst, owner)
	}
	for i, c := range []struct {
		name, script string
		before       map[string]string
		line         []fairPlace
		args         []string
		// the first number, and where there are three, the fourth (-1: any ticket) and fifth; again nil: the same
		reply, again []int64
		after        map[string]string
		order        []string
		places       []string
		told, later  []string // what is published by the first run, and by the second
	}{
		{name: "held: a place and its ticket", script: "fair_acquire", before: one(bob), args: waits,
			reply: []int64{0, -1, 0}, after: one(bob), order: []string{alice}, places: []string{alice}},
		{name: "held: keeps its ticket", script: "fair_acquire", before: one(bob),
			line: []fairPlace{{carol, asked, 70}, {alice, asked, 71}}, args: waits, reply: []int64{0, 71, 0}, after: one(bob),
			order: []string{carol, alice}, places: []string{alice, carol}},
		{name: "held: hears no grants, and is told on its own channel", script: "fair_acquire", before: one(bob),
			line: []fairPlace{{alice, asked, 71}}, args: acquire(alice, "3000", ""), reply: []int64{0, 0, 1}, after: one(bob),
			order: []string{alice}},
		{name: "held by Redisson: its release will be told on its own channel", script: "fair_acquire", before: one(java),
			args: waits, reply: []int64{0, -1, 1}, after: one(java), order: []string{alice}, places: []string{alice}},
		{name: "Redisson is first", script: "fair_acquire", before: one(bob),
			line: []fairPlace{{java, far, 0}, {carol, far, 70}, {alice, far, 71}}, args: waits, reply: []int64{0, 71, 1},
			after: one(bob), order: []string{java, carol, alice}, places: []string{alice, carol}},
		{name: "free and first: takes it", script: "fair_acquire", line: []fairPlace{{alice, asked, 71}, {carol, asked, 72}},
			args: waits, reply: []int64{1}, after: one(alice), order: []string{carol}, places: []string{carol}},
		{name: "free, another is first: it is handed over", script: "fair_acquire", line: []fairPlace{{carol, asked, 70}},
			args: waits, reply: []int64{0, -1, 0}, after: one(carol), order: []string{alice}, places: []string{alice},
			told: []string{granted(carol, 70)}},
		{name: "free, another is first: asks once", script: "fair_acquire", line: []fairPlace{{carol, asked, 70}},
			args: acquire(alice, "", ""), reply: []int64{0, 0, 0}, after: one(carol), told: []string{granted(carol, 70)}},
		{name: "free, Redisson is first", script: "fair_acquire", line: []fairPlace{{java, far, 0}, {carol, far, 70}},
			args: waits, reply: []int64{0, -1, 1}, order: []string{java, carol, alice}, places: []string{alice, carol},
			told: []string{"CHANNEL:" + java + " 0"}, later: []string{"CHANNEL:" + java + " 0"}},
		{name: "free, who is first is dead", script: "fair_acquire", line: []fairPlace{{bob, -1, 69}, {carol, asked, 70}},
			args: waits, reply: []int64{0, -1, 0}, after: one(carol), order: []string{alice}, places: []string{alice},
			told: []string{granted(carol, 70)}},

		{name: "to the first", script: "fair_release", before: one(alice),
			line: []fairPlace{{carol, asked, 70}, {bob, asked, 71}}, args: release, reply: []int64{1}, again: []int64{0},
			after: one(carol), order: []string{bob}, places: []string{bob}, told: []string{granted(carol, 70)}},
		{name: "to the only one", script: "fair_release", before: one(alice), line: []fairPlace{{carol, asked, 70}},
			args: release, reply: []int64{1}, again: []int64{0}, after: one(carol), told: []string{granted(carol, 70)}},
		{name: "Redisson is first, and nobody is served past it", script: "fair_release", before: one(alice),
			line: []fairPlace{{java, far, 0}, {bob, far, 71}}, args: release, reply: []int64{1}, again: []int64{0},
			order: []string{java, bob}, places: []string{bob}, told: []string{"CHANNEL:" + java + " 0"},
			later: []string{"CHANNEL:" + java + " 0"}},
		{name: "the first hears no grants", script: "fair_release", before: one(alice),
			line: []fairPlace{{carol, asked, 0}, {bob, asked, 71}}, args: release, reply: []int64{1}, again: []int64{0},
			order: []string{carol, bob}, places: []string{bob}, told: []string{"CHANNEL:" + carol + " 0"},
			later: []string{"CHANNEL:" + carol + " 0"}},
		{name: "whose process is gone is passed over", script: "fair_release", before: one(alice),
			line: []fairPlace{{dave, silent, 69}, {dave + "1", silent, 70}, {bob, asked, 71}}, args: release, reply: []int64{1},
			again: []int64{0}, after: one(bob), told: []string{granted(bob, 71)}},
		{name: "whose process has lost its subscription keeps its place", script: "fair_release", before: one(alice),
			line: []fairPlace{{dave, asked, 69}, {bob, asked, 71}}, args: release, reply: []int64{1}, again: []int64{0},
			order: []string{dave, bob}, places: []string{dave, bob}},
		{name: "who gave up leaves with its place", script: "fair_release", before: one(bob),
			line: []fairPlace{{carol, asked, 70}, {alice, asked, 71}},
			args: []string{alice, "CHANNEL", "PUBLISH", "3000", "grants:"}, reply: []int64{0}, after: one(bob),
			order: []string{carol}, places: []string{carol}},
		{name: "who gave up and had been handed it passes it on", script: "fair_release", before: one(alice),
			line: []fairPlace{{carol, asked, 70}}, args: []string{alice, "CHANNEL", "PUBLISH", "3000", "grants:"},
			reply: []int64{1}, again: []int64{0}, after: one(carol), told: []string{granted(carol, 70)}},
		{name: "several that gave up leave together, and one of them had been handed it", script: "fair_release",
			before: one(alice), line: []fairPlace{{alice + "1", asked, 69}, {alice + "2", asked, 70}, {carol, asked, 71},
				{bob, asked, 72}, {alice + "3", asked, 73}},
			args:  []string{alice + "2", "CHANNEL", "PUBLISH", "3000", "grants:", alice + "1", alice, alice + "3"},
			reply: []int64{1}, again: []int64{0}, after: one(carol), order: []string{bob}, places: []string{bob},
			told: []string{granted(carol, 71)}},
		{name: "several that gave up leave together, and another holds it", script: "fair_release", before: one(bob),
			line: []fairPlace{{alice + "1", asked, 69}, {carol, asked, 71}},
			args: []string{alice, "CHANNEL", "PUBLISH", "", "grants:", alice + "1"}, reply: []int64{0}, after: one(bob),
			order: []string{carol}, places: []string{carol}},

		{name: "to the first", script: "fair_force", before: one(java), line: []fairPlace{{carol, asked, 70}},
			args: []string{"CHANNEL", "PUBLISH", "grants:", java}, reply: []int64{1}, again: []int64{0}, after: one(carol),
			told: []string{granted(carol, 70)}},
	} {
		t.Run(c.script+": "+c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				g := newScriptRig(t, s)
				src, keys := source(t, c.script), fairKeys(fmt.Sprint("fair", i))
				heard, _ := overhear(t, g.c, []string{"grants:" + bob[:36], "grants:" + carol[:36]}, "CHANNEL:*")
				for f, v := range c.before {
					g.must(t, "HSET", keys[0], f, v)
					g.must(t, "PEXPIRE", keys[0], "100000")
				}
				g.fairLine(t, keys, c.line...)
				for run, want := range [][]int64{c.reply, c.again} {
					if want == nil {
						want = c.reply
					}
					got, err := eval(t, g.c, src, keys, c.args...)
					require.NoError(t, err)
					require.Equal(t, want[0], got[0], "run %d: %v", run+1, got)
					if len(want) == 3 {
						if want[1] < 0 {
							require.Positive(t, got[3], "run %d: %v", run+1, got)
							want = []int64{0, got[3], want[2]}
						}
						require.Equal(t, want[1:], got[3:], "run %d: %v", run+1, got)
					}
					told := c.told
					if run > 0 {
						told = c.later
					}
					require.Equal(t, told, heard(), "run %d", run+1)
					held := g.look(t, keys[0])
					require.Equal(t, c.after, held.hash, "run %d", run+1)
					if len(c.told) > 0 && strings.HasPrefix(c.told[0], "grants:") {
						require.InDelta(t, fairFirst, held.left, 30_000, "with the waiter's own first lease")
					}
					order, places := g.fairOrder(t, keys)
					require.Equal(t, fmt.Sprint(c.order), fmt.Sprint(order))
					require.Equal(t, fmt.Sprint(slices.Sorted(slices.Values(c.places))), fmt.Sprint(places))
				}
			})
		})
	}
}

// What is handed to a waiter that is about to give up would not reach it in time. The script hands it nothing from that
// millisecond on, by what it last said when it asked.
func TestFairScriptsPassOverThoseThatAreAboutToLeave(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		heard, _ := overhear(t, g.c, []string{"grants:" + alice[:36], "grants:" + bob[:36], "grants:" + carol[:36]},
			"CHANNEL:*")
		waits := func(keys []string, owner string, leaves ...string) {
			t.Helper()
			_, err := eval(t, g.c, source(t, "fair_acquire"), keys,
				append([]string{owner, "300000", "0", "PUBLISH", "CHANNEL", "28000", "grants:", "40000"}, leaves...)...)
			require.NoError(t, err)
		}
		ms := func(in int64) string { return strconv.FormatInt(g.now(t)+in, 10) }
		for i, c := range []struct {
			name  string
			line  func(keys []string)
			first string // who is handed the lock, "" if nobody is
			stay  []string
		}{
			{"whose time is over", func(keys []string) { waits(keys, alice, ms(0)); waits(keys, bob, ms(60_000)) }, bob, nil},
			{"all but one, which does not say", func(keys []string) {
				waits(keys, alice, ms(-1))
				waits(keys, alice+"1", ms(-5000))
				waits(keys, bob)
				waits(keys, carol)
			}, bob, []string{carol}},
			{"who has time", func(keys []string) { waits(keys, alice, ms(60_000)); waits(keys, bob) }, alice, []string{bob}},
			{"who says so only when it asks again", func(keys []string) {
				waits(keys, alice)
				waits(keys, bob)
				waits(keys, alice, ms(0))
			}, bob, nil},
			{"who had said so, and asks again without", func(keys []string) {
				waits(keys, alice, ms(0))
				waits(keys, alice)
			}, "", nil},
			{"all", func(keys []string) { waits(keys, alice, ms(0)); waits(keys, bob, ms(0)) }, "", nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				keys := fairKeys(fmt.Sprint("leaving", i))
				g.must(t, "HSET", keys[0], java, "1")
				c.line(keys)
				got, err := eval(t, g.c, source(t, "fair_release"), keys, java, "CHANNEL", "PUBLISH", "", "grants:")
				require.NoError(t, err)
				require.Equal(t, []int64{1}, got)
				told := heard()
				if c.first == "" {
					require.Empty(t, told)
					require.Empty(t, g.look(t, keys[0]).hash)
				} else {
					require.Len(t, told, 1)
					require.True(t, strings.HasSuffix(told[0], " "+c.first), told)
					require.Equal(t, map[string]string{c.first: "1"}, g.look(t, keys[0]).hash)
				}
				order, places := g.fairOrder(t, keys)
				require.Equal(t, fmt.Sprint(c.stay), fmt.Sprint(order), "those that were passed over are out of the line")
				require.Equal(t, fmt.Sprint(c.stay), fmt.Sprint(places))
			})
		}
	})
}

// A fair grant that may not be published is undone: the first in line keeps its place, and takes the lock when it asks.
func TestAFairGrantThatMayNotBePublishedIsUndone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	g.must(t, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels", "&redisson_lock__channel:*")
	o := s.Option()
	o.Username, o.Password = "limited", "secret"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	heard, _ := overhear(t, g.c, []string{"grants:" + carol[:36]}, "")
	keys := fairKeys("l")
	g.must(t, "HSET", keys[0], alice, "1")
	g.fairLine(t, keys, fairPlace{carol, fairPatience, 70}, fairPlace{bob, fairPatience, 71})
	for _, want := range []int64{1, 0} {
		got, err := eval(t, c, source(t, "fair_release"), keys, alice, "redisson_lock__channel:{l}", "PUBLISH", "", "grants:")
		require.NoError(t, err)
		require.Equal(t, []int64{want}, got)
		requireTTL(t, gone, snapshot{}, g.look(t, keys[0]))
		order, places := g.fairOrder(t, keys)
		require.Equal(t, []string{carol, bob}, order)
		require.Len(t, places, 2)
		require.Empty(t, heard())
	}
	got, err := eval(t, c, source(t, "fair_acquire"), keys, carol, "300000", "0", "PUBLISH", "redisson_lock__channel:{l}",
		"3000", "grants:", "4000")
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0])
}

// What Redisson's scripts drop from the line leaves its place behind: it is removed before there are many, and the keys
// end.
func TestFairPlacesThatRedissonHasDroppedDoNotPileUp(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		keys, src := fairKeys("l"), source(t, "fair_acquire")
		g.must(t, "HSET", keys[0], java, "1")
		g.fairLine(t, keys, fairPlace{java + "1", time.Hour.Milliseconds(), 0})
		most := int64(0)
		for n := range 200 {
			owner := fmt.Sprint(alice, n)
			_, err := eval(t, g.c, src, keys, owner, "300000", "0", "PUBLISH", "c", "3000", "grants:", "4000")
			require.NoError(t, err)
			g.must(t, "LREM", keys[1], "1", owner) // as Redisson does
			g.must(t, "ZREM", keys[2], owner)
			places, err := g.do(t, "HLEN", keys[3]).AsInt64()
			require.NoError(t, err)
			most = max(most, places)
		}
		require.Less(t, most, int64(80))
		for _, key := range keys[1:] {
			left, err := g.do(t, "PTTL", key).AsInt64()
			require.NoError(t, err)
			require.Positive(t, left, key)
		}
	})
}
