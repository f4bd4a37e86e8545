package rsemaphore_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// lagging has the caller see a closed connection in place of the reply to the first call about "s", and runs that call
// later, as when it was still on its way when the connection broke.
type lagging struct {
	*forgetful
	by    time.Duration
	calls atomic.Int32
	ran   chan struct{} // closed when it has run
}

func newLagging(t testing.TB, s *redistest.Server, by time.Duration) *lagging {
	return &lagging{forgetful: newForgetful(t, s, nil), by: by, ran: make(chan struct{})}
}

func (c *lagging) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if !slices.Contains(words, "s") || words[0] != "EVAL" || c.calls.Add(1) > 1 {
		return c.Client.Do(ctx, cmd)
	}
	cmd = cmd.Pin()
	time.AfterFunc(c.by, func() {
		c.Client.Do(context.Background(), cmd)
		close(c.ran)
	})
	return c.dead.Do(ctx, c.dead.B().Ping().Build())
}

func TestLateRequest_ClockUnknown_IsTakenBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		late := newLagging(t, s, 300*time.Millisecond)
		r := newRigOn(t, s, late, rsemaphore.Options{CallTimeout: 2 * time.Second})
		sem := r.c.Semaphore("s", 3)
		p := acquire(t, sem, 2) // by its second request; the first could say no time after which it must not run
		release(t, p)
		<-late.ran
		redistest.Eventually(t, 20*time.Second, "taken back, long before the lease is over", func() bool {
			return counts(t, sem) == [3]int{3, 0, 3} && r.c.Owed() == 0
		})
	})
}

func TestRelease_OfALostPermit_PendsWhileARequestMayRun(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		const call = 3 * time.Second
		late := newLagging(t, s, 1500*time.Millisecond)
		r := newRigOn(t, s, late, rsemaphore.Options{CallTimeout: call})
		sem := r.c.Semaphore("s", 3)
		began := time.Now()
		p, err := sem.TryAcquire(within(t), 2, 20*time.Second, 500*time.Millisecond) // by its second request
		require.NoError(t, err)
		<-p.Done()
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		for {
			owed := r.c.Owed()
			if !time.Now().Before(began.Add(call)) {
				break
			}
			require.Equal(t, 1, owed, "the first request may still run")
			time.Sleep(10 * time.Millisecond)
		}
		<-late.ran
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
			return r.c.Owed() == 0 && counts(t, sem) == [3]int{3, 0, 3}
		})
	})
}

func TestServerClock_StepOfHours_AcquiresAllTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	r := newRig(t, s, patient)
	sem := r.c.Semaphore("s", 2)
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour, 24 * time.Hour} {
		release(t, acquire(t, sem, 1))
		s.Embedded.SetTime(time.Now().Add(step))
		p, err := sem.TryAcquire(within(t), 1, 0, 0) // by what was known of the clock, too late
		require.NoError(t, err, "%v", step)
		release(t, p)
	}
}
