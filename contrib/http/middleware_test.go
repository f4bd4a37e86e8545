package redlatchhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/redlatchtest"
)

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) })

// limited is a handler behind the middleware, and what asks it.
func limited(t *testing.T, c *ratelimit.Client, next http.Handler,
	o redlatchhttp.Options) func(user string, more ...string) *http.Response {
	t.Helper()
	wrap := redistest.NoError(redlatchhttp.New(c, o))(t)
	handler := wrap(next)
	return func(user string, more ...string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", user)
		for i := 0; i < len(more); i += 2 {
			r.Header.Set(more[i], more[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result()
	}
}

func TestMiddleware_SeveralLimits_TakesOfAllAndSaysHowMuchIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlatchtest.New(t).Open().Limiters()
		user := redlatchhttp.ByHeader("X-User")
		ask := limited(t, c, served, redlatchhttp.Options{Limits: []redlatchhttp.Limit{
			{Limiter: c.Limiter("second", ratelimit.LimiterOptions{Rate: 2, Burst: 4}), Key: user},
			{Limiter: c.Limiter("day",
				ratelimit.LimiterOptions{Rate: 3, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day}), Key: user,
				Name: "a day"},
		}})
		r := ask("ann")
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Equal(t, `"second";q=4;w=2, "a day";q=3;w=86400`, r.Header.Get("RateLimit-Policy"))
		require.Regexp(t, `^"second";r=3;t=1, "a day";r=2;t=\d+$`, r.Header.Get("RateLimit"))
		require.Empty(t, r.Header.Get("Retry-After"))
		for range 2 {
			require.Equal(t, http.StatusOK, ask("ann").StatusCode)
		}
		r = ask("ann")
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
		require.Regexp(t, `^"second";r=1;t=2, "a day";r=0;t=\d+$`, r.Header.Get("RateLimit"), "the other limit paid nothing")
		wait := redistest.NoError(strconv.Atoi(r.Header.Get("Retry-After")))(t)
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, 86400)
		require.Equal(t, http.StatusOK, ask("bob").StatusCode)
		time.Sleep(time.Duration(wait) * time.Second)
		require.Equal(t, http.StatusOK, ask("ann").StatusCode)
	})
}

func TestMiddleware_CostAndRefusedOptions_ReplaceTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlatchtest.New(t).Open().Limiters()
		ask := limited(t, c, served, redlatchhttp.Options{
			Limits: []redlatchhttp.Limit{{
				Limiter: c.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Per: time.Hour}),
				Cost:    func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64); return n },
			}},
			Refused:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
			NoHeaders: true,
		})
		require.Equal(t, http.StatusOK, ask("", "X-Cost", "8").StatusCode)
		require.Equal(t, http.StatusOK, ask("", "X-Cost", "0").StatusCode, "nothing is taken")
		r := ask("", "X-Cost", "3")
		require.Equal(t, http.StatusTeapot, r.StatusCode)
		require.Empty(t, r.Header.Get("RateLimit"))
		require.NotEmpty(t, r.Header.Get("Retry-After"))
		require.Equal(t, http.StatusOK, ask("", "X-Cost", "2").StatusCode)
	})
}

func TestMiddleware_RedisDown_FollowsThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		c := srv.Open().Limiters()
		var failures []error
		asks := map[ratelimit.Policy]func(string, ...string) *http.Response{}
		for _, p := range []ratelimit.Policy{ratelimit.Fail, ratelimit.Closed, ratelimit.Open} {
			asks[p] = limited(t, c, served, redlatchhttp.Options{
				Limits: []redlatchhttp.Limit{{Limiter: c.Limiter(string(p), ratelimit.LimiterOptions{Rate: 10, WhenDown: p})}},
				Failed: func(_ *http.Request, err error) { failures = append(failures, err) },
			})
			require.Equal(t, http.StatusOK, asks[p]("").StatusCode)
		}
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
		r := asks[ratelimit.Fail]("")
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Equal(t, "1", r.Header.Get("Retry-After"))
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], redlatch.ErrUnavailable)
		require.Equal(t, http.StatusTooManyRequests, asks[ratelimit.Closed]("").StatusCode)
		r = asks[ratelimit.Open]("")
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Empty(t, r.Header.Get("RateLimit"), "nobody knows")
	})
}

