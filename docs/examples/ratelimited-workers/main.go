// Command ratelimited-workers shows a semaphore in front of a service that breaks when too many call it at once. Worker
// processes share a few slots. One worker is killed while it holds some of them. Its slots come back after one lease,
// by themselves.
//
//	go -C docs/examples run ./ratelimited-workers                      embedded server, nothing else needed
//	go -C docs/examples run ./ratelimited-workers -redis 127.0.0.1:6379
//
// The program ends with status 1 if the service was ever called by more than its slots at once, or if the throughput
// did not recover.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	workers = 6
	callers = 3 // goroutines of a worker that want to call the service all the time
	slots   = 5 // calls that the service can serve at once
	lease   = 3 * time.Second
)

func main() {
	option := stage.Redis()
	var err error
	if url := stage.Role(); url != "" {
		err = work(option, url)
	} else {
		err = watch(option)
	}
	if err != nil {
		log.Fatal("ratelimited-workers: ", err)
	}
}

// connect returns the semaphore that all processes share. Its permits are renewed while their holder lives.
func connect(option rueidis.ClientOption) (*rsemaphore.Semaphore, error) {
	red, err := redlatch.Open(context.Background(), option, redlatch.Options{Semaphores: func(o *rsemaphore.Options) {
		o.WatchdogTimeout = lease
	}})
	if err != nil {
		return nil, err
	}
	return red.Semaphores().Semaphore("example-service", slots).WithLabel(fmt.Sprint(os.Getpid())), nil
}

// work is a worker process: it calls the service, each call under a slot, until it is killed.
func work(option rueidis.ClientOption, url string) error {
	service, err := connect(option)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range callers {
		go func() {
			for {
				// If the slot is lost, ctx ends, and with it the call.
				err := service.Do(context.Background(), 1, func(ctx context.Context) error { return call(ctx, url) })
				if err != nil && !errors.Is(err, redlatch.ErrLost) {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

func call(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// service is fragile: it turns callers away when there are more than slots at once.
type service struct{ inside, served, broken atomic.Int64 }

func (s *service) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	inside := s.inside.Add(1)
	defer s.inside.Add(-1) // before the answer leaves
	if inside > slots {
		s.broken.Add(1)
	}
	time.Sleep(40 * time.Millisecond)
	s.served.Add(1)
}

// rate returns how many calls a second are served during the next d.
func (s *service) rate(d time.Duration) float64 {
	began, before := time.Now(), s.served.Load()
	time.Sleep(d)
	return float64(s.served.Load()-before) / time.Since(began).Seconds()
}

// watch runs the service and the workers, and kills one.
func watch(option rueidis.ClientOption) error {
	semaphore, err := connect(option)
	if err != nil {
		return err
	}
	s := &service{}
	server := httptest.NewServer(s)
	crew := map[string]*stage.Process{}
	for range workers {
		p := stage.Start(server.URL)
		crew[fmt.Sprint(p.Process.Pid)] = p
		defer p.Process.Kill()
	}
	fmt.Printf("%d workers share %d slots to a service that breaks when more call it at once\n", workers, slots)
	before := 0.0
	for before == 0 { // until they have started
		before = s.rate(2 * time.Second)
	}
	fmt.Printf("all at work:        %4.0f calls/s\n", before)

	victim := ""
	for victim == "" {
		counts, err := held(semaphore)
		if err != nil {
			return err
		}
		for holder := range counts {
			victim = holder
		}
	}
	crew[victim].Process.Kill()
	killed := time.Now()
	for n := 1; n > 0; {
		counts, err := held(semaphore)
		if err != nil {
			return err
		}
		n = counts[victim] // maybe none: it may have given them back just before
		fmt.Printf("pid %s was killed and has %d slots after %.1f s: %4.0f calls/s\n",
			victim, n, time.Since(killed).Seconds(), s.rate(lease/4))
	}
	fmt.Println("its slots are back")
	after := s.rate(2 * time.Second)
	for n := 0; n < 5 && after < before/2; n++ { // a busy machine has bad moments
		after = s.rate(2 * time.Second)
	}
	fmt.Printf("the others at work: %4.0f calls/s\n", after)
	broken := s.broken.Load()
	fmt.Printf("of %d calls %d came when %d were under way\n", s.served.Load(), broken, slots)
	if broken > 0 || after < before/2 {
		return errors.New("it was overrun, or the throughput did not recover")
	}
	return nil
}

// held returns how many slots each worker holds.
func held(semaphore *rsemaphore.Semaphore) (map[string]int, error) {
	state, err := semaphore.Inspect(context.Background())
	counts := map[string]int{}
	for _, permit := range state.Permits {
		counts[permit.Label]++
	}
	return counts, err
}
