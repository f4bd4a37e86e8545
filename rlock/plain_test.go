package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// plainRun is one call of a script of a Plain lock with a line, and what must come of it.
type plainRun struct {
	what   string
	owner  string
	script string // acquire, try (without a place), release, or a command on the lock
	reply  []int64
	held   string   // afterwards
	line   []string // afterwards, in order
	told   string   // who is told to ask
}

// What a release tells, whom a free lock is left to, and that other programs find it free at any moment.
func TestPlainScriptsTellTheFirstInLine(t *testing.T) {
	t.Parallel()
	const (
		dave     = "3c4d5e6f-5a1e-8c61-9d0a-6f4f3a2b1c0d:4"
		far      = "600000" // a reservation longer than any test
		deaf     = dave     // its process is gone
		released = 1
		left     = -7 // any number above 0
	)
	inLine, granted := []int64{0, left, left, 1, 0}, []int64{left}
	held := []plainRun{
		{what: "it is free", owner: bob, script: "acquire", reply: granted, held: bob},
		{what: "it is held", owner: alice, script: "acquire", reply: inLine, held: bob, line: []string{alice}},
		{what: "its place stays", owner: alice, script: "acquire", reply: inLine, held: bob, line: []string{alice}},
		{what: "the next is behind it", owner: carol, script: "acquire", reply: inLine, held: bob,
			line: []string{alice, carol}},
		{what: "who does not wait has no place", owner: dave, script: "try", reply: []int64{0, left, left, 0, 0}, held: bob,
			line: []string{alice, carol}},
	}
	held = slices.Clip(held)
	told := slices.Clip(append(held,
		plainRun{what: "the first is told, and the key is gone", owner: bob, script: "release", reply: []int64{released},
			line: []string{alice, carol}, told: alice}))
	tables := map[string][]plainRun{
		"the first asks": append(told,
			plainRun{what: "a second run tells nobody", owner: bob, script: "release", reply: []int64{0},
				line: []string{alice, carol}},
			plainRun{what: "it is left to the first", owner: bob, script: "acquire", reply: []int64{0, left, left, 1, 0},
				line: []string{alice, carol, bob}},
			plainRun{what: "who is told gets it", owner: alice, script: "acquire", reply: granted, held: alice,
				line: []string{carol, bob}},
			plainRun{what: "and asks once more, for a lost reply", owner: alice, script: "acquire",
				reply: []int64{1, left, left}, held: alice, line: []string{carol, bob}},
			plainRun{what: "then the next", owner: alice, script: "release", reply: []int64{released},
				line: []string{carol, bob}, told: carol}),
		"another program is quicker": append(told,
			plainRun{what: "SET NX", script: "SET", held: "xyz", line: []string{alice, carol}},
			plainRun{what: "the first is refused, and stays the first", owner: alice, script: "acquire",
				reply: []int64{0, left, left, 1, 1}, held: "xyz", line: []string{alice, carol}},
			plainRun{what: "DEL", script: "DEL", line: []string{alice, carol}},
			plainRun{what: "nobody was told: whoever asks gets it", owner: carol, script: "acquire", reply: granted,
				held: carol, line: []string{alice}},
			plainRun{what: "the first is told again", owner: carol, script: "release", reply: []int64{released},
				line: []string{alice}, told: alice}),
		"another program is quicker, and releases at once": append(told,
			plainRun{what: "SET NX", script: "SET", held: "xyz", line: []string{alice, carol}},
			plainRun{what: "one that waits is told nothing", owner: carol, script: "acquire",
				reply: []int64{0, left, left, 1, 1}, held: "xyz", line: []string{alice, carol}},
			plainRun{what: "DEL", script: "DEL", line: []string{alice, carol}},
			plainRun{what: "a message under way is not sent again", owner: bob, script: "leave", reply: []int64{0},
				line: []string{alice, carol}}),
		"one that does not wait": append(told,
			plainRun{what: "does not get what is left to another", owner: bob, script: "try",
				reply: []int64{0, left, left, 0, 0}, line: []string{alice, carol}},
			plainRun{what: "its reservation is over", script: "over", line: []string{alice, carol}},
			plainRun{what: "does get what is left to nobody", owner: bob, script: "try", reply: granted, held: bob,
				line: []string{alice, carol}},
			plainRun{what: "the next is told", owner: bob, script: "release", reply: []int64{released}, line: []string{carol},
				told: carol},
			plainRun{what: "who is told gets it", owner: carol, script: "acquire", reply: granted, held: carol}),
		"the first does not come": append(told,
			plainRun{what: "its reservation is over", script: "over", line: []string{alice, carol}},
			plainRun{what: "whoever asks gets it", owner: bob, script: "acquire", reply: granted, held: bob,
				line: []string{alice, carol}},
			plainRun{what: "the next is told", owner: bob, script: "release", reply: []int64{released}, line: []string{carol},
				told: carol},
			plainRun{what: "it comes after all", owner: alice, script: "acquire", reply: inLine, line: []string{carol, alice}}),
		"the first gives up": append(told,
			plainRun{what: "it leaves the line, and the next is told", owner: alice, script: "leave", reply: []int64{0},
				line: []string{carol}, told: carol}),
		"one that is not the first gives up": append(held,
			plainRun{what: "it leaves the line, and that is all", owner: carol, script: "leave", reply: []int64{0}, held: bob,
				line: []string{alice}}),
		"a process is gone": append(slices.Clip(held[:1]),
			plainRun{what: "it waits", owner: deaf, script: "acquire", reply: inLine, held: bob, line: []string{deaf}},
			plainRun{what: "behind it", owner: carol, script: "acquire", reply: inLine, held: bob, line: []string{deaf, carol}},
			plainRun{what: "the next is told", owner: bob, script: "release", reply: []int64{released}, line: []string{carol},
				told: carol}),
		"forced": append(held,
			plainRun{what: "the first is told", owner: bob, script: "force", reply: []int64{1}, line: []string{alice, carol},
				told: alice}),
		"nobody is left": append(slices.Clip(held[:1]),
			plainRun{what: "it waits", owner: deaf, script: "acquire", reply: inLine, held: bob, line: []string{deaf}},
			plainRun{what: "nothing is left", owner: bob, script: "release", reply: []int64{released}}),
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		keys := []string{"p", "line", "hashes"}
		src := sources(t, "plain_acquire", "plain_release", "plain_force")
		for script, text := range src { // nothing here depends on how long a step takes
			src[script] = strings.Replace(text, "RESERVED = 200 ", "RESERVED = "+far+" ", 1)
		}
		entry := func(owner string) string { return owner + " " + far }
		calls := map[string]func(owner string) (script string, args []string){
			"acquire": func(owner string) (string, []string) {
				return "plain_acquire", []string{owner, "300000", "0", "c", "PUBLISH", entry(owner)}
			},
			"try": func(owner string) (string, []string) {
				return "plain_acquire", []string{owner, "300000", "0", "c", "PUBLISH"}
			},
			"release": func(owner string) (string, []string) { return "plain_release", []string{owner, "c", "PUBLISH", "g:"} },
			"leave": func(owner string) (string, []string) {
				return "plain_release", []string{owner, "c", "PUBLISH", "g:", entry(owner)}
			},
			"force": func(owner string) (string, []string) {
				return "plain_force", []string{"c", "PUBLISH", "g:", "x", owner}
			},
		}
		for name, runs := range tables {
			t.Run(name, func(t *testing.T) {
				g.must(t, "FLUSHALL")
				hear, _ := overhear(t, g.c, []string{"g:" + alice[:36], "g:" + bob[:36], "g:" + carol[:36]}, "")
				for _, r := range runs {
					switch r.script {
					case "SET":
						g.must(t, "SET", "p", "xyz", "NX", "PX", "300000")
					case "DEL":
						g.must(t, "DEL", "p")
					case "over":
						g.must(t, "ZADD", "line", strconv.FormatInt(g.now(t)-1, 10), entry(alice))
					default:
						script, args := calls[r.script](r.owner)
						n := len(keys)
						if r.script == "try" {
							n--
						}
						got, err := eval(t, g.c, src[script], keys[:n], args...)
						require.NoError(t, err, r.what)
						require.GreaterOrEqual(t, len(got), len(r.reply), r.what)
						for i, want := range r.reply {
							if want == left {
								require.Positive(t, got[i], "%s: %v", r.what, got)
							} else {
								require.Equal(t, want, got[i], "%s: %v", r.what, got)
							}
						}
					}
					require.Equal(t, r.held, g.look(t, "p").text, r.what)
					line, err := g.do(t, "ZRANGE", "line", "0", "-1").AsStrSlice()
					require.NoError(t, err)
					for i := range line {
						line[i], _, _ = strings.Cut(line[i], " ")
					}
					require.ElementsMatch(t, r.line, line, r.what)
					if len(line) > 0 {
						require.Equal(t, r.line, line, r.what)
						left, err := g.do(t, "PTTL", "line").AsInt64()
						require.NoError(t, err)
						require.Positive(t, left, "it has an end")
					}
					var want []string
					if r.told != "" {
						want = []string{"g:" + r.told[:36] + " 0 0 " + r.told}
					}
					require.Equal(t, want, hear(), r.what)
				}
			})
		}
	})
}

