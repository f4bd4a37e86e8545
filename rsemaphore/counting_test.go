package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// must1 is v, of a call that has to succeed.
func must1[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = rsemaphore.Options{CallTimeout: 10 * time.Second}

func TestACountingSemaphoreIsRedissonsNumber(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.CountingSemaphore("s")
		n, ok := must1[int64](t), must1[bool](t)
		require.Zero(t, n(s.Available(within(t))))
		require.Empty(t, r.keys(t), "asking makes nothing")

		require.True(t, ok(s.TrySetPermits(within(t), 5, 0)))
		require.False(t, ok(s.TrySetPermits(within(t), 9, 0)), "once")
		require.Equal(t, "5", r.text(t, "GET", "s"))
		require.EqualValues(t, -1, r.number(t, "PTTL", "s"), "Redisson gives it no end")

		require.NoError(t, s.Acquire(within(t), 2))
		require.Equal(t, "3", r.text(t, "GET", "s"))
		require.NoError(t, s.TryAcquire(within(t), 3, 0))
		err := s.TryAcquire(within(t), 1, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		var not *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &not)
		require.Equal(t, "s", not.Name)
		require.ErrorContains(t, not, `1 of "s"`)

		require.NoError(t, s.Release(within(t), 5))
		require.Equal(t, "5", r.text(t, "GET", "s"))
		require.NoError(t, s.Release(within(t), 1), "nobody knows who has what")
		require.EqualValues(t, 6, n(s.Available(within(t))))

		require.EqualValues(t, 10, n(s.AddPermits(within(t), 4)))
		require.EqualValues(t, -2, n(s.AddPermits(within(t), -12)))
		require.NoError(t, s.Release(within(t), 3))
		require.EqualValues(t, 1, n(s.Available(within(t))))
		r.must(t, "DEL", "s")

		require.True(t, ok(s.TrySetPermits(within(t), 1, time.Minute)))
		require.EqualValues(t, 3, n(s.AddPermits(within(t), 2)))
		require.Positive(t, r.pttl(t, "s"), "what was given an end keeps it")
	})
}

func TestWhatACountingSemaphoreRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	s := r.c.CountingSemaphore("s")
	ctx := within(t)
	for what, err := range map[string]error{
		"permits is 0":           s.Acquire(ctx, 0),
		"permits is -1":          s.TryAcquire(ctx, -1, 0),
		"permits is 2147483648":  s.Release(ctx, 1<<31),
		"permits is -2147483649": errOf(s.AddPermits(ctx, -1<<31-1)),
		"permits is 2147483649":  errOf(s.AddPermits(ctx, 1<<31+1)),
		"permits is -7":          s.Release(ctx, -7),
		"permits is -8":          errOf(s.TrySetPermits(ctx, -8, 0)),
		"waitTime is -1s":        s.TryAcquire(ctx, 1, -time.Second),
		"ttl is 1µs":             errOf(s.TrySetPermits(ctx, 1, time.Microsecond)),
		"ttl is -1s":             errOf(s.TrySetPermits(ctx, 1, -time.Second)),
		"permits is -2147483648": s.Release(ctx, -1<<31),
	} {
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, what)
	}
	for _, name := range []string{"", "{}x", "a{b", "a}b"} {
		bad := r.c.CountingSemaphore(name)
		for _, err := range []error{bad.Acquire(ctx, 1), bad.TryAcquire(ctx, 1, 0), bad.Release(ctx, 1),
			errOf(bad.Available(ctx)), errOf(bad.TrySetPermits(ctx, 1, 0)),
			errOf(bad.AddPermits(ctx, 1))} {
			require.ErrorIs(t, err, errs.ErrInvalidName)
		}
	}
	require.Empty(t, r.keys(t))
	for i, put := range [][]string{{"SET", "s", "many"}, {"HSET", "s", "f", "1"}} {
		r.must(t, "DEL", "s")
		r.must(t, put...)
		for what, err := range map[string]error{
			"acquire": s.Acquire(ctx, 1), "try": s.TryAcquire(ctx, 1, 0), "release": s.Release(ctx, 1),
			"add":       errOf(s.AddPermits(ctx, 1)),
			"available": errOf(s.Available(ctx)),
		} {
			require.ErrorIs(t, err, errs.ErrWrongType, "%s %d", what, i)
		}
	}
	r.must(t, "DEL", "s")
	require.NoError(t, r.c.Close(ctx))
	for _, err := range []error{s.Acquire(ctx, 1), errOf(s.AddPermits(ctx, 1)), errOf(s.Available(ctx))} {
		require.ErrorIs(t, err, errs.ErrClosed)
	}
}

