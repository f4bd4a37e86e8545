package rlock_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
)

const carol = "2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d:3"

// first and stale are in all entries of the tables: the lease that a hand-over writes, and how long an entry counts
// without being looked at, in ms.
const (
	first = 40_000
	stale = 100_000
)

// longOpen has a script leave a released lock to others for a minute.
var longOpen = strings.NewReplacer("OPEN = 5 ", "OPEN = 60000 ", "OPEN = 200 ", "OPEN = 60000 ")

func entryOf(owner string) string {
	return fmt.Sprintf("%s %d %d", owner, first, stale)
}

// waiting is a place in a queue.
type waiting struct {
	owner   string
	ago     int64 // ms since it was entered
	stamped int64 // ms since the waiter looked again; 0: it never did
}

// overhear returns what is published on the channels, and on those that match the pattern, since the last look; the
// latter are no listeners in the eyes of PUBSUB NUMSUB. It ends with the test, or by stop.
func overhear(t *testing.T, c rueidis.Client, channels []string, pattern string) (heard func() []string, stop func()) {
	t.Helper()
	dc, cancel := c.Dedicate()
	messages, confirmed := make(chan rueidis.PubSubMessage, 1000), make(chan struct{}, 100)
	dc.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { messages <- m },
		OnSubscription: func(rueidis.PubSubSubscription) { confirmed <- struct{}{} },
	})
	end := fmt.Sprintf("end of %p", messages)
	channels = append(slices.Clone(channels), end)
	require.NoError(t, dc.Do(within(t), dc.B().Subscribe().Channel(channels...).Build()).Error())
	want := len(channels)
	if pattern != "" {
		want++
		require.NoError(t, dc.Do(within(t), dc.B().Psubscribe().Pattern(pattern).Build()).Error())
	}
	for range want {
		<-confirmed
	}
	var once sync.Once
	stop = func() { once.Do(cancel) }
	t.Cleanup(stop)
	ends := []string{end}
	if pattern != "" { // miniredis keeps the order only among those of one kind
		ends = append(ends, strings.TrimSuffix(pattern, "*")+end)
	}
	return func() []string {
		t.Helper()
		for _, e := range ends {
			require.NoError(t, c.Do(within(t), c.B().Publish().Channel(e).Message("").Build()).Error())
		}
		var got []string
		for left := len(ends); left > 0; {
			if m := <-messages; slices.Contains(ends, m.Channel) {
				left--
			} else {
				got = append(got, m.Channel+" "+m.Message)
			}
		}
		return got
	}, stop
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
			s.open = -int64(m.Score)
		case m.Member[0] == '!':
			s.stamps[m.Member[1:]] = -int64(m.Score)
		default:
			owner, _, _ := strings.Cut(m.Member, " ")
			s.line = append(s.line, owner)
			s.tickets[owner] = int64(m.Score)
		}
	}
	s.left, err = g.do(t, "PTTL", key).AsInt64()
	require.NoError(t, err)
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

// lineRow is one line of the tables about queues.
type lineRow struct {
	name  string
	held  map[string]string // the lock's hash before
	ttl   int64
	line  []waiting
	open  int64    // ms from now, of the marker; 0: none
	long  bool     // markers are for longer here than they are, so that the row's has a chance
	deaf  []string // whose processes are gone
	alone bool     // the script gets the lock's key only
	args  []string // CHANNEL and GRANTS stand for the row's own
	runs  [2]lineRun
}

// lineRun is what a run must leave behind.
type lineRun struct {
	reply   []int64           // without times; a place in the queue is told as 1
	hash    map[string]string // of the lock
	left    int64             // what became of its TTL
	line    []string
	stamped []string
	granted []string // whose grants were published
	told    int      // messages on Redisson's channel
}

// ranks tells a reply's ticket as 1, so that tables can name it.
func ranks(i int, reply []int64) []int64 {
	if len(reply) > i && reply[i] > 0 {
		reply = slices.Clone(reply)
		reply[i] = 1
	}
	return reply
}

