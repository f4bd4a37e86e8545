package rsemaphore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

const queueKey = "redlatch_queue:{s}"

// asking are acquire's arguments of a process that asks for places for several entries.
func asking(capacity int, of string, entries ...string) []string {
	args := []string{strconv.Itoa(capacity), "0", "redisson_sc:{s}", "PUBLISH", "0", "redlatch_grant:", of, "1"}
	for _, e := range entries {
		args = append(args, e, strconv.Itoa(30*unit))
	}
	return args
}

// heard collects what is published to a process while fn runs.
func (r *rig) heard(t *testing.T, process string, fn func()) (words []string) {
	t.Helper()
	ctx := within(t)
	got := make(chan string, 100)
	conn, release := r.redis.Dedicate()
	defer release()
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { got <- m.Message }})
	require.NoError(t, conn.Do(ctx, conn.B().Subscribe().Channel("redlatch_grant:"+process).Build()).Error())
	fn()
	r.must(t, "PUBLISH", "redlatch_grant:"+process, "mark")
	for {
		select {
		case m := <-got:
			if m == "mark" {
				conn.Close()
				return words
			}
			words = append(words, m)
		case <-ctx.Done():
			t.Fatal("no message")
		}
	}
}

// queue is the bases in the queue in their order, with their numbers.
func (r *rig) queue(t *testing.T) (all []string) {
	t.Helper()
	v, err := r.do(t, "ZRANGE", queueKey, "1", "+inf", "BYSCORE").AsStrSlice()
	require.NoError(t, err)
	for _, e := range v {
		all = append(all, e[:1]+strings.Fields(e[13:])[0])
	}
	return all
}

// owners of the permits out: the first letter of each base, once for each permit.
func (r *rig) outBases(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for id := range r.get(t).out {
		all[id[:1]]++
	}
	return all
}

// run runs a script and returns its reply as text.
func (r *rig) run(t *testing.T, name string, args ...string) (reply []string) {
	t.Helper()
	m, err := r.script(t, name, keysOf(name), args...)
	require.NoError(t, err)
	v, err := m.ToArray()
	require.NoError(t, err)
	for _, x := range v {
		if s, err := x.ToString(); err == nil {
			reply = append(reply, s)
		} else {
			n, err := x.AsInt64()
			require.NoError(t, err)
			reply = append(reply, strconv.FormatInt(n, 10))
		}
	}
	return reply
}

// served is what a reply says of others of the process: bases and leases in units.
func servedIn(t *testing.T, words []string) (all []string) {
	t.Helper()
	for i := 0; i+1 < len(words); i += 2 {
		ms, err := strconv.ParseInt(words[i], 10, 64)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %d", words[i+1][:1], units(ms)))
	}
	return all
}

// grantsIn reads a published message: base, and lease in units; "look" for a lease without a ticket.
func grantsIn(t *testing.T, message string) (all []string) {
	t.Helper()
	rest, ok := strings.CutPrefix(message, "*")
	require.True(t, ok, message)
	for rest != "" {
		w := strings.SplitN(rest, " ", 4)
		require.Len(t, w, 4)
		require.Equal(t, "13", w[2])
		ms, err := strconv.ParseInt(w[1], 10, 64)
		require.NoError(t, err)
		word := fmt.Sprintf("%s %d", w[3][:1], units(ms))
		if w[0] == "0" {
			word = "look " + w[3][:1]
		}
		all, rest = append(all, word), w[3][13:]
	}
	return all
}

