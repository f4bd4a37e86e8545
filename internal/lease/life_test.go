package lease_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
)

type lifeTestKey string

func TestAContextOfALifeEndsWithItAndWithItsParent(t *testing.T) {
	why := errors.New("why")
	for name, parent := range map[string]context.Context{
		"that can end":    t.Context(),
		"that cannot end": context.WithoutCancel(t.Context()),
	} {
		t.Run(name, func(t *testing.T) {
			var life lease.Life
			ctx := life.Context(context.WithValue(parent, lifeTestKey("k"), "v"))
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			heard := make(chan error, 1)
			context.AfterFunc(ctx, func() { heard <- context.Cause(ctx) })
			require.Equal(t, "v", child.Value(lifeTestKey("k")))
			require.NoError(t, ctx.Err())
			life.End(why)
			for _, c := range []context.Context{ctx, child, life.Context(parent), life.Context(ctx)} {
				<-c.Done()
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.Equal(t, why, context.Cause(c))
			}
			require.Equal(t, why, <-heard)
			require.Equal(t, why, context.Cause(new(lease.Life).Context(ctx)), "its end is that of its parent")
		})
	}
	var life lease.Life
	life.End(why)
	require.Equal(t, why, context.Cause(life.Context(context.Background())))
}

func TestContextsOfParentsThatCannotEndDoNotPileUp(t *testing.T) {
	var life lease.Life
	gone := make(chan struct{}, 100)
	for range cap(gone) {
		request := &struct{ pad [1024]byte }{}
		runtime.AddCleanup(request, func(int) { gone <- struct{}{} }, 0)
		ctx := context.WithValue(context.Background(), lifeTestKey("request"), request)
		life.Context(context.WithoutCancel(ctx))
	}
	redistest.Eventually(t, 20*time.Second, "all requests are collected", func() bool {
		runtime.GC()
		return len(gone) == cap(gone)
	})
	runtime.KeepAlive(&life)
}
