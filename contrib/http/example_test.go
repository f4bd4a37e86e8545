package redlatchhttp_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Two requests a day for each user, whatever process they reach.
func ExampleNew() {
	server := miniredis.NewMiniRedis() // a program has a server
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	red, err := redlatch.Open(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true},
		redlatch.Options{Limiters: ratelimit.Options{AllowTimeout: 10e9}}) // this machine may be busy
	if err != nil {
		log.Fatal(err)
	}
	day := red.Limiters().Limiter("day",
		ratelimit.LimiterOptions{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year})
	limited, err := redlatchhttp.New(red.Limiters(), redlatchhttp.Options{
		Limits: []redlatchhttp.Limit{{Limiter: day, Key: redlatchhttp.ByHeader("X-User")}},
	})
	if err != nil {
		log.Fatal(err)
	}
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