// runLineTable runs each row's script twice.
func runLineTable(t *testing.T, g *scriptRig, script string, rows []lineRow, gist func([]int64) []int64) {
	t.Helper()
	for i, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			key := fmt.Sprintf("%s:line:%d", script, i)
			queue, channel, grants := "redlatch_queue:{"+key+"}", "redisson_lock__channel:{"+key+"}", "grants:{"+key+"}:"
			row{before: r.held, ttl: r.ttl}.prepare(t, g, key)
			g.line(t, queue, r.line...)
			if r.open != 0 {
				g.must(t, "ZADD", queue, strconv.FormatInt(-g.now(t)-r.open, 10), "!open")
			}
			src := g.src[script]
			if r.long {
				src = longOpen.Replace(src)
				require.NotEqual(t, g.src[script], src)
			}
			var listened []string
			for _, o := range []string{alice, bob, carol} {
				if !slices.Contains(r.deaf, o) {
					listened = append(listened, grants+o[:36])
				}
			}
			heard, stop := overhear(t, g.c, listened, channel+"*")
			defer stop()
			args := slices.Clone(r.args)
			for i, a := range args {
				args[i] = strings.NewReplacer("CHANNEL", channel, "GRANTS", grants).Replace(a)
			}
			keys := []string{key, queue}
			if r.alone {
				keys = keys[:1]
			}
			for n, want := range r.runs {
				before, line := g.look(t, key), g.queue(t, queue)
				got, err := eval(t, g.c, src, keys, args...)
				require.NoError(t, err)
				got = inFull(t, script, got, args)
				require.Equal(t, want.reply, gist(got), "run %d", n+1)
				after, now := g.look(t, key), g.queue(t, queue)
				require.Equal(t, want.hash, after.hash, "run %d", n+1)
				requireTTL(t, want.left, before, after)
				require.Equal(t, want.line, now.line, "run %d", n+1)
				var stamped []string
				for _, o := range []string{alice, bob, carol} {
					if _, ok := now.stamps[o]; ok {
						stamped = append(stamped, o)
					}
				}
				require.Equal(t, want.stamped, stamped, "run %d: stamps", n+1)
				for o, ticket := range line.tickets {
					if now.tickets[o] != 0 {
						require.Equal(t, ticket, now.tickets[o], "who is in the queue keeps its ticket")
					}
				}
				if len(now.line) > 0 {
					require.Greater(t, now.left, int64(0), "a queue has an end")
				} else if len(want.stamped) == 0 && r.open <= 0 {
					require.EqualValues(t, -2, now.left, "nothing is left of a queue of nobody")
				}
				var wanted []string
				for _, o := range want.granted {
					wanted = append(wanted, fmt.Sprintf("%s%s %d %d %s", grants, o[:36], line.tickets[o], first, o))
				}
				for range want.told {
					wanted = append(wanted, channel+" 0")
				}
				require.Equal(t, wanted, heard(), "run %d: published", n+1)
			}
		})
	}
}

