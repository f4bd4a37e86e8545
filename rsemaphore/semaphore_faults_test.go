package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// inLanes runs n rounds of fn in lanes, each lane a client of its own behind a proxy of its own.
func inLanes(t *testing.T, s *redistest.Server, width, n int, o rsemaphore.Options,
	fn func(t *testing.T, round int, p *redistest.Proxy, r *rig)) {
	t.Helper()
	n = redistest.Sized(n/10, n/6, n)
	var wg sync.WaitGroup
	var next atomic.Int32
	for range width {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), o)
		warm := acquire(t, r.c.Semaphore(fmt.Sprintf("warm %p", p), 1), 1) // learns the server's clock
		if err := warm.Release(within(t)); err != nil {
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

// state is what s has out, which never raises more than its capacity; for goroutines that may not stop the test.
func state(t *testing.T, s *rsemaphore.Semaphore) (available, out int) {
	st, err := s.Inspect(within(t))
	if err != nil {
		t.Error(err)
	}
	return st.Available, len(st.Permits)
}

func TestARepeatedResizeSaysWhatTheCapacityWas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r := newRig(t, p.Server(), patient)
	s := r.c.Semaphore("s", 4)
	w := acquire(t, s, 1)
	require.Equal(t, 4, must1[int](t)(s.Resize(within(t), 5))) // the script is loaded
	for i, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: fate})
		before, err := s.Resize(within(t), 6+i)
		trap.Wait(t)
		require.NoError(t, err)
		require.Equal(t, 5+i, before)
	}
	release(t, w)
}

func TestALostAcquireReplyGrantsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		inLanes(t, s, 8, 150, patient, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("sem-%d-%d", fate, i)
			trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate})
			permit, err := r.c.Semaphore(name, 3).Acquire(within(t), 2)
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			trap.Wait(t)
			if available, out := state(t, direct.c.Semaphore(name, 3)); available != 1 || out != 2 {
				t.Errorf("round %d: %d available, %d out", i, available, out)
			}
			if err := permit.Release(within(t)); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
			if available, out := state(t, direct.c.Semaphore(name, 3)); available != 3 || out != 0 {
				t.Errorf("round %d: %d available, %d out after the release", i, available, out)
			}
		})
	}
}

func TestWhatATryOfUnknownOutcomeTookIsGivenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	inLanes(t, s, 8, 150, patient, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
		name := fmt.Sprintf("try-%d", i)
		p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReply})
		_, err := r.c.Semaphore(name, 3).TryAcquire(within(t), 2, 0, 0)
		if !errors.Is(err, errs.ErrUnknownOutcome) {
			t.Errorf("round %d: %v", i, err)
		}
	})
	for i := range 150 {
		sem := direct.c.Semaphore(fmt.Sprintf("try-%d", i+1), 3)
		redistest.Eventually(t, 20*time.Second, "given back, long before the lease of 30 s", func() bool {
			_, out := state(t, sem)
			return out == 0
		})
	}
}

// losing runs calls, and has the caller see a closed connection in place of the first reply that lose wants.
type losing struct {
	rueidis.Client
	dead rueidis.Client // closed: its only use is its error
	lose func(words []string) bool
	then func()
}

func (c losing) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	lost := c.lose(cmd.Commands())
	res := c.Client.Do(ctx, cmd)
	if lost {
		c.then()
		return c.dead.Do(ctx, c.dead.B().Ping().Build())
	}
	return res
}

// lagging has the caller see a closed connection in place of the first reply that lag wants, and runs that call later,
// as when it was still on its way when the connection broke.
type lagging struct {
	rueidis.Client
	dead rueidis.Client
	lag  func(words []string) bool
	by   time.Duration
	ran  chan struct{} // closed when it has run
}

func (c lagging) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if !c.lag(cmd.Commands()) {
		return c.Client.Do(ctx, cmd)
	}
	cmd = cmd.Pin()
	time.AfterFunc(c.by, func() {
		c.Client.Do(context.Background(), cmd)
		close(c.ran)
	})
	return c.dead.Do(ctx, c.dead.B().Ping().Build())
}

