package script_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// stamped is what timedServer replies.
type stamped struct {
	server int64
	late   bool
}

func (s stamped) Clock() (int64, bool) { return s.server, s.late }

// timedServer is a server whose clock is the test's.
type timedServer struct {
	clock  func() int64
	asked  []int64 // not after
	reply  stamped // the last
	unmet  error
	broken error
}

func (s *timedServer) send(_ context.Context, _ time.Time, notAfter int64) (m rueidis.RedisMessage, err error) {
	s.asked = append(s.asked, notAfter)
	now := s.clock()
	s.reply = stamped{now, notAfter > 0 && now > notAfter}
	return m, s.unmet
}

func (s *timedServer) decode(rueidis.RedisMessage) (stamped, error) { return s.reply, s.broken }

func (s *timedServer) call() script.Timed[stamped] {
	return script.Timed[stamped]{Key: "k", Send: s.send, Decode: s.decode}
}

// timed is a server that began when the test did, and that was called once, of a caller with such a call timeout.
func timed(t *testing.T, callTimeout time.Duration) (s *timedServer, run func() (stamped, error), r *script.Runner) {
	r = script.NewRunner(redistest.Embedded(t).Client(t), callTimeout)
	s = &timedServer{clock: ticking(7_000_000, time.Now())}
	c := s.call()
	run = func() (stamped, error) { return c.Run(within(t), r) }
	redistest.NoError(run())(t)
	require.Equal(t, []int64{0}, s.asked, "nothing is known yet")
	return s, run, r
}

// ticking is a clock that showed at when it began.
func ticking(at int64, began time.Time) func() int64 {
	return func() int64 { return at + time.Since(began).Milliseconds() }
}

func TestTimed_KnownClock_SaysNotAfter(t *testing.T) {
	s, run, _ := timed(t, 10*time.Second)
	before := s.clock()
	got := redistest.NoError(run())(t)
	require.Equal(t, s.reply, got)
	require.Len(t, s.asked, 2)
	require.GreaterOrEqual(t, s.asked[1], before, "the estimate errs by the round trip, which was none")
	require.LessOrEqual(t, s.asked[1], s.clock()+10_000, "not after the call timeout")
}

func TestTimed_CallersDeadline_IsNotExceeded(t *testing.T) {
	began := time.Now()
	s, _, r := timed(t, time.Hour)
	s.clock = ticking(7_000_000, began)
	for _, tc := range []struct {
		name             string
		giveUp, beyond   time.Duration
		deadline, expect time.Duration // since began
	}{
		{"the deadline of its context", 0, 0, time.Minute, time.Minute},
		{"the deadline in whole milliseconds, never later", 0, 0, time.Minute + 999*time.Microsecond,
			time.Minute + 999*time.Microsecond},
		{"how long it sees a request through beyond that", 0, 40 * time.Millisecond, time.Minute,
			time.Minute + 40*time.Millisecond},
		{"what it was told", 90 * time.Minute, 0, 80 * time.Minute, 80 * time.Minute},
	} {
		ctx, cancel := context.WithDeadline(context.Background(), began.Add(tc.deadline))
		c := s.call()
		c.GiveUp, c.Beyond = tc.giveUp, tc.beyond
		_, err := c.Run(ctx, r)
		cancel()
		require.NoError(t, err)
		asked := s.asked[len(s.asked)-1]
		require.LessOrEqual(t, asked, 7_000_000+tc.expect.Milliseconds(), tc.name)
		require.GreaterOrEqual(t, asked, 7_000_000+(tc.expect-time.Minute/2).Milliseconds(), tc.name)
	}
}

func TestTimed_LateReply_LearnsTheClockAndRepeats(t *testing.T) {
	s, run, _ := timed(t, time.Second)
	s.clock = ticking(9_000_000, time.Now()) // another server, or the clock was stepped
	got := redistest.NoError(run())(t)
	require.False(t, got.late)
	require.Len(t, s.asked, 3, "refused, and repeated")
	redistest.NoError(run())(t)
	require.Len(t, s.asked, 4, "the clock is known again")
}

func TestTimed_LateTwice_DidNothing(t *testing.T) {
	s, run, _ := timed(t, time.Second)
	steps := int64(7_000_000)
	s.clock = func() int64 { steps += 1_000_000; return steps } // requests that are under way for long, as it were
	_, err := run()
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorContains(t, err, "too late")
	require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
	require.Len(t, s.asked, 3)
}

func TestTimed_Errors_ArePassedOn(t *testing.T) {
	s, run, _ := timed(t, time.Second)
	s.unmet = fmt.Errorf("%w: 0 of 1", errs.ErrNotReplicated)
	got, err := run()
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	require.Equal(t, s.reply, got)

	s.unmet, s.broken = nil, errors.New("unexpected reply")
	_, err = run()
	require.Equal(t, s.broken, err)

	s.unmet = errs.ErrUnknownOutcome
	_, err = run()
	require.Equal(t, errs.ErrUnknownOutcome, err)
	require.Len(t, s.asked, 4, "none is repeated")
}

func TestClockLeaves_CallerLeavesSoon_IsSent(t *testing.T) {
	r := script.NewRunner(redistest.Start(t).Client(t), time.Second)
	now := time.Now()
	require.Zero(t, r.Clock.Leaves("k", now), "nothing is known of the server")
	r.Clock.Learn("k", 5000, now, now)
	require.EqualValues(t, 5000, r.Clock.Leaves("k", now))
	require.EqualValues(t, 5500, r.Clock.Leaves("k", now.Add(500*time.Millisecond)))
	require.Zero(t, r.Clock.Leaves("k", now.Add(time.Minute)))
	require.Zero(t, r.Clock.Leaves("k", time.Time{}), "never")
}
