package rsemaphore_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
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
		h, err := pubsub.New(c, pubsub.Options{Logger: o.Logger})
		require.NoError(t, err)
		if o.RetryTimeout == 0 {
			o.RetryTimeout = redistest.Retries(o.CallTimeout)
		}
		sc, err := rsemaphore.New(h, o)
		require.NoError(t, err)
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
	p, err := s.Acquire(context.Background(), n)
	require.NoError(t, err)
	return p
}

// leave takes a permit for each lease and lets them run out. The function returned lets go of the handles: until then
// they must be reachable, because the collector's cleanups run outside of bubbles.
func leave(t *testing.T, s *rsemaphore.Semaphore, leases ...time.Duration) func() {
	t.Helper()
	var permits []*rsemaphore.Permit
	for _, lease := range leases {
		p, err := s.TryAcquire(context.Background(), 1, 0, lease)
		require.NoError(t, err)
		permits = append(permits, p)
	}
	return func() {
		for _, p := range permits {
			p.Release(context.Background())
		}
	}
}

func TestPermitsAreRenewedForAsLongAsTheyLast(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		a, b := rigs[0].c.Semaphore("s", 3), rigs[1].c.Semaphore("s", 3)
		p, q := take(t, a, 2), take(t, b, 1)
		for range 20 {
			time.Sleep(time.Minute)
			_, err := b.TryAcquire(ctx, 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.NoError(t, p.Err())
			require.NoError(t, q.Err())
		}
		require.NoError(t, p.Release(ctx))
		require.NoError(t, q.Release(ctx))
		time.Sleep(time.Minute)
		require.Empty(t, redistest.Objects(s.Embedded.Keys()), "nothing is left when the lease of an idle semaphore is over")
	})
}

func TestAWaiterSleepsUntilThePermitExpires(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{PollCap: time.Hour}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		sem := rigs[0].c.Semaphore("s", 2)
		leave := leave(t, sem, 20*time.Second, 50*time.Second)
		defer leave()
		start := time.Now()
		one := take(t, rigs[1].c.Semaphore("s", 2), 1)
		require.InDelta(t, 20, time.Since(start).Seconds(), 1, "nobody publishes an expiry")
		require.NoError(t, one.Release(ctx))
		two := take(t, rigs[1].c.Semaphore("s", 2), 2)
		require.InDelta(t, 50, time.Since(start).Seconds(), 2, "two are free when the second is over")
		require.NoError(t, two.Release(ctx))
	})
}

func TestAWaiterForThreeIsServedAtTheThirdExpiry(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rsemaphore.Options{PollCap: time.Hour}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		sem := rigs[0].c.Semaphore("s", 4)
		leave := leave(t, sem, time.Minute, 2*time.Minute, 3*time.Minute, 4*time.Minute)
		defer leave()
		start := time.Now()
		p := take(t, sem, 3)
		require.InDelta(t, 180, time.Since(start).Seconds(), 0.1)
		require.NoError(t, p.Release(context.Background()))
	})
}

// A waiter that wants all permits is overtaken while it cannot be served, and by four times as many as it wants at
// most.
func TestALargeWaiterIsOvertakenByAtMostFourTimesItsWeight(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	bubble(t, 3, rsemaphore.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, stop := context.WithCancel(context.Background())
		const capacity, loops, large = 4, 9, 3
		var small, most atomic.Int64
		var wg sync.WaitGroup
		work := func(i, n int, begin func()) bool {
			sem := rigs[i%len(rigs)].c.Semaphore("s", capacity)
			begin()
			p, err := sem.Acquire(ctx, n)
			if err != nil {
				return false
			}
			if n == 1 {
				small.Add(1)
			}
			time.Sleep(time.Second + time.Duration(i)*10*time.Millisecond)
			if err := p.Release(context.Background()); err != nil {
				t.Error(err)
			}
			return true
		}
		for i := range loops {
			wg.Go(func() {
				for work(i, 1, func() {}) {
				}
			})
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		for i := range large {
			var before int64
			require.True(t, work(i, capacity, func() { before = small.Load() }))
			most.Store(max(most.Load(), small.Load()-before))
			time.Sleep(3 * time.Second)
		}
		require.LessOrEqual(t, most.Load(), int64(4*capacity+loops), "those that were there before go first, too")
		stop()
		wg.Wait()
		for _, r := range rigs {
			require.Zero(t, r.c.Lines())
			require.Zero(t, r.c.Refused())
		}
	})
}

