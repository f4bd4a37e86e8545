package counting_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	sent "github.com/redlatch/redlatch/internal/redistest/rig"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

func TestCounting_OnTheServer_IsRedissonsNumber(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := counting.New(r.c, "s")
		n, ok := must1[int64](t), must1[bool](t)
		require.Zero(t, n(s.Available(within(t))))
		require.Empty(t, sent.Keys(t, r.redis), "asking makes nothing")

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

func TestCounting_EveryGrowth_WakesWaiters(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour}
	r, other := newRig(t, srv, o), newRig(t, srv, o)
	grow := func(n string, f func(s *counting.Semaphore, name string) error) {
		t.Run(n, func(t *testing.T) {
			name := "s" + strconv.Itoa(rand.Int())
			s := counting.New(r.c, name)
			got := make(chan error, 3)
			for range 3 {
				go func() { got <- s.Acquire(within(t), 1) }()
			}
			sent.SubscribedTo(t, r.redis, "redisson_sc:{"+name+"}")
			waitingIn(t, r, "counting:"+name, 3)
			require.NoError(t, f(counting.New(other.c, name), name))
			for range 3 {
				require.NoError(t, <-got, "one message is enough for all that it frees")
			}
		})
	}
	grow("release", func(s *counting.Semaphore, _ string) error { return s.Release(ctx, 3) })
	grow("add", func(s *counting.Semaphore, _ string) error { return errOf(s.AddPermits(ctx, 3)) })
	grow("set", func(s *counting.Semaphore, _ string) error { return errOf(s.TrySetPermits(ctx, 3, 0)) })
	grow("a message of Redisson's", func(_ *counting.Semaphore, name string) error {
		other.must(t, "INCRBY", name, "3")
		return other.do(t, "PUBLISH", "redisson_sc:{"+name+"}", "3").Error()
	})
}

func TestCounting_ReplyTooLate_IsGivenBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 200 * time.Millisecond}), newRig(t, srv, patient)
		s := counting.New(r.c, "s")
		direct.must(t, "SET", "s", "10")
		direct.load(t)
		release := make(chan struct{})
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.HoldReply, Release: release})
		require.ErrorIs(t, s.Acquire(within(t), 4), errs.ErrUnknownOutcome)
		trap.Wait(t) // it has run
		close(release)
		redistest.Eventually(t, 10*time.Second, "given back", func() bool { return direct.text(t, "GET", "s") == "10" })
	})
}

func TestCounting_AcquireGivenUp_IsNotGrantedLater(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 300 * time.Millisecond})
		s := counting.New(r.c, "s")
		require.True(t, must1[bool](t)(s.TrySetPermits(within(t), 10, 0)))
		require.NoError(t, s.Acquire(within(t), 1)) // learns the server's clock
		p.Hold(redistest.Up)
		err := s.TryAcquire(within(t), 2, 0)
		time.Sleep(50 * time.Millisecond) // past the not-after, which errs to the early side
		p.Heal()                          // now it arrives
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.EqualValues(t, 9, must1[int64](t)(counting.New(r.c, "s").Available(within(t))))
	})
}

func TestCounting_CannotBeGivenBack_IsLogged(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		var book redistest.Logbook
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 200 * time.Millisecond, Logger: book.Logger()}),
			newRig(t, srv, patient)
		direct.must(t, "SET", "s", "10")
		direct.load(t)
		release := make(chan struct{})
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.HoldReply, Release: release})
		require.ErrorIs(t, counting.New(r.c, "s").Acquire(within(t), 4), errs.ErrUnknownOutcome)
		trap.Wait(t)              // it has run
		p.BlackHole(redistest.Up) // the reply comes, and nothing is sent any more
		close(release)
		redistest.Eventually(t, time.Minute, "it is said", func() bool { return book.Count("were not returned") == 1 })
		require.Equal(t, 1, book.Count("name=s permits=4"))
		require.Equal(t, "6", direct.text(t, "GET", "s"))
		p.Heal()
	})
}

func TestCounting_CtxEndsUnderWay_SeesItThrough(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
		direct.load(t)
		direct.must(t, "SET", "s", "1000")
		s := counting.New(r.c, "s")
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

func TestCounting_ReleaseUnderEndedCtx_IsMade(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	s := counting.New(r.c, "s")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Acquire(over, 1), context.Canceled)
	require.NoError(t, s.Release(over, 2))
	require.Equal(t, "2", r.text(t, "GET", "s"))
}

func TestCounting_Inspect_TellsPermitsAndTTL(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		inspect := func(name string) counting.State {
			return must1[counting.State](t)(counting.New(r.c, name).Inspect(within(t)))
		}
		require.Equal(t, counting.State{TTL: -1}, inspect("none"))
		require.True(t, must1[bool](t)(counting.New(r.c, "lasting").TrySetPermits(within(t), 3, 0)))
		require.Equal(t, counting.State{Available: 3, TTL: -1}, inspect("lasting"))
		require.True(t, must1[bool](t)(counting.New(r.c, "short").TrySetPermits(within(t), 3, time.Hour)))
		state := inspect("short")
		require.Equal(t, 3, state.Available)
		require.InDelta(t, time.Hour, state.TTL, float64(time.Minute))
		r.must(t, "SET", "text", "abc")
		require.ErrorIs(t, errOf(counting.New(r.c, "text").Inspect(within(t))), errs.ErrWrongType)
		must1[*rsemaphore.Permit](t)(r.c.Semaphore("s", 2).Acquire(within(t), 1))
		require.ErrorIs(t, errOf(counting.New(r.c, "s").Inspect(within(t))), errs.ErrWrongType)
	})
}
