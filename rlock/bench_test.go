package rlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