// waitingIn is until n requests of r stand in a line.
func waitingIn(t testing.TB, r *rig, line string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprintf("%d wait in %s", n, line), func() bool {
		return r.c.Waiting(line) == n
	})
}

// subscribedTo is until somebody is subscribed to channel.
func subscribedTo(t testing.TB, r *rig, channel string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "a subscription to "+channel, func() bool {
		n, err := r.do(t, "PUBSUB", "NUMSUB", channel).ToArray()
		require.NoError(t, err)
		got, _ := n[1].AsInt64()
		return got > 0
	})
}

func TestAWaiterForTwoProceedsAfterTwoReleasesOfOne(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		// messages alone have to do it
		o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour}
		r, other := newRig(t, srv, o), newRig(t, srv, o)
		s := r.c.CountingSemaphore("s")
		got := make(chan error, 1)
		go func() { got <- s.Acquire(within(t), 2) }()
		subscribedTo(t, r, "redisson_sc:{s}")
		require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
		select {
		case err := <-got:
			t.Fatalf("one is not two: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
		require.NoError(t, <-got)
		require.Equal(t, "0", r.text(t, "GET", "s"))
	})
}

func TestEveryKindOfGrowthWakesWaiters(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour}
	r, other := newRig(t, srv, o), newRig(t, srv, o)
	grow := func(n string, f func(s *rsemaphore.CountingSemaphore, name string) error) {
		t.Run(n, func(t *testing.T) {
			name := "s" + strconv.Itoa(rand.Int())
			s := r.c.CountingSemaphore(name)
			got := make(chan error, 3)
			for range 3 {
				go func() { got <- s.Acquire(within(t), 1) }()
			}
			subscribedTo(t, r, "redisson_sc:{"+name+"}")
			waitingIn(t, r, "counting:"+name, 3)
			require.NoError(t, f(other.c.CountingSemaphore(name), name))
			for range 3 {
				require.NoError(t, <-got, "one message is enough for all that it frees")
			}
		})
	}
	grow("release", func(s *rsemaphore.CountingSemaphore, _ string) error { return s.Release(ctx, 3) })
	grow("add", func(s *rsemaphore.CountingSemaphore, _ string) error { return errOf(s.AddPermits(ctx, 3)) })
	grow("set", func(s *rsemaphore.CountingSemaphore, _ string) error { return errOf(s.TrySetPermits(ctx, 3, 0)) })
	grow("a message of Redisson's", func(_ *rsemaphore.CountingSemaphore, name string) error {
		other.must(t, "INCRBY", name, "3")
		return other.do(t, "PUBLISH", "redisson_sc:{"+name+"}", "3").Error()
	})
}

var ctx = context.Background()

// Of a process the first waiter for a number contends, and the others stand behind it.
func TestCountingWaitersForOneNumberAreServedInOrderInAProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r, other := newRig(t, srv, patient), newRig(t, srv, patient)
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if err := r.c.CountingSemaphore("s").Acquire(within(t), 2); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		})
		waitingIn(t, r, "counting:s", i+1)
	}
	for i := range 6 {
		require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 2))
		redistest.Eventually(t, 30*time.Second, "one is served", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(order) == i+1
		})
	}
	wg.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, order)
}