func TestAQueueOfPermitsDoesWhatItsTableSays(t *testing.T) {
	t.Parallel()
	one, two := process, processTwo
	// each begins with 4 permits out of 4, of x; x2 means two waiters' permits
	for name, c := range map[string]struct {
		// "<base letter><n><process 1 or 2>", in order; then "-" of one that is about to leave, "+" of one that is not
		wait   []string
		deaf   bool // nobody of process two listens
		act    func(t *testing.T, r *rig) []string
		reply  []string // served in the reply
		told   []string // process two
		out    map[string]int
		queue  []string
		free   string
		second bool // of the same call changes nothing
	}{
		"a release serves the first of another process": {wait: []string{"b12", "c11"}, act: releases(1),
			told: []string{"b 4"}, out: map[string]int{"x": 3, "b": 1}, queue: []string{"c1"}, free: "0", second: true},
		"and of its own in the reply": {wait: []string{"b11", "c12"}, act: releases(1),
			reply: []string{"b 4"}, out: map[string]int{"x": 3, "b": 1}, queue: []string{"c1"}, free: "0", second: true},
		"several of several processes": {wait: []string{"b12", "c11", "d12"}, act: releases(3),
			reply: []string{"c 4"}, told: []string{"b 4", "d 4"}, out: map[string]int{"x": 1, "b": 1, "c": 1, "d": 1},
			free: "0"},
		"the first waits, those behind pass": {wait: []string{"b31", "c11", "d12"}, act: releases(2),
			reply: []string{"c 4"}, told: []string{"d 4"}, out: map[string]int{"x": 2, "c": 1, "d": 1}, queue: []string{"b3"},
			free: "0"},
		"and when it can be served it is": {wait: []string{"b31", "c11", "d12"}, act: releases(3),
			reply: []string{"b 4"}, out: map[string]int{"x": 1, "b": 3}, queue: []string{"c1", "d1"}, free: "0"},
		"who hears nothing is dropped": {wait: []string{"b12", "c11"}, deaf: true, act: releases(1),
			reply: []string{"c 4"}, out: map[string]int{"x": 3, "c": 1}, free: "0"},
		"nobody is left, and the count is for all": {wait: []string{"b12"}, deaf: true, act: releases(1),
			out: map[string]int{"x": 3}, free: "1"},
		"a larger capacity": {wait: []string{"b11", "c12", "d11"}, act: resizes(6),
			reply: []string{"b 4"}, told: []string{"c 4"}, out: map[string]int{"x": 4, "b": 1, "c": 1}, queue: []string{"d1"},
			free: "0"},
		"who wants more than there is now is told": {wait: []string{"b42", "c11"}, act: resizes(3),
			told: []string{"look b"}, out: map[string]int{"x": 4}, queue: []string{"c1"}, free: "-1"},
		"without a place nobody goes past it": {wait: []string{"b21"}, act: freesAndTries(1),
			out: map[string]int{"x": 3}, queue: []string{"b2"}, free: "1"},
		"a small newcomer goes past as one in line may": {wait: []string{"b21"}, act: freesAndAsks(1),
			reply: []string{"e 4"}, out: map[string]int{"x": 3, "e": 1}, queue: []string{"b2"}, free: "0"},
		"who is about to leave is passed over": {wait: []string{"b12-", "c11-", "d12", "e11"}, act: releases(1),
			told: []string{"d 4"}, out: map[string]int{"x": 3, "b": 0, "c": 0, "d": 1}, queue: []string{"e1"}, free: "0",
			second: true},
		"who leaves later is not": {wait: []string{"b12+", "c11"}, act: releases(1),
			told: []string{"b 4"}, out: map[string]int{"x": 3, "b": 1}, queue: []string{"c1"}, free: "0"},
		"all are about to leave": {wait: []string{"b12-", "c11-"}, act: releases(1),
			out: map[string]int{"x": 3}, free: "1"},
		"several leave together, one had been served": {wait: []string{"b12", "c11", "d12", "e11"}, act: departs("b", "d"),
			reply: []string{"c 4"}, out: map[string]int{"x": 3, "b": 0, "c": 1, "d": 0}, queue: []string{"e1"}, free: "0",
			second: true},
		"what is over is pruned and handed on": {wait: []string{"b12"}, act: expires(1), told: []string{"b 4"},
			out: map[string]int{"x": 3, "b": 1, "e": 0}, queue: []string{"e4"}, free: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				r := newRig(t, s, patient)
				r.must(t, "DEL", queueKey)
				out := map[string]int{}
				for i := range 4 {
					out[strings.Repeat("x", 6)+"\x80xxxxxx\x00\x00"+string(rune(i))] = 50
				}
				r.put(t, sem{count: "0", ttl: 50, out: out, outTTL: 50})
				var own, told []string
				serve := func() {
					for _, w := range c.wait {
						of := map[byte]string{'1': one, '2': two}[w[2]]
						base := strings.Repeat(w[:1], 6) + "\x80" + strings.Repeat(w[:1], 6)
						n, _ := strconv.Atoi(w[1:2])
						e := entry(base, n, of, "")
						switch w[3:] {
						case "-": // it came when it still had time
							e = strings.Replace(e, " "+of, ":"+strconv.FormatInt(r.now(t), 10)+" "+of, 1)
							r.must(t, "ZADD", queueKey, strconv.FormatInt(r.now(t)*1000, 10), e)
							continue
						case "+":
							e = strings.Replace(e, " "+of, ":"+strconv.FormatInt(r.now(t)+100_000, 10)+" "+of, 1)
						}
						reply := r.run(t, "acquire", asking(4, of, e)...)
						require.Len(t, reply, 7)
						require.NotContains(t, []string{"-1", "0"}, reply[6])
					}
					if !c.deaf {
						for _, m := range r.heard(t, two, func() { own = c.act(t, r) }) {
							told = append(told, grantsIn(t, m)...)
						}
						return
					}
					own = c.act(t, r)
				}
				if c.deaf {
					r.heard(t, one, serve)
				} else {
					r.heard(t, one, func() { r.heard(t, two, serve) }) // both listen while they come
				}
				require.Equal(t, c.reply, servedIn(t, own))
				require.Equal(t, c.told, told)
				for base, n := range c.out {
					require.Equal(t, n, r.outBases(t)[base], "of %s", base)
				}
				require.Equal(t, c.queue, r.queue(t))
				require.Equal(t, c.free, r.get(t).count)
				if len(c.queue) == 0 {
					require.Zero(t, r.number(t, "EXISTS", queueKey), "no stamps of nobody")
				}
				if c.second {
					before := r.get(t)
					require.Empty(t, servedIn(t, c.act(t, r)))
					require.Equal(t, before, r.get(t))
				}
			})
		})
	}
}

