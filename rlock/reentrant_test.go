package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestAReentryIsACountInTheProcess(t *testing.T) {
	t.Parallel()
	r := newUntracked(t, redistest.Start(t))
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	field := string(a.Owner())
	require.Equal(t, map[string]string{field: "1"}, r.hash(t, "l"))
	require.True(t, strings.HasPrefix(field, r.locks.ID()+":"))
	ctx := a.Context(within(t))
	calls := callsOf(t, r.redis, func() {
		b := lock(t, l, ctx)
		require.NoError(t, b.Unlock(ctx))
		require.ErrorIs(t, b.Err(), errs.ErrReleased)
		require.NoError(t, a.Err(), "the outer hold lasts")
	})
	require.Zero(t, calls["evalsha"], "nothing was sent")
	require.Equal(t, map[string]string{field: "1"}, r.hash(t, "l"))
	require.NoError(t, a.Unlock(ctx))
	require.Empty(t, r.hash(t, "l"))
}

func TestTheInnerHoldMayOutliveTheOuter(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	b := lock(t, l, a.Context(within(t)))
	require.NoError(t, a.Unlock(within(t)))
	require.Equal(t, 1, timesHeld(t, l, b))
	require.NoError(t, b.Unlock(within(t)))
	locked, err := l.IsLocked(within(t))
	require.NoError(t, err)
	require.False(t, locked)
}

func TestEveryAcquisitionIsANewOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	_, err := l.TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "the same goroutine and the same Lock are nobody's identity")
	_, err = l.TryLock(rlock.Detach(a.Context(within(t))), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "detached work is not the holder")
	again := lock(t, l, context.WithoutCancel(a.Context(within(t))))
	require.NoError(t, again.Unlock(within(t)))
	dead := context.WithoutCancel(a.Context(within(t)))
	require.NoError(t, a.Unlock(within(t)))
	_, err = l.Lock(dead)
	require.ErrorIs(t, err, errs.ErrLost, "an owner that holds nothing any more can't be re-entered")
}

func TestGoroutinesUnderOneHoldExcludeEachOtherOnAnotherName(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	leader := lock(t, r.locks.Reentrant("leader"), within(t))
	ctx := leader.Context(within(t))
	order := r.locks.Reentrant("order:1")
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				err := order.Do(ctx, func(context.Context) error {
					most.Store(max(most.Load(), inside.Add(1)))
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
	require.NoError(t, leader.Unlock(ctx))
}

func TestAReentryIsNotBehindALocalWaiter(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	a := lock(t, l, within(t))
	waiting := pass(t, l)
	redistest.Eventually(t, 10*time.Second, "the other waits", func() bool {
		return r.locks.Waiting("l") == 1
	})
	b := lock(t, l, a.Context(within(t))) // would wait forever behind the waiter
	require.NoError(t, b.Unlock(within(t)))
	require.NoError(t, a.Unlock(within(t)))
	require.NoError(t, <-waiting)
}

func TestLosersAndReentriesNeverShortenTheLease(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Reentrant("l")
		a, err := l.TryLock(within(t), 0, time.Hour)
		require.NoError(t, err)
		for _, lease := range []time.Duration{rlock.MinLease, 0} {
			_, err = l.TryLock(within(t), 0, lease)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			b, err := l.TryLock(a.Context(within(t)), 0, lease)
			require.NoError(t, err)
			require.NoError(t, b.Unlock(within(t)))
			require.NoError(t, a.Extend(within(t), time.Second))
			require.Greater(t, r.pttl(t, "l"), 50*time.Minute)
			require.Greater(t, time.Until(a.Until()), 50*time.Minute)
		}
		require.NoError(t, a.Extend(within(t), 3*time.Hour))
		require.Greater(t, r.pttl(t, "l"), 2*time.Hour)
		require.Greater(t, time.Until(a.Until()), 2*time.Hour)
		require.NoError(t, a.Unlock(within(t)))
	})
}

