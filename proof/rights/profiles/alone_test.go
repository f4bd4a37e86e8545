package profiles_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/rights/profiles"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A client of a package alone asks nothing when it is made. Its first grant is refused at once, whatever its caller's
// patience, by an error that names the option and the command; and nothing stays held.
func TestMinReplicas_WaitRefused_FailsInEveryPackageAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := profiles.Profile{Refuses: []profiles.Refusal{{Command: "WAIT", Says: "ERR unknown command '%s'"}}}
	quiet := slog.New(slog.DiscardHandler)
	hub := redistest.NoError(pubsub.Dial(t.Context(), p.Before(t, server).Option(), pubsub.Options{Logger: quiet}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	locks := redistest.NoError(rlock.New(hub, rlock.Options{MinReplicas: 1, Logger: quiet}))(t)
	t.Cleanup(func() { locks.Close(context.Background()) })
	permits := redistest.NoError(rsemaphore.New(hub, rsemaphore.Options{MinReplicas: 1, Logger: quiet}))(t)
	t.Cleanup(func() { permits.Close(context.Background()) })
	sales := redistest.NoError(stock.New(hub, stock.Options{MinReplicas: 1, Logger: quiet}))(t)
	t.Cleanup(func() { sales.Close(context.Background()) })
	packets := redistest.NoError(redpacket.New(hub, redpacket.Options{MinReplicas: 1, Logger: quiet}))(t)
	t.Cleanup(func() { packets.Close(context.Background()) })
	direct := server.Client(t)
	held := func(t *testing.T) bool {
		n, err := direct.Do(t.Context(), direct.B().Exists().Key("lock", "fair", "rw", "{m}a", "{m}b").Build()).AsInt64()
		require.NoError(t, err)
		free := redistest.NoError(permits.Semaphore("permit", 1).Available(t.Context()))(t)
		return n > 0 || free != 1
	}
	for name, try := range map[string]func(context.Context) error{
		"lock": func(ctx context.Context) error { return second(locks.Reentrant("lock").Lock(ctx)) },
		"fair": func(ctx context.Context) error { return second(locks.Fair("fair").Lock(ctx)) },
		"read": func(ctx context.Context) error { return second(locks.ReadWrite("rw").Read().Lock(ctx)) },
		"multi": func(ctx context.Context) error {
			m := redistest.NoError(rlock.Multi(locks.Reentrant("{m}a"), locks.Reentrant("{m}b")))(t)
			return second(m.Lock(ctx))
		},
		"permit": func(ctx context.Context) error { return second(permits.Semaphore("permit", 1).Acquire(ctx, 1)) },
		"sale": func(ctx context.Context) error {
			s := sales.Sale("s")
			require.NoError(t, s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Minute, Retain: time.Minute}))
			return second(s.Buy(ctx, stock.Order{User: "ann"}))
		},
		"packet": func(ctx context.Context) error {
			return second(packets.Packet("p").Send(ctx,
				redpacket.Spec{Total: 1, Shares: 1, OpenFor: time.Minute, Retain: time.Minute}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := try(ctx)
			require.NoError(t, ctx.Err(), "it did not wait")
			require.ErrorIs(t, err, redlatch.ErrNotReplicated)
			require.ErrorIs(t, err, redlatch.ErrInvalidOption)
			require.ErrorContains(t, err, "MinReplicas is 1, must be 0: the server refuses WAIT")
			redistest.Eventually(t, 20*time.Second, "nothing stays held", func() bool { return !held(t) })
		})
	}
}

func second[T any](_ T, err error) error { return err }