func TestAcquireScriptWithAQueue(t *testing.T) {
	t.Parallel()
	const lease = "300000"
	one := func(owner string) map[string]string { return map[string]string{owner: "1"} }
	ask := func(owner string) []string {
		return []string{owner, lease, "0", "PUBLISH", "GRANTS", entryOf(owner)}
	}
	once := func(owner string) []string { return ask(owner)[:5] }
	held, inLine := []int64{0, 0, 0}, []int64{0, 1, 0} // status, place, foreign
	granted := []int64{1}
	both := func(r lineRun) [2]lineRun { return [2]lineRun{r, r} }
	// then is the second run of one that granted somebody else: nothing more happens, and the asker is stamped
	then := func(r lineRun) [2]lineRun {
		s := r
		s.granted, s.left = nil, untouched
		if slices.Contains(r.line, alice) {
			s.stamped = append([]string{alice}, r.stamped...)
		}
		return [2]lineRun{r, s}
	}
	rows := []lineRow{
		{name: "a place at the end of the line, and asking again keeps it", held: one(bob), ttl: 90_000,
			line: []waiting{{owner: carol, ago: 5000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: untouched, line: []string{carol, alice}})},
		{name: "the first place", held: one(bob), ttl: 90_000, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: untouched, line: []string{alice}})},
		{name: "behind the last one, also when the clock has stepped back", held: one(bob), ttl: 90_000,
			line: []waiting{{owner: carol, ago: -3_600_000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: untouched, line: []string{carol, alice}})},
		{name: "who does not wait gets no place", held: one(bob), ttl: 90_000, line: []waiting{{owner: carol, ago: 5000}},
			args: once(alice),
			runs: both(lineRun{reply: held, hash: one(bob), left: untouched, line: []string{carol}})},
		{name: "Java's hold is told", held: one(java), ttl: 90_000, args: ask(alice),
			runs: then(lineRun{reply: []int64{0, 1, 1}, hash: one(java), left: untouched, line: []string{alice}})},
		{name: "a free lock goes to the first in line, not to who comes by",
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: first, line: []string{carol, alice},
				granted: []string{bob}})},
		{name: "also when who comes by does not wait", line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}},
			args: once(alice),
			runs: then(lineRun{reply: held, hash: one(bob), left: first, line: []string{carol}, granted: []string{bob}})},
		{name: "those whose processes are gone are dropped",
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}}, deaf: []string{bob}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(carol), left: first, line: []string{alice}, granted: []string{carol}})},
		{name: "if all are gone, who comes by gets it and no queue is left",
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}}, deaf: []string{bob, carol}, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000})},
		{name: "who has not looked for long is passed over",
			line: []waiting{{owner: bob, ago: 2 * stale}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(carol), left: first, line: []string{alice}, granted: []string{carol}})},
		{name: "who has waited for long, and looked again, is not",
			line: []waiting{{owner: bob, ago: 2 * stale, stamped: 4000}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: first, line: []string{carol, alice},
				granted: []string{bob}})},
		{name: "a stamp that is old itself does not help",
			line: []waiting{{owner: bob, ago: 4 * stale, stamped: 2 * stale}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(carol), left: first, line: []string{alice}, granted: []string{carol}})},
		{name: "a stamp goes with its entry",
			line: []waiting{{owner: bob, ago: stale / 2, stamped: 4000}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: first, line: []string{carol, alice},
				granted: []string{bob}})},
		{name: "the first in line asks and gets its lease in full",
			line: []waiting{{owner: alice, ago: 5000, stamped: 3000}, {owner: carol, ago: 4000}}, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000, line: []string{carol}})},
		{name: "as the only one", line: []waiting{{owner: alice, ago: 5000}}, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000})},
		{name: "behind those that are gone",
			line: []waiting{{owner: bob, ago: 5000}, {owner: alice, ago: 4000}, {owner: carol, ago: 3000}}, deaf: []string{bob},
			args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000, line: []string{carol}})},
		{name: "its own field confirms a grant and makes the lease full", held: one(alice), ttl: 30_000,
			line: []waiting{{owner: carol, ago: 4000}}, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000, line: []string{carol}})},
		{name: "too late, nothing is done", line: []waiting{{owner: bob, ago: 5000}},
			args: []string{alice, lease, "1", "PUBLISH", "GRANTS", entryOf(alice)},
			runs: both(lineRun{reply: []int64{2}, left: gone, line: []string{bob}})},
		{name: "without the queue's key a free lock is taken", alone: true, line: []waiting{{owner: bob, ago: 5000}},
			args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000, line: []string{bob}})},
		{name: "without the queue's key there is no place", alone: true, held: one(bob), ttl: 90_000, args: ask(alice),
			runs: both(lineRun{reply: held, hash: one(bob), left: untouched})},
		{name: "while a release is left to others everybody only queues", open: 60_000, long: true,
			line: []waiting{{owner: bob, ago: 5000}}, args: ask(alice),
			runs: [2]lineRun{{reply: inLine, left: gone, line: []string{bob, alice}},
				{reply: inLine, left: gone, line: []string{bob, alice}, stamped: []string{alice}}}},
		{name: "the first in line too", open: 60_000, long: true,
			line: []waiting{{owner: alice, ago: 5000}, {owner: bob, ago: 4000}}, args: ask(alice),
			runs: both(lineRun{reply: inLine, left: gone, line: []string{alice, bob}, stamped: []string{alice}})},
		{name: "a marker of before the clock stepped back is none: the first gets it", open: 60_000,
			line: []waiting{{owner: alice, ago: 5000}, {owner: bob, ago: 4000}}, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000, line: []string{bob}})},
		{name: "one that came before the clock stepped back, and has not looked for long since",
			line: []waiting{{owner: bob, ago: -3_599_000, stamped: 2 * stale}, {owner: alice, ago: -3_600_000}},
			args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000})},
		{name: "nor does it keep the lock from nobody's queue", open: 60_000, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000})},
		{name: "what is left of a queue of nobody goes", open: -60_000, args: ask(alice),
			runs: both(lineRun{reply: granted, hash: one(alice), left: 300_000})},
		{name: "once that is over the first in line gets it", open: -60_000, line: []waiting{{owner: bob, ago: 5000}},
			args: ask(alice),
			runs: then(lineRun{reply: inLine, hash: one(bob), left: first, line: []string{alice}, granted: []string{bob}})},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runLineTable(t, newScriptRig(t, s), "acquire", rows, func(r []int64) []int64 {
			if r[0] != 0 {
				return r[:1]
			}
			return ranks(1, []int64{r[0], r[3], r[4]})
		})
	})
}

