package hold_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/hold"
	"github.com/stretchr/testify/require"
)

// However many callers of a process give up, they ask ten times in a second at most who holds what they waited for.
func TestHolders_CallersGiveUpTogether_ShareALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hold.Holders[string]
		asked := map[string]int{}
		find := func(key string) []string {
			return h.Of(t.Context(), key, time.Second, func(ctx context.Context) []string {
				asked[key]++
				end, _ := ctx.Deadline()
				require.Equal(t, hold.NamedWithin, time.Until(end))
				time.Sleep(2 * time.Millisecond)
				return []string{"a holder"}
			})
		}
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if found := find("x"); len(found) != 1 {
					t.Error(found)
				}
			})
		}
		all.Wait()
		require.Equal(t, 10, asked["x"])
		find("y")
		time.Sleep(time.Second)
		find("y")
		require.Equal(t, 2, asked["y"])
	})
}

func TestHolders_SilentServer_AreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hold.Holders[string]
		silent := func(ctx context.Context) []string { <-ctx.Done(); return nil }
		began := time.Now()
		for range 2 { // the second waits for the first
			go func() {
				h.Of(t.Context(), "x", time.Second, silent)
				if took := time.Since(began); took > 2*hold.NamedWithin {
					t.Errorf("it took %v", took)
				}
			}()
			time.Sleep(hold.NamedWithin / 2)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

func TestHolders_ShortOrCancelledWait_AreNotLookedUp(t *testing.T) {
	var h hold.Holders[string]
	never := func(context.Context) []string { t.Error("asked"); return nil }
	require.Nil(t, h.Of(t.Context(), "x", hold.NamedAfter-1, never))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Nil(t, h.Of(ctx, "x", time.Minute, never))
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	found := h.Of(ended, "x", time.Minute, func(ctx context.Context) []string {
		require.NoError(t, ctx.Err())
		return []string{"a holder"}
	})
	require.Equal(t, []string{"a holder"}, found)
}