func TestALostMessageCostsACountingWaiterAtMostPollCap(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 100 * time.Millisecond})
	other := newRig(t, srv, patient)
	p.SwallowPushes()
	got := make(chan error, 1)
	go func() { got <- r.c.CountingSemaphore("s").Acquire(within(t), 1) }()
	subscribedTo(t, other, "redisson_sc:{s}")
	require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
	require.NoError(t, <-got)
	redistest.Eventually(t, 10*time.Second, "the message was lost", func() bool { return p.Swallowed() > 0 })
}

func TestAContextThatEndsIsToldAsBothReasons(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], patient)
		why := errors.New("the user went home")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, why)
		defer cancel()
		err := r.c.CountingSemaphore("s").Acquire(ctx, 3)
		for _, is := range []error{errs.ErrNotAcquired, context.DeadlineExceeded, why} {
			require.ErrorIs(t, err, is)
		}
		began := time.Now()
		require.ErrorIs(t, r.c.CountingSemaphore("s").TryAcquire(within(t), 1, time.Second), errs.ErrNotAcquired)
		require.GreaterOrEqual(t, time.Since(began), time.Second)
		redistest.Eventually(t, 30*time.Second, "waiting leaves nothing", func() bool { return len(r.keys(t)) == 0 })
		require.Zero(t, r.c.Lines())
	})
}

// load has the server know these scripts, so that the first reply to each is not that it does not.
func (r *rig) load(t testing.TB, pattern string) {
	t.Helper()
	files, err := filepath.Glob("lua/" + pattern + ".lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		r.must(t, "SCRIPT", "LOAD", source(t, strings.TrimSuffix(filepath.Base(f), ".lua")))
	}
}

func TestAPlainVerbWithoutAReplyIsSentOnceAndSaysSo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
	s := r.c.CountingSemaphore("s")
	direct.load(t, "counting_*")
	require.Zero(t, must1[int64](t)(s.Available(within(t)))) // connected
	for name, verb := range map[string]struct {
		do   func(s *rsemaphore.CountingSemaphore) error
		left string
	}{
		"acquire": {func(s *rsemaphore.CountingSemaphore) error { return s.Acquire(within(t), 2) }, "8"},
		"try":     {func(s *rsemaphore.CountingSemaphore) error { return s.TryAcquire(within(t), 2, time.Minute) }, "8"},
		"release": {func(s *rsemaphore.CountingSemaphore) error { return s.Release(within(t), 2) }, "12"},
		"add":     {func(s *rsemaphore.CountingSemaphore) error { return errOf(s.AddPermits(within(t), 2)) }, "12"},
		"reduce":  {func(s *rsemaphore.CountingSemaphore) error { return errOf(s.AddPermits(within(t), -5)) }, "5"},
	} {
		direct.must(t, "SET", name, "10") // each has its own: what it took may be given back while others run
		trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReply})
		err := verb.do(r.c.CountingSemaphore(name))
		left := direct.text(t, "GET", name)
		trap.Wait(t)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome, name)
		require.NotErrorIs(t, err, errs.ErrUnavailable, name)
		if takes := name == "acquire" || name == "try" || name == "drain"; !takes || left != "10" { // given back already
			require.Equal(t, verb.left, left, "%s ran once", name)
		}
		p.Heal()
	}
	// the one that asks may ask again
	p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.LoseReply})
	require.Zero(t, must1[int64](t)(s.Available(within(t))))
}

func TestPermitsWhoseReplyCameTooLateAreGivenBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 200 * time.Millisecond}), newRig(t, srv, patient)
		s := r.c.CountingSemaphore("s")
		direct.must(t, "SET", "s", "10")
		direct.load(t, "counting_*")
		for what, f := range map[string]func() error{
			"acquire": func() error { return s.Acquire(within(t), 4) },
		} {
			release := make(chan struct{})
			trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.HoldReply, Release: release})
			require.ErrorIs(t, f(), errs.ErrUnknownOutcome, what)
			trap.Wait(t) // it has run
			close(release)
			redistest.Eventually(t, 10*time.Second, what+": given back", func() bool {
				return direct.text(t, "GET", "s") == "10"
			})
		}
	})
}