func TestReleaseScriptWithAQueue(t *testing.T) {
	t.Parallel()
	one := func(owner string) map[string]string { return map[string]string{owner: "1"} }
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	let := func(owner, leave string) []string {
		return []string{owner, "CHANNEL", "PUBLISH", "GRANTS", leave}
	}
	const anyTime = "99999999999999"
	name := func(notAfter, turn string) []string {
		return append(let(alice, ""), carol, entryOf(carol), "300000", notAfter, turn)
	}
	// over: what a second run finds and leaves as it is
	over := func(r lineRun, reply ...int64) [2]lineRun {
		s := r
		s.reply, s.granted = reply, nil
		if s.hash != nil {
			s.left = untouched
		}
		return [2]lineRun{r, s}
	}
	rows := []lineRow{
		{name: "the first in line gets it with the lease in its entry", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(bob), left: first, line: []string{carol}, granted: []string{bob}},
				0)},
		{name: "the only one", held: one(alice), ttl: 90_000, line: []waiting{{owner: bob, ago: 5000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(bob), left: first, granted: []string{bob}}, 0)},
		{name: "a lock without end does not stay one", held: one(alice), line: []waiting{{owner: bob, ago: 5000}},
			args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(bob), left: first, granted: []string{bob}}, 0)},
		{name: "whose process is gone is dropped", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}}, deaf: []string{bob}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(carol), left: first, granted: []string{carol}}, 0)},
		{name: "if all are gone Redisson's message is published and no key is left", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000, stamped: 1000}}, deaf: []string{bob, carol},
			args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, left: gone, told: 1}, 0)},
		{name: "who has not looked for long is passed over", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 4 * stale, stamped: 2 * stale}, {owner: carol, ago: 4000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(carol), left: first, granted: []string{carol}}, 0)},
		{name: "another's lock is not touched", held: one(bob), ttl: 90_000, line: []waiting{{owner: carol, ago: 5000}},
			args: let(alice, ""),
			runs: over(lineRun{reply: []int64{0}, hash: one(bob), left: untouched, line: []string{carol}}, 0)},
		{name: "a lock that is gone is handed over, too", line: []waiting{{owner: bob, ago: 5000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{0}, hash: one(bob), left: first, granted: []string{bob}}, 0)},
		{name: "who gives up leaves the line", held: one(bob), ttl: 90_000,
			line: []waiting{{owner: alice, ago: 5000, stamped: 3000}, {owner: carol, ago: 4000}},
			args: let(alice, entryOf(alice)),
			runs: over(lineRun{reply: []int64{0}, hash: one(bob), left: untouched, line: []string{carol}}, 0)},
		{name: "and passes on what it was granted meanwhile", held: one(alice), ttl: 30_000,
			line: []waiting{{owner: carol, ago: 4000}}, args: let(alice, entryOf(alice)),
			runs: over(lineRun{reply: []int64{1}, hash: one(carol), left: first, granted: []string{carol}}, 0)},
		{name: "the last to give up leaves no key", held: one(bob), ttl: 90_000,
			line: []waiting{{owner: alice, ago: 5000, stamped: 3000}}, args: let(alice, entryOf(alice)),
			runs: over(lineRun{reply: []int64{0}, hash: one(bob), left: untouched}, 0)},
		{name: "what is left of a queue of nobody goes", held: one(alice), ttl: 90_000, open: -60_000, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, left: gone, told: 1}, 0)},
		{name: "an entry that the releaser left behind is nobody's", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: alice, ago: 6000, stamped: 3000}, {owner: bob, ago: 5000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, hash: one(bob), left: first, granted: []string{bob}}, 0)},
		{name: "also if nobody else is in line", held: one(alice), ttl: 90_000, line: []waiting{{owner: alice, ago: 6000}},
			args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, left: gone, told: 1}, 0)},
		{name: "without the queue's key the release is open", alone: true, held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}}, args: let(alice, ""),
			runs: over(lineRun{reply: []int64{1}, left: gone, line: []string{bob}, told: 1}, 0)},

		{name: "named in line: behind the others", held: one(alice), ttl: 90_000, line: []waiting{{owner: bob, ago: 5000}},
			args: name(anyTime, "0"),
			runs: over(lineRun{reply: []int64{1, 2, 1}, hash: one(bob), left: first, line: []string{carol},
				granted: []string{bob}}, 0, 0, 0)},
		{name: "named in line: its place counts", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: carol, ago: 5000}, {owner: bob, ago: 4000}}, args: name(anyTime, "0"),
			runs: over(lineRun{reply: []int64{1, 1, 1}, hash: one(carol), left: 300_000, line: []string{bob}}, 0, 0, 0)},
		{name: "named in line: the others are gone", held: one(alice), ttl: 90_000, line: []waiting{{owner: bob, ago: 5000}},
			deaf: []string{bob}, args: name(anyTime, "0"),
			runs: over(lineRun{reply: []int64{1, 1, 1}, hash: one(carol), left: 300_000}, 0, 0, 0)},
		{name: "named in line: nobody else is there", held: one(alice), ttl: 90_000, args: name(anyTime, "0"),
			runs: over(lineRun{reply: []int64{1, 1, 0}, hash: one(carol), left: 300_000}, 0, 0, 0)},
		{name: "named too late: the first in line gets it", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}}, args: name("1", "1"),
			runs: over(lineRun{reply: []int64{1, 0, 0}, hash: one(bob), left: first, granted: []string{bob}}, 0, 0, 0)},
		{name: "named too late: nobody gets it", held: one(alice), ttl: 90_000, args: name("1", "1"),
			runs: over(lineRun{reply: []int64{1, 0, 0}, left: gone, told: 1}, 0, 0, 0)},
		{name: "named by one who holds nothing any more: nothing", line: []waiting{{owner: bob, ago: 5000}},
			args: name(anyTime, "1"),
			runs: over(lineRun{reply: []int64{0, 0, 0}, hash: one(bob), left: first, granted: []string{bob}}, 0, 0, 0)},
		{name: "named by one who holds nothing any more, and nobody is there", args: name(anyTime, "1"),
			runs: over(lineRun{reply: []int64{0, 0, 0}, left: gone, told: 1}, 0, 0, 0)},
		{name: "named while another has it: nothing", held: one(bob), ttl: 90_000, args: name(anyTime, "1"),
			runs: over(lineRun{reply: []int64{0, 0, 0}, hash: one(bob), left: untouched}, 0, 0, 0)},
		{name: "named while joined owners are left: nothing",
			held: map[string]string{alice: "1", alice + "!": far, bob: "1", bob + "!": far}, ttl: 90_000,
			args: name(anyTime, "1"),
			runs: over(lineRun{reply: []int64{1, 0, 0}, hash: map[string]string{bob: "1", bob + "!": far}, left: 24 * 3600_000},
				0, 0, 0)},
		{name: "named without the queue's key", alone: true, held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}}, args: name(anyTime, "0"),
			runs: over(lineRun{reply: []int64{1, 1, 0}, hash: one(carol), left: 300_000, line: []string{bob}}, 0, 0, 0)},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runLineTable(t, newScriptRig(t, s), "release", rows, func(r []int64) []int64 { return ranks(2, r) })
	})
}

