package rsemaphore_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

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