// Neither of the contexts that bound a request inside comes out as if it were the caller's.
func TestAnUnansweredRequestNamesTheCallersOwnReasonOnly(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	hasty, slow := newRig(t, srv, rsemaphore.Options{CallTimeout: 200 * time.Millisecond}), newRig(t, srv,
		rsemaphore.Options{CallTimeout: time.Minute})
	for _, r := range []*rig{hasty, slow} { // connected
		require.NoError(t, r.c.CountingSemaphore("s").Release(within(t), 1))
	}
	srv.Stop(t)
	for what, f := range map[string]func(ctx context.Context, c *rsemaphore.Client) error{
		"release": func(ctx context.Context, c *rsemaphore.Client) error { return c.CountingSemaphore("s").Release(ctx, 1) },
		"acquire": func(ctx context.Context, c *rsemaphore.Client) error { return c.CountingSemaphore("s").Acquire(ctx, 1) },
		"down": func(ctx context.Context, c *rsemaphore.Client) error {
			return errOf(c.CountDownLatch("l").CountDown(ctx))
		},
	} {
		err := f(context.Background(), hasty.c)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome, what)
		require.NotErrorIs(t, err, context.DeadlineExceeded, what)
		require.NotErrorIs(t, err, context.Canceled, what)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		err = f(ctx, slow.c)
		cancel()
		require.ErrorIs(t, err, errs.ErrUnknownOutcome, what)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.NotErrorIs(t, err, context.Canceled, what)
	}
	srv.Resume(t)
}

// The call timeout is far away, so what keeps these deadlines is not it.
func TestDeadlinesHoldWhenTheServerIsStopped(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: time.Minute})
	require.True(t, must1[bool](t)(r.c.CountDownLatch("l").TrySetCount(within(t), 1, time.Hour)))
	srv.Stop(t)
	for what, f := range map[string]func(ctx context.Context) error{
		"acquire": func(ctx context.Context) error { return r.c.CountingSemaphore("s").Acquire(ctx, 1) },
		"release": func(ctx context.Context) error { return r.c.CountingSemaphore("s").Release(ctx, 1) },
		"down":    func(ctx context.Context) error { return errOf(r.c.CountDownLatch("l").CountDown(ctx)) },
		"down by": func(ctx context.Context) error { return errOf(r.c.CountDownLatch("l").CountDownBy(ctx, "a")) },
		"await":   func(ctx context.Context) error { return r.c.CountDownLatch("l").Await(ctx) },
		"arrive":  func(ctx context.Context) error { return errOf(r.c.CyclicBarrier("b", 2).Await(ctx)) },
	} {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := f(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.Less(t, time.Since(began), 10*time.Second, what)
	}
	srv.Resume(t)
}

func TestAnAcquireThatIsGivenUpIsNotGrantedLater(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 300 * time.Millisecond})
		s := r.c.CountingSemaphore("s")
		require.True(t, must1[bool](t)(s.TrySetPermits(within(t), 10, 0)))
		require.NoError(t, s.Acquire(within(t), 1)) // learns the server's clock
		p.Hold(redistest.Up)
		err := s.TryAcquire(within(t), 2, 0)
		time.Sleep(50 * time.Millisecond) // past the not-after, which errs to the early side
		p.Heal()                          // now it arrives
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.EqualValues(t, 9, must1[int64](t)(r.c.CountingSemaphore("s").Available(within(t))))
	})
}

