package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

func TestServe_Answer_IsForEarlierCallersOnly(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		type caller struct {
			began time.Time
			over  chan error
		}
		var callers []caller
		for range 4 {
			c := caller{time.Now(), make(chan error, 1)}
			callers = append(callers, c)
			go func() {
				c.over <- r.Wait(t.Context(), wait.Request{Name: "n", Channel: "c", Began: c.began, Try: r.try})
			}()
			time.Sleep(10 * trip)
		}
		gone := errors.New("gone")
		r.Serve("another", time.Now(), gone)
		r.Serve("n", callers[0].began.Add(-1), gone)
		synctest.Wait()
		require.Empty(t, callers[0].over)

		r.Serve("n", callers[1].began, gone)
		require.ErrorIs(t, <-callers[0].over, gone, "it contends")
		require.ErrorIs(t, <-callers[1].over, gone, "it came in the instant in which the request was sent")
		synctest.Wait()
		require.Empty(t, callers[2].over)
		tries := r.tries.Load()
		r.Serve("n", time.Now(), nil)
		require.NoError(t, <-callers[2].over)
		require.NoError(t, <-callers[3].over)
		require.Equal(t, tries, r.tries.Load())
	})
}

func TestNote_IsForEarlierCallersUntilTheLastLeaves(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		began := time.Now()
		r.Note("n", began, "nobody waits")
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- r.Wait(ctx, wait.Request{Name: "n", Channel: "c", Began: began, Try: r.try}) }()
		synctest.Wait()
		note, sent := r.LastNote("n", time.Time{})
		require.Nil(t, note)
		require.Zero(t, sent)
		r.Note("n", began.Add(1), "not yet")
		for since, want := range map[time.Duration]any{0: "not yet", 1: "not yet", 2: nil} {
			note, _ = r.LastNote("n", began.Add(since))
			require.Equal(t, want, note, since)
		}
		cancel()
		require.Error(t, <-over)
		note, _ = r.LastNote("n", began)
		require.Nil(t, note)
	})
}
