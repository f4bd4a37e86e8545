// Command example serves a page with a button, and limits its clicks: five at once and one a second, and thirty in a
// minute. The page shows the header fields of every answer. Several of these programs on one Redis share the limits.
//
//	go run ./example                                  # a server in this process
//	go run ./example -redis redis://localhost:6379    # yours
//
// Then open http://localhost:8080.
package main

import (
	_ "embed"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchhttp "github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

//go:embed page.html
var page []byte

func main() {
	listen := flag.String("listen", "localhost:8080", "`address` of the page")
	redis := flag.String("redis", "", "`URL` of a server; without it one in this process")
	flag.Parse()
	handler, err := serve(*redis)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s", *listen)
	log.Fatal(http.ListenAndServe(*listen, handler))
}

// serve is the page, and what its button asks.
func serve(redis string) (http.Handler, error) {
	option := rueidis.ClientOption{DisableCache: true}
	if redis == "" {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			return nil, err
		}
		option.InitAddress, option.ForceSingleClient = []string{server.Addr()}, true
	} else {
		var err error
		if option, err = rueidis.ParseURL(redis); err != nil {
			return nil, err
		}
	}
	red, err := redlatch.Open(option, redlatch.Options{})
	if err != nil {
		return nil, err
	}
	// While Redis is down each process lets half of that pass.
	second := red.Limiters().Limiter("second",
		ratelimit.LimiterOptions{Rate: 1, Burst: 5, WhenDown: ratelimit.Local, Share: .5})
	minute := red.Limiters().Limiter("minute",
		ratelimit.LimiterOptions{Rate: 30, Per: time.Minute, Algorithm: ratelimit.SlidingWindow, WhenDown: ratelimit.Local,
			Share: .5})
	limited, err := redlatchhttp.New(red.Limiters(), redlatchhttp.Options{Limits: []redlatchhttp.Limit{
		{Limiter: second, Key: redlatchhttp.ByIP},
		{Limiter: minute, Key: redlatchhttp.ByIP},
	}})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	mux.Handle("POST /click", limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("passed"))
	})))
	return mux, nil
}