func TestPermitsThatCannotBeGivenBackAreLogged(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		var book redistest.Logbook
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 200 * time.Millisecond, Logger: book.Logger()}),
			newRig(t, srv, patient)
		direct.must(t, "SET", "s", "10")
		direct.load(t, "counting_*")
		release := make(chan struct{})
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.HoldReply, Release: release})
		require.ErrorIs(t, r.c.CountingSemaphore("s").Acquire(within(t), 4), errs.ErrUnknownOutcome)
		trap.Wait(t)              // it has run
		p.BlackHole(redistest.Up) // the reply comes, and nothing is sent any more
		close(release)
		redistest.Eventually(t, time.Minute, "it is said", func() bool { return book.Count("were not given back") == 1 })
		require.Equal(t, 1, book.Count("name=s permits=4"))
		require.Equal(t, "6", direct.text(t, "GET", "s"))
		p.Heal()
	})
}

func TestARequestUnderWayIsSeenThroughWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
		direct.load(t, "counting_*")
		direct.must(t, "SET", "s", "1000")
		s := r.c.CountingSemaphore("s")
		require.NoError(t, s.Acquire(within(t), 1))
		p.Delay(0, 15*time.Millisecond)
		through, taken := 0, 0
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			if s.Acquire(ctx, 1) == nil {
				taken++
				if ctx.Err() != nil {
					through++
				}
			}
			cancel()
		}
		p.Heal()
		require.Positive(t, through, "their requests were under way")
		redistest.Eventually(t, 20*time.Second, "those that were too late are given back", func() bool {
			return direct.text(t, "GET", "s") == strconv.Itoa(999-taken)
		})
	})
}

func TestAReleaseUnderAContextThatHasEndedIsMadeAllTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	s := r.c.CountingSemaphore("s")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Acquire(over, 1), context.Canceled)
	require.NoError(t, s.Release(over, 2))
	require.Equal(t, "2", r.text(t, "GET", "s"))
}

func TestACloseEndsCountingWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	got := make(chan error, 1)
	go func() { got <- r.c.CountingSemaphore("s").Acquire(ctx, 1) }()
	waitingIn(t, r, "counting:s", 1)
	require.NoError(t, r.c.Close(within(t)))
	require.ErrorIs(t, <-got, errs.ErrClosed)
}

// countingBook is what the callers of one semaphore know.
type countingBook struct {
	mu       sync.Mutex
	capacity int64
	out      int64 // permits granted and not given back
	doubtful int64 // of acquires of unknown outcome
	returned int64 // of releases of unknown outcome
	most     int64
	overrun  int64 // by how many more than there are were out, at worst
	grants   int64
	unknowns int64
}

// record changes the book under its lock.
func (b *countingBook) record(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.most = max(b.most, b.out)
	// a release of unknown outcome may have run, and its permits may be in others' hands
	b.overrun = max(b.overrun, b.out-b.returned-b.capacity)
}

// use acquires and releases at random until ctx ends.
func (b *countingBook) use(ctx context.Context, s *rsemaphore.CountingSemaphore, rnd *rand.Rand) {
	for ctx.Err() == nil {
		n := 1 + rnd.IntN(8)
		var err error
		if rnd.IntN(3) == 0 {
			_, err = redistest.Impatient(rnd, func(ctx context.Context, wait time.Duration) (func(), error) {
				return nil, s.TryAcquire(ctx, n, orForever(wait))
			})
		} else {
			actx, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(100))*time.Millisecond)
			err = s.Acquire(actx, n)
			cancel()
		}
		switch {
		case errors.Is(err, errs.ErrUnknownOutcome):
			b.record(func() { b.unknowns++; b.doubtful += int64(n) })
			continue
		case err != nil:
			continue
		}
		b.record(func() { b.grants++; b.out += int64(n) })
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Microsecond)
		b.record(func() { b.out -= int64(n) }) // before it is sent: from then on others may have them
		for {
			rctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			err := s.Release(rctx, n)
			cancel()
			if errors.Is(err, errs.ErrUnknownOutcome) { // never sent again: that could raise the count
				b.record(func() { b.returned += int64(n) })
				break
			}
			if err == nil {
				break
			}
		}
	}
}