// Forty processes want one lock. Each of them gets it, and what that costs does not grow with those that wait: were all
// told of a release, or did those that have just released ask as soon as those that wait, some would get none.
func TestEveryProcessThatWaitsForAPlainLockGetsItAtTheSameCost(t *testing.T) {
	t.Parallel()
	const processes, rounds = 40, 15
	rigs := newRigs(t, redistest.Start(t), processes, rlock.Options{})
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var all atomic.Int64
	shares := make([]atomic.Int64, processes)
	var wg sync.WaitGroup
	before := redistest.CommandCalls(t, rigs[0].redis)
	for i, r := range rigs {
		wg.Go(func() {
			for ctx.Err() == nil {
				if r.locks.Plain("l").Do(ctx, func(context.Context) error { return nil }) == nil {
					shares[i].Add(1)
					if all.Add(1) >= processes*rounds {
						stop()
					}
				}
			}
		})
	}
	wg.Wait()
	after := redistest.CommandCalls(t, rigs[0].redis)
	least := all.Load()
	for i := range shares {
		least = min(least, shares[i].Load())
	}
	calls, published := float64(after["evalsha"]-before["evalsha"])/float64(all.Load()),
		float64(after["publish"]-before["publish"])/float64(all.Load())
	t.Logf("%.1f calls and %.1f messages an acquisition; least: %d of %d on average", calls, published, least, rounds)
	require.GreaterOrEqual(t, all.Load(), int64(processes*rounds), "too slow")
	require.Greater(t, least, int64(1), "a process starved")
	require.Less(t, calls, 9., "3 are needed")
}

