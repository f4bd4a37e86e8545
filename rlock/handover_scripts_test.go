package rlock_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/wait"
)

const carol = "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:3"

// first and stale are in all entries of the tables: the lease that a hand-over writes, and how long an entry counts
// without being looked at, in ms.
const (
	first = 40_000
	stale = 100_000
)

// longOpen has a script leave a released lock to others for a minute.
var longOpen = strings.NewReplacer("RESERVATION = 5 ", "RESERVATION = 60000 ", "RESERVATION = 200 ",
	"RESERVATION = 60000 ",
	"math.min(waiter.first, MAX_RESERVATION)", "MAX_RESERVATION")

// plainEntryOf is the entry of a waiter of a Plain lock, to which a free lock is left for so long.
func plainEntryOf(owner string, reservation time.Duration) string {
	entry := wait.OwnerEntry(wait.EntryString, owner, reservation, 25*time.Second)
	return entry.Text()
}

func entryOf(owner string) string {
	entry := wait.OwnerEntry(wait.EntryHash, owner, first*time.Millisecond, stale*time.Millisecond)
	return entry.Text()
}

// waiting is a place in a queue.
type waiting struct {
	owner   string
	ago     int64 // ms since it was entered
	stamped int64 // ms since the waiter looked again; 0: it never did
}

// queueState is all there is to a queue.
type queueState struct {
	line    []string // owners, first to last
	tickets map[string]int64
	stamps  map[string]int64 // server ms
	open    int64
	left    int64 // PTTL
}

func (g *scriptRig) queue(t *testing.T, key string) queueState {
	t.Helper()
	s := queueState{tickets: map[string]int64{}, stamps: map[string]int64{}}
	members, err := g.do(t, "ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
	require.NoError(t, err)
	for _, m := range members {
		switch {
		case m.Member == "!open":
			s.open = -int64(m.Score) - 4e12
		case m.Member[0] == '!':
			s.stamps[m.Member[1:]] = -int64(m.Score)
		default:
			entry, ok := wait.ReadEntry(m.Member)
			require.True(t, ok, m.Member)
			owner := entry.Owner()
			s.line = append(s.line, owner)
			s.tickets[owner] = int64(m.Score)
		}
	}
	s.left = wire.Number(t, g.c, "PTTL", key)
	return s
}

// nowMicros is the server's clock.
func (g *scriptRig) nowMicros(t *testing.T) int64 {
	t.Helper()
	v, err := g.do(t, "TIME").AsStrSlice()
	require.NoError(t, err)
	sec, err := strconv.ParseInt(v[0], 10, 64)
	require.NoError(t, err)
	us, err := strconv.ParseInt(v[1], 10, 64)
	require.NoError(t, err)
	return sec*1_000_000 + us
}

// line fills a queue.
func (g *scriptRig) line(t *testing.T, key string, places ...waiting) {
	t.Helper()
	for i, w := range places {
		ticket := g.nowMicros(t) - w.ago*1000 + int64(i)
		g.must(t, "ZADD", key, strconv.FormatInt(ticket, 10), entryOf(w.owner))
		if w.stamped > 0 {
			g.must(t, "ZADD", key, strconv.FormatInt(w.stamped-g.now(t), 10), "!"+w.owner)
		}
	}
	if len(places) > 0 {
		g.must(t, "PEXPIRE", key, "50000")
	}
}

// A process may be subscribed at a replica, which it took for the primary, or which was one: there it hears what the
// primary publishes, and is not among the receivers that the primary counts.
func TestHandOver_RevokedGrant_IsNotPublished(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, "--replicaof", host, port)
	redistest.Eventually(t, 20*time.Second, "the replica is in step", func() bool {
		return strings.Contains(replica.Ask(t, "INFO", "replication"), "master_link_status:up")
	})
	g := newScriptRig(t, s)
	for _, mayAsk := range []bool{true, false} {
		c := g.c
		if !mayAsk {
			c = g.limited(t, s, "&*", "-pubsub")
		}
		key, queue := fmt.Sprint("l", mayAsk), fmt.Sprint("q", mayAsk)
		heard, _ := wire.Overhear(t, replica.Client(t), []string{"grants:" + bob[:36]}, []string{"CHANNEL*"})
		g.line(t, queue, waiting{owner: bob, ago: 5000})
		g.must(t, "HSET", key, alice, "1")
		_, err := eval(t, c, source(t, "release"), []string{key, queue}, alice, "CHANNEL", "PUBLISH", "grants:", "")
		require.NoError(t, err)
		g.must(t, "PUBLISH", "CHANNEL", "last") // comes after whatever the script published
		var messages []string
		redistest.Eventually(t, 20*time.Second, "what was published is at the replica", func() bool {
			messages = append(messages, heard()...)
			return slices.Contains(messages, "CHANNEL last")
		})
		holder := wire.Hash(t, g.c, key)
		if mayAsk {
			require.Empty(t, holder, "who is not there is dropped")
			require.Equal(t, []string{"CHANNEL 0", "CHANNEL last"}, messages)
		} else {
			require.Equal(t, map[string]string{bob: "1"}, holder, "who may be there is granted, and that stands")
		}
	}
}

