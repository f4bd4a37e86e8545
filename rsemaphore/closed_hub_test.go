package rsemaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestAClosedHubIsErrClosedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	for name, dialed := range map[string]bool{"of Dial, whose client is closed": true, "on a client that lasts": false} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			direct := newRig(t, srv, patient)
			var hub *pubsub.Hub
			var err error
			if dialed {
				hub, err = pubsub.Dial(srv.Option(), pubsub.Options{})
			} else {
				hub, err = pubsub.New(srv.Client(t), pubsub.Options{})
			}
			require.NoError(t, err)
			// nothing is renewed meanwhile
			c, err := rsemaphore.New(hub, rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: time.Hour})
			require.NoError(t, err)
			s, counting, latch, barrier := c.Semaphore("s", 1), c.CountingSemaphore("c"), c.CountDownLatch("l"),
				c.CyclicBarrier("b", 2)
			held := acquire(t, s, 1)
			require.True(t, must1[bool](t)(latch.TrySetCount(within(t), 1, 0)))
			waiting := make(chan error, 4)
			go func() { waiting <- errOf(s.Acquire(context.Background(), 1)) }()
			go func() { waiting <- counting.Acquire(context.Background(), 1) }()
			go func() { waiting <- latch.Await(context.Background()) }()
			go func() { waiting <- errOf(barrier.Await(context.Background())) }()
			redistest.Eventually(t, 20*time.Second, "all wait", func() bool { return c.Lines() == 4 })
			require.NoError(t, hub.Close(context.Background()))
			for range 4 {
				require.ErrorIs(t, <-waiting, errs.ErrClosed)
			}

			if !dialed { // what the waiters may have left behind is still cleared away
				redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return c.Owed() == 0 })
			}
			before := redistest.CommandCalls(t, direct.redis)["evalsha"]
			for _, err := range []error{
				errOf(s.Acquire(context.Background(), 1)), errOf(s.TryAcquire(within(t), 1, 0, 0)), errOf(s.Resize(within(t), 2)),
				errOf(s.Inspect(within(t))),
				errOf(s.AddPermits(within(t), 1)), errOf(s.InspectIDs(within(t), strings.Repeat("0", 32))),
				s.ExtendIDs(within(t), time.Second, strings.Repeat("0", 32)),
				errOf(c.WeightedSemaphore("w", 3).Acquire(context.Background(), 1)),
				errOf(c.WeightedSemaphore("w", 3).Inspect(within(t))), errOf(c.WeightedSemaphore("w", 3).Resize(within(t), 4)),
				counting.Acquire(context.Background(), 1), errOf(counting.AddPermits(within(t), 1)),
				errOf(counting.Available(within(t))),
				latch.Await(context.Background()), errOf(latch.CountDown(within(t))), errOf(latch.TrySetCount(within(t), 1, 0)),
				errOf(barrier.Await(context.Background())), errOf(barrier.Inspect(within(t))),
				errOf(rsemaphore.New(hub, patient)),
			} {
				require.ErrorIs(t, err, errs.ErrClosed)
			}
			require.Equal(t, before, redistest.CommandCalls(t, direct.redis)["evalsha"])

			for _, err := range []error{held.Release(context.Background()), counting.Release(context.Background(), 1)} {
				if dialed {
					require.ErrorIs(t, err, errs.ErrClosed)
				} else {
					require.NoError(t, err, "what is held can be given back while there is a client")
				}
			}
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			c.Close(ended)
		})
	}
}