func TestAFixedLeaseEndsAndSaysSo(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rlock.Options{})
		l := r.locks.Reentrant("l")
		h, err := l.WithLease(2 * time.Second).Lock(within(t))
		require.NoError(t, err)
		ctx := h.Context(within(t))
		<-ctx.Done()
		require.False(t, time.Now().Before(h.Until())) // which may have come nearer, if the machine stood still for some time
		require.ErrorIs(t, context.Cause(ctx), errs.ErrLost)
		require.ErrorIs(t, h.Err(), errs.ErrLost)
		require.ErrorIs(t, h.Extend(within(t), time.Second), errs.ErrLost)
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		redistest.Eventually(t, 10*time.Second, "gone", func() bool { return len(r.hash(t, "l")) == 0 })
	})
}

func TestTheWatchdogHoldsAndStopsAtUnlock(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		const lease = 3 * time.Second
		r := newRig(t, servers[0], rlock.Options{WatchdogTimeout: lease})
		l := r.locks.Reentrant("l")
		h := lock(t, l, within(t))
		first := h.Until()
		redistest.Eventually(t, 60*time.Second, "renewed for more than a lease", func() bool {
			return h.Until().Sub(first) > lease
		})
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock(within(t)))
		require.ErrorIs(t, h.Err(), errs.ErrReleased)
		// were it renewed still, the key of somebody else's hold would live on
		other, err := l.TryLock(within(t), 0, 2*time.Second)
		require.NoError(t, err)
		<-other.Done()
		redistest.Eventually(t, 10*time.Second, "not renewed after unlock", func() bool { return r.pttl(t, "l") < 0 })
	})
}

func TestAWaiterIsWokenByRedissonsMessageWellBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{PollCap: 30 * time.Second})
	// a Java holder, and its unlock: DEL and PUBLISH 0
	java := s.Client(t)
	require.NoError(t, java.Do(within(t),
		java.B().Hset().Key("l").FieldValue().FieldValue("8b5f0d5e-0000-4000-8000-000000000000:1", "1").Build()).Error())
	require.NoError(t, java.Do(within(t), java.B().Pexpire().Key("l").Milliseconds(25_000).Build()).Error())
	got := pass(t, r.locks.Reentrant("l"))
	redistest.Eventually(t, 10*time.Second, "subscribed", func() bool {
		n, err := java.Do(within(t), java.B().PubsubNumsub().Channel("redisson_lock__channel:{l}").Build()).AsIntMap()
		return err == nil && n["redisson_lock__channel:{l}"] == 1
	})
	require.NoError(t, java.Do(within(t), java.B().Del().Key("l").Build()).Error())
	began := time.Now()
	require.NoError(t, java.Do(within(t),
		java.B().Publish().Channel("redisson_lock__channel:{l}").Message("0").Build()).Error())
	require.NoError(t, <-got)
	require.Less(t, time.Since(began), 12*time.Second, "half the lease: woken, not timed out")
}

func TestReleasePublishesRedissonsMessage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	sub, err := r.hub.Subscribe(within(t), "redisson_lock__channel:{l}")
	require.NoError(t, err)
	defer sub.Close()
	h := lock(t, r.locks.Reentrant("l"), within(t))
	require.NoError(t, h.Unlock(within(t)))
	m, err := sub.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, "0", m.Payload)
}

func TestWaitTimeZeroAsksOnceAndNeverSubscribes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	l := r.locks.Reentrant("l")
	// another's, as Redisson has it: one of this client is looked at when it is 50 ms old
	require.NoError(t, r.redis.Do(within(t),
		r.redis.B().Hset().Key("l").FieldValue().FieldValue("other:1", "1").Build()).Error())
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Pexpire().Key("l").Milliseconds(600_000).Build()).Error())
	_, err := l.TryLock(within(t), 0, 0) // the first of each script is EVALSHA, NOSCRIPT, EVAL
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	for range 10 {
		// one that a busy machine draws out asks who holds it, too
		calls := callsOf(t, r.redis, func() {
			_, err := l.TryLock(within(t), 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			var na *rlock.NotAcquiredError
			require.ErrorAs(t, err, &na)
			require.Equal(t, "l", na.Name)
			require.Greater(t, na.Lease, time.Second)
		})
		require.Equal(t, 1, calls["evalsha"])
	}
	require.Zero(t, redistest.CommandCalls(t, r.redis)["subscribe"])
}

