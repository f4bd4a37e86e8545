package hold_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/redistest"
)

type lifeTestKey string

// A leader that derives a context for each job is a life of weeks, and so is the parent.
func TestLife_Long_ContextsDoNotPileUp(t *testing.T) {
	long, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel) // after the subtests
	for name, parent := range map[string]func(context.Context) context.Context{
		"of parents that cannot end": context.WithoutCancel,
		"of one that lives long":     func(ctx context.Context) context.Context { return ctx },
		"of one with a value of its own": func(ctx context.Context) context.Context {
			return context.WithValue(ctx, lifeTestKey("k"), "v")
		},
		"of a context of the life's own": nil,
		"of parents that end one by one": func(ctx context.Context) context.Context {
			ctx, stop := context.WithCancel(ctx)
			stop()
			return ctx
		},
		"of parents that end by their times": func(ctx context.Context) context.Context {
			ctx, stop := context.WithTimeout(ctx, time.Millisecond)
			context.AfterFunc(ctx, stop)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var life hold.Life
			if parent == nil {
				own := life.Context(long)
				parent = func(ctx context.Context) context.Context {
					return life.Context(context.WithValue(own, lifeTestKey("request"), ctx))
				}
			}
			const n = 100
			gone := make(chan struct{}, n)
			for range n {
				request := &struct{ pad [1024]byte }{}
				runtime.AddCleanup(request, func(int) { gone <- struct{}{} }, 0)
				life.Context(parent(context.WithValue(long, lifeTestKey("request"), request)))
			}
			redistest.Eventually(t, 20*time.Second, "all requests but the first are collected", func() bool {
				runtime.GC()
				return len(gone) >= n-1
			})
			redistest.Eventually(t, 20*time.Second, "nothing is kept for each", func() bool { return life.Kept() <= 2 })
			require.NoError(t, life.Err())
		})
	}
}

func TestLife_Context_HasTheValuesOfItsParent(t *testing.T) {
	var life hold.Life
	parent, cancel := context.WithCancelCause(t.Context())
	first := life.Context(context.WithValue(parent, lifeTestKey("first"), "v"))
	second := life.Context(context.WithValue(parent, lifeTestKey("second"), []int{1}))
	require.Equal(t, "v", first.Value(lifeTestKey("first")))
	require.Nil(t, first.Value(lifeTestKey("second")))
	require.Equal(t, []int{1}, second.Value(lifeTestKey("second")))
	require.Nil(t, second.Value(lifeTestKey("first")))
	why := errors.New("why")
	child, stop := context.WithCancel(second)
	defer stop()
	cancel(why)
	for _, ctx := range []context.Context{first, second, child} {
		require.ErrorIs(t, ctx.Err(), context.Canceled, "at once")
		require.Equal(t, why, context.Cause(ctx))
	}
	late := life.Context(parent)
	require.Error(t, late.Err())
	require.Equal(t, why, context.Cause(late))
	life.End(why)
	require.Equal(t, why, context.Cause(life.Context(context.Background())))
}

// asked counts how often a value is looked up in it.
type asked struct {
	context.Context
	n *int
}

func (x asked) Value(key any) any { *x.n++; return x.Context.Value(key) }

// Re-entries nest, each under the context of the one before.
func TestLife_Nested_LooksUpAValueOnce(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]context.Context{
		"that can end":    t.Context(),
		"that cannot end": context.Background(),
	} {
		n := 0
		ctx := context.Context(asked{context.WithValue(parent, lifeTestKey("k"), "v"), &n})
		for range 16 {
			ctx = new(hold.Life).Context(ctx)
		}
		n = 0
		require.Equal(t, "v", ctx.Value(lifeTestKey("k")))
		require.Nil(t, ctx.Value(lifeTestKey("other")))
		require.Equal(t, 2, n, name)
	}
}
