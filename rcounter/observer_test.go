package rcounter_test

import (
	"context"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestAnObserverIsToldOfEveryCallThatWrites(t *testing.T) {
	t.Parallel()
	type key struct{}
	var mu sync.Mutex
	var told []error
	o := patient
	o.Observer = func(ctx context.Context, e rcounter.Event) {
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, "k", e.Name)
		require.Equal(t, "v", ctx.Value(key{}))
		require.Positive(t, e.Took)
		told = append(told, e.Err)
	}
	k := on(t, redistest.Embedded(t).Client(t), o).Counter("k", rcounter.CounterOptions{Max: bound(9)})
	ctx := context.WithValue(ctx, key{}, "v")
	for _, call := range []func() error{
		func() error { _, err := k.Incr(ctx); return err },
		func() error { _, err := k.Decr(ctx); return err },
		func() error { _, err := k.Add(ctx, 20); return err },
		func() error { _, _, err := k.AddOnce(ctx, "order", 2); return err },
		func() error { _, _, err := k.AddOnce(ctx, "order", 3); return err },
		func() error { return k.Set(ctx, 5) },
		func() error { _, err := k.CompareAndSet(ctx, 5, 6); return err },
	} {
		before := len(told)
		err := call()
		require.Len(t, told, before+1)
		require.Equal(t, err, told[before])
	}
	before := len(told)
	_, err := k.Get(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, k.Set(ctx, 10), errs.ErrOutOfRange, "not sent")
	require.Len(t, told, before)
}

func TestAnObserverThatPanicsIsLoggedAndChangesNothing(t *testing.T) {
	t.Parallel()
	log, logged := rig.Logged()
	o := patient
	o.Logger = log
	o.Observer = func(context.Context, rcounter.Event) { panic("ouch") }
	v, err := on(t, redistest.Embedded(t).Client(t), o).Counter("k", rcounter.CounterOptions{}).Incr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, v)
	require.Contains(t, logged(), "ouch")
}
