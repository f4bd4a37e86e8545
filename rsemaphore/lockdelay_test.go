package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

const delay = 5 * time.Second

// A holder is cut off after renewals, of a lease of its own, and with heartbeats; then it may be back, and release.
func TestAPermitThatWasLostIsKeptFromOthersForTheLockDelay(t *testing.T) {
	redistest.SkipShort(t)
	takes := map[string]func(c *rsemaphore.Client, lease time.Duration) (*rsemaphore.Permit, error){
		"Semaphore": func(c *rsemaphore.Client, lease time.Duration) (*rsemaphore.Permit, error) {
			return c.Semaphore("s", 3).TryAcquire(context.Background(), 2, time.Minute, lease)
		},
		"WeightedSemaphore": func(c *rsemaphore.Client, lease time.Duration) (*rsemaphore.Permit, error) {
			return c.WeightedSemaphore("s", 3).TryAcquire(context.Background(), 2, time.Minute, lease)
		},
	}
	short := rsemaphore.Options{LockDelay: delay, WatchdogTimeout: 3 * time.Second, CallTimeout: 100 * time.Millisecond}
	lives := short
	lives.Liveness, lives.Heartbeat, lives.WatchdogTimeout = true, beat, longTerm
	for kind, take := range takes {
		for way, x := range map[string]struct {
			o     rsemaphore.Options
			lease time.Duration
			back  bool
		}{
			"renewed": {o: short}, "of its own lease": {o: short, lease: time.Second},
			"with heartbeats": {o: lives}, "renewed, and back": {o: short, back: true},
			"with heartbeats, and back": {o: lives, back: true},
		} {
			t.Run(kind+", "+way, func(t *testing.T) {
				t.Parallel()
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
					p := redistest.NewProxy(t, servers[0])
					r, other := newRig(t, p.Server(), x.o), newRig(t, servers[0], x.o)
					permit, err := take(r.c, x.lease)
					require.NoError(t, err)
					forgo(t, permit)
					if x.lease == 0 {
						time.Sleep(10 * time.Second)
					}
					p.BlackHole(redistest.Up)
					p.BlackHole(redistest.Down)
					<-permit.Done()
					lost := time.Now()
					require.ErrorIs(t, permit.Err(), errs.ErrLost)
					if x.back {
						p.Heal()
						require.ErrorIs(t, permit.Release(within(t)), errs.ErrLost)
					}
					next, err := take(other.c, 0)
					entered := time.Now()
					require.NoError(t, err)
					forgo(t, next)
					// who comes only now has to watch a hold for as long as its process is trusted
					require.WithinRange(t, entered, lost.Add(delay), lost.Add(delay+6*beat))
				})
			})
		}
	}
}

func TestAHandedOverPermitHasTheLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		o := rsemaphore.Options{LockDelay: delay, WatchdogTimeout: time.Minute, CallTimeout: 100 * time.Millisecond}
		first, r, other := newRig(t, servers[0], o), newRig(t, p.Server(), o), newRig(t, servers[0], o)
		held := acquire(t, first.c.Semaphore("s", 1), 1)
		got := make(chan *rsemaphore.Permit, 1)
		go func() {
			permit, err := r.c.Semaphore("s", 1).Acquire(within(t), 1)
			if err != nil {
				t.Error(err)
			}
			got <- permit
		}()
		time.Sleep(3 * time.Second)
		handed := time.Now()
		release(t, held)
		p.BlackHole(redistest.Up) // so that what was handed over is not raised
		mine := forgo(t, <-got)
		took := time.Since(handed)
		<-mine.Done()
		lost := time.Now()
		next := forgo(t, acquire(t, other.c.Semaphore("s", 1), 1))
		require.NotNil(t, next)
		require.WithinRange(t, time.Now(), lost.Add(delay), lost.Add(delay+1200*time.Millisecond))
		require.Less(t, took, 100*time.Millisecond, "a Release has no delay")
		require.Less(t, lost.Sub(handed), 10*time.Second, "of the first lease")
	})
}

// The id says to another process when the delay is over; ExtendIDs promises d, and the delay comes after it.
func TestExtendedIDsHaveTheLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rsemaphore.Options{LockDelay: delay})
		sem := r.c.Semaphore("s", 1)
		permit, err := sem.TryAcquire(within(t), 1, 0, time.Second)
		require.NoError(t, err)
		forgo(t, permit)
		require.NoError(t, sem.ExtendIDs(within(t), 2*time.Second, permit.IDs()...))
		state, err := sem.Inspect(within(t))
		require.NoError(t, err)
		require.WithinRange(t, time.Now().Add(state.Permits[0].Lease),
			time.Now().Add(2*time.Second+delay-10*time.Millisecond),
			time.Now().Add(2*time.Second+delay))
	})
}

// A barrier breaks for all when one of its parties is lost: there is nothing to keep from others.
func TestAPartyHasNoLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		o := rsemaphore.Options{LockDelay: time.Minute, WatchdogTimeout: 3 * time.Second, CallTimeout: 100 * time.Millisecond}
		r, other := newRig(t, p.Server(), o), newRig(t, servers[0], o)
		broken := make(chan error, 2)
		for _, c := range []*rsemaphore.Client{r.c, other.c} {
			go func() {
				_, err := c.CyclicBarrier("b", 3).Await(within(t))
				broken <- err
			}()
		}
		time.Sleep(5 * time.Second)
		p.BlackHole(redistest.Up)
		p.BlackHole(redistest.Down)
		cut := time.Now()
		require.Error(t, <-broken)
		require.Error(t, <-broken)
		require.Less(t, time.Since(cut), 10*time.Second)
	})
}

func TestALockDelayOutOfBoundsIsRefused(t *testing.T) {
	r := newRig(t, redistest.Start(t), rsemaphore.Options{})
	for text, o := range map[string]rsemaphore.Options{
		"LockDelay is 9ms, must be 0 (the default), or 10ms to 1m0s": {LockDelay: 9 * time.Millisecond},
		"LockDelay is 1m1s, must be":                                 {LockDelay: 61 * time.Second},
		"LockDelay is 38s, must be at most 37.95s with Liveness":     {LockDelay: 38 * time.Second, Liveness: true},
	} {
		_, err := rsemaphore.New(r.hub, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, text)
	}
}