// Random histories over a network that fails: nobody is granted what is not there, and in the end every permit is
// accounted for, within what the calls of unknown outcome may have moved. Those leak, as documented, so each round has
// a semaphore of its own.
func TestCountingHistoriesUnderFaultsAddUp(t *testing.T) {
	t.Parallel()
	redistest.InFull(t, "TestCountingSemaphoreKeepsToItsModel")
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	const capacity, rounds = 30, 8
	var proxies []*redistest.Proxy
	var rigs []*rig
	for range 3 {
		p := redistest.NewProxy(t, srv)
		proxies = append(proxies, p)
		rigs = append(rigs, newRig(t, p.Server(),
			rsemaphore.Options{CallTimeout: 50 * time.Millisecond, PollCap: 50 * time.Millisecond}))
	}
	var grants, unknowns, inflicted int64
	for round := range rounds {
		name := "s" + strconv.Itoa(round)
		direct.must(t, "SET", name, strconv.Itoa(capacity))
		book := &countingBook{capacity: capacity}
		stop, done := context.WithTimeout(context.Background(), 500*time.Millisecond)
		var wg sync.WaitGroup
		for i, r := range rigs {
			for j := range 5 {
				wg.Go(func() {
					book.use(stop, r.c.CountingSemaphore(name), rand.New(rand.NewPCG(uint64(round), uint64(10*i+j))))
				})
			}
		}
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(round), 999))
			for stop.Err() == nil {
				breakNetwork(proxies[rnd.IntN(len(proxies))], rnd, name)
				inflicted++
			}
		})
		wg.Wait()
		done()
		require.Zero(t, book.overrun, "granted beyond the capacity")
		redistest.Eventually(t, 20*time.Second, "the books balance", func() bool {
			left := direct.number(t, "GET", name)
			return left <= capacity && left >= capacity-book.doubtful-book.returned
		})
		grants, unknowns = grants+book.grants, unknowns+book.unknowns
	}
	t.Logf("%d grants, %d of unknown outcome, %d faults", grants, unknowns, inflicted)
	require.Greater(t, grants, int64(50), "a test that does no work finds nothing")
	require.Greater(t, inflicted, int64(8))
	require.Positive(t, unknowns)
}

// breakNetwork has one thing go wrong for a moment, with calls that name word.
func breakNetwork(p *redistest.Proxy, rnd *rand.Rand, word string) {
	switch rnd.IntN(6) {
	case 0:
		p.Cut()
	case 1:
		p.Trap(&redistest.Trap{Match: redistest.With(word), Fate: redistest.LoseReply})
	case 2:
		p.Trap(&redistest.Trap{Match: redistest.With(word), Fate: redistest.LoseRequest})
	case 3:
		p.Hold(redistest.Direction(rnd.IntN(2)))
	case 4:
		p.SwallowPushes()
	case 5:
		p.Delay(time.Duration(rnd.IntN(5))*time.Millisecond, time.Duration(rnd.IntN(5))*time.Millisecond)
	}
	time.Sleep(time.Duration(5+rnd.IntN(50)) * time.Millisecond)
	p.Heal()
	time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
}

// Cancelled at any instant, a waiter leaves nothing behind, and takes nothing that it does not know of for good.
func TestCancelledCountingWaitersLeaveNothing(t *testing.T) {
	srv := redistest.Start(t)
	r, direct := newRig(t, srv, patient), newRig(t, srv, patient)
	direct.must(t, "SET", "s", "3")
	s := r.c.CountingSemaphore("s")
	rnd := rand.New(rand.NewPCG(1, 2))
	var unknown int64
	require.NoError(t, s.Acquire(within(t), 1)) // all connections are there
	require.NoError(t, s.Release(within(t), 1))
	before := runtime.NumGoroutine()
	for range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(rnd.IntN(400))*time.Microsecond, cancel)
		n := 1 + rnd.IntN(5) // 4 and 5 are never granted
		switch err := s.Acquire(ctx, n); {
		case err == nil:
			require.NoError(t, s.Release(within(t), n))
		case errors.Is(err, errs.ErrUnknownOutcome):
			unknown++
			require.ErrorIs(t, err, context.Canceled)
		default:
			require.True(t, errors.Is(err, errs.ErrNotAcquired) || errors.Is(err, errs.ErrUnavailable), "%v", err)
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
	require.Zero(t, r.c.Lines())
	redistest.Eventually(t, 20*time.Second, "what was granted to nobody is back", func() bool {
		return direct.text(t, "GET", "s") == "3"
	})
	t.Logf("%d of 300 of unknown outcome", unknown)
	redistest.Eventually(t, 20*time.Second, "no goroutine is left", func() bool {
		return runtime.NumGoroutine() <= before+8
	})
	redistest.Eventually(t, 30*time.Second, "nothing else is there", func() bool { return len(direct.keys(t)) == 1 })
}