// Whoever is refused because the lock is left to another is told when it no longer is.
func TestAPlainLockThatIsLeftToAnotherSaysForHowLong(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	src := source(t, "plain_acquire")
	const reservation = 200
	until := g.now(t) + reservation
	g.must(t, "ZADD", "line", strconv.FormatInt(until, 10), alice+" 200")
	got, err := eval(t, g.c, src, []string{"p", "line", "q"}, bob, "300000", "0", "c", "PUBLISH", bob+" 200")
	require.NoError(t, err)
	if got[0] == 0 { // otherwise the machine took so long that it is left to nobody
		require.Equal(t, until+1-got[2], got[1])
	}
}

// One process is nearer to the server than another that waits. It releases, and asks again before the other, who was
// told, has asked. It never waits, so it has no place in the line.
func TestAPlainLockDoesNotStarveAProcessThatIsFarther(t *testing.T) {
	t.Parallel()
	const most = 30
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	p.Delay(5*time.Millisecond, 5*time.Millisecond)
	near, far := newRig(t, s, rlock.Options{}), newRigWith(t, s, rlock.Options{}, func(co *rueidis.ClientOption) {
		co.InitAddress = []string{p.Addr()}
	}).warmUp(t)
	ctx := within(t)
	hold := lock(t, near.locks.Plain("l"), ctx)
	had := make(chan error, 1)
	go func() {
		h, err := far.locks.Plain("l").Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		had <- err
	}()
	redistest.Eventually(t, 20*time.Second, "it stands in line", func() bool {
		n, err := near.redis.Do(ctx, near.redis.B().Zcard().Key("redlatch_queue:{l}:plain").Build()).AsInt64()
		return err == nil && n == 1
	})
	require.NoError(t, hold.Unlock(ctx))
	for n := 0; len(had) == 0; n++ {
		require.Less(t, n, most, "it waits still")
		require.NoError(t, near.locks.Plain("l").Do(ctx, func(context.Context) error {
			time.Sleep(20 * time.Millisecond) // its work
			return nil
		}))
	}
	require.NoError(t, <-had)
}
