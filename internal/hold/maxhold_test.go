package hold_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// onEnd is a log handler that calls its function, once, at the moment at which the watchdog has let go of a lease and
// the handle does not know yet: the line about it is logged in between.
type onEnd struct {
	slog.Handler
	once *sync.Once
	call func()
}

func (h onEnd) Enabled(context.Context, slog.Level) bool { return true }

func (h onEnd) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "redlatch: hold ended" {
		h.once.Do(h.call)
	}
	return nil
}

// All that is held is released alike: internal/contract has the other primitives, and what else a release may meet.
func TestRelease_BetweenMaxHoldAndItsNews_IsNoLoss(t *testing.T) {
	for name, kind := range map[string]func(c *rlock.Client) *rlock.Lock{
		"Reentrant": func(c *rlock.Client) *rlock.Lock { return c.Reentrant("l") },
		"Multi": func(c *rlock.Client) *rlock.Lock {
			l := redistest.NoError(rlock.Multi(c.Reentrant("l"), c.Plain("m")))(t)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) { releasesAtItsEnd(t, kind) })
	}
}

func releasesAtItsEnd(t *testing.T, kind func(c *rlock.Client) *rlock.Lock) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		ctx := context.Background()
		hub := redistest.NoError(pubsub.New(servers[0].Client(t), pubsub.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		taken, released := make(chan *rlock.Hold, 1), make(chan error, 1)
		var ends []error
		c, err := rlock.New(hub, rlock.Options{MaxHold: 5 * time.Second,
			Logger: slog.New(onEnd{Handler: slog.DiscardHandler, once: &sync.Once{},
				call: func() { released <- (<-taken).Unlock(ctx) }}),
			Observer: func(_ context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventReleased && e.Name == "l" {
					ends = append(ends, e.Err)
				}
				return nil
			}})
		require.NoError(t, err)
		h := redistest.NoError(kind(c).Lock(ctx))(t)
		taken <- h
		require.NoError(t, <-released, "the server has it until now")
		synctest.Wait()
		require.Equal(t, []error{nil}, ends)
		next, err := kind(c).TryLock(ctx, 0, time.Minute)
		require.NoError(t, err, "it is free")
		require.NoError(t, next.Unlock(ctx))
		require.NoError(t, c.Close(ctx))
		require.NoError(t, hub.Close(ctx))
	})
}