// departs releases what the given have, in one call, the second of which gives back a permit of x.
func departs(bases ...string) func(t *testing.T, r *rig) []string {
	return func(t *testing.T, r *rig) []string {
		var args []string
		for i, letter := range bases {
			base := strings.Repeat(letter, 6) + "\x80" + strings.Repeat(letter, 6)
			if i == 0 {
				args = giving("0", owner(base, 1))
				args[len(args)-1] = entry(base, 1, processTwo, "")
				args = append(args, owner(baseX, 1), "")
				continue
			}
			args = append(args, owner(base, 1), entry(base, 1, processTwo, ""))
		}
		return r.run(t, "release", args...)[2:]
	}
}

// Of the three permits that b wants two are free, and eleven have gone past it. c, who wants two, would be the
// thirteenth.
func TestNobodyIsOvertakenByMoreThanFourTimesWhatItWants(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for passed, left := range map[int][]string{10: {"b3"}, 11: {"b3", "c2"}} {
			r := newRig(t, s, patient)
			r.must(t, "DEL", queueKey)
			out := map[string]int{}
			for i := range 4 {
				out[baseX+"\x00\x00"+string(rune(i))] = 50
			}
			r.put(t, sem{count: "0", ttl: 50, out: out, outTTL: 50})
			r.heard(t, process, func() {
				for _, e := range []string{entry("bbbbbb\x80bbbbbb", 3, process, ""), entry("cccccc\x80cccccc", 2, process, "")} {
					r.run(t, "acquire", asking(4, process, e)...)
				}
				r.must(t, "ZADD", queueKey, strconv.Itoa(-passed), "!pbbbbbb\x80bbbbbb")
				r.run(t, "release", giving("0", owner(baseX, 2))...)
			})
			require.Equal(t, left, r.queue(t), "%d had gone past", passed)
		}
	})
}

const baseX = "xxxxxx\x80xxxxxx"

func releases(n int) func(*testing.T, *rig) []string {
	return func(t *testing.T, r *rig) []string {
		return r.run(t, "release", giving("0", owner(baseX, n))...)[2:]
	}
}

func resizes(n int) func(*testing.T, *rig) []string {
	return func(t *testing.T, r *rig) []string { return r.run(t, "resize", resizing(n, 4)...)[4:] }
}

// frees has n permits of x gone as if another program had released them.
func frees(t *testing.T, r *rig, n int) {
	for i := range n {
		r.must(t, "ZREM", "{s}:timeout", baseX+"\x00\x00"+string(rune(i)))
	}
	r.must(t, "INCRBY", "s", strconv.Itoa(n))
}

