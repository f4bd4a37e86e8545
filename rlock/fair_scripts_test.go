package rlock_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/wait"
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

// fairEntry is the entry of a waiter in a fair queue, with its times in ms.
func fairEntry(owner string, first, patience time.Duration) string {
	entry := wait.OwnerEntry(wait.EntryHash, owner, first*time.Millisecond, patience*time.Millisecond)
	return entry.Text()
}

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
			g.must(t, "HSET", keys[3], w.owner, fmt.Sprint(w.ticket, " ", fairEntry(w.owner, fairFirst, fairPatience)))
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

// A fair grant that may not be published is undone: the first in line keeps its place, and takes the lock when it asks.
func TestFairGrant_MayNotBePublished_IsUndone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	c := g.limited(t, s, "resetchannels", "&redisson_lock__channel:*")
	heard, _ := wire.Overhear(t, g.c, []string{"grants:" + carol[:36]}, nil)
	keys := fairKeys("l")
	g.must(t, "HSET", keys[0], alice, "1")
	g.fairLine(t, keys, fairPlace{carol, fairPatience, 70}, fairPlace{bob, fairPatience, 71})
	for _, want := range []int64{1, 0} {
		got, err := eval(t, c, source(t, "fair_release"), keys, alice, "redisson_lock__channel:{l}", "PUBLISH", "", "grants:")
		require.NoError(t, err)
		require.Equal(t, []int64{want}, got)
		require.Zero(t, wire.Number(t, g.c, "EXISTS", keys[0]))
		order, places := g.fairOrder(t, keys)
		require.Equal(t, []string{carol, bob}, order)
		require.Len(t, places, 2)
		require.Empty(t, heard())
	}
	got, err := eval(t, c, source(t, "fair_acquire"), keys, carol, "300000", "0", "PUBLISH", "redisson_lock__channel:{l}",
		"3000", "grants:", fairEntry(carol, 4000, 3000))
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0])
}

// What Redisson's scripts drop from the line leaves its place behind: it is removed before there are many, and the keys
// end.
func TestFairQueue_PlacesDroppedByRedisson_AreRemoved(t *testing.T) {
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
			_, err := eval(t, g.c, src, keys, owner, "300000", "0", "PUBLISH", "c", "3000", "grants:",
				fairEntry(owner, 4000, 3000))
			require.NoError(t, err)
			g.must(t, "LREM", keys[1], "1", owner) // as Redisson does
			g.must(t, "ZREM", keys[2], owner)
			places := wire.Number(t, g.c, "HLEN", keys[3])
			most = max(most, places)
		}
		require.Less(t, most, int64(80))
		for _, key := range keys[1:] {
			left := wire.Number(t, g.c, "PTTL", key)
			require.Positive(t, left, key)
		}
	})
}
