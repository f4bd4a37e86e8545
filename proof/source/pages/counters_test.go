package pages_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Visit counts a visit. After an error it may or may not have counted.
func Visit(ctx context.Context, counters *rcounter.Client) (int64, error) {
	return counters.Counter("visits", rcounter.CounterOptions{}).Incr(ctx)
}

// points is the counter of a user's points. Options are not stored, so pass the same ones everywhere.
func points(counters *rcounter.Client, user string) *rcounter.Counter {
	return counters.Counter("points:"+user, rcounter.CounterOptions{Min: rcounter.Bound(0), Remember: 24 * time.Hour})
}

// Credit adds points for an order once, however often it is called within a day.
func Credit(ctx context.Context, counters *rcounter.Client, user, order string, n int64) (total int64, err error) {
	total, _, err = points(counters, user).AddOnce(ctx, order, n)
	return total, err
}

// Spend takes points away. It never goes below zero: then the error is redlatch.ErrOutOfRange.
func Spend(ctx context.Context, counters *rcounter.Client, user string, n int64) (left int64, err error) {
	return points(counters, user).Add(ctx, -n)
}

// Record keeps the best score.
func Record(ctx context.Context, counters *rcounter.Client, score int64) error {
	best := counters.Counter("best", rcounter.CounterOptions{})
	for {
		v, err := best.Get(ctx)
		if err != nil || v >= score {
			return err
		}
		set, err := best.CompareAndSet(ctx, v, score)
		if set || err != nil && !errors.Is(err, redlatch.ErrUnknownOutcome) {
			return err
		} // another caller was first, or the answer was lost: scores only rise, so retrying is safe
	}
}

// Limited allows each user ten requests a second in all processes together, with bursts of 20.
func Limited(limiters *ratelimit.Client, next http.Handler) http.Handler {
	api := limiters.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Burst: 20})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admission, err := api.Allow(r.Context(), r.Header.Get("X-User"), 1)
		switch {
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable) // or set WhenDown
		case !admission.Allowed:
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(admission.RetryAfter.Seconds()))))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Mail sends 100 mails a minute in all processes together.
func Mail(ctx context.Context, limiters *ratelimit.Client, send func(context.Context) error) error {
	mails := limiters.Limiter("mails", ratelimit.LimiterOptions{Rate: 100, Per: time.Minute, Burst: 1})
	if _, err := mails.Wait(ctx, "", 1); err != nil {
		return err
	}
	return send(ctx)
}

// Complete lets each organization use a million tokens a minute. It charges an estimate, and settles what was used.
func Complete(ctx context.Context, limiters *ratelimit.Client, org string, estimate int64,
	complete func(context.Context) (used int64, err error)) error {
	tokens := limiters.Limiter("tokens", ratelimit.LimiterOptions{Rate: 1_000_000, Per: time.Minute})
	charge, admission, err := tokens.Charge(ctx, org, estimate)
	switch {
	case err != nil:
		return err
	case !admission.Allowed:
		return fmt.Errorf("%w: try again in %v", ratelimit.ErrLimited, admission.RetryAfter)
	}
	used, err := complete(ctx)
	return errors.Join(err, charge.Settle(ctx, used))
}

// Throttle changes the rate of running programs within a second. Their limiters have LimiterOptions{Rate: 1000, Stored:
// true}.
func Throttle(ctx context.Context, limiters *ratelimit.Client, name string, rate int64, who string) error {
	return limiters.Limiter(name, ratelimit.LimiterOptions{Rate: rate}).Set(ctx, who)
}
func TestCredit_RepliesLost_CreditsAnOrderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		counters := srv.Open().Counters()
		n := redistest.NoError(Visit(t.Context(), counters))(t)
		require.EqualValues(t, 1, n)
		for range 3 {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Times: 1})
			total := redistest.NoError(Credit(t.Context(), counters, "ann", "order:1", 50))(t)
			require.EqualValues(t, 50, total)
		}
		left := redistest.NoError(Spend(t.Context(), counters, "ann", 30))(t)
		require.EqualValues(t, 20, left)
		_, err := Spend(t.Context(), counters, "ann", 30)
		require.ErrorIs(t, err, redlatch.ErrOutOfRange)
	})
}

func TestRecord_RivalsAndLostReplies_KeepsTheBestScore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		counters := srv.Open().Counters()
		lost := srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Name: "best", Times: 3})
		defer lost.Heal()
		var all sync.WaitGroup
		for score := range int64(16) {
			all.Go(func() {
				for Record(t.Context(), counters, score) != nil { // Get had no answer: the caller asks again
				}
			})
		}
		all.Wait()
		best := redistest.NoError(counters.Counter("best", rcounter.CounterOptions{}).Get(t.Context()))(t)
		require.EqualValues(t, 15, best)
	})
}

func TestLimited_TooManyRequests_AreRefusedWithAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		handler := Limited(srv.Open().Limiters(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func(user string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-User", user)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
		for range 20 {
			require.Equal(t, http.StatusOK, ask("ann").Code)
		}
		refused := ask("ann")
		require.Equal(t, http.StatusTooManyRequests, refused.Code)
		require.Equal(t, "1", refused.Header().Get("Retry-After"))
		require.Equal(t, http.StatusOK, ask("bob").Code)
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
		require.Equal(t, http.StatusServiceUnavailable, ask("bob").Code)
	})
}

func TestComplete_LessOrMoreUsed_CountsWhatWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		limiters := srv.Open().Limiters()
		uses := func(used int64) func(context.Context) (int64, error) {
			return func(context.Context) (int64, error) { return used, nil }
		}
		for range 3 {
			require.NoError(t, Complete(t.Context(), limiters, "acme", 400_000, uses(200_000)))
		}
		require.NoError(t, Complete(t.Context(), limiters, "acme", 100_000, uses(500_000)))
		require.ErrorIs(t, Complete(t.Context(), limiters, "acme", 1, uses(1)), ratelimit.ErrLimited)
		time.Sleep(10 * time.Second)
		require.NoError(t, Complete(t.Context(), limiters, "acme", 50_000, uses(0)))
	})
}

func TestMail_ManyAtOnce_AreSpacedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiters := redlatchtest.New(t).Open().Limiters()
		began := time.Now()
		for range 11 {
			require.NoError(t, Mail(t.Context(), limiters, nothing))
		}
		require.InDelta(t, 6, time.Since(began).Seconds(), 1) // the bubble's time
	})
}

func TestThrottle_RunningPrograms_ObeySoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		program := srv.Open().Limiters().Limiter("mails", ratelimit.LimiterOptions{Rate: 1000, Stored: true})
		a := redistest.NoError(program.Peek(t.Context(), ""))(t)
		require.EqualValues(t, 1000, a.Remaining)
		require.NoError(t, Throttle(t.Context(), srv.Open().Limiters(), "mails", 3, "ann"))
		time.Sleep(1100 * time.Millisecond)
		a = redistest.NoError(program.Peek(t.Context(), ""))(t)
		require.EqualValues(t, 3, a.Remaining)
	})
}
