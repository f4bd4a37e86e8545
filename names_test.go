package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// A lock of such a name would be the queue of another lock, of another type than that needs.
func TestANameThatIsAnotherObjectsKeyIsRefused(t *testing.T) {
	s := redistest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for prefix, names := range map[string][]string{
		"": {"redlatch_queue:{x}", "redlatch_queue:{x}:plain", "redlatch_rw:{x}", "redisson_lock_queue:{x}",
			"redlatch_leader:a{x}", "{x}:timeout", "a{x}:latch", "{x}:o:1:rwlock_timeout:1"},
		"redlatch_": {"rwq:{x}"},
	} {
		red, err := redlatch.Open(s.Option(), redlatch.Options{KeyPrefix: prefix})
		require.NoError(t, err)
		for _, name := range names {
			got := map[string]error{}
			_, got["Reentrant"] = red.Locks().Reentrant(name).TryLock(ctx, 0, 0)
			_, got["Plain"] = red.Locks().Plain(name).TryLock(ctx, 0, 0)
			_, got["Fair"] = red.Locks().Fair(name).TryLock(ctx, 0, 0)
			_, got["Write"] = red.Locks().ReadWrite(name).Write().TryLock(ctx, 0, 0)
			_, got["Election"] = red.Elections().Election(name).Campaign(ctx, "")
			_, got["Semaphore"] = red.Semaphores().Semaphore(name, 1).TryAcquire(ctx, 1, 0, 0)
			_, got["WeightedSemaphore"] = red.Semaphores().WeightedSemaphore(name, 1).TryAcquire(ctx, 1, 0, 0)
			_, got["CountingSemaphore"] = red.Semaphores().CountingSemaphore(name).Available(ctx)
			_, got["CountDownLatch"] = red.Semaphores().CountDownLatch(name).Count(ctx)
			_, got["CyclicBarrier"] = red.Semaphores().CyclicBarrier(name, 1).Inspect(ctx)
			_, got["Counter"] = red.Counters().Counter(name, rcounter.CounterOptions{}).Incr(ctx)
			_, got["Stock"] = red.Stocks().Stock(name).Inspect(ctx)
			_, got["RedPacket"] = red.RedPackets().Packet(name).Inspect(ctx)
			_, got["Limiter"] = red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "k", 1)
			for what, err := range got {
				require.ErrorIs(t, err, errs.ErrInvalidName, "%s of %q", what, name)
			}
		}
		require.NoError(t, red.Close(ctx))
	}
	c := s.Client(t)
	keys, err := c.Do(ctx, c.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	require.Empty(t, keys)
	_, err = redlatch.Open(s.Option(), redlatch.Options{KeyPrefix: "redlatch_queue:{x}"})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
}