func TestAnUncontendedCycleIsTwoScriptCallsAndNoSubscribe(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newUntracked(t, s)
	l := r.locks.Reentrant("l")
	cycle := func() {
		h := lock(t, l, within(t))
		require.NoError(t, h.Unlock(within(t)))
	}
	cycle() // the first of each script is EVALSHA, NOSCRIPT, EVAL
	for range 50 {
		calls := callsOf(t, r.redis, cycle)
		require.Equal(t, 2, calls["evalsha"])
		for _, c := range []string{"eval", "subscribe", "ssubscribe", "wait"} {
			require.Zero(t, calls[c], c)
		}
	}
}

func TestUnlockTwiceAndFromAnotherGoroutineAndWithAnEndedContext(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Reentrant("l")
		h := lock(t, l, within(t))
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		results := make(chan error)
		for range 8 {
			go func() { results <- h.Unlock(ended) }()
		}
		for range 8 {
			require.NoError(t, <-results)
		}
		require.NoError(t, h.Unlock(within(t)))
		require.Empty(t, r.hash(t, "l"))
		next := lock(t, l, within(t))
		require.NoError(t, h.Unlock(within(t)), "the first result, and the next hold is left alone")
		require.Len(t, r.hash(t, "l"), 1)
		require.NoError(t, next.Unlock(within(t)))
	})
}

func TestUnlockAfterTheKeyWentReportsLostAndWakesWaiters(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Reentrant("l")
		h := lock(t, l, within(t))
		sub, err := r.hub.Subscribe(within(t), "redisson_lock__channel:{l}")
		require.NoError(t, err)
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		m, err := sub.Next(within(t))
		require.NoError(t, err)
		require.Equal(t, "0", m.Payload)
	})
}

func TestAStaleHandleNeverTouchesANewerHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	stale := lock(t, l, within(t))
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
	fresh := lock(t, l, within(t))
	require.ErrorIs(t, stale.Extend(within(t), time.Hour), errs.ErrLost)
	require.ErrorIs(t, stale.Unlock(within(t)), errs.ErrLost)
	require.Equal(t, map[string]string{string(fresh.Owner()): "1"}, r.hash(t, "l"))
	require.LessOrEqual(t, r.pttl(t, "l"), rlock.DefaultWatchdogTimeout)
	require.NoError(t, fresh.Unlock(within(t)))
}

func TestTheWatchdogNoticesThatTheKeyWent(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 3 * time.Second,
		Observer: heeding(rlock.EventEnded, func(e rlock.Event) { ended <- e.Err })})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	ctx := h.Context(within(t))
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errs.ErrLost)
	require.ErrorIs(t, <-ended, errs.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
}

func TestOneBadKeyDoesNotHideTheOthersFromTheWatchdog(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rlock.Options{WatchdogTimeout: 3 * time.Second})
		good, bad := lock(t, r.locks.Reentrant("good"), within(t)), lock(t, r.locks.Reentrant("bad"), within(t))
		first := good.Until()
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key("bad").Value("a string").Build()).Error())
		<-bad.Done()
		redistest.Eventually(t, 20*time.Second, "the good one is renewed, and renewed again", func() bool {
			return good.Until().Sub(first) > 1500*time.Millisecond
		})
		require.NoError(t, good.Unlock(within(t)))
		require.ErrorIs(t, bad.Unlock(within(t)), errs.ErrLost)
	})
}

func TestMaxHoldEndsTheHoldAndUnlockStillReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{MaxHold: 60 * time.Millisecond})
	l := r.locks.Reentrant("l")
	h := lock(t, l, within(t))
	ctx := h.Context(within(t))
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errs.ErrMaxHold)
	require.Len(t, r.hash(t, "l"), 1, "nothing releases a lock under running work")
	require.NoError(t, h.Unlock(within(t)))
	require.Empty(t, r.hash(t, "l"))
}