func TestNamesWithBracesKeepTheirSlotInACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	r, other := newRig(t, srv, patient), newRig(t, srv, patient)
	for i, name := range []string{"plain", "a{b}", "{b}a", "a{b}c{d}", "sem:{x}:1", "ü{ü}"} {
		s := r.c.CountingSemaphore(name)
		require.True(t, must1[bool](t)(s.TrySetPermits(within(t), 1, time.Minute)), name)
		require.NoError(t, s.Acquire(within(t), 1), name)
		got := make(chan error, 1)
		go func() { got <- s.Acquire(within(t), 1) }()
		waitingIn(t, r, "counting:"+name, 1)
		require.NoError(t, other.c.CountingSemaphore(name).Release(within(t), 1), name)
		require.NoError(t, <-got, "%d: %s", i, name)
		require.Zero(t, must1[int64](t)(s.Available(within(t))), name)
	}
}

func init() { roles["anonymous"] = beAnonymous }

// beAnonymous takes two permits, says so, and keeps them.
func beAnonymous() error {
	_, c, err := connectRole(patient)
	if err != nil {
		return err
	}
	if err := c.CountingSemaphore("s").Acquire(context.Background(), 2); err != nil {
		return err
	}
	fmt.Println("taken")
	select {}
}

func TestAKilledProcessTakesAnonymousPermitsWithIt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	s := r.c.CountingSemaphore("s")
	require.True(t, must1[bool](t)(s.TrySetPermits(within(t), 5, 0)))
	p := redistest.Spawn(t, "anonymous", srv)
	require.Equal(t, "taken", p.Line(t))
	p.Signal(t, syscall.SIGKILL)
	require.Error(t, p.Cmd.Wait())
	require.EqualValues(t, 3, must1[int64](t)(s.Available(within(t))), "as documented")
	require.NoError(t, s.TryAcquire(within(t), 3, 0))
}

func TestInspectTellsOfACountingSemaphoreWhatIsFreeAndForHowLong(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		inspect := func(name string) rsemaphore.SemaphoreState {
			return must1[rsemaphore.SemaphoreState](t)(r.c.CountingSemaphore(name).Inspect(within(t)))
		}
		require.Equal(t, rsemaphore.SemaphoreState{TTL: -1}, inspect("none"))
		require.True(t, must1[bool](t)(r.c.CountingSemaphore("lasting").TrySetPermits(within(t), 3, 0)))
		require.Equal(t, rsemaphore.SemaphoreState{Available: 3, TTL: -1}, inspect("lasting"))
		require.True(t, must1[bool](t)(r.c.CountingSemaphore("short").TrySetPermits(within(t), 3, time.Hour)))
		state := inspect("short")
		require.Equal(t, 3, state.Available)
		require.InDelta(t, time.Hour, state.TTL, float64(time.Minute))
		r.must(t, "SET", "text", "abc")
		require.ErrorIs(t, errOf(r.c.CountingSemaphore("text").Inspect(within(t))), errs.ErrWrongType)
		acquire(t, r.c.Semaphore("s", 2), 1)
		require.ErrorIs(t, errOf(r.c.CountingSemaphore("s").Inspect(within(t))), errs.ErrWrongType)
	})
}