// Two limits by one field are in one slot of a Cluster for requests without the field, too.
func TestByHeader_FieldMissing_OneLimitInACluster(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Embedded(t))
	_, refused := proxy.RefuseSeveralSlots(redistest.CrossSlot)
	red, err := redlatch.Open(t.Context(), proxy.Server().Option(), redlatch.Options{
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }})
	require.NoError(t, err)
	defer red.Close(t.Context())
	c := red.Limiters()
	key := redlatchhttp.ByHeader("X-Key")
	ask := limited(t, c, served, redlatchhttp.Options{Limits: []redlatchhttp.Limit{
		{Limiter: c.Limiter("second", ratelimit.LimiterOptions{Rate: 3, Per: time.Hour}), Key: key},
		{Limiter: c.Limiter("day", ratelimit.LimiterOptions{Rate: 9, Per: 24 * time.Hour}), Key: key},
	}})
	for _, want := range []int{200, 200, 200, 429} {
		require.Equal(t, want, ask("").StatusCode)
	}
	require.Equal(t, 200, ask("", "X-Key", "ann").StatusCode)
	require.Zero(t, refused.Load())
}

// A client that leaves says nothing of Redis, and a request whose time is over while Redis is silent does.
func TestFailed_ClientGone_IsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		c := srv.Open().Limiters()
		failed := 0
		for _, p := range []ratelimit.Policy{ratelimit.Fail, ratelimit.Open} {
			wrap, err := redlatchhttp.New(c, redlatchhttp.Options{
				Limits: []redlatchhttp.Limit{{Limiter: c.Limiter(string(p), ratelimit.LimiterOptions{Rate: 100, WhenDown: p})}},
				Failed: func(*http.Request, error) { failed++ },
			})
			require.NoError(t, err)
			ask := func(ctx context.Context) int {
				w := httptest.NewRecorder()
				wrap(served).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
				return w.Code
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			require.Equal(t, http.StatusServiceUnavailable, ask(gone))
			require.Zero(t, failed)
			over, stop := context.WithTimeout(t.Context(), 0)
			defer stop()
			require.Equal(t, http.StatusServiceUnavailable, ask(over))
			require.Equal(t, 1, failed)
			failed = 0
		}
	})
}

// A structured field's integers have at most 15 digits.
func TestHeaders_LargeBurst_HaveIntegersOfStructuredFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlatchtest.New(t).Open().Limiters()
		ask := limited(t, c, served, redlatchhttp.Options{Limits: []redlatchhttp.Limit{{Limiter: c.Limiter("l",
			ratelimit.LimiterOptions{Rate: 1_000_000_000, Per: time.Microsecond, Burst: 1 << 52})}}})
		r := ask("")
		require.Equal(t, `"l";q=999999999999999;w=5`, r.Header.Get("RateLimit-Policy"))
		require.Equal(t, `"l";r=999999999999999;t=1`, r.Header.Get("RateLimit"))
	})
}

func TestMiddleware_Permits_BoundConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		red := redlatchtest.New(t).Open()
		begun, end := make(chan bool), make(chan bool)
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- true; <-end })
		ask := limited(t, red.Limiters(), slow, redlatchhttp.Options{Permits: red.Semaphores().Semaphore("requests", 2)})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { ask("") })
			<-begun
		}
		r := ask("")
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Equal(t, "1", r.Header.Get("Retry-After"))
		close(end)
		wg.Wait()
		wg.Go(func() { require.Equal(t, http.StatusOK, ask("").StatusCode) })
		<-begun
		wg.Wait()
	})
}

func TestByHeaderAndByIP_AnyClientValue_GivesAValidKey(t *testing.T) {
	by := func(value string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-User"] = []string{value}
		return redlatchhttp.ByHeader("X-User")(r)
	}
	require.Equal(t, "ann", by("ann"))
	require.Equal(t, "(none)", by(""))
	seen := map[string]bool{}
	for _, odd := range []string{"{tag}x", "a}b", "a\x00b", "\xff", strings.Repeat("x", 129), strings.Repeat("x", 130)} {
		k := by(odd)
		require.Regexp(t, `^sha256:[0-9a-f]{64}$`, k)
		require.False(t, seen[k])
		seen[k] = true
	}
	for addr, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[::ffff:192.0.2.7]:80": "192.0.2.7", "[fe80::1%eth0]:80": "fe80::/64", "@": "@",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr
		require.Equal(t, want, redlatchhttp.ByIP(r))
	}
}

func TestNew_BadMiddlewareOptions_AreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlatchtest.New(t).Open().Limiters()
		l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1})
		for says, o := range map[string]redlatchhttp.Options{
			"Limits is 0":            {},
			"Limits is 17":           {Limits: make([]redlatchhttp.Limit, 17)},
			"Limits[0].Limiter":      {Limits: make([]redlatchhttp.Limit, 1)},
			`Limits[0].Name is "\""`: {Limits: []redlatchhttp.Limit{{Limiter: l, Name: `"`}}},
			"PermitWait is -1ns":     {Limits: []redlatchhttp.Limit{{Limiter: l}}, PermitWait: -1},
		} {
			_, err := redlatchhttp.New(c, o)
			require.ErrorIs(t, err, redlatch.ErrInvalidOption)
			require.ErrorContains(t, err, says)
		}
		_, err := redlatchhttp.New(nil, redlatchhttp.Options{})
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	})
}
