package contract_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// A server that evicts keys is warned of in one line, by the first call of each package whose data would be lost, if
// the client may ask it.
func TestEviction_FirstCallOfEachPackage_WarnsOnce(t *testing.T) {
	t.Parallel()
	evicts := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	rig.Must(t, evicts.Client(t), "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info")
	mayNot, keeps := evicts.Option(), redistest.Start(t).Option()
	mayNot.Username, mayNot.Password = "app", "any"
	ctx := context.Background()
	for first, call := range map[string]func(red *redlatch.Client) error{
		"Lock": func(red *redlatch.Client) error { return red.Locks().Reentrant("l").Do(ctx, nothing) },
		"Acquire": func(red *redlatch.Client) error {
			return red.Semaphores().Semaphore("s", 1).Do(ctx, 1, nothing)
		},
		"counting": func(red *redlatch.Client) error {
			return err1(counting.New(red.Semaphores(), "c").TrySetPermits(ctx, 1, 0))
		},
		"latch": func(red *redlatch.Client) error {
			return err1(red.Semaphores().CountDownLatch("latch").TrySetCount(ctx, 1, time.Minute))
		},
		"barrier": func(red *redlatch.Client) error {
			return err1(red.Semaphores().CyclicBarrier("b", 1).Await(ctx))
		},
		"Incr": func(red *redlatch.Client) error {
			return err1(red.Counters().Counter("k", rcounter.CounterOptions{}).Incr(ctx))
		},
		"Open": func(red *redlatch.Client) error {
			return red.Sales().Sale("opened").Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})
		},
		"Buy": func(red *redlatch.Client) error {
			err := err1(red.Sales().Sale("never opened").Buy(ctx, stock.Order{User: "ann"}))
			if !errors.Is(err, stock.ErrNoStock) {
				return fmt.Errorf("Buy: %w", err)
			}
			return nil
		},
		"Send": func(red *redlatch.Client) error {
			return err1(red.RedPackets().Packet(rand.Text()).Send(ctx, redpacket.Spec{Total: 5, Shares: 2, OpenFor: time.Hour}))
		},
		"Grab": func(red *redlatch.Client) error {
			require.ErrorIs(t, err1(red.RedPackets().Packet("p").Grab(ctx, "ann")), redpacket.ErrNoPacket)
			return nil
		},
	} {
		for name, option := range map[string]rueidis.ClientOption{"may ask": evicts.Option(), "may not": mayNot,
			"has nothing to fear": keeps} {
			log := &redistest.Logbook{}
			red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second, Logger: log.Logger()})
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, call(red), "%s: %s", name, first)
			}
			want := 0
			if name == "may ask" { // the question ends at closing, so the line is waited for before
				want = 1
				redistest.Eventually(t, 30*time.Second, "warned", func() bool { return log.Count("allkeys-lru") == 1 })
			}
			require.NoError(t, red.Close(ctx))
			require.Equal(t, want, log.Count("allkeys-lru"), "%s: %s: %s", name, first, log)
			if name == "may not" { // which Open says, once
				want = log.Count("command=INFO")
			}
			require.Equal(t, want, log.Count("\n"), "%s: %s: %s", name, first, log)
		}
	}
}