func TestWaitersGiveUpWithTheirReason(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Reentrant("l")
		h := lock(t, l, within(t))
		answered := func(acquire func() error) (err error) { // in so short a time a busy machine may get no answer
			for range 20 {
				if err = acquire(); !errors.Is(err, errs.ErrUnknownOutcome) {
					break
				}
			}
			return err
		}
		err := answered(func() error { _, err := l.TryLock(within(t), 30*time.Millisecond, 0); return err })
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		err = answered(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			_, err := l.Lock(ctx)
			return err
		})
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		why := errors.New("the user left")
		var cctx context.Context
		err = answered(func() error {
			var cancel context.CancelCauseFunc
			cctx, cancel = context.WithCancelCause(context.Background())
			time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
			_, err := l.Lock(cctx)
			return err
		})
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		_, err = r.locks.Reentrant("free").Lock(cctx)
		require.ErrorIs(t, err, errs.ErrNotAcquired, "an ended context acquires nothing, free or not")
		require.Empty(t, r.hash(t, "free"))
		require.NoError(t, h.Unlock(within(t)))
	})
}

func TestAHundredGoroutinesInSeveralClientsExclude(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var inside, done atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			r := newRig(t, s, rlock.Options{})
			l := r.locks.Reentrant("l")
			for range 25 {
				wg.Go(func() {
					for range 4 {
						err := l.Do(within(t), func(context.Context) error {
							if inside.Add(1) != 1 {
								t.Error("two holders at once")
							}
							done.Add(1)
							inside.Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 400, done.Load())
	})
}

func TestDoJoinsErrorsAndSurvivesPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	work := errors.New("work failed")
	err := l.Do(within(t), func(_ context.Context) error {
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
		return work
	})
	require.ErrorIs(t, err, work)
	require.ErrorIs(t, err, errs.ErrLost)
	require.PanicsWithValue(t, "oops", func() { _ = l.Do(within(t), func(context.Context) error { panic("oops") }) })
	require.Empty(t, r.hash(t, "l"))
	require.ErrorIs(t, l.WithWait(-1).Do(within(t), func(context.Context) error {
		t.Error("ran")
		return nil
	}), errs.ErrInvalidOption)
}

func TestCloseWithRunningWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	h := lock(t, l, within(t))
	other := lock(t, r.locks.Reentrant("forgetful"), within(t))
	work := h.Context(within(t))
	waiting := make(chan error, 1)
	go func() { _, err := l.Lock(within(t)); waiting <- err }()
	redistest.Eventually(t, 10*time.Second, "the other waits", func() bool { return r.locks.Waiting("l") == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- r.locks.Close(ctx) }()
	<-work.Done()
	require.ErrorIs(t, context.Cause(work), errs.ErrClosed)
	require.ErrorIs(t, <-waiting, errs.ErrClosed)
	_, err := l.TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrClosed)
	_, err = l.IsLocked(within(t))
	require.ErrorIs(t, err, errs.ErrClosed)
	require.Len(t, r.hash(t, "l"), 1, "still held while the work winds up")
	require.NoError(t, h.Unlock(within(t)))
	// the waiter may have been in the queue, and handed what it does not want any more; it sees to that in the background
	redistest.Eventually(t, 10*time.Second, "nobody holds it", func() bool { return len(r.hash(t, "l")) == 0 })
	cancel()
	err = <-closed
	require.ErrorContains(t, err, "forgetful")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, other.Err(), errs.ErrClosed)
	require.Equal(t, err, r.locks.Close(within(t)), "the result of the first")
}

func TestCloseDoesNotWaitForWhatIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	h := lock(t, r.locks.Reentrant("l").WithLease(20*time.Millisecond), within(t))
	<-h.Done()
	require.NoError(t, r.locks.Close(within(t)))
	require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
}

func TestCloseWaitsForUnlocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	go func() {
		<-h.Done()
		h.Unlock(context.Background())
	}()
	require.NoError(t, r.locks.Close(within(t)))
	require.NoError(t, h.Unlock(within(t)))
}

