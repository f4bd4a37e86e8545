package redlatchdebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchdebug"
)

// go tool pprof reads the profile: which calls waited, for how long, and for whom.
func ExampleContention() {
	server, err := miniredis.Run() // yours is elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true},
		redlatch.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)

	internal := http.NewServeMux()
	internal.Handle("/debug/redlatch/contention", redlatchdebug.Contention(red))
	operators := httptest.NewServer(internal) // http.ListenAndServe("127.0.0.1:6060", internal)
	defer operators.Close()

	answer, err := http.Get(operators.URL + "/debug/redlatch/contention") // go tool pprof -http=: URL
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status, answer.Header.Get("Content-Type"))
	// Output: 200 OK application/octet-stream
}

// A page for people, and JSON for programs, beside what else is on the listener of the operators.
func ExampleHandler() {
	server, err := miniredis.Run() // yours is elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true},
		redlatch.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)

	internal := http.NewServeMux()
	internal.Handle("/debug/redlatch", redlatchdebug.Handler(red))
	operators := httptest.NewServer(internal) // http.ListenAndServe("127.0.0.1:6060", internal)
	defer operators.Close()

	hold, err := red.Locks().Reentrant("order:17").WithLabel("payment").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	answer, err := http.Get(operators.URL + "/debug/redlatch?format=json&name=order")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var page struct {
		Holds struct {
			Shown []struct{ Kind, Name, Label string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		log.Fatal(err)
	}
	for _, h := range page.Holds.Shown {
		fmt.Println(h.Kind, h.Name, h.Label)
	}
	// Output: Reentrant order:17 payment
}
