package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

// onEnd is a log handler that calls its function, once, at the moment at which the watchdog has let go of a lease and
// has not told the handle yet: the line about it is logged in between.
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

func TestAReleaseBetweenTheEndOfMaxHoldAndItsNewsIsNoLoss(t *testing.T) {
	const most = 5 * time.Second
	for _, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				server := redistest.Bubble(t)
				redis, err := rueidis.NewClient(server.Option())
				require.NoError(t, err)
				hub, err := pubsub.New(redis, pubsub.Options{Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				taken, released := make(chan *held, 1), make(chan error, 1)
				told := &story{told: map[string][]string{}}
				c, err := p.open(hub, settings{maxHold: most, story: told, log: slog.New(onEnd{
					Handler: slog.DiscardHandler, once: &sync.Once{}, call: func() { released <- (<-taken).release(ctx) },
				})})
				require.NoError(t, err)
				h, err := c.acquire(ctx, "l", 0)
				require.NoError(t, err)
				taken <- h
				require.NoError(t, <-released, "the server has it until now")
				synctest.Wait()
				require.Contains(t, told.of("l"), "released ok")
				require.NoError(t, c.probe(ctx, "l"), "it is free")
				require.NoError(t, c.close(ctx))
				require.NoError(t, hub.Close(ctx))
				redis.Close()
				server.Embedded.Close()
			})
		})
	}
}