// What ends a hold that has ended already is not told: it may be a deadline after Close, or the end of a Close that
// waited in vain.
func TestTheObserverIsToldOfAnEndOnceWhateverEndsTheHoldAgain(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, x := range map[string]struct {
		o   rlock.Options
		end func(t *testing.T, r *rig, h *rlock.Hold)
		why error
	}{
		"Close, and nobody unlocks": {rlock.Options{}, func(t *testing.T, r *rig, _ *rlock.Hold) {
			require.Error(t, r.locks.Close(gone))
		}, errs.ErrClosed},
		"Close, and the key goes": {rlock.Options{WatchdogTimeout: 2 * time.Second},
			func(t *testing.T, r *rig, h *rlock.Hold) {
				closed := make(chan error, 1)
				go func() { closed <- r.locks.Close(within(t)) }()
				<-h.Done()
				require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
				require.NoError(t, <-closed)
			}, errs.ErrClosed},
		"MaxHold, and Close": {rlock.Options{MaxHold: 30 * time.Millisecond}, func(_ *testing.T, r *rig, h *rlock.Hold) {
			<-h.Done()
			r.locks.Close(gone)
		}, errs.ErrMaxHold},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 10)
			x.o.Observer = heeding(rlock.EventEnded, func(e rlock.Event) { told <- e.Err })
			r := newRig(t, redistest.Embedded(t), x.o)
			h := lock(t, r.locks.Reentrant("l"), within(t))
			x.end(t, r, h)
			require.Equal(t, x.why, h.Err())
			require.Equal(t, x.why, <-told)
			require.Empty(t, told)
		})
	}
}

func TestContextsEndWithTheHoldAndWithTheirParent(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	type key struct{}
	h := lock(t, r.locks.Reentrant("l"), within(t))
	parent, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "v"))
	a, b := h.Context(parent), h.Context(context.Background())
	require.Equal(t, "v", a.Value(key{}))
	child, stop := context.WithTimeout(a, time.Hour)
	defer stop()
	cancel()
	<-child.Done()
	require.ErrorIs(t, context.Cause(a), context.Canceled)
	require.NoError(t, b.Err())
	require.NoError(t, h.Unlock(context.Background()))
	require.ErrorIs(t, context.Cause(b), errs.ErrReleased)
	late := h.Context(context.Background())
	require.ErrorIs(t, context.Cause(late), errs.ErrReleased)
}

func TestWrongTypeIsATypedErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key("l").Value("v").Build()).Error())
		l := r.locks.Reentrant("l")
		_, err := l.Lock(within(t))
		require.ErrorIs(t, err, errs.ErrWrongType)
		_, err = l.IsLocked(within(t))
		require.ErrorIs(t, err, errs.ErrWrongType)
		v, err := r.redis.Do(within(t), r.redis.B().Get().Key("l").Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", v)
	})
}

