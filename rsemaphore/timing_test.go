package rsemaphore_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// bubble runs fn in a synctest bubble with a server and n processes on it; hours there are moments here.
func bubble(t *testing.T, n int, o rsemaphore.Options, fn func(t *testing.T, s *redistest.Server, rigs []*rig)) {
	t.Helper()
	bubbleOn(t, n, o, func(c rueidis.Client) rueidis.Client { return c }, fn)
}

func bubbleOn(t *testing.T, n int, o rsemaphore.Options, wrap func(rueidis.Client) rueidis.Client,
	fn func(t *testing.T, s *redistest.Server, rigs []*rig)) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	redistest.InBubble(t, n, func(t *testing.T, s *redistest.Server, c rueidis.Client) (*rig, func()) {
		c = wrap(c)
		h := redistest.NoError(pubsub.New(c, pubsub.Options{Logger: o.Logger}))(t)
		if o.RetryTimeout == 0 {
			o.RetryTimeout = redistest.Retries(o.CallTimeout)
		}
		sc := redistest.NoError(rsemaphore.New(h, o))(t)
		return &rig{server: s, redis: c, hub: h, c: sc}, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			sc.Close(ctx) // an error is that of a test's own Close
			require.NoError(t, h.Close(context.Background()))
		}
	}, fn)
}

// take is acquire without a bound.
func take(t *testing.T, s *rsemaphore.Semaphore, n int) *rsemaphore.Permit {
	t.Helper()
	p := redistest.NoError(s.Acquire(context.Background(), n))(t)
	return p
}

// scriptCounter counts script calls.
type scriptCounter struct {
	rueidis.Client
	calls *atomic.Int64
}

func (c scriptCounter) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Commands()[0] == "EVALSHA" {
		c.calls.Add(1)
	}
	return c.Client.Do(ctx, cmd)
}
