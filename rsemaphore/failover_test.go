package rsemaphore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// What a replica had received goes on after it was promoted: permits are renewed there, and who waited for a permit or
// a latch is served there.
func TestPermitsAndLatchesGoOnWhenAReplicaTakesOver(t *testing.T) {
	redistest.InFull(t, "TestABlackHoledHolderStopsBeforeAnotherGetsItsPermits")
	t.Parallel()
	for name, begin := range map[string]func(testing.TB) *redistest.Replicated{"Sentinel": redistest.Sentinel,
		"Cluster": redistest.ReplicatedCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			minute, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			dial := func() *rsemaphore.Client {
				hub, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{})
				require.NoError(t, err)
				t.Cleanup(func() { hub.Close(context.Background()) })
				c, err := rsemaphore.New(hub,
					rsemaphore.Options{WatchdogTimeout: 24 * time.Second, RetryTimeout: redistest.Retries(0),
						Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				t.Cleanup(func() { c.Close(within(t)) })
				return c
			}
			here, there := dial(), dial()
			mine, err := here.Semaphore("{x}:s", 2).Acquire(minute, 2)
			require.NoError(t, err)
			_, err = here.CountDownLatch("{x}:l").TrySetCount(minute, 1, 0)
			require.NoError(t, err)
			served := make(chan error, 2)
			go func() {
				p, err := there.Semaphore("{x}:s", 2).Acquire(minute, 1)
				if err == nil {
					err = p.Release(minute)
				}
				served <- err
			}()
			go func() { served <- there.CountDownLatch("{x}:l").Await(minute) }()
			p := s.Of("{x}")
			redistest.Eventually(t, 20*time.Second, "on the replica", func() bool {
				return p.Replica.Ask(t, "EXISTS", "{x}:s", "{x}:l") == "2"
			})
			require.NoError(t, p.Primary.Process.Kill())

			before := mine.Until()
			redistest.Eventually(t, 40*time.Second, "renewed by the heir", func() bool {
				return mine.Until().After(before) || mine.Err() != nil
			})
			require.NoError(t, mine.Err())
			select {
			case err := <-served:
				t.Fatal("a waiter was served too early: ", err)
			default:
			}
			require.NoError(t, mine.Release(minute))
			require.NoError(t, <-served)
			redistest.Eventually(t, 20*time.Second, "counted down", func() bool {
				n, err := here.CountDownLatch("{x}:l").CountDown(minute)
				return err == nil && n == 0
			})
			require.NoError(t, <-served)
			free, err := there.Semaphore("{x}:s", 2).Available(minute)
			require.NoError(t, err)
			require.EqualValues(t, 2, free)
		})
	}
}