func TestQueries(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{KeyPrefix: "app:"})
	l := r.locks.Reentrant("l")
	require.Zero(t, leaseOf(t, l))
	h := lock(t, l, within(t))
	require.Len(t, r.hash(t, "app:l"), 1)
	require.Greater(t, leaseOf(t, l), 20*time.Second)
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Persist().Key("app:l").Build()).Error())
	require.Negative(t, leaseOf(t, l))
	require.NoError(t, h.Unlock(within(t)))
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	r := newRig(t, s, rlock.Options{})
	_, err := rlock.New(nil, rlock.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	for name, o := range map[string]rlock.Options{
		"WatchdogTimeout":  {WatchdogTimeout: 99 * time.Millisecond},
		"WatchdogTimeout ": {WatchdogTimeout: -1},
		"PollCap":          {PollCap: time.Millisecond},
		"CallTimeout":      {CallTimeout: time.Microsecond},
		"MaxHold":          {MaxHold: -time.Second},
		"KeyPrefix":        {KeyPrefix: "a}"},
	} {
		_, err := rlock.New(r.hub, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption, name)
		require.ErrorContains(t, err, strings.TrimSpace(name))
	}
	before := s.Embedded.CommandCount()
	for _, name := range []string{"", "a{b", "{}a", "a}b", "\xff", strings.Repeat("x", 64<<10+1)} {
		l := r.locks.Reentrant(name)
		_, err = l.Lock(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidName, "%.20q", name)
		_, err = l.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrInvalidName)
		_, err = l.IsLocked(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidName)
	}
	l := r.locks.Reentrant("ok")
	for _, d := range []time.Duration{-1, time.Nanosecond, rlock.MinLease - 1, rlock.MaxDuration + 1} {
		_, err = l.TryLock(within(t), 0, d)
		require.ErrorIs(t, err, errs.ErrInvalidOption, d)
		require.ErrorContains(t, err, "leaseTime")
		_, err = l.WithLease(d).Lock(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidOption, d)
	}
	_, err = l.TryLock(within(t), -1, 0)
	require.ErrorContains(t, err, "waitTime")
	require.Equal(t, before, s.Embedded.CommandCount(), "nothing was sent")
	h := lock(t, l, within(t))
	require.ErrorIs(t, h.Extend(within(t), 0), errs.ErrInvalidOption)
	require.NoError(t, h.Unlock(within(t)))
	require.ErrorIs(t, h.Extend(within(t), time.Second), errs.ErrReleased)
}

func TestEveryKeyHasATTLAfterEveryOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	check := func(step string) {
		keys, err := r.redis.Do(within(t), r.redis.B().Keys().Pattern("*").Build()).AsStrSlice()
		require.NoError(t, err)
		for _, k := range keys {
			require.Greater(t, r.pttl(t, k), time.Duration(0), "%s after %s", k, step)
		}
	}
	a := lock(t, l, within(t))
	check("lock")
	b := lock(t, l, a.Context(within(t)))
	check("re-entry")
	require.NoError(t, b.Extend(within(t), time.Minute))
	check("extend")
	require.NoError(t, b.Unlock(within(t)))
	check("partial unlock")
	require.NoError(t, a.Unlock(within(t)))
	check("unlock")
}

func TestAClusterWorksOnEveryNode(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	a, b := newRig(t, s, rlock.Options{WatchdogTimeout: 2 * time.Second}), newRig(t, s, rlock.Options{})
	var holds []*rlock.Hold
	for i := range 6 {
		holds = append(holds, lock(t, a.locks.Reentrant(fmt.Sprintf("l%d", i)), within(t)))
	}
	first := holds[5].Until()
	redistest.Eventually(t, 20*time.Second, "renewed on every node", func() bool {
		return !slices.ContainsFunc(holds, func(h *rlock.Hold) bool { return h.Until().Sub(first) < 400*time.Millisecond })
	})
	for i, h := range holds {
		l := b.locks.Reentrant(fmt.Sprintf("l%d", i))
		got := pass(t, l)
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return b.locks.Waiting(l.Name()) == 1 })
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
	}
}