func TestForceScriptWithAQueue(t *testing.T) {
	t.Parallel()
	one := func(owner string) map[string]string { return map[string]string{owner: "1"} }
	rows := []lineRow{
		{name: "the first in line gets it", held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}, {owner: carol, ago: 4000}},
			args: []string{"CHANNEL", "PUBLISH", "GRANTS", alice},
			runs: [2]lineRun{{reply: []int64{1}, hash: one(bob), left: first, line: []string{carol}, granted: []string{bob}},
				{reply: []int64{0}, hash: one(bob), left: untouched, line: []string{carol}}}},
		{name: "nobody there", held: one(alice), ttl: 90_000, line: []waiting{{owner: bob, ago: 5000}}, deaf: []string{bob},
			args: []string{"CHANNEL", "PUBLISH", "GRANTS", alice},
			runs: [2]lineRun{{reply: []int64{1}, left: gone, told: 1}, {reply: []int64{0}, left: gone, told: 1}}},
		{name: "while somebody holds it still", held: map[string]string{alice: "1", bob: "1"}, ttl: 90_000,
			line: []waiting{{owner: carol, ago: 5000}}, args: []string{"CHANNEL", "PUBLISH", "GRANTS", alice},
			runs: [2]lineRun{{reply: []int64{1}, hash: one(bob), left: untouched, line: []string{carol}},
				{reply: []int64{0}, hash: one(bob), left: untouched, line: []string{carol}}}},
		{name: "without the queue's key", alone: true, held: one(alice), ttl: 90_000,
			line: []waiting{{owner: bob, ago: 5000}}, args: []string{"CHANNEL", "PUBLISH", "GRANTS", alice},
			runs: [2]lineRun{{reply: []int64{1}, left: gone, line: []string{bob}, told: 1},
				{reply: []int64{0}, left: gone, line: []string{bob}, told: 1}}},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		runLineTable(t, newScriptRig(t, s), "force", rows, func(r []int64) []int64 { return r })
	})
}

