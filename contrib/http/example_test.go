package redlatchhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rlock"
)

// Two requests a day for each user, whatever process they reach.
func ExampleNew() {
	red, _, end := services.Redlatch()
	defer end()
	day := red.Limiters().Limiter("day",
		ratelimit.LimiterOptions{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year})
	limited, err := redlatchhttp.New(red.Limiters(), redlatchhttp.Options{
		Limits: []redlatchhttp.Limit{{Limiter: day, Key: redlatchhttp.ByHeader("X-User")}},
	})
	services.Must(err)
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ann")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit")[:9],
			w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 "day";q=2;w=31536000 "day";r=1 false
	// 200 "day";q=2;w=31536000 "day";r=0 false
	// 429 "day";q=2;w=31536000 "day";r=0 true
}

// A request is counted for the address that it comes from.
func ExampleByIP() {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:4711"
	fmt.Println(redlatchhttp.ByIP(r))
	// Output: 2001:db8:1:2::/64
}

// A payment that a client sends twice is made once, whatever processes its requests reach.
func ExampleIdempotent() {
	red, _, end := services.Redlatch()
	defer end()
	payments := red.Locks().Once("payments", rlock.OnceOptions{Keep: 24 * time.Hour}).WithWait(0)
	handler := redlatchhttp.Idempotent(payments, redlatchhttp.IdempotentOptions{})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, _ := redlatchhttp.Token(r.Context())
			fmt.Println("paid, with a token:", token > 0)
			w.WriteHeader(http.StatusCreated)
		}))
	for _, body := range []string{"5 euros", "5 euros", "6 euros"} {
		r := httptest.NewRequest("POST", "/payments", strings.NewReader(body))
		r.Header.Set(redlatchhttp.IdempotencyKey, "8e03978e-40d5-43dd")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// paid, with a token: true
	// 201
	// 201
	// 422
}