// TestGrant_MayNotBePublished_IsUndone: by a user who may publish on Redisson's channels only.
func TestGrant_MayNotBePublished_IsUndone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	c := g.limited(t, s, "resetchannels", "&redisson_lock__channel:*")
	heard, _ := wire.Overhear(t, g.c, []string{"grants:" + bob[:36], "grants:" + carol[:36]},
		[]string{"redisson_lock__channel:*"})
	for _, old := range []bool{false, true} {
		key, queue := fmt.Sprint("l", old), fmt.Sprint("q", old)
		places := []waiting{{owner: bob, ago: 5000, stamped: 1000}, {owner: carol, ago: 4000}}
		if old { // only its stamp says that it is alive
			places[0].ago = 2 * stale
		}
		g.line(t, queue, places...)
		before := g.queue(t, queue)
		g.must(t, "HSET", key, alice, "1")
		for _, want := range []int64{1, 0} {
			got, err := eval(t, c, source(t, "release"), []string{key, queue}, alice, "redisson_lock__channel:{l}", "PUBLISH",
				"grants:", "")
			require.NoError(t, err)
			require.Equal(t, []int64{want}, got)
			require.Zero(t, wire.Number(t, g.c, "EXISTS", key))
			after := g.queue(t, queue)
			require.Equal(t, before.line, after.line, "the queue is as it was")
			require.Equal(t, before.tickets, after.tickets)
			require.Contains(t, after.stamps, bob, "and who was alive in it still is")
			require.Equal(t, []string{"redisson_lock__channel:{l} 0"}, heard(), "the release is open")
		}
		got, err := g.run(t, "release", []string{key, queue}, alice, "redisson_lock__channel:{l}", "PUBLISH", "grants:", "")
		require.NoError(t, err)
		require.Equal(t, []int64{0}, got)
		require.Equal(t, map[string]string{bob: "1"}, wire.Hash(t, g.c, key),
			"somebody with the right to finds the first in line")
		require.Equal(t, []string{fmt.Sprintf("grants:%s %d %d %s", bob[:36], before.tickets[bob], first, bob)}, heard())
	}
	// the only one: its queue was gone for a moment, and has an end like any other
	g.line(t, "alone", waiting{owner: bob, ago: 5000})
	g.must(t, "HSET", "l", alice, "1")
	_, err := eval(t, c, source(t, "release"), []string{"l", "alone"}, alice, "redisson_lock__channel:{l}", "PUBLISH",
		"grants:", "")
	require.NoError(t, err)
	left, err := g.c.Do(within(t), g.c.B().Pttl().Key("alone").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, left)
}