func TestARequestThatRunsAfterItsReleaseIsTakenBackWithoutAClock(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		dead, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		dead.Close()
		var calls atomic.Int32
		late := lagging{s.Client(t), dead, func(words []string) bool {
			return slices.Contains(words, "s") && words[0] == "EVAL" && calls.Add(1) == 1
		}, 300 * time.Millisecond, make(chan struct{})}
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

func TestALostPermitsReleaseIsPendingWhileARequestMayRun(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		dead, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		dead.Close()
		const call = 3 * time.Second
		var calls atomic.Int32
		late := lagging{s.Client(t), dead, func(words []string) bool {
			return slices.Contains(words, "s") && words[0] == "EVAL" && calls.Add(1) == 1
		}, 1500 * time.Millisecond, make(chan struct{})}
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

func TestAnErrorThatAnEarlierTryMayContradictSaysUnknown(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		dead, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		dead.Close()
		first := true
		r := newRigOn(t, s, losing{s.Client(t), dead, func(words []string) bool {
			if first && slices.Contains(words, "s") && words[0] == "EVAL" {
				first = false
				return true
			}
			return false
		}, func() { s.Embedded.SetError("LOADING away") }}, patient)
		_, err = r.c.Semaphore("s", 3).TryAcquire(within(t), 2, 300*time.Millisecond, 0)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.NotErrorIs(t, err, errs.ErrUnavailable, "the first request has run")
		s.Embedded.SetError("")
		redistest.Eventually(t, 20*time.Second, "given back", func() bool {
			_, out := state(t, r.c.Semaphore("s", 3))
			return out == 0
		})
	})
}

func TestALostReleaseReplyIsARelease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		inLanes(t, s, 8, 150, patient, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("rel-%d-%d", fate, i)
			sem := r.c.Semaphore(name, 3)
			permit, err := sem.Acquire(within(t), 2)
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate})
			if i%2 == 0 {
				if err := permit.Release(within(t)); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			} else if err := sem.ReleaseIDs(within(t), permit.IDs()...); (fate == redistest.LoseReply) != errors.Is(err,
				errs.ErrUnknownOutcome) {
				// by an id alone it cannot be told whether it was there before
				t.Errorf("round %d: by id: %v", i, err)
			}
			if available, out := state(t, direct.c.Semaphore(name, 3)); available != 3 || out != 0 {
				t.Errorf("round %d: %d available, %d out", i, available, out)
			}
		})
	}
}

func TestARequestThatArrivesAfterItsReleaseTakesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	o := rsemaphore.Options{CallTimeout: 50 * time.Millisecond}
	inLanes(t, s, 4, 40, o, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
		name := fmt.Sprintf("late-%d", i)
		free := make(chan struct{})
		trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldRequest, Release: free})
		permit, err := r.c.Semaphore(name, 3).Acquire(within(t), 2)
		if err == nil {
			trap.Wait(t)
			err = permit.Release(within(t))
		}
		close(free) // the first request, of which its caller never saw a reply
		if err != nil {
			t.Errorf("round %d: %v", i, err)
			return
		}
		sem := direct.c.Semaphore(name, 3)
		redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
		if available, out := state(t, sem); available != 3 || out != 0 {
			t.Errorf("round %d: %d available, %d out", i, available, out)
		}
		p.Cut()
	})
}

func TestALateReplyDoesNotTakePermitsFromUnderTheirRelease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	inLanes(t, s, 4, 20, rsemaphore.Options{CallTimeout: 300 * time.Millisecond},
		func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("under-%d", i)
			reply, request := make(chan struct{}), make(chan struct{})
			granted := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldReply, Release: reply})
			permit, err := r.c.Semaphore(name, 3).Acquire(within(t), 2) // by its second request
			if err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			granted.Wait(t)
			giving := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.HoldRequest, Release: request})
			released := make(chan error, 1)
			go func() { released <- permit.Release(within(t)) }()
			giving.Wait(t)
			close(reply) // now the first request's reply comes: the permits are in nobody's use any more
			time.Sleep(20 * time.Millisecond)
			close(request)
			if err := <-released; err != nil {
				t.Errorf("round %d: %v", i, err)
			}
			redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
			if available, out := state(t, direct.c.Semaphore(name, 3)); available != 3 || out != 0 {
				t.Errorf("round %d: %d available, %d out", i, available, out)
			}
			p.Cut()
		})
}

func TestAnAbandonedAcquireIsNotGrantedWhenTheServerRunsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rsemaphore.Options{CallTimeout: 100 * time.Millisecond})
	release(t, acquire(t, r.c.Semaphore("warm", 1), 1))
	events := s.Client(t)
	require.NoError(t, events.Do(within(t),
		events.B().ConfigSet().ParameterValue().ParameterValue("notify-keyspace-events", "Kz").Build()).Error())
	var writes atomic.Int32
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	listening := make(chan struct{}, 1)
	go events.Receive(rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { listening <- struct{}{} }),
		events.B().Psubscribe().Pattern("__keyspace@0__:{abandoned-*").Build(), func(rueidis.PubSubMessage) { writes.Add(1) })
	<-listening
	s.Stop(t)
	many(20, func(i int) {
		_, err := r.c.Semaphore(fmt.Sprintf("abandoned-%d", i), 5).TryAcquire(within(t), 3, 0, 0)
		if !errors.Is(err, errs.ErrUnknownOutcome) {
			t.Errorf("%d: %v", i, err)
		}
	})
	s.Resume(t)
	redistest.Eventually(t, 20*time.Second, "what was owed is settled", func() bool { return r.c.Owed() == 0 })
	require.Zero(t, writes.Load(), "not even for a moment")
}

