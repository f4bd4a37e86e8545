package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// lanes runs n rounds of fn in lanes, each lane a client of its own behind a proxy of its own.
func lanes(t *testing.T, s *redistest.Server, width, n int, o rlock.Options,
	fn func(t *testing.T, round int, p *redistest.Proxy, r *rig)) {
	t.Helper()
	n = redistest.Sized(n/10, max(n/8, min(n/4, 16)), n)
	var wg sync.WaitGroup
	var next atomic.Int32
	for range width {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), o)
		warm := lock(t, r.locks.Reentrant(fmt.Sprintf("warm %p", p)), within(t)) // learns the server's clock
		if err := warm.Unlock(within(t)); err != nil {
			require.ErrorIs(t, err, errs.ErrUnknownOutcome) // the call timeout is short, and the machine busy
		}
		wg.Go(func() {
			for !t.Failed() {
				i := int(next.Add(1))
				if i > n {
					return
				}
				fn(t, i, p, r)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
}

// keys are what is left on the server.
func keys(t *testing.T, c rueidis.Client) []string {
	t.Helper()
	k, err := c.Do(within(t), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	return redistest.Objects(k)
}

func TestALostAcquireReplyCountsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		lanes(t, s, 8, 500, rlock.Options{}, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("lock-%d-%d", fate, i)
			trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate})
			h, err := r.locks.Reentrant(name).Lock(within(t))
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			trap.Wait(t)
			if got := r.hash(t, name); len(got) != 1 || got[string(h.Owner())] != "1" {
				t.Errorf("round %d: %v", i, got)
			}
			if err := h.Unlock(within(t)); err != nil {
				t.Errorf("round %d: unlock: %v", i, err)
			}
		})
		redistest.Eventually(t, 20*time.Second, "no key is left", func() bool { return len(keys(t, c)) == 0 })
	}
}

func TestWhatATryOfUnknownOutcomeTookIsGivenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	lanes(t, s, 8, 500, rlock.Options{}, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
		name := fmt.Sprintf("try-%d", i)
		p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReply})
		_, err := r.locks.Reentrant(name).TryLock(within(t), 0, 0)
		if err == nil || !strings.Contains(err.Error(), errs.ErrUnknownOutcome.Error()) {
			t.Errorf("round %d: %v", i, err)
		}
	})
	redistest.Eventually(t, 20*time.Second, "all given back, long before the lease of 30 s", func() bool {
		return len(keys(t, c)) == 0
	})
}

func TestALostUnlockReplyIsAnUnlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		lanes(t, s, 8, 500, rlock.Options{}, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("unlock-%d-%d", fate, i)
			h, err := r.locks.Reentrant(name).Lock(within(t))
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate})
			if err := h.Unlock(within(t)); err != nil {
				t.Errorf("round %d: unlock: %v", i, err)
			}
			if got := r.hash(t, name); len(got) != 0 {
				t.Errorf("round %d: left %v", i, got)
			}
		})
	}
	require.Empty(t, keys(t, c))
}

func TestRepliesLostInSilenceAreBoundedByTheCallTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	lanes(t, s, 16, 100, rlock.Options{CallTimeout: 100 * time.Millisecond},
		func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("silent-%d", i)
			p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReplySilently})
			h, err := r.locks.Reentrant(name).Lock(within(t))
			p.Cut() // the connections that have gone silent
			p.Heal()
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			if err := h.Unlock(within(t)); err != nil {
				t.Errorf("round %d: unlock: %v", i, err)
			}
		})
	redistest.Eventually(t, 20*time.Second, "no key is left", func() bool { return len(keys(t, c)) == 0 })
}

func TestASlowReleaseNeverTouchesALaterHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	lanes(t, s, 4, 40, rlock.Options{CallTimeout: 50 * time.Millisecond},
		func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			direct := newRig(t, s, rlock.Options{})
			name := fmt.Sprintf("slow-%d", i)
			h, err := r.locks.Reentrant(name).Lock(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			release := make(chan struct{})
			trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldRequest, Release: release})
			unlocked := make(chan error, 1)
			go func() { unlocked <- h.Unlock(within(t)) }()
			trap.Wait(t)
			// the release is on its way; the lock goes to another, and then it arrives
			if _, err := direct.locks.Reentrant(name).ForceUnlock(within(t)); err != nil {
				t.Error(err)
			}
			later, err := direct.locks.Reentrant(name).Lock(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			close(release)
			<-unlocked
			redistest.Eventually(t, 10*time.Second, "the release has come through", func() bool { return r.locks.Owed() == 0 })
			if got := direct.hash(t, name); got[string(later.Owner())] != "1" {
				t.Errorf("round %d: the later hold is gone: %v", i, got)
			}
			if err := later.Unlock(within(t)); err != nil {
				t.Error(err)
			}
		})
}