// A process may be subscribed at a replica, which it took for the primary, or which was one: there it hears what the
// primary publishes, and is not among the receivers that the primary counts.
func TestNobodyHearsOfAGrantThatDoesNotStand(t *testing.T) {
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
			g.must(t, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-pubsub")
			o := s.Option()
			o.Username, o.Password = "limited", "secret"
			c, err = rueidis.NewClient(o)
			require.NoError(t, err)
			t.Cleanup(c.Close)
		}
		key, queue := fmt.Sprint("l", mayAsk), fmt.Sprint("q", mayAsk)
		heard, _ := overhear(t, replica.Client(t), []string{"grants:" + bob[:36]}, "CHANNEL*")
		g.line(t, queue, waiting{owner: bob, ago: 5000})
		g.must(t, "HSET", key, alice, "1")
		_, err := eval(t, c, g.src["release"], []string{key, queue}, alice, "CHANNEL", "PUBLISH", "grants:", "")
		require.NoError(t, err)
		g.must(t, "PUBLISH", "CHANNEL", "last") // comes after whatever the script published
		var messages []string
		redistest.Eventually(t, 20*time.Second, "what was published is at the replica", func() bool {
			messages = append(messages, heard()...)
			return slices.Contains(messages, "CHANNEL last")
		})
		holder := g.look(t, key).hash
		if mayAsk {
			require.Empty(t, holder, "who is not there is dropped")
			require.Equal(t, []string{"CHANNEL 0", "CHANNEL last"}, messages)
		} else {
			require.Equal(t, map[string]string{bob: "1"}, holder, "who may be there is granted, and that stands")
		}
	}
}

// TestAGrantThatMayNotBePublishedIsUndone: by a user who may publish on Redisson's channels only.
func TestAGrantThatMayNotBePublishedIsUndone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	g.must(t, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels", "&redisson_lock__channel:*")
	o := s.Option()
	o.Username, o.Password = "limited", "secret"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	heard, _ := overhear(t, g.c, []string{"grants:" + bob[:36], "grants:" + carol[:36]}, "redisson_lock__channel:*")
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
			got, err := eval(t, c, g.src["release"], []string{key, queue}, alice, "redisson_lock__channel:{l}", "PUBLISH",
				"grants:", "")
			require.NoError(t, err)
			require.Equal(t, []int64{want}, got)
			requireTTL(t, gone, snapshot{}, g.look(t, key))
			after := g.queue(t, queue)
			require.Equal(t, before.line, after.line, "the queue is as it was")
			require.Equal(t, before.tickets, after.tickets)
			require.Contains(t, after.stamps, bob, "and who was alive in it still is")
			require.Equal(t, []string{"redisson_lock__channel:{l} 0"}, heard(), "the release is open")
		}
		got, err := g.run(t, "release", []string{key, queue}, alice, "redisson_lock__channel:{l}", "PUBLISH", "grants:", "")
		require.NoError(t, err)
		require.Equal(t, []int64{0}, got)
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, key).hash,
			"somebody with the right to finds the first in line")
		require.Equal(t, []string{fmt.Sprintf("grants:%s %d %d %s", bob[:36], before.tickets[bob], first, bob)}, heard())
	}
	// the only one: its queue was gone for a moment, and has an end like any other
	g.line(t, "alone", waiting{owner: bob, ago: 5000})
	g.must(t, "HSET", "l", alice, "1")
	_, err = eval(t, c, g.src["release"], []string{"l", "alone"}, alice, "redisson_lock__channel:{l}", "PUBLISH",
		"grants:", "")
	require.NoError(t, err)
	left, err := g.c.Do(within(t), g.c.B().Pttl().Key("alone").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, left)
}

