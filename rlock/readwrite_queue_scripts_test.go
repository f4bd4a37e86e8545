package rlock_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
)

// rwBands are where readers and writers stand in the queue of a read-write lock.
const (
	rwReader = iota
	rwWriter
	rwBand = 3_000_000_000_000_000
)

// rwPlace is a place in that queue.
type rwPlace struct {
	owner   string
	band    int64
	ago     int64 // ms since it was entered
	stamped int64 // ms since the waiter looked again; 0: it never did
}

// rwLineRow is one line of a table of what scripts do with a queue.
type rwLineRow struct {
	name   string
	before rwState
	line   []rwPlace
	words  map[string]int64 // of the queue; those that are times are ms ago
	deaf   []string         // who does not listen
	java   bool             // somebody of Redisson's does
	ours   bool             // so does a process of ours, on its channel
	script string
	args   []string // CHANNEL, GRANTS and ENTRY stand for them
	// status; of one that waits, whether it has a place and whether somebody foreign is in; of a granted reader, whether
	// no writer waits
	reply []int64
	again []int64 // of a second run; nil: the same
	hash  map[string]string
	after []string // owners in line, by bands
	given []string // whose grants are published
	told  []string // messages on Redisson's channel
	asked []string // who is told to ask
	held  bool     // for longer than a moment
}

func (r rwLineRow) prepare(t *testing.T, g *scriptRig, key, queue string) (tickets map[string]int64) {
	t.Helper()
	r.before.write(t, g, key)
	tickets = map[string]int64{}
	now := g.nowMicros(t)
	for i, p := range r.line {
		tickets[p.owner] = p.band*rwBand + now - p.ago*1000 + int64(i)
		g.must(t, "ZADD", queue, strconv.FormatInt(tickets[p.owner], 10), entryOf(p.owner))
		if p.stamped > 0 {
			g.must(t, "ZADD", queue, strconv.FormatInt(-(now/1000-p.stamped), 10), "!"+p.owner)
		}
	}
	for name, v := range r.words {
		if name != "writes" && name != "lastread" {
			v = now/1000 - v
		}
		g.must(t, "ZADD", queue, strconv.FormatInt(-v, 10), "!"+name)
	}
	if len(r.line)+len(r.words) > 0 {
		g.must(t, "PEXPIRE", queue, "60000")
	}
	return tickets
}

func runRWLineTable(t *testing.T, rows []rwLineRow) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		for i, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				key := fmt.Sprintf("%s:rwline:%d", r.script, i)
				queue, channel, grants := "redlatch_rwq:{"+key+"}", "redisson_rwlock:{"+key+"}", "grants:{"+key+"}:"
				tickets := r.prepare(t, g, key, queue)
				var listened []string
				for _, o := range []string{alice, bob, carol} {
					if !slices.Contains(r.deaf, o) {
						listened = append(listened, grants+o[:36])
					}
				}
				pattern := channel + "*"
				if r.java {
					listened, pattern = append(listened, channel), ""
				}
				if r.ours {
					_, stop := overhear(t, g.c, []string{channel, keyname.Mark(channel)}, "")
					defer stop()
				}
				heard, stop := overhear(t, g.c, listened, pattern)
				defer stop()
				args := slices.Clone(r.args)
				for i, a := range args {
					args[i] = strings.NewReplacer("CHANNEL", channel, "GRANTS", grants, "ENTRY", entryOf(args[0])).Replace(a)
				}
				keys := []string{key, "redlatch_rw:{" + key + "}", queue}
				if !strings.HasSuffix(args[0], ":write") && r.script != "rw_write" {
					keys = append(keys, rwTimeout(key, args[0]))
				}
				for n := range 2 {
					src := g.src[r.script]
					if r.held {
						src = longOpen.Replace(src)
						require.NotEqual(t, g.src[r.script], src)
					}
					got, err := eval(t, g.c, src, keys, args...)
					require.NoError(t, err)
					got = inFull(t, r.script, got, args)
					want := r.reply
					if n == 1 && r.again != nil {
						want = r.again
					}
					gist := got[:1]
					if len(got) > 4 && got[0] != 2 {
						gist = []int64{got[0], min(got[3], 1)}
						if got[0] == 0 {
							gist = append(gist, got[4])
						}
					}
					require.Equal(t, want, gist, "run %d: %v", n+1, got)
					hash, err := g.do(t, "HGETALL", key).AsStrMap()
					require.NoError(t, err)
					if r.hash == nil {
						require.Empty(t, hash, "run %d", n+1)
					} else {
						require.Equal(t, r.hash, hash, "run %d", n+1)
					}
					line, err := g.do(t, "ZRANGEBYSCORE", queue, "1", "+inf").AsStrSlice()
					require.NoError(t, err)
					var owners []string
					for _, entry := range line {
						owner, _, _ := strings.Cut(entry, " ")
						owners = append(owners, owner)
					}
					require.Equal(t, r.after, owners, "run %d", n+1)
					var published []string
					if n == 0 {
						for _, o := range r.given {
							published = append(published, fmt.Sprintf("%s%s %d %d %s", grants, o[:36], tickets[o], first, o))
							ttl, err := g.do(t, "PTTL", key).AsInt64()
							require.NoError(t, err)
							require.GreaterOrEqual(t, ttl, int64(first)-5000, "the lock lasts for what is granted")
						}
						for _, o := range r.asked {
							published = append(published, fmt.Sprintf("%s%s 0 0 %s", grants, o[:36], o))
						}
						for _, m := range r.told {
							published = append(published, channel+" "+m)
						}
						// miniredis keeps the order only of one kind of subscription
						require.ElementsMatch(t, published, heard(), "published")
					} else {
						heard()
					}
				}
				left, err := g.do(t, "PTTL", queue).AsInt64()
				require.NoError(t, err)
				require.NotEqualValues(t, -1, left, "a queue has an end")
			})
		}
	})
}