func TestALostPermitIsNeverTakenAgainBehindItsHoldersBack(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		p := take(t, rigs[0].c.Semaphore("s", 2), 2)
		time.Sleep(5 * time.Second)
		for _, k := range []string{"s", "{s}:timeout"} { // as FLUSHALL or an eviction does
			s.Embedded.Del(k)
		}
		q := take(t, rigs[1].c.Semaphore("s", 2), 2)
		start := time.Now()
		<-p.Done()
		require.Less(t, time.Since(start), 6*time.Second, "at the next renewal")
		require.ErrorIs(t, p.Err(), errs.ErrLost)
		for range 10 {
			time.Sleep(time.Minute)
			require.NoError(t, q.Err())
			state, err := rigs[1].c.Semaphore("s", 2).Inspect(ctx)
			require.NoError(t, err)
			require.Len(t, state.Permits, 2)
			require.NotContains(t, p.IDs(), state.Permits[0].ID)
		}
		require.ErrorIs(t, p.Release(ctx), errs.ErrLost)
		require.NoError(t, q.Err())
		require.NoError(t, q.Release(ctx))
	})
}

func TestADeadServerIsNoticedBeforeThePermitsAreFree(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		p := take(t, rigs[0].c.Semaphore("s", 2), 1)
		work := p.Context(context.Background())
		sent := time.Now()
		time.Sleep(5 * time.Second)
		s.Embedded.SetError("LOADING the server is away")
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), errs.ErrLost)
		require.Less(t, time.Since(sent), 30*time.Second)
		require.Greater(t, time.Since(sent), 29*time.Second, "not at the first failed renewal")
		s.Embedded.SetError("")
		require.ErrorIs(t, p.Release(context.Background()), errs.ErrLost)
	})
}

func TestMaxHoldEndsAPermitThatIsStillThere(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rsemaphore.Options{MaxHold: time.Minute}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		sem := rigs[0].c.Semaphore("s", 2)
		p := take(t, sem, 1)
		start := time.Now()
		<-p.Done()
		require.InDelta(t, 60, time.Since(start).Seconds(), 1)
		require.ErrorIs(t, p.Err(), errs.ErrMaxHold)
		state, err := sem.Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, state.Permits, 1, "nobody gives away what may still be worked under")
		require.NoError(t, p.Release(ctx))
		q := take(t, sem, 1)
		time.Sleep(3 * time.Minute)
		state, err = sem.Inspect(ctx)
		require.NoError(t, err)
		require.Empty(t, state.Permits, "and it is not renewed")
		require.ErrorIs(t, q.Release(ctx), errs.ErrMaxHold)
	})
}

// counting counts script calls.
type counting struct {
	rueidis.Client
	calls *atomic.Int64
}

func (c counting) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Commands()[0] == "EVALSHA" {
		c.calls.Add(1)
	}
	return c.Client.Do(ctx, cmd)
}

func TestManyPermitsAreRenewedInFewCalls(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	var calls atomic.Int64
	count := func(c rueidis.Client) rueidis.Client { return counting{c, &calls} }
	bubbleOn(t, 1, rsemaphore.Options{}, count, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		var permits []*rsemaphore.Permit
		for i := range 150 {
			permits = append(permits, take(t, rigs[0].c.Semaphore([]string{"a", "b", "c"}[i%3], 1000), 1+i%2))
		}
		time.Sleep(20 * time.Second)
		calls.Store(0)
		time.Sleep(50 * time.Second) // five rounds
		t.Logf("%d calls for 150 permits of 225 ids in five rounds", calls.Load())
		require.LessOrEqual(t, calls.Load(), int64(5*3), "128 permits fit in one, of whatever semaphore")
		for _, p := range permits {
			require.NoError(t, p.Err())
			require.NoError(t, p.Release(context.Background()))
		}
	})
}

// A return before its Release must not turn the deferred Close(context.Background()) of a main into one that never
// returns.
func TestACloseWhoseContextHasNoEndEndsAndNamesWhatWasNotReleased(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		sem := rigs[0].c.Semaphore("s", 3)
		held, err := sem.Acquire(context.Background(), 1)
		require.NoError(t, err)
		owed, err := sem.Acquire(context.Background(), 1)
		require.NoError(t, err)
		s.Embedded.SetError("LOADING Redis is loading the dataset in memory")
		defer s.Embedded.SetError("")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, owed.Release(ctx), errs.ErrUnavailable)
		began := time.Now()
		err = rigs[0].c.Close(context.Background())
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorContains(t, err,
			"1 still held, left to their leases: s; 1 unconfirmed releases given up, left to their leases: s")
		require.ErrorIs(t, held.Err(), errs.ErrClosed)
		require.ErrorIs(t, held.Release(context.Background()), errs.ErrLost)
	})
}