func TestABlackHoledHolderStopsBeforeAnotherCanAcquire(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	waiter := newRig(t, s, rlock.Options{PollCap: 10 * time.Millisecond})
	var late atomic.Int32
	lanes(t, s, 10, 100, rlock.Options{WatchdogTimeout: 300 * time.Millisecond, CallTimeout: 50 * time.Millisecond},
		func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("hole-%d", i)
			h, err := r.locks.Reentrant(name).Lock(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			work := h.Context(context.Background())
			// some phase of the renewals
			phase := time.NewTimer(rand.N(250 * time.Millisecond))
			<-phase.C
			p.BlackHole([]redistest.Direction{redistest.Up, redistest.Down}[i%2])
			next, err := waiter.locks.Reentrant(name).Lock(within(t))
			acquired, told := time.Now(), work.Err() != nil
			if err != nil {
				t.Error(err)
				return
			}
			if until := h.Until(); !until.Before(acquired) {
				t.Errorf("round %d: acquired at %v, while the holder could trust its hold until %v", i, acquired, until)
			}
			if !told {
				// The deadline had passed, but its timer had not run: the machine stalled for longer than the margin.
				late.Add(1)
				<-work.Done()
			}
			if err := next.Unlock(within(t)); err != nil {
				t.Error(err)
			}
			p.Heal()
			p.Cut()
		})
	require.Less(t, late.Load(), redistest.Sized[int32](9, 20, 75),
		"in a quarter of the rounds at least contexts end before the next holder acquires, but for stalls of the "+
			"machine itself")
}

func TestAnAbandonedAcquireIsNotGrantedWhenTheServerRunsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 100 * time.Millisecond})
	warm := lock(t, r.locks.Reentrant("warm"), within(t))
	require.NoError(t, warm.Unlock(within(t)))
	events, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	t.Cleanup(events.Close)
	require.NoError(t, events.Do(within(t),
		events.B().ConfigSet().ParameterValue().ParameterValue("notify-keyspace-events", "Kh").Build()).Error())
	var writes atomic.Int32
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	subscribed := make(chan struct{}, 1)
	go events.Receive(rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { subscribed <- struct{}{} }),
		events.B().Psubscribe().Pattern("__keyspace@0__:abandoned-*").Build(), func(rueidis.PubSubMessage) { writes.Add(1) })
	<-subscribed
	s.Stop(t)
	for i := range redistest.Sized(8, 8, 20) {
		_, err := r.locks.Reentrant(fmt.Sprintf("abandoned-%d", i)).TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	}
	s.Resume(t)
	redistest.Eventually(t, 20*time.Second, "what was owed is settled", func() bool { return r.locks.Owed() == 0 })
	require.Zero(t, writes.Load(), "not even for a moment")
	require.Empty(t, keys(t, r.redis))
}

func TestWaitTimeIsKeptWithTheServerStoppedAndBlackHoled(t *testing.T) {
	t.Parallel()
	const callTimeout = 200 * time.Millisecond
	for _, fault := range []string{"stopped", "black-holed", "stopped while waiting"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.NewProxy(t, s)
			r, other := newRig(t, p.Server(), rlock.Options{CallTimeout: callTimeout}), newRig(t, s, rlock.Options{})
			h := lock(t, other.locks.Reentrant("l"), within(t))
			var err error
			redistest.Eventually(t, 30*time.Second, "connected", func() bool { // the call timeout is short, and the machine busy
				_, err = r.locks.Reentrant("l").TryLock(within(t), 0, 0)
				return errors.Is(err, errs.ErrNotAcquired)
			})
			inflict := func() {
				if fault == "black-holed" {
					p.BlackHole(redistest.Down)
				} else {
					s.Stop(t)
				}
			}
			if fault == "stopped while waiting" {
				time.AfterFunc(150*time.Millisecond, inflict)
			} else {
				inflict()
			}
			waitTimes := []time.Duration{0, 100 * time.Millisecond, 700 * time.Millisecond}
			if fault == "stopped while waiting" {
				waitTimes = []time.Duration{700 * time.Millisecond} // the next ones would find it stopped
			}
			for _, waitTime := range waitTimes {
				bound := max(waitTime, callTimeout) // the first request has the call timeout
				var took time.Duration
				var err error
				slow := redistest.Stall(func() {
					began := time.Now()
					_, err = r.locks.Reentrant("l").TryLock(context.Background(), waitTime, 0)
					took = time.Since(began)
				})
				require.Error(t, err)
				if fault != "stopped while waiting" {
					require.NotErrorIs(t, err, errs.ErrNotAcquired, "the server did not say that it is held")
				}
				require.Less(t, took, bound+50*time.Millisecond+5*slow, "waitTime %v", waitTime)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			slow := redistest.Stall(func() { _, err = r.locks.Reentrant("free").Lock(ctx) })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, slow, time.Minute)
			if fault != "black-holed" {
				s.Resume(t)
			}
			p.Heal()
			h.Unlock(within(t))
		})
	}
}