func TestABlackHoledHolderStopsBeforeAnotherGetsItsPermits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	waiter := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Millisecond})
	var late atomic.Int32
	o := rsemaphore.Options{WatchdogTimeout: 600 * time.Millisecond, CallTimeout: 100 * time.Millisecond}
	inLanes(t, s, 10, 40, o, func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
		name := fmt.Sprintf("hole-%d", i)
		permit, err := r.c.Semaphore(name, 3).Acquire(within(t), 2)
		if err != nil {
			t.Error(err)
			return
		}
		work := permit.Context(context.Background())
		time.Sleep(rand.N(500 * time.Millisecond)) // some phase of the renewals
		p.BlackHole([]redistest.Direction{redistest.Up, redistest.Down}[i%2])
		next, err := waiter.c.Semaphore(name, 3).Acquire(within(t), 2)
		acquired, told := time.Now(), work.Err() != nil
		if err != nil {
			t.Error(err)
			return
		}
		if until := permit.Until(); !until.Before(acquired) {
			t.Errorf("round %d: acquired at %v, while the holder could trust its permits until %v", i, acquired, until)
		}
		if !told {
			// The deadline had passed, but its timer had not run: the machine stalled for longer than the margin.
			late.Add(1)
			<-work.Done()
		}
		if err := next.Release(within(t)); err != nil {
			t.Error(err)
		}
		p.Heal()
		p.Cut()
	})
	require.Less(t, late.Load(), int32(35),
		"contexts end before the next holder acquires, but for stalls of the machine itself")
}

func TestCancellationAtAnyInstantLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	watch := newRig(t, s, patient)
	r := newRig(t, s, rsemaphore.Options{CallTimeout: 3 * time.Second, PollCap: 50 * time.Millisecond})
	release(t, acquire(t, r.c.Semaphore("warm", 1), 1))
	rounds := redistest.Sized(1_000, 1_000, 4_000)
	const width, capacity = 40, 4
	var won, gaveUp atomic.Int32
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			some := func() bool { return won.Load() > 300 && gaveUp.Load() > 300 } // takes longer on a busy machine
			for i := 0; i < rounds/width || i < 2_000 && !some(); i++ {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(40_000))*time.Microsecond)
				sem := r.c.Semaphore(fmt.Sprint("s", rnd.IntN(5)), capacity)
				n := 1 + rnd.IntN(capacity)
				var p *rsemaphore.Permit
				var err error
				if rnd.IntN(2) == 0 {
					p, err = sem.Acquire(ctx, n)
				} else {
					p, err = sem.TryAcquire(ctx, n, time.Duration(rnd.IntN(20_000))*time.Microsecond, 0)
				}
				if err == nil {
					won.Add(1)
					if err := p.Release(ctx); err != nil && ctx.Err() == nil {
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
	require.Greater(t, won.Load(), int32(300))
	require.Greater(t, gaveUp.Load(), int32(300))
	redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
	for i := range 5 {
		require.Equal(t, [3]int{capacity, 0, capacity}, counts(t, watch.c.Semaphore(fmt.Sprint("s", i), capacity)))
	}
	require.Zero(t, r.c.Lines())
	require.Zero(t, r.c.Refused())
	require.NoError(t, r.c.Close(within(t)))
	require.NoError(t, r.hub.Close(context.Background()))
	redistest.Eventually(t, 20*time.Second, "no channel", func() bool {
		ch, err := watch.do(t, "PUBSUB", "CHANNELS").AsStrSlice()
		return err == nil && len(ch) == 0
	})
}

func TestWaitersAreServedWithinPollCapWithoutAnyMessage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	holder, waiter := newRig(t, s, patient), newRig(t, p.Server(),
		rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 200 * time.Millisecond})
	for i := range 10 {
		p.SwallowPushes()
		h := acquire(t, holder.c.Semaphore("s", 2), 1+i%2)
		got := make(chan error, 1)
		go func() {
			got <- waiter.c.Semaphore("s", 2).Do(within(t), 2, func(context.Context) error { return nil })
		}()
		redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return waiter.c.Refused() == 1 })
		if i%2 == 1 { // and with its subscription killed besides
			holder.must(t, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		began := time.Now()
		release(t, h)
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 10*time.Second, "a third of the lease: not by its end")
	}
}