func freesAndTries(n int) func(*testing.T, *rig) []string {
	return func(t *testing.T, r *rig) []string {
		frees(t, r, n)
		reply := r.run(t, "acquire", taking(4, 30, "eeeeee\x80eeeeee", 1)...)
		require.Equal(t, "0", reply[6])
		return reply[7:]
	}
}

func freesAndAsks(n int) func(*testing.T, *rig) []string {
	return func(t *testing.T, r *rig) []string {
		frees(t, r, n)
		return r.run(t, "acquire", asking(4, process, entry("eeeeee\x80eeeeee", 1, process, ""))...)[7:]
	}
}

func expires(n int) func(*testing.T, *rig) []string {
	return func(t *testing.T, r *rig) []string {
		for i := range n {
			r.must(t, "ZADD", "{s}:timeout", "1", baseX+"\x00\x00"+string(rune(i)))
		}
		return r.run(t, "acquire", asking(4, process, entry("eeeeee\x80eeeeee", 4, process, ""))...)[7:]
	}
}

// A user that may not publish to other processes hands nothing over, and nothing is lost.
func TestAGrantThatMayNotBePublishedIsUndone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, patient)
	r.must(t, "ACL", "SETUSER", "mute", "on", ">x", "~*", "+@all", "resetchannels", "&redisson_sc:*")
	mute := newRigWith(t, server, patient, func(c *rueidis.ClientOption) { c.Username, c.Password = "mute", "x" })
	r.put(t, sem{count: "0", ttl: 50, out: map[string]int{baseX + "\x00\x00\x00": 50, baseX + "\x00\x00\x01": 50},
		outTTL: 50})
	b := entry("bbbbbb\x80bbbbbb", 1, processTwo, "a label")
	told := r.heard(t, processTwo, func() {
		r.run(t, "acquire", asking(2, processTwo, b)...)
		ticket := r.text(t, "ZSCORE", queueKey, b)
		require.Equal(t, []string{"1", "-1"}, mute.run(t, "release", giving("0", owner(baseX, 1))...))
		require.Equal(t, []string{"b1"}, r.queue(t))
		require.Equal(t, ticket, r.text(t, "ZSCORE", queueKey, b))
		require.Equal(t, sem{count: "1", ttl: 50, out: map[string]int{baseX + "\x00\x00\x01": 50}, outTTL: 50}, r.get(t))
		r.run(t, "release", giving("0", owner(baseX, 2))...)
		require.Equal(t, map[string]int{"b": 1}, r.outBases(t))
		require.Equal(t, map[string]string{"bbbbbb\x80bbbbbb\x00\x00\x00": "a label"}, r.get(t).notes)
	})
	require.Len(t, told, 1)
	require.Equal(t, []string{"b 4"}, grantsIn(t, told[0]))
}

// A release serves waiters of its own process, and its reply, which names them, is lost.
func TestWhoIsServedByAReleaseWhoseReplyIsLostAsksAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	o := rsemaphore.Options{PollCap: time.Minute, CallTimeout: time.Second, WatchdogTimeout: 5 * time.Minute}
	r, look := newRig(t, p.Server(), o), newRig(t, s, o)
	sem := r.c.Semaphore("s", 1)
	held := acquire(t, sem, 1)
	got := make(chan *rsemaphore.Permit, 1)
	go func() {
		q, err := sem.Acquire(within(t), 1)
		if err != nil {
			t.Error(err)
		}
		got <- q
	}()
	redistest.Eventually(t, 30*time.Second, "waits", func() bool { return len(look.queue(t)) == 1 })
	time.Sleep(100 * time.Millisecond) // its place is known
	asked := scriptCalls(t, look)
	trap := p.Trap(&redistest.Trap{Match: isRelease, Fate: redistest.LoseReply})
	require.NoError(t, held.Release(within(t)))
	trap.Wait(t)
	release(t, <-got)
	require.Less(t, scriptCalls(t, look)-asked, int64(10), "it asks, and is not asked for all the time")
}

// isRelease reports whether a call is the release of a semaphore: no other script has four keys.
func isRelease(words []string) bool { return redistest.IsScript(words) && words[2] == "4" }