// TestSomeReleasesAreOpenWhileRedissonListens, and none otherwise.
func TestSomeReleasesAreOpenWhileRedissonListens(t *testing.T) {
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
		heard, _ := overhear(t, g.c, []string{grants + bob[:36]}, "")
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
				require.Equal(t, map[string]string{bob: "1"}, g.look(t, key).hash)
				require.Equal(t, []string{fmt.Sprintf("%s%s %d %d %s", grants, bob[:36], ticket, first, bob)}, heard())
				return false
			}
			requireTTL(t, gone, snapshot{}, g.look(t, key))
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
		_, leave := overhear(t, g.c, []string{channel, keyname.Mark(channel)}, "")
		for range 60 {
			require.False(t, open(), "nobody of Redisson's")
		}
		heard()
		leave()
		java, stop := overhear(t, g.c, []string{channel}, "")
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
				require.Equal(t, map[string]string{bob: "1"}, g.look(t, key).hash)
				require.Empty(t, java())
				continue
			}
			after := g.queue(t, queue)
			require.Equal(t, []int64{1, 2, after.tickets[bob]}, got)
			require.Positive(t, after.open)
			requireTTL(t, gone, snapshot{}, g.look(t, key))
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

func TestTheQueueLastsForAsLongAsSomebodyEntersIt(t *testing.T) {
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
		left, err := g.do(t, "PTTL", "q").AsInt64()
		require.NoError(t, err)
		require.Greater(t, left, int64(ttl*3/4))
	})
}

// What publishes a grant is mostly sent without where to: the scripts know that by themselves, but in a Cluster.
func TestScriptsKnowWhereGrantsArePublished(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newRWRig(t, s)
		heard, _ := overhear(t, g.c, []string{"redlatch_grant:" + bob[:36]}, "")
		queue, rw := []string{"l", "q"}, []string{"l", "ends", "q"}
		for _, c := range []struct {
			script string
			held   []string // the command that takes the lock
			entry  string
			band   int64
			keys   []string
			args   []string
		}{
			{"acquire", nil, entryOf(bob), 0, queue, []string{alice, rwLease, "0"}},
			{"release", []string{"HSET", "l", alice, "1"}, entryOf(bob), 0, queue, []string{alice, "c"}},
			{"plain_release", []string{"SET", "l", alice}, bob + " 200", 0, []string{"l", "q", "hashes"}, []string{alice, "c"}},
			{"rw_read", nil, entryOf(bob), rwWriter, append(rw[:3:3], "t"), []string{alice, rwLease, "0", "c", "", ""}},
			{"rw_write", nil, entryOf(bob), rwReader, rw, []string{alice, rwLease, "0", "c"}},
			{"rw_release", []string{"HSET", "l", "mode", "write", aliceW, "1"}, entryOf(bob), rwReader, rw,
				[]string{aliceW, "c", "1"}},
		} {
			g.must(t, "FLUSHALL")
			if c.held != nil {
				g.must(t, c.held...)
			}
			g.must(t, "ZADD", "q", strconv.FormatInt(c.band*rwBand+g.nowMicros(t), 10), c.entry)
			_, err := eval(t, g.c, source(t, c.script), c.keys, c.args...)
			require.NoError(t, err, c.script)
			require.Len(t, heard(), 1, c.script)
		}
	})
}