func TestRESP2AndOtherClientOptionsWork(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP2":                 func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
		"DisableRetry":          func(o *rueidis.ClientOption) { o.DisableRetry = true },
		"AlwaysPipelining":      func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
		"DisableAutoPipelining": func(o *rueidis.ClientOption) { o.DisableAutoPipelining = true },
		"one connection":        func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, s, rlock.Options{}, change)
			l := r.locks.Reentrant("l " + name)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 10 {
						if err := l.Do(within(t), func(context.Context) error { return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// The last Unlock of an owner says whether the lock was lost; one that comes beside it, of another hold of the same
// owner, asks nobody.
func TestUnlocksOfOneOwnerAtTheSameTimeFindNoLoss(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		l := r.locks.Reentrant("l")
		for range redistest.Sized(200, 200, 1000) {
			outer := lock(t, l, within(t))
			inner := lock(t, l, outer.Context(within(t)))
			var wg sync.WaitGroup
			for _, h := range []*rlock.Hold{outer, inner} {
				wg.Go(func() {
					if err := h.Unlock(within(t)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.Empty(t, r.hash(t, "l"))
		}
		outer := lock(t, l, within(t))
		inner := lock(t, l, outer.Context(within(t)))
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
		require.NoError(t, inner.Unlock(within(t)), "it asks nobody")
		require.ErrorIs(t, outer.Unlock(within(t)), errs.ErrLost, "a real loss is told")
	})
}

func TestUnlockUnderAContextOfTheHoldIsNotCutShort(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	for name, of := range map[string]func(context.Context) context.Context{
		"its own":  func(ctx context.Context) context.Context { return ctx },
		"detached": rlock.Detach,
		"derived": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(rlock.Detach(ctx))
			t.Cleanup(cancel)
			return ctx
		},
	} {
		for range 20 {
			h := lock(t, r.locks.Reentrant("l"), within(t))
			require.NoError(t, h.Unlock(of(h.Context(within(t)))), name)
			m, err := rlock.Multi(r.locks.Reentrant("l"), r.locks.Reentrant("k"))
			require.NoError(t, err)
			all := lock(t, m, within(t))
			require.NoError(t, all.Unlock(of(all.Context(within(t)))), name)
		}
	}
}

// The lease that was asked for last may be the longest, and whatever was done or lost since, the server may have it.
func TestAReleaseGoesOnForAsLongAsTheLongestLease(t *testing.T) {
	t.Parallel()
	for name, longer := range map[string]func(*testing.T, *rlock.Lock, *rlock.Hold){
		"Extend": func(t *testing.T, _ *rlock.Lock, h *rlock.Hold) { require.NoError(t, h.Extend(within(t), time.Minute)) },
		"re-entry": func(t *testing.T, l *rlock.Lock, h *rlock.Hold) {
			in, err := l.WithLease(time.Minute).Lock(h.Context(within(t)))
			require.NoError(t, err)
			require.NoError(t, in.Unlock(within(t)))
		},
	} {
		simulated(t, 1, func(t *testing.T, servers quorumServers) {
			p := redistest.NewProxy(t, servers[0])
			through, aside := newRig(t, p.Server(), rlock.Options{WatchdogTimeout: 3 * time.Second}), newRig(t, servers[0],
				rlock.Options{})
			l := through.locks.Reentrant(name)
			h := lock(t, l, within(t))
			longer(t, l, h)
			p.Refuse()
			p.Cut()
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			require.Error(t, h.Unlock(ctx))
			time.Sleep(3500 * time.Millisecond) // longer than the first lease
			p.Heal()
			redistest.Eventually(t, 20*time.Second, "released", func() bool { return len(aside.hash(t, name)) == 0 })
		})
	}
}

func TestARefusalSaysWhatIsKnownOfTheHolder(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		refused := func(l *rlock.Lock) *rlock.NotAcquiredError {
			_, err := l.TryLock(within(t), 0, 0)
			var na *rlock.NotAcquiredError
			require.ErrorAs(t, err, &na)
			return na
		}
		h := lock(t, r.locks.Reentrant("l"), within(t))
		own := refused(r.locks.Reentrant("l"))
		require.True(t, own.Ours, "its context was forgotten")
		require.False(t, own.Foreign || own.NoEnd)
		require.ErrorContains(t, own, "acquire under its Context")
		require.False(t, refused(other.locks.Reentrant("l")).Ours)
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Persist().Key("l").Build()).Error())
		endless := refused(other.locks.Reentrant("l"))
		require.True(t, endless.NoEnd && !endless.Foreign)
		require.ErrorContains(t, endless, "has no end")
		require.NoError(t, h.Unlock(within(t)))

		require.NoError(t, r.redis.Do(within(t),
			r.redis.B().Hset().Key("user").FieldValue().FieldValue("name", "Ann").Build()).Error())
		foreign := refused(r.locks.Reentrant("user"))
		require.True(t, foreign.NoEnd && foreign.Foreign)
		require.ErrorContains(t, foreign, "perhaps not a lock")
		require.True(t, refused(r.locks.Fair("user")).NoEnd)
	})
}