// Loops of one permit in four processes never leave the semaphore; a request for all is served all the same. What
// counts is how many go before it.
func TestARequestForAllIsServedAmongLoopsOfOneInSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const capacity, processes, loops, rounds = 5, 4, 3, 10
	var small atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range processes {
		r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second})
		sem := r.c.Semaphore("s", capacity)
		for range loops {
			wg.Go(func() {
				for {
					p, err := sem.Acquire(ctx, 1)
					if err != nil {
						return
					}
					small.Add(1)
					time.Sleep(2 * time.Millisecond)
					if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	sem := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second}).c.Semaphore("s", capacity)
	var over int64
	for range rounds {
		before := small.Load()
		p := acquire(t, sem, capacity)
		over += small.Load() - before
		release(t, p)
	}
	stop()
	wg.Wait()
	t.Logf("%d went before each request for all, of %d loops", over/rounds, processes*loops)
	// Before it: those in line when it came, 4 times its number, and those that were served on the way of its request and
	// grant.
	require.LessOrEqual(t, over/rounds, int64(10*(4*capacity+processes*loops)))
}

// What an acquisition costs the server does not grow with the processes that wait.
func TestTheCallsOfAnAcquisitionDoNotGrowWithTheProcessesThatWait(t *testing.T) {
	t.Parallel()
	calls := map[int]float64{}
	for _, processes := range []int{2, 12} {
		s := redistest.Start(t)
		var wg sync.WaitGroup
		const each = 240
		rigs := make([]*rig, processes)
		for i := range rigs {
			rigs[i] = newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Second})
		}
		before := scriptCalls(t, rigs[0])
		for _, r := range rigs {
			wg.Go(func() {
				for range each / processes {
					if err := r.c.Semaphore("s", 1).Do(within(t), 1, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		calls[processes] = float64(scriptCalls(t, rigs[0])-before) / each
	}
	t.Logf("script calls an acquisition and its release, by processes: %.2v", calls)
	require.Less(t, calls[12], 4.0, "an acquire, a release, and what it takes to begin")
}

// scriptCalls is how many scripts the server has run.
func scriptCalls(t testing.TB, r *rig) (n int64) {
	t.Helper()
	for _, c := range []string{"evalsha", "eval"} {
		for line := range strings.Lines(r.text(t, "INFO", "commandstats")) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+c+":calls="); ok {
				v, err := strconv.ParseInt(rest[:strings.IndexByte(rest, ',')], 10, 64)
				require.NoError(t, err)
				n += v
			}
		}
	}
	return n
}

// A process that holds all is killed. The first five of the waiters get them when its lease is over, and no call of
// anybody else is needed.
func TestWaitersThatFitAreServedAfterTheLeaseOfAHolderThatIsGone(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		dies := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: time.Second, WatchdogTimeout: 5 * time.Second})
		forgo(t, acquire(t, dies.c.Semaphore("s", 10), 10))
		var rigs []*rig
		ctx, cancel := context.WithCancel(context.Background())
		got, gone := make(chan *rsemaphore.Permit, 20), make(chan error, 20)
		for range 2 {
			rigs = append(rigs, newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Second}))
		}
		for i := range 20 {
			go func() {
				p, err := rigs[i%2].c.Semaphore("s", 10).Acquire(ctx, 2)
				if err == nil {
					got <- p
				} else {
					gone <- err
				}
			}()
		}
		redistest.Eventually(t, 30*time.Second, "all wait", func() bool { return len(rigs[0].queue(t)) == 20 })
		p.BlackHole(redistest.Up) // as good as killed: it says nothing any more
		var permits []*rsemaphore.Permit
		for range 5 {
			permits = append(permits, <-got)
		}
		require.Equal(t, [3]int{0, 10, 10}, counts(t, rigs[0].c.Semaphore("s", 10)))
		require.Empty(t, got)
		for _, p := range permits {
			release(t, p)
		}
		for range 5 {
			release(t, <-got)
		}
		cancel()
		for n := 10; n < 20; n++ {
			select {
			case p := <-got:
				release(t, p)
			case <-gone:
			}
		}
		redistest.Eventually(t, 30*time.Second, "nothing is left in line", func() bool {
			return len(rigs[0].queue(t)) == 0 && rigs[0].c.Owed()+rigs[1].c.Owed() == 0
		})
		require.Equal(t, [3]int{10, 0, 10}, counts(t, rigs[0].c.Semaphore("s", 10)))
		p.Heal()
	})
}
