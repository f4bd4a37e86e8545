package rsemaphore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// heard is what is published to a process while fn runs.
func (r *rig) heard(t *testing.T, process string, fn func()) (words []string) {
	t.Helper()
	return r.heardWhile(t, "redlatch_grant:"+process, fn)
}

// queue is the bases in the queue in their order, with their numbers.
func (r *rig) queue(t *testing.T) (all []string) {
	t.Helper()
	v := redistest.NoError(r.do(t, "ZRANGE", queueKey, "1", "+inf", "BYSCORE").AsStrSlice())(t)
	for _, e := range v {
		waiting := entryRead(t, e)
		all = append(all, waiting.Rest[:1]+strconv.Itoa(waiting.Amount))
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
	m := redistest.NoError(r.script(t, name, keysOf(name), args...))(t)
	v := redistest.NoError(m.ToArray())(t)
	for _, x := range v {
		if s, err := x.ToString(); err == nil {
			reply = append(reply, s)
		} else {
			n := redistest.NoError(x.AsInt64())(t)
			reply = append(reply, strconv.FormatInt(n, 10))
		}
	}
	return reply
}

// served is what a reply says of others of the process: bases and leases in units.
func servedIn(t *testing.T, words []string) (all []string) {
	t.Helper()
	for i := 0; i+1 < len(words); i += 2 {
		ms := redistest.NoError(strconv.ParseInt(words[i], 10, 64))(t)
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
		ms := redistest.NoError(strconv.ParseInt(w[1], 10, 64))(t)
		word := fmt.Sprintf("%s %d", w[3][:1], units(ms))
		if w[0] == "0" {
			word = "look " + w[3][:1]
		}
		all, rest = append(all, word), w[3][13:]
	}
	return all
}

const baseX = "xxxxxx\x80xxxxxx"

// A user that may not publish to other processes hands nothing over, and nothing is lost.
func TestGrant_MayNotBePublished_IsUndone(t *testing.T) {
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
func TestWait_ServedByALostRelease_AsksAtOnce(t *testing.T) {
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
	asked := redistest.ScriptCalls(t, look.redis)
	trap := p.Trap(&redistest.Trap{Match: isRelease, Fate: redistest.LoseReply})
	require.NoError(t, held.Release(within(t)))
	trap.Wait(t)
	release(t, <-got)
	require.Less(t, redistest.ScriptCalls(t, look.redis)-asked, 10, "it asks, and is not asked for all the time")
}

// isRelease reports whether a call is the release of a semaphore: no other lone call has five keys.
func isRelease(words []string) bool { return redistest.IsScript(words) && words[2] == "5" }

// What an acquisition costs the server does not grow with the processes that wait.
func TestAcquire_ManyProcessesWait_CallsDoNotGrow(t *testing.T) {
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
		before := redistest.ScriptCalls(t, rigs[0].redis)
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
		calls[processes] = float64(redistest.ScriptCalls(t, rigs[0].redis)-before) / each
	}
	t.Logf("script calls an acquisition and its release, by processes: %.2v", calls)
	require.Less(t, calls[12], 4.0, "an acquire, a release, and what it takes to begin")
}

// A process that holds all is killed. The first five of the waiters get them when its lease is over, and no call of
// anybody else is needed.
func TestWait_HoldersLeaseEnds_ServesThoseThatFit(t *testing.T) {
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
