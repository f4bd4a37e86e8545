package rlock_test

import (
	"context"
	"testing"

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
		if err := c.Do(ctx, c.B().Evalsha().Sha1(take).Numkeys(1).Key("floor").Arg("owner", "30000").Build()).Error(); err != nil {
			b.Fatal(err)
		}
		if err := c.Do(ctx, c.B().Evalsha().Sha1(drop).Numkeys(1).Key("floor").Arg("owner").Build()).Error(); err != nil {
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