// Some releases are open while Redisson listens, and no release is open otherwise.
func TestRelease_RedissonListens_IsSometimesOpen(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		const key, queue, channel, grants = "l", "q", "redisson_lock__channel:{l}", "grants:"
		release := func(args ...string) []int64 {
			got, err := g.run(t, "release", []string{key, queue},
				append([]string{alice, channel, "PUBLISH", grants, ""}, args...)...)
			require.NoError(t, err)
			return got
		}
		heard, _ := wire.Overhear(t, g.c, []string{grants + bob[:36]}, nil)
		// one release with bob in line; whether it was open
		open := func(args ...string) bool {
			g.must(t, "DEL", key, queue)
			g.line(t, queue, waiting{owner: bob, ago: 5000})
			g.must(t, "HSET", key, alice, "1")
			ticket := g.queue(t, queue).tickets[bob]
			before := g.now(t)
			got := release(args...)
			require.EqualValues(t, 1, got[0])
			after := g.queue(t, queue)
			if after.open == 0 {
				require.Equal(t, map[string]string{bob: "1"}, wire.Hash(t, g.c, key))
				require.Equal(t, []string{fmt.Sprintf("%s%s %d %d %s", grants, bob[:36], ticket, first, bob)}, heard())
				return false
			}
			require.Zero(t, wire.Number(t, g.c, "EXISTS", key))
			require.Equal(t, ticket, after.tickets[bob])
			require.Positive(t, after.left)
			require.GreaterOrEqual(t, after.open, before+1, "for a few ms")
			require.LessOrEqual(t, after.open, g.now(t)+20)
			require.Equal(t, []string{grants + bob[:36] + " 0 0 " + bob}, heard(), "the first in line is told when to look")
			return true
		}
		for range 60 {
			require.False(t, open(), "nobody listens")
		}
		_, leave := wire.Overhear(t, g.c, []string{channel, keyname.Mark(channel)}, nil)
		for range 60 {
			require.False(t, open(), "nobody of Redisson's")
		}
		heard()
		leave()
		java, stop := wire.Overhear(t, g.c, []string{channel}, nil)
		defer stop()
		opened, named, n := 0, 0, 0
		for ; opened < 5 || named < 5; n++ {
			require.Less(t, n, 1000, "one in eight")
			if open() {
				opened++
				require.Equal(t, []string{channel + " 0"}, java())
			} else {
				require.Empty(t, java())
			}
			if open(carol, entryOf(carol), "300000", "99999999999999", "1") {
				named++
				require.Equal(t, []string{bob, carol}, g.queue(t, queue).line, "who was named has a place")
				require.Equal(t, []string{channel + " 0"}, java())
			} else {
				require.Empty(t, java())
			}
		}
		require.Less(t, opened+named, n, "and not all")
		for n = 0; ; n++ { // nobody in line but who is named
			require.Less(t, n, 1000, "one in eight")
			g.must(t, "DEL", key, queue)
			g.must(t, "HSET", key, alice, "1")
			got := release(bob, entryOf(bob), "300000", "99999999999999", "1")
			if got[1] == 1 {
				require.Equal(t, map[string]string{bob: "1"}, wire.Hash(t, g.c, key))
				require.Empty(t, java())
				continue
			}
			after := g.queue(t, queue)
			require.Equal(t, []int64{1, 2, after.tickets[bob]}, got)
			require.Positive(t, after.open)
			require.Zero(t, wire.Number(t, g.c, "EXISTS", key))
			require.Equal(t, []string{channel + " 0"}, java())
			require.Equal(t, []string{grants + bob[:36] + " 0 0 " + bob}, heard())
			break
		}
		for range 60 { // every end of a tenure that eight callers had
			g.must(t, "DEL", key, queue)
			g.must(t, "HSET", key, alice, "1")
			got := release(bob, entryOf(bob), "300000", "99999999999999", "8")
			require.Equal(t, []int64{1, 2, g.queue(t, queue).tickets[bob]}, got)
			require.Equal(t, []string{channel + " 0"}, java())
			heard()
		}
		g.must(t, "DEL", key, queue)
		g.must(t, "HSET", key, alice, "1")
		require.Equal(t, []int64{1}, release())
		require.Equal(t, []string{channel + " 0"}, java(), "with nobody in line every release is open, and without a marker")
		require.EqualValues(t, -2, g.queue(t, queue).left)
	})
}

func TestQueue_WaitersKeepEntering_DoesNotExpire(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		pass := time.Sleep
		if s.Embedded != nil {
			pass = s.Clock()
		}
		g := newScriptRig(t, s)
		g.must(t, "HSET", "l", alice, "1")
		const ttl = 60_000
		for i := range 24 { // for more than a second: its end is moved on once in each
			owner := fmt.Sprintf("%s%d", bob, i)
			_, err := g.run(t, "acquire", []string{"l", "q"}, owner, "300000", "0", "PUBLISH", "GRANTS", entryOf(owner))
			require.NoError(t, err)
			if i == 0 { // from now on its end has to be moved on
				g.must(t, "PEXPIRE", "q", strconv.Itoa(ttl/2))
			}
			pass(50 * time.Millisecond)
		}
		left := wire.Number(t, g.c, "PTTL", "q")
		require.Greater(t, left, int64(ttl*3/4))
	})
}
