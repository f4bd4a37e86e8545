package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// BenchmarkFloor is what a cycle of two scripts costs at least: SET NX PX and a compare-and-delete.
func BenchmarkFloor(b *testing.B) {
	c := redistest.Start(b).Client(b)
	ctx := context.Background()
	load := func(src string) string {
		sha, err := c.Do(ctx, c.B().ScriptLoad().Script(src).Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	take := load("return redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2])")
	drop := load("if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0")
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Do(ctx, c.B().Evalsha().Sha1(take).Numkeys(1).Key("floor").Arg("owner", "30000").Build()).
			Error(); err != nil {
			b.Fatal(err)
		}
		if err := c.Do(ctx, c.B().Evalsha().Sha1(drop).Numkeys(1).Key("floor").Arg("owner").Build()).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSameScripts sends the lock's own two scripts through rueidis and does nothing else: what is left above it
// is what this library costs.
func BenchmarkSameScripts(b *testing.B) {
	c := redistest.Start(b).Client(b)
	ctx := context.Background()
	load := func(name string) string {
		sha, err := c.Do(ctx, c.B().ScriptLoad().Script(source(b, name)).Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	take, drop := load("acquire"), load("release")
	const owner = "0e5d0d5e-1111-8000-8000-000000000000:1"
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Do(ctx, c.B().Evalsha().Sha1(take).Numkeys(2).Key("bench", "redlatch_queue:{bench}").Arg(owner, "30000",
			"0", "PUBLISH", "redlatch_grant:").Build()).Error(); err != nil {
			b.Fatal(err)
		}
		if err := c.Do(ctx, c.B().Evalsha().Sha1(drop).Numkeys(2).Key("bench", "redlatch_queue:{bench}").Arg(owner,
			"redisson_lock__channel:{bench}", "PUBLISH", "redlatch_grant:", "").Build()).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUncontended(b *testing.B) {
	r := newRig(b, redistest.Start(b), rlock.Options{})
	l := r.locks.Reentrant("bench")
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		h, err := l.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMulti is a cycle of three locks of one slot as one, beside three cycles of one.
func BenchmarkMulti(b *testing.B) {
	ctx := context.Background()
	for name, cycle := range map[string]func(r *rig) func() error{
		"together": func(r *rig) func() error {
			m := multi(b, reentrants(r, "a", "b", "c")...)
			return func() error {
				h, err := m.Lock(ctx)
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			}
		},
		"one by one": func(r *rig) func() error {
			locks := reentrants(r, "a", "b", "c")
			return func() error {
				var held []*rlock.Hold
				for _, l := range locks {
					h, err := l.Lock(ctx)
					if err != nil {
						return err
					}
					held = append(held, h)
				}
				for _, h := range held {
					if err := h.Unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			use := cycle(newRig(b, redistest.Start(b), rlock.Options{}))
			b.ReportAllocs()
			for b.Loop() {
				if err := use(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkContended is a lock that many processes want all the time, with an INCR under it: calls are those of scripts
// for an acquisition, jain is of processes.
func BenchmarkContended(b *testing.B) {
	single := func(of func(*rlock.Client, string) *rlock.Lock) func([][]*rig) []*rlock.Lock {
		return func(rigs [][]*rig) (locks []*rlock.Lock) {
			for _, r := range rigs[0] {
				locks = append(locks, of(r.locks, "l"))
			}
			return locks
		}
	}
	for _, k := range []struct {
		kind    string
		servers int
		locks   func([][]*rig) []*rlock.Lock
	}{
		{"Reentrant", 1, single((*rlock.Client).Reentrant)}, {"Fair", 1, single((*rlock.Client).Fair)},
		{"Plain", 1, single((*rlock.Client).Plain)},
		{"Quorum", 3, func(rigs [][]*rig) (locks []*rlock.Lock) {
			for p := range rigs[0] {
				q, err := rlock.Quorum(rigs[0][p].locks.Reentrant("l"), rigs[1][p].locks.Reentrant("l"),
					rigs[2][p].locks.Reentrant("l"))
				if err != nil {
					b.Fatal(err)
				}
				locks = append(locks, q)
			}
			return locks
		}},
	} {
		for _, processes := range []int{2, 10, 40}[:redistest.Sized(1, 2, 3)] {
			b.Run(fmt.Sprintf("%s/%d", k.kind, processes), func(b *testing.B) {
				rigs := make([][]*rig, k.servers)
				for i := range rigs {
					rigs[i] = newRigs(b, redistest.Start(b), processes, rlock.Options{WatchdogTimeout: 3 * time.Second})
				}
				contend(b, rigs, k.locks(rigs))
			})
		}
	}
}

// contend has one worker of each process acquire the lock until there were b.N acquisitions.
func contend(b *testing.B, rigs [][]*rig, locks []*rlock.Lock) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, l := range locks { // a server votes when it has been up for long enough
		h := lock(b, l, within(b))
		if err := h.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
	calls := func() (n int) {
		for _, r := range rigs {
			n += scriptCalls(b, r[0].redis)
		}
		return n
	}
	before := calls()
	var all atomic.Int64
	got := make([]float64, len(locks))
	var wg sync.WaitGroup
	b.ResetTimer()
	for p, l := range locks {
		wg.Go(func() {
			c := rigs[0][p].redis
			for ctx.Err() == nil {
				h, err := l.Lock(ctx)
				if err != nil {
					return
				}
				c.Do(context.Background(), c.B().Incr().Key("work").Build())
				got[p]++
				if all.Add(1) >= int64(b.N) {
					stop()
				}
				if err := h.Unlock(context.Background()); err != nil {
					b.Error(err)
					stop()
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var sum, squares float64
	for _, n := range got {
		sum, squares = sum+n, squares+n*n
	}
	b.ReportMetric(float64(calls()-before)/sum, "calls/op")
	b.ReportMetric(sum*sum/(squares*float64(len(got))), "jain")
	b.ReportMetric(sum/b.Elapsed().Seconds(), "acquisitions/s")
}

// BenchmarkPlainByCommands compares the two scripts of a Plain lock, and its renewal, with commands that newer servers
// have in their place: SET with IFEQ, and DELEX or DELIFEQ. Those see no line and notify nobody, so that they are the
// least that could be sent. Release-commands are an acquisition by script, and a release that also asks in the same
// message whether anyone is in line. They take turns, 200 pairs at a time. Reported are the medians of these windows,
// and the worst, in us a pair, and what the server's processor spent.
func BenchmarkPlainByCommands(b *testing.B) {
	s := redistest.Start(b)
	c, ctx := s.Client(b), context.Background()
	do := func(args ...string) error { return c.Do(ctx, c.B().Arbitrary(args...).Build()).Error() }
	const key, line, queue, owner = "bench", "redlatch_queue:{bench}:plain", "redlatch_queue:{bench}", "0e5d0d5e-1111:1"
	const held = "held" // and renewed
	if err := do("SET", held, owner); err != nil {
		b.Fatal(err)
	}
	drop := []string{"DELEX", key, "IFEQ", owner}
	if do(drop...) != nil {
		drop = []string{"DELIFEQ", key, owner}
	}
	if do(drop...) != nil || do("SET", held, owner, "IFEQ", owner, "PX", "30000") != nil {
		b.Skip("the server has neither DELEX nor DELIFEQ, or no SET with IFEQ")
	}
	load := func(name string) string {
		sha, err := c.Do(ctx, c.B().ScriptLoad().Script(source(b, name)).Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	take, give, renew := load("plain_acquire"), load("plain_release"), load("plain_renew")
	const windows, pairs = 40, 200
	acquire := []string{"EVALSHA", take, "2", key, line, owner, "30000", "0", "redlatch_plain:{bench}", "PUBLISH"}
	of := []struct {
		name string
		do   [][]string // what follows the second is sent with it
	}{
		{"scripts", [][]string{acquire,
			{"EVALSHA", give, "3", key, line, queue, owner, "redlatch_plain:{bench}", "PUBLISH", "redlatch_grant:", ""}}},
		{"commands", [][]string{{"SET", key, owner, "NX", "PX", "30000"}, drop}},
		{"release-commands", [][]string{acquire, drop, {"EXISTS", line, queue}}},
		{"renew-script", [][]string{{"EVALSHA", renew, "1", held, owner, "30000"}}},
		{"renew-command", [][]string{{"SET", held, owner, "IFEQ", owner, "PX", "30000"}}},
	}
	for b.Loop() {
		took, spent := make([][]float64, len(of)), make([][]float64, len(of))
		for range windows {
			for i, x := range of {
				before, began := processorOf(b, s), time.Now()
				for range pairs {
					if err := do(x.do[0]...); err != nil {
						b.Fatal(x.name, err)
					}
					var rest rueidis.Commands
					for _, args := range x.do[1:] {
						rest = append(rest, c.B().Arbitrary(args...).Build())
					}
					for _, r := range c.DoMulti(ctx, rest...) {
						if r.Error() != nil {
							b.Fatal(x.name, r.Error())
						}
					}
				}
				took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/1e3/pairs)
				spent[i] = append(spent[i], (processorOf(b, s)-before)/pairs)
			}
		}
		for i, x := range of {
			slices.Sort(took[i])
			slices.Sort(spent[i])
			b.ReportMetric(took[i][windows/2], x.name+"-us")
			b.ReportMetric(took[i][windows-1], x.name+"-worst-us")
			b.ReportMetric(spent[i][windows/2], x.name+"-cpu-us")
		}
		b.Log(redistest.CommandCalls(b, c))
	}
}

// processorOf is what a server has spent of a processor so far, in us.
func processorOf(b *testing.B, s *redistest.Server) (us float64) {
	for line := range strings.Lines(s.Ask(b, "INFO", "cpu")) {
		for _, field := range []string{"used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
				seconds, err := strconv.ParseFloat(text, 64)
				if err != nil {
					b.Fatal(err)
				}
				us += seconds * 1e6
			}
		}
	}
	return us
}
