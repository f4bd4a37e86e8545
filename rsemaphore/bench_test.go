package rsemaphore_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// BenchmarkFloor is what a cycle of two scripts costs at least: the shortest that count down and up again.
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
	take := load("return redis.call('DECRBY',KEYS[1],ARGV[1])")
	give := load("return redis.call('INCRBY',KEYS[1],ARGV[1])")
	b.ReportAllocs()
	for b.Loop() {
		for _, sha := range []string{take, give} {
			if err := c.Do(ctx, c.B().Evalsha().Sha1(sha).Numkeys(1).Key("floor").Arg("1").Build()).Error(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkAcquireRelease is one uncontended cycle, of one permit and of several.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, redistest.Start(b), rsemaphore.Options{})
			ctx := context.Background()
			sem := r.c.Semaphore("s", 1000)
			b.ReportAllocs()
			for b.Loop() {
				p, err := sem.Acquire(ctx, n)
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWeight is one uncontended cycle of a weight, small and large, beside as many permits where that is possible.
func BenchmarkWeight(b *testing.B) {
	for _, n := range []int{1, 1000, 1e9} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, redistest.Start(b), rsemaphore.Options{})
			ctx := context.Background()
			s := r.c.WeightedSemaphore("s", 1<<40)
			b.ReportAllocs()
			for b.Loop() {
				p, err := s.Acquire(ctx, n)
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("1000 permits", func(b *testing.B) {
		r := newRig(b, redistest.Start(b), rsemaphore.Options{})
		ctx := context.Background()
		s := r.c.Semaphore("s", 1<<20)
		b.ReportAllocs()
		for b.Loop() {
			p, err := s.Acquire(ctx, 1000)
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Release(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkContended is 32 goroutines on 4 permits, in 1 and in 8 processes' worth of clients.
func BenchmarkContended(b *testing.B) {
	for _, clients := range []int{1, 8} {
		b.Run(strconv.Itoa(clients)+" clients", func(b *testing.B) {
			s := redistest.Start(b)
			rigs := make([]*rig, clients)
			for i := range rigs {
				rigs[i] = newRig(b, s, rsemaphore.Options{})
			}
			before := redistest.CommandCalls(b, rigs[0].redis)
			began := time.Now()
			var next atomic.Int64
			b.SetParallelism(16) // times GOMAXPROCS of 2
			b.RunParallel(func(pb *testing.PB) {
				sem := rigs[int(next.Add(1))%clients].c.Semaphore("s", 4)
				for pb.Next() {
					p, err := sem.Acquire(context.Background(), 1)
					if err != nil {
						b.Error(err)
						return
					}
					p.Release(context.Background())
				}
			})
			after := redistest.CommandCalls(b, rigs[0].redis)
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "cycles/s")
			b.ReportMetric(float64(after["evalsha"]-before["evalsha"])/float64(b.N), "scripts/cycle")
		})
	}
}
