package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func TestAClosedHubIsErrClosedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	for name, dialed := range map[string]bool{"of Dial, whose client is closed": true, "on a client that lasts": false} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			direct := srv.Client(t)
			var hub *pubsub.Hub
			var err error
			if dialed {
				hub, err = pubsub.Dial(t.Context(), srv.Option(), pubsub.Options{})
			} else {
				hub, err = pubsub.New(srv.Client(t), pubsub.Options{})
			}
			require.NoError(t, err)
			// nothing is renewed meanwhile
			c, err := rlock.New(hub, rlock.Options{CallTimeout: 3 * time.Second, WatchdogTimeout: time.Hour})
			require.NoError(t, err)
			multi, err := rlock.Multi(c.Reentrant("f"), c.Reentrant("g"))
			require.NoError(t, err)
			locks := []*rlock.Lock{c.Reentrant("a"), c.Fair("b"), c.Plain("c"), c.ReadWrite("d").Write(), c.Spin("e", 0, 0),
				multi}
			var holds []*rlock.Hold
			waiting := make(chan error, len(locks))
			for _, l := range locks {
				hold, err := l.Lock(within(t))
				require.NoError(t, err)
				holds = append(holds, hold)
				go func() {
					_, err := l.Lock(context.Background())
					waiting <- err
				}()
			}
			// A hold is looked at once when it is 50 ms old, which tracks its key. Those calls are not what is counted below.
			// one for each, and what is read beside the ReadWrite one
			tracked(t, direct, 8)
			// those who are not there yet are refused
			redistest.Eventually(t, 20*time.Second, "somebody waits", func() bool { return c.Lines() > 0 })
			require.NoError(t, hub.Close(context.Background()))
			for range locks {
				require.ErrorIs(t, <-waiting, errs.ErrClosed)
			}

			if !dialed { // what the waiters may have left behind is still cleared away, for a call timeout where none answered
				redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return c.Owed() == 0 })
			}
			before := redistest.CommandCalls(t, direct)["evalsha"]
			for _, l := range locks {
				_, err := l.TryLock(within(t), 0, 0)
				require.ErrorIs(t, err, errs.ErrClosed)
				_, err = l.Lock(context.Background())
				require.ErrorIs(t, err, errs.ErrClosed)
				_, err = l.Inspect(within(t))
				require.ErrorIs(t, err, errs.ErrClosed)
				_, err = l.ForceUnlock(within(t))
				require.ErrorIs(t, err, errs.ErrClosed)
			}
			_, err = rlock.New(hub, rlock.Options{})
			require.ErrorIs(t, err, errs.ErrClosed)
			require.Equal(t, before, redistest.CommandCalls(t, direct)["evalsha"])

			for _, hold := range holds {
				err := hold.Unlock(context.Background())
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
