package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/stretchr/testify/require"
)

func TestReserve_LateCopyOfGivenBack_TakesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 10})
		for i, step := range []struct {
			id     string
			n      int64 // negative: given back
			done   bool
			stands time.Duration // afterwards
		}{
			{"A", 2, true, 2}, {"A", 2, true, 2}, {"B", 3, true, 5}, {"A", -2, false, 5}, {"B", -3, true, 2},
			{"B", -3, false, 2}, {"B", 3, false, 2},
			{"C", 4, true, 6}, {"B", 3, true, 9},
			{"D", 4, true, 13}, {"D", 4, true, 13}, {"E", 1, true, 14}, {"D", -4, true, 14}, {"D", -4, false, 14},
			{"D", 4, false, 14},
			{"F", 4, true, 14}, {"D", -4, false, 14}, {"F", -4, true, 14}, {"E", -1, true, 9}, {"E", 1, false, 9},
		} {
			var r ratelimit.Turn
			var err error
			if step.n > 0 {
				r, _, err = l.ReserveAs(ctx, step.id, "k", step.n, 24*time.Hour)
			} else {
				r, err = l.CancelAs(ctx, step.id, "k", -step.n, "")
			}
			require.NoError(t, err)
			require.Equal(t, step.done, r.Done, "step %d", i)
			require.Equal(t, step.stands*time.Hour, r.Empty.Round(time.Hour), "step %d", i)
		}
	})
}

// passedAt is units that passed at an instant, us. Of two instants that are both in whole us, the first may have been
// up to one earlier.
func passedAt(at, n int64) judges.Passed {
	to := time.Duration(at) * time.Microsecond
	return judges.Passed{From: to - time.Microsecond, To: to, N: n}
}

// Callers come, wait, and leave at random, and now and then none asks for a while. The server and the process answer
// alike, unless each call reads two turns of the line only; the promise is kept to the us, whoever leaves; and when
// everybody has left, the limiter is not closed.
func TestLine_CallersLeave_KeepsThePromise(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for name, parts := range map[string]bool{"read at once": false, "read in parts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Embedded(t)
			wire := srv.Client(t)
			if parts {
				wire = inParts(t, wire)
			}
			walkLine(t, srv, on(t, wire, patient), parts)
		})
	}
}

// walkLine has a line walked at random. parts: what a call answers is not what the process would.
func walkLine(t *testing.T, srv *redistest.Server, c *ratelimit.Client, parts bool) {
	seed := redistest.Seeds(t, 1)[0]
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := time.Now().Truncate(time.Millisecond)
	turns, holes := 0, 0
	for round := range redistest.Sized(6, 8, 1000) {
		o := rates(rnd)
		o.Burst += rnd.Int64N(3) * 5
		l := c.Limiter("l"+strconv.Itoa(round), o)
		m := l.NewModel()
		spacing := o.Per.Microseconds()/o.Rate + 1
		type waiter struct {
			id    string
			n     int64
			turn  int64
			place string
		}
		var waiting []waiter
		var passed []judges.Passed
		last := int64(0)
		for i := range 130 {
			step := rnd.Int64N(2*spacing) / int64(1+rnd.IntN(3))
			if rnd.IntN(20) == 0 {
				step *= 20
			}
			at = at.Add(time.Duration(step) * time.Microsecond)
			srv.Embedded.SetTime(at)
			now := at.UnixMicro()
			for len(waiting) > 0 && waiting[0].turn <= now {
				passed = append(passed, passedAt(waiting[0].turn, waiting[0].n))
				waiting = waiting[1:]
			}
			n := 1 + rnd.Int64N(o.Burst)
			if rnd.IntN(3) > 0 {
				n = 1
			}
			same := func(what string, want, got any) {
				t.Helper()
				if !parts {
					require.Equal(t, want, got, "seed %d, round %d, step %d: %s %d of %+v", seed, round, i, what, n, o)
				}
			}
			switch what := rnd.IntN(10); {
			case what < 4 || parts && what < 6:
				id := strconv.Itoa(i)
				want := m.Reserve(now, id, n, 50*spacing)
				got, place, err := l.ReserveAs(ctx, id, "", n, time.Duration(50*spacing)*time.Microsecond)
				require.NoError(t, err)
				same("reserve", want, got)
				if got.Done {
					turn := now + got.Wait.Microseconds()
					if turn < last {
						holes++
					}
					last = max(last, turn)
					if got.Wait > 0 {
						turns++
					}
					waiting = append(waiting, waiter{id, n, turn, []string{place, ""}[rnd.IntN(2)]})
					slices.SortStableFunc(waiting, func(a, b waiter) int { return int(a.turn - b.turn) })
				}
			case what < 8 && len(waiting) > 0:
				j := rnd.IntN(len(waiting))
				w := waiting[j]
				n = w.n
				want := m.Cancel(now, w.id, n)
				got := redistest.NoError(l.CancelAs(ctx, w.id, "", n, w.place))(t)
				same("cancel", want, got)
				require.True(t, got.Done, "seed %d, round %d, step %d: its turn had not come", seed, round, i)
				waiting = slices.Delete(waiting, j, j+1)
			default:
				upTo := rnd.IntN(3) == 0
				want := m.Take(now, n, upTo)
				var got ratelimit.Admission
				var err error
				if upTo {
					got, err = l.AllowAtMost(ctx, "", n)
				} else {
					got, err = l.Allow(ctx, "", n)
				}
				require.NoError(t, err)
				same("take", want, got)
				if got.N > 0 {
					passed = append(passed, passedAt(now, got.N))
				}
			}
		}
		for _, w := range waiting { // what was promised them counts, though they leave
			passed = append(passed, passedAt(w.turn, w.n))
			redistest.NoError(l.CancelAs(ctx, w.id, "", w.n, w.place))(t)
		}
		require.Empty(t, judges.Rate{N: o.Rate, Per: o.Per, Burst: o.Burst}.Exceeded(passed, 0), "seed %d, %+v", seed, o)
		a := redistest.NoError(l.Peek(ctx, ""))(t)
		require.LessOrEqual(t, a.ResetAfter.Microseconds(), (o.Burst*o.Per.Microseconds()-1)/o.Rate+2,
			"everybody has left, and the limiter is not closed for longer than after a burst")
		at = at.Add(time.Hour)
	}
	require.Positive(t, turns)
	require.True(t, parts || holes > 0, "some got the turn of one that had left")
	t.Logf("%d turns, %d of them of those that had left", turns, holes)
}