func TestReadWriteScriptsWithAQueue(t *testing.T) {
	t.Parallel()
	read := func(owner string, session ...string) []string {
		return []string{owner, rwLease, "0", "CHANNEL", "", append(session, "")[0], "PUBLISH", "GRANTS", "ENTRY"}
	}
	once := func(owner string) []string {
		return []string{owner, rwLease, "0", "CHANNEL", "", "", "PUBLISH", "GRANTS", ""}
	}
	write := func(owner string) []string {
		return []string{owner, rwLease, "0", "CHANNEL", "PUBLISH", "GRANTS", "ENTRY"}
	}
	readOut := func(owner, entry string) []string {
		return []string{owner, "CHANNEL", "0", "PUBLISH", "GRANTS", entry}
	}
	writeOut := func(owner string) []string {
		return []string{owner + ":write", "CHANNEL", "1", "PUBLISH", "GRANTS", ""}
	}
	bobReads := rwState{hash: h("mode", "read", bob, "1"), ttl: 100_000, ends: e(bob, 100_000), timeouts: e(bob, 100_000)}
	bobWrites := rwState{hash: h("mode", "write", bobW, "1"), ttl: 100_000}
	javaReads := rwState{hash: h("mode", "read", java, "1"), ttl: 100_000, timeouts: e(java+":1", 100_000)}
	reads := func(owners ...string) map[string]string {
		m := h("mode", "read")
		for _, o := range owners {
			m[o] = "1"
		}
		return m
	}
	waits := []int64{0, 1, 0}
	rows := []rwLineRow{
		{name: "a reader queues behind a writer", before: bobWrites, script: "rw_read", args: read(alice), reply: waits,
			hash: bobWrites.hash, after: []string{alice}},
		{name: "one that asks once does not", before: bobWrites, script: "rw_read", args: once(alice),
			reply: []int64{0, 0, 0}, hash: bobWrites.hash},
		{name: "a reader queues behind a writer of Java's and hears of it",
			before: rwState{hash: h("mode", "write", javaW, "1"), ttl: 100_000}, script: "rw_read", args: read(alice),
			reply: []int64{0, 1, 1}, hash: h("mode", "write", javaW, "1"), after: []string{alice}},
		{name: "a writer queues behind a reader", before: bobReads, script: "rw_write", args: write(alice), reply: waits,
			hash: bobReads.hash, after: []string{alice}},
		{name: "a reader does not pass a writer that waits", before: bobReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}}, script: "rw_read", args: read(alice), reply: waits,
			hash: bobReads.hash, after: []string{alice, carol}},
		{name: "nor does it share the hold of another then", before: bobReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}}, script: "rw_read", args: read(alice, bob), reply: waits,
			hash: bobReads.hash, after: []string{alice, carol}},
		{name: "otherwise it shares that", before: bobReads, script: "rw_read", args: read(alice, bob), reply: []int64{5, 1},
			hash: bobReads.hash},
		{name: "and leaves the line", before: bobReads, line: []rwPlace{{owner: alice, ago: 500}}, script: "rw_read",
			args: read(alice, bob), reply: []int64{5, 1}, hash: bobReads.hash},
		{name: "a hold that is over is not shared", script: "rw_read", args: read(alice, bob), reply: []int64{1, 1},
			hash: reads(alice)},
		{name: "a writer that is gone keeps no reader out", before: bobReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}}, deaf: []string{carol}, script: "rw_read",
			args: read(alice), reply: []int64{1, 1}, hash: reads(alice, bob)},
		{name: "nor one that has not asked for long", before: bobReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 600_000, stamped: stale + 1000}}, script: "rw_read",
			args: read(alice), reply: []int64{1, 1}, hash: reads(alice, bob)},
		{name: "but one that has asked again does", before: bobReads,
			line:  []rwPlace{{owner: carol, band: rwWriter, ago: 600_000, stamped: 1000}},
			words: map[string]int64{"filled": 1000}, script: "rw_read", args: read(alice), reply: waits, hash: bobReads.hash,
			after: []string{alice, carol}},
		{name: "the refill: a writer kept out for a poll sees the readers in line let in", before: bobReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: stale*2/5 + 100, stamped: 1000}}, script: "rw_read",
			args: read(alice), reply: []int64{1, 0}, hash: reads(alice, bob), after: []string{carol}},
		{name: "the next one comes when it has waited twice as long", before: bobReads,
			line:  []rwPlace{{owner: carol, band: rwWriter, ago: stale * 2 / 5 * 3 / 2, stamped: 1000}},
			words: map[string]int64{"filled": stale / 5}, script: "rw_read", args: read(alice), reply: waits,
			hash: bobReads.hash, after: []string{alice, carol}},
		{name: "beside Redisson's readers alone it comes soon", before: javaReads,
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}}, words: map[string]int64{"readfrom": 100},
			script: "rw_read", args: read(alice), reply: []int64{1, 0}, hash: h("mode", "read", java, "1", alice, "1"),
			after: []string{carol}},

		{name: "the last reader hands over to the first writer, not to readers", before: bobReads,
			line: []rwPlace{{owner: alice, ago: 900}, {owner: carol, band: rwWriter, ago: 500}}, script: "rw_release",
			args: readOut(bob, ""), reply: []int64{1}, again: []int64{0},
			hash: h("mode", "write", carol+":write", "1"), after: []string{alice}, given: []string{carol}},
		{name: "the writer's budget is spent: all readers are next", before: bobWrites,
			line:  []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}},
			words: map[string]int64{"writes": 1, "phase": 20, "lastread": 5}, script: "rw_release", args: writeOut(bob),
			reply: []int64{1}, again: []int64{0},
			hash: reads(alice), after: []string{carol}, given: []string{alice}},
		{name: "16 writers spend it, too", before: bobWrites,
			line:  []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}},
			words: map[string]int64{"writes": 16, "phase": 0, "lastread": 150_000}, script: "rw_release", args: writeOut(bob),
			reply: []int64{1}, again: []int64{0},
			hash: reads(alice), after: []string{carol}, given: []string{alice}},
		{name: "as long as it is not, the next writer is", before: bobWrites,
			line:  []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}},
			words: map[string]int64{"writes": 2, "phase": -60_000, "lastread": 150_000}, script: "rw_release",
			args: writeOut(bob), reply: []int64{1}, again: []int64{0},
			hash: h("mode", "write", carol+":write", "1"), after: []string{alice}, given: []string{carol}},
		{name: "all readers in line are let in at once", before: bobWrites,
			line: []rwPlace{{owner: alice, ago: 100}, {owner: carol, ago: 500}}, script: "rw_release", args: writeOut(bob),
			reply: []int64{1}, again: []int64{0},
			hash: reads(alice, carol), given: []string{alice, carol}},
		{name: "those who are gone are passed over", before: bobWrites,
			line: []rwPlace{{owner: alice, ago: 100}, {owner: carol, ago: 500}}, deaf: []string{alice}, script: "rw_release",
			args: writeOut(bob), reply: []int64{1}, again: []int64{0},
			hash: reads(carol), given: []string{carol}},
		{name: "with nobody there the lock is free, and it is said", before: bobWrites,
			line: []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}}, deaf: []string{alice, carol},
			script: "rw_release", args: writeOut(bob), reply: []int64{1}, again: []int64{0}, told: []string{"1"}},
		{name: "Redisson's readers are told of a readers' phase", line: []rwPlace{{owner: alice, ago: 100}},
			words: map[string]int64{"writes": 16}, java: true, script: "rw_write", args: write(carol), reply: waits,
			hash: reads(alice), after: []string{carol}, given: []string{alice}, told: []string{"1"}},
		{name: "after 200 ms of reading they get a turn: no reader comes in", before: bobReads,
			words: map[string]int64{"readfrom": 300}, java: true, script: "rw_read", args: read(alice, bob), reply: waits,
			hash: bobReads.hash, after: []string{alice}},
		{name: "beside a process of ours, too", before: bobReads, words: map[string]int64{"readfrom": 300}, java: true,
			ours: true, script: "rw_read", args: read(alice, bob), reply: waits, hash: bobReads.hash, after: []string{alice}},
		{name: "for which alone nobody makes room", before: bobReads, words: map[string]int64{"readfrom": 300}, ours: true,
			script: "rw_read", args: read(alice), reply: []int64{1, 1}, hash: reads(alice, bob)},
		{name: "nor is the lock left to it", before: bobReads, line: []rwPlace{{owner: alice, ago: 100}},
			words: map[string]int64{"readfrom": 300}, ours: true, script: "rw_release", args: readOut(bob, ""),
			reply: []int64{1}, again: []int64{0}, hash: reads(alice), given: []string{alice}, told: []string{"1"}},
		{name: "before that it does", before: bobReads, words: map[string]int64{"readfrom": -60_000}, java: true,
			script: "rw_read", args: read(alice), reply: []int64{1, 1}, hash: reads(alice, bob)},
		{name: "and the lock is left to them when the last one goes", before: bobReads,
			line: []rwPlace{{owner: alice, ago: 100}}, words: map[string]int64{"readfrom": 300}, java: true,
			script: "rw_release", args: readOut(bob, ""), reply: []int64{1}, again: []int64{0}, after: []string{alice},
			asked: []string{alice}, told: []string{"1"}, held: true},
		{name: "a writer that goes on as a reader lets the readers in",
			before: rwState{hash: h("mode", "write", bobW, "1", bob, "1"), ttl: 100_000, ends: e(bobW, 100_000, bob, 100_000),
				timeouts: e(bob, 100_000)}, line: []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}},
			script: "rw_release", args: writeOut(bob), reply: []int64{1}, again: []int64{0},
			hash: reads(alice, bob), after: []string{carol}, given: []string{alice}, told: []string{"1"}},
		{name: "the writer that gives up lets readers in", before: bobReads,
			line: []rwPlace{{owner: alice, ago: 100}, {owner: carol, band: rwWriter, ago: 500}}, script: "rw_release",
			args: []string{carol + ":write", "CHANNEL", "1", "PUBLISH", "GRANTS", entryOf(carol)}, reply: []int64{0},
			hash: reads(alice, bob), given: []string{alice}},
		{name: "a reader that gives up leaves the line", before: bobWrites, line: []rwPlace{{owner: alice, ago: 100}},
			script: "rw_release", args: readOut(alice, entryOf(alice)), reply: []int64{0}, hash: bobWrites.hash},

		{name: "who comes by a free lock hands it to who is first",
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}}, script: "rw_read", args: read(alice), reply: waits,
			hash: h("mode", "write", carol+":write", "1"), after: []string{alice}, given: []string{carol}},
		{name: "and takes it if that is itself",
			line: []rwPlace{{owner: carol, band: rwWriter, ago: 500}, {owner: alice, ago: 100}}, script: "rw_write",
			args: write(carol), reply: []int64{1, 0}, hash: h("mode", "write", carol+":write", "1"), after: []string{alice}},
		{name: "one that asks once does not take it, either", line: []rwPlace{{owner: carol, ago: 500}}, script: "rw_write",
			args: append(write(alice)[:6:6], ""), reply: []int64{0, 0, 0}, hash: reads(carol), given: []string{carol}},
	}
	runRWLineTable(t, rows)
}