func TestNobodySleepsOnAFreeLockAfterTheServerPaused(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{16, 64} {
		for _, pause := range []string{"0.06", "0.1"} {
			t.Run(fmt.Sprint(waiters, " waiters, ", pause, " s"), func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				c := s.Client(t)
				stop := make(chan struct{})
				var pauses sync.WaitGroup
				pauses.Go(func() {
					for tick := time.NewTicker(300 * time.Millisecond); ; {
						select {
						case <-tick.C:
							c.Do(context.Background(), c.B().Arbitrary("DEBUG", "SLEEP", pause).Build())
						case <-stop:
							tick.Stop()
							return
						}
					}
				})
				var wg sync.WaitGroup
				for range 4 {
					r := newRig(t, s, rlock.Options{WatchdogTimeout: 20 * time.Second})
					for range waiters / 4 {
						wg.Go(func() {
							for range 12 {
								err := r.locks.Reentrant("l").Do(within(t), func(context.Context) error { return nil })
								if err != nil {
									t.Error(err)
									return
								}
							}
						})
					}
				}
				wg.Wait() // with a sleeper this would take its lease, and fail
				close(stop)
				pauses.Wait()
			})
		}
	}
}

func TestWaitersAreServedWithinPollCapWithoutAnyMessage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	holder, waiter := newRig(t, s, rlock.Options{}), newRig(t, p.Server(), rlock.Options{PollCap: 200 * time.Millisecond})
	for i := range 20 {
		p.SwallowPushes()
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		got := pass(t, waiter.locks.Reentrant("l"))
		redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return waiter.locks.Waiting("l") == 1 })
		if i%2 == 1 { // and with its subscription killed besides
			require.NoError(t, holder.redis.Do(within(t),
				holder.redis.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
		}
		began := time.Now()
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 10*time.Second, "a third of the lease: not by its end")
	}
}

func TestARenewalAnsweredAfterUnlockChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		var done atomic.Int32
		aside := newRig(t, s, rlock.Options{}) // whose connections nobody holds up
		lanes(t, s, 8, 32, rlock.Options{WatchdogTimeout: 600 * time.Millisecond},
			func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
				name := fmt.Sprintf("renewal-%d", i)
				h, err := r.locks.Reentrant(name).Lock(within(t))
				if err != nil {
					t.Error(err)
					return
				}
				release := make(chan struct{})
				fate := []redistest.Fate{redistest.HoldReply, redistest.HoldRequest}[i%2]
				trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate, Release: release})
				select {
				case <-trap.Caught(): // the next call that names it: a renewal
				case <-h.Done(): // lost for want of a processor
					close(release)
					return
				}
				ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
				defer cancel()
				unlocked := h.Unlock(ctx)
				if errors.Is(unlocked, errs.ErrUnknownOutcome) { // stands behind it: there was no connection for tracking yet
					close(release)
					return
				}
				next, err := r.locks.Reentrant(name).TryLock(within(t), 5*time.Second, time.Minute)
				if errors.Is(err, errs.ErrUnknownOutcome) { // likewise, though the unlock was sent on another connection
					close(release)
					return
				}
				done.Add(1)
				if err != nil {
					t.Errorf("round %d: unlock said %v, then %v", i, unlocked, err)
					close(release)
					return
				}
				before := aside.pttl(t, name)
				close(release)
				redistest.Eventually(t, 10*time.Second, "the renewal has come through", func() bool {
					return aside.pttl(t, name) < before
				})
				if got := aside.hash(t, name); len(got) != 1 || got[string(next.Owner())] != "1" {
					t.Errorf("round %d: %v", i, got)
				}
				if err := next.Unlock(within(t)); err != nil {
					t.Error(err)
				}
			})
		// In a bubble the server tracks no keys, so of the requests that are held up most have the unlock behind them.
		require.GreaterOrEqual(t, done.Load(), redistest.Sized[int32](1, 3, 8))
	})
}

func TestCancellationAtAnyInstantLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	watch := s.Client(t)
	r := newRig(t, s, rlock.Options{PollCap: 50 * time.Millisecond})
	warm := lock(t, r.locks.Reentrant("warm"), within(t))
	require.NoError(t, warm.Unlock(within(t)))
	redistest.Eventually(t, 10*time.Second, "the first hold's background work is done", func() bool {
		return r.locks.Owed() == 0
	})
	const rounds, width = 10_000, 50
	var won, gaveUp atomic.Int32
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			some := func() bool { return won.Load() > 500 && gaveUp.Load() > 500 } // takes longer on a busy machine
			for i := 0; i < rounds/width || i < 20*rounds/width && !some(); i++ {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(40_000))*time.Microsecond)
				l := r.locks.Reentrant(fmt.Sprint("l", rnd.IntN(5)))
				var h *rlock.Hold
				var err error
				if rnd.IntN(2) == 0 {
					h, err = l.Lock(ctx)
				} else {
					h, err = l.TryLock(ctx, time.Duration(rnd.IntN(20_000))*time.Microsecond, 0)
				}
				if err == nil {
					won.Add(1)
					if err := h.Unlock(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				} else {
					gaveUp.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Greater(t, won.Load(), int32(500))
	require.Greater(t, gaveUp.Load(), int32(500))
	redistest.Eventually(t, 20*time.Second, "no key", func() bool {
		return r.locks.Owed() == 0 && len(keys(t, watch)) == 0
	})
	require.Zero(t, r.locks.Lines())
	require.NoError(t, r.locks.Close(within(t)))
	require.NoError(t, r.hub.Close(context.Background()))
	redistest.Eventually(t, 20*time.Second, "no channel", func() bool {
		ch, err := watch.Do(within(t), watch.B().PubsubChannels().Build()).AsStrSlice()
		return err == nil && len(ch) == 0
	})
}

func TestConnLifetimesSilentSecondRunIsSafe(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var inside, done atomic.Int32
	var wg sync.WaitGroup
	rounds := redistest.Sized(5, 8, 60)
	for range 3 {
		r := newRigWith(t, s, rlock.Options{}, func(o *rueidis.ClientOption) {
			o.ConnLifetime, o.AlwaysPipelining = 20*time.Millisecond, true
		})
		for range 8 {
			wg.Go(func() {
				for range rounds {
					h, err := r.locks.Reentrant("l").Lock(within(t))
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders at once")
					}
					inside.Add(-1)
					done.Add(1)
					h.Unlock(within(t)) // may say "lost" where the first run released it
				}
			})
		}
	}
	wg.Wait()
	require.EqualValues(t, 3*8*rounds, done.Load())
	c := s.Client(t)
	redistest.Eventually(t, 40*time.Second, "no key is left", func() bool { return len(keys(t, c)) == 0 })
}

func TestALateReplyDoesNotTakeTheLockFromUnderItsRelease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p, direct := redistest.NewProxy(t, s), s.Client(t)
		r := newRigWith(t, p.Server(), rlock.Options{CallTimeout: 300 * time.Millisecond}, func(o *rueidis.ClientOption) {
			o.DisableAutoPipelining = true // a connection for each call: none waits behind another
		})
		for i := range 10 {
			name := fmt.Sprintf("under-%d", i)
			reply, request := make(chan struct{}), make(chan struct{})
			granted := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldReply, Release: reply})
			h := lock(t, r.locks.Reentrant(name), within(t)) // by its second request
			granted.Wait(t)
			releasing := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldRequest, Release: request})
			unlocked := make(chan error, 1)
			go func() { unlocked <- h.Unlock(within(t)) }()
			releasing.Wait(t)
			close(reply) // now the first request's reply comes, of an owner that nobody uses any more
			time.Sleep(20 * time.Millisecond)
			close(request)
			require.NoError(t, <-unlocked, "round %d", i)
		}
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, direct)) == 0 })
	})
}

func TestCloseDoesNotWaitForWhatIsLostMeanwhile(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, direct := newRig(t, s, rlock.Options{WatchdogTimeout: 900 * time.Millisecond}), s.Client(t)
	h := lock(t, r.locks.Reentrant("l"), within(t))
	closed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() { closed <- r.locks.Close(ctx) }()
	<-h.Done()
	require.ErrorIs(t, h.Err(), errs.ErrClosed)
	require.NoError(t, direct.Do(within(t), direct.B().Del().Key("l").Build()).Error())
	require.NoError(t, <-closed)
	require.NoError(t, ctx.Err(), "long before its context ends")
}

func TestAReplyThatNobodyExpectsIsSaidAsItIs(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	hub, err := pubsub.New(redistest.Forged{Client: s.Client(t)}, pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{})
	require.NoError(t, err)
	defer locks.Close(within(t))
	m, err := rlock.Multi(locks.Reentrant("a"), locks.Reentrant("b"))
	require.NoError(t, err)
	_, err = m.TryLock(within(t), 0, 0)
	require.ErrorContains(t, err, "unexpected reply [1]")
	require.NotContains(t, err.Error(), "%!")
	_, err = locks.Reentrant("a").Inspect(within(t))
	require.ErrorContains(t, err, "unexpected reply of 1 values")
	require.NotContains(t, err.Error(), "%!")
}