// A thousand callers wait without a deadline and leave, as clients do that disconnect. Those that wait do so for
// MaxWait at most; and when they have left, the limiter is where it was.
func TestWait_CrowdLeaves_ClosesNoLimiter(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const callers, burst, rate, waiting = 500, 10, 10, 20
	srv := redistest.Embedded(t)
	srv.Embedded.SetTime(time.Now()) // and there it stands
	o := ratelimit.LimiterOptions{Rate: rate, Per: time.Hour, Burst: burst, MaxWait: waiting * time.Hour / rate}
	crowded := on(t, srv.Client(t), patient).Limiter("l", o)
	r := context.WithoutCancel(ctx)
	leaving, leave := context.WithCancel(r)
	defer leave()
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			a, err := crowded.Wait(leaving, "", 1)
			switch {
			case errors.Is(err, ratelimit.ErrLimited):
				if a.RetryAfter <= o.MaxWait {
					t.Error("refused before MaxWait:", a, err)
				}
				if refused.Add(1) >= callers-burst-waiting {
					leave()
				}
			case err != nil && !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Positive(t, refused.Load())
	redistest.Eventually(t, 20*time.Second, "their turns are given back", func() bool {
		a := redistest.NoError(crowded.Peek(r, ""))(t)
		return a.ResetAfter <= burst*time.Hour/rate
	})
	l := on(t, srv.Client(t), patient).Limiter("one",
		ratelimit.LimiterOptions{Rate: 1, Per: time.Minute, MaxWait: time.Second})
	require.NoError(t, only(l.Wait(ctx, "", 1)))
	before := redistest.NoError(l.Peek(ctx, ""))(t)
	err := only(l.Wait(ctx, "", 1))
	require.ErrorIs(t, err, ratelimit.ErrLimited)
	require.ErrorContains(t, err, "longer than MaxWait, 1s")
	after := redistest.NoError(l.Peek(ctx, ""))(t)
	require.Equal(t, before, after, "nothing was taken")
	for _, d := range []time.Duration{-1, time.Microsecond, 25 * time.Hour} {
		l := on(t, srv.Client(t), patient).Limiter("bad", ratelimit.LimiterOptions{Rate: 1, MaxWait: d})
		require.ErrorIs(t, only(l.Wait(ctx, "", 1)), errs.ErrInvalidOption)
	}
}