func TestWithoutTheRightToSubscribeOrPublishWaitersPoll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := newRig(t, s, patient)
	root.must(t, "ACL", "SETUSER", "app", "on", "nopass", "~*", "resetchannels", "+@all", "-subscribe", "-publish")
	log := &redistest.Logbook{}
	r := newRigWith(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 50 * time.Millisecond,
		Logger: log.Logger()}, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "any" })
	for range 5 {
		h := acquire(t, r.c.Semaphore("s", 1), 1)
		got := make(chan error, 1)
		go func() {
			got <- r.c.Semaphore("s", 1).Do(within(t), 1, func(context.Context) error { return nil })
		}()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 })
		release(t, h)
		require.NoError(t, <-got)
	}
	require.Equal(t, 1, log.Count("subscribe refused"))
}

func TestHundredsOfSemaphoresWithWaitersAreAllServed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, patient)
	var wg sync.WaitGroup
	for i := range 200 {
		for range 3 {
			wg.Go(func() {
				err := r.c.Semaphore(fmt.Sprint("s", i), 2).Do(within(t), 1+i%2, func(context.Context) error {
					time.Sleep(time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	require.Zero(t, r.c.Lines())
}

func TestConnLifetimesSilentSecondRunIsSafe(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const capacity, each = 3, 15
	var inside, done atomic.Int32
	var wg sync.WaitGroup
	for range 3 {
		r := newRigWith(t, s, patient, func(o *rueidis.ClientOption) {
			o.ConnLifetime, o.AlwaysPipelining = 20*time.Millisecond, true
		})
		for g := range 8 {
			wg.Go(func() {
				for range each {
					n := int32(1 + g%2)
					p, err := r.c.Semaphore("s", capacity).Acquire(within(t), int(n))
					if err != nil {
						t.Error(err)
						return
					}
					if in := inside.Add(n); in > capacity {
						t.Errorf("%d inside at once", in)
					}
					inside.Add(-n)
					done.Add(1)
					p.Release(within(t)) // may say "lost" where the first run released it
				}
			})
		}
	}
	wg.Wait()
	require.EqualValues(t, 3*8*each, done.Load())
	direct := newRig(t, s, patient)
	redistest.Eventually(t, 40*time.Second, "all are back", func() bool {
		return counts(t, direct.c.Semaphore("s", capacity)) == [3]int{capacity, 0, capacity}
	})
}

func collect() {
	runtime.GC()
	runtime.Gosched()
}

func TestAPermitThatIsDroppedIsRenewedNoMoreAndLogged(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	log := &redistest.Logbook{}
	r := newRig(t, redistest.Embedded(t),
		rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 1500 * time.Millisecond, Logger: log.Logger()})
	sem := r.c.Semaphore("s", 2).WithLabel("sieve")
	kept := acquire(t, sem, 1)
	for range 3 { // to be left to their leases
		_, err := r.c.Semaphore("starts", 3).TryAcquire(within(t), 1, 0, time.Hour)
		require.NoError(t, err)
	}
	work := func() context.Context { return acquire(t, sem, 1).Context(context.Background()) }()
	for range 5 {
		collect()
		time.Sleep(10 * time.Millisecond)
	}
	require.NoError(t, work.Err(), "a context is reason enough")
	require.Zero(t, log.Count("dropped"))
	redistest.Eventually(t, 20*time.Second, "dropped", func() bool {
		collect()
		time.Sleep(50 * time.Millisecond) // a collection is of all that the package's tests have
		return log.Count("dropped without Release") == 1
	})
	require.Equal(t, 1, log.Count("label=sieve"))
	collect()
	require.Equal(t, 1, log.Count("dropped without Release"))
	redistest.Eventually(t, 20*time.Second, "back after its lease", func() bool {
		return counts(t, sem) == [3]int{1, 1, 2}
	})
	release(t, kept)
	ctx := within(t)
	require.NoError(t, r.c.Close(ctx))
	require.NoError(t, ctx.Err(), "nothing to wait for")
}

func TestAReleaseThatIsNotAnsweredGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	p := redistest.NewProxy(t, s)
	r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 100 * time.Millisecond})
	var permit *rsemaphore.Permit
	redistest.Eventually(t, 20*time.Second, "acquired", func() bool {
		var err error
		permit, err = r.c.Semaphore("s", 3).Acquire(within(t), 2)
		return err == nil
	})
	for _, d := range []redistest.Direction{redistest.Up, redistest.Down} {
		p.BlackHole(d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := permit.Release(ctx)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	require.ErrorIs(t, permit.Err(), errs.ErrReleased)
	require.Equal(t, err, permit.Release(within(t)), "the first result")
	_, out := state(t, direct.c.Semaphore("s", 3))
	require.Equal(t, 2, out)
	p.Heal()
	p.Cut()
	redistest.Eventually(t, 20*time.Second, "long before the lease is over", func() bool {
		_, out := state(t, direct.c.Semaphore("s", 3))
		return out == 0
	})
}

// Whose ctx ends while a request is under way has only waited: what the request takes is taken back.
func TestPermitsThatAreGrantedToWhoeverHasLeftAreTakenBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		direct := newRig(t, s, patient)
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), patient)
		for i, fate := range []redistest.Fate{redistest.HoldReply, redistest.HoldRequest} {
			name := fmt.Sprintf("left-%d", i)
			arrive := make(chan struct{})
			trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate, Release: arrive})
			ctx, cancel := context.WithCancelCause(context.Background())
			left := errors.New("left")
			got := make(chan error, 1)
			go func() {
				_, err := r.c.Semaphore(name, 3).Acquire(ctx, 2)
				got <- err
			}()
			trap.Wait(t)
			cancel(left)
			err := <-got
			close(arrive)
			for _, want := range []error{errs.ErrNotAcquired, context.Canceled, left} {
				require.ErrorIs(t, err, want)
			}
			require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
			redistest.Eventually(t, 20*time.Second, "taken back, long before the lease is over", func() bool {
				_, out := state(t, direct.c.Semaphore(name, 3))
				return out == 0 && r.c.Owed() == 0
			})
		}
	})
}

func TestAGrantSlowerThanItsLeaseIsNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	p := redistest.NewProxy(t, s)
	r := newRig(t, p.Server(), patient)
	release(t, acquire(t, r.c.Semaphore("warm", 1), 1))
	p.Delay(0, 150*time.Millisecond)
	_, err := r.c.Semaphore("s", 3).TryAcquire(within(t), 2, 0, 100*time.Millisecond)
	require.Error(t, err, "it may not be used any more when it is known")
	require.NotErrorIs(t, err, errs.ErrNotAcquired)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	p.Heal()
	permit, err := r.c.Semaphore("s", 3).TryAcquire(within(t), 3, 20*time.Second, time.Minute)
	require.NoError(t, err)
	redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
	require.Equal(t, [3]int{0, 3, 3}, counts(t, direct.c.Semaphore("s", 3)), "what is owed is not the later permit's")
	release(t, permit)
}

func TestAStepOfTheServersClockIsSurvived(t *testing.T) {
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

func TestCloseWhilePermitsAreBeingGrantedLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := newRig(t, s, patient)
	for round := range redistest.Sized(10, 10, 40) {
		r := newRig(t, s, patient)
		name := fmt.Sprint("s", round)
		var wg sync.WaitGroup
		var granted atomic.Int32
		for range 20 {
			wg.Go(func() {
				for {
					p, err := r.c.Semaphore(name, 10).Acquire(context.Background(), 1+rand.N(3))
					if err != nil {
						if !errors.Is(err, errs.ErrClosed) {
							t.Error(err)
						}
						return
					}
					granted.Add(1)
					if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		require.NoError(t, r.c.Close(within(t)))
		wg.Wait()
		require.Equal(t, [3]int{10, 0, 10}, counts(t, direct.c.Semaphore(name, 10)), "after %d grants", granted.Load())
	}
}

func TestNothingRunsAfterClose(t *testing.T) {
	r := newRig(t, redistest.Start(t), patient)
	require.NoError(t, r.c.Close(within(t)))
	before := goleak.IgnoreCurrent()
	// what a request may have left is watched for as long as the request may still come
	c, err := rsemaphore.New(r.hub,
		rsemaphore.Options{CallTimeout: 400 * time.Millisecond, Logger: (&redistest.Logbook{}).Logger()})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 25 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(10*time.Millisecond))
				if p, err := c.Semaphore("s", 3).Acquire(ctx, 1+rand.N(3)); err == nil {
					p.Release(ctx)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close(within(t)))
	require.NoError(t, r.hub.Close(context.Background()))
	goleak.VerifyNone(t, before,
		// the client is still open: its connections are its own
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._background"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundRead"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundWrite"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe).backgroundPing"),
	)
}
