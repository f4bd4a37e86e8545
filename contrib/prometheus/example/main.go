// Command example is a program with metrics: locks that are contended, a pool of permits, a sale that sells out, a
// counter, over and over, with a Redis of its own inside the process. /metrics is what Prometheus scrapes.
//
//	go -C contrib/prometheus run ./example -listen 127.0.0.1:9464
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchdebug"
	"github.com/redlatch/redlatch/rlock"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "where /metrics is served")
	server := flag.String("redis", "", "host:port of a server; \"\": one inside this process")
	duration := flag.Duration("for", 0, "end after this time; 0: at a signal")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *duration > 0 {
		ctx, stop = context.WithTimeout(ctx, *duration)
		defer stop()
	}
	l, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, l, *server)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, l net.Listener, server string) error {
	option := rueidis.ClientOption{InitAddress: []string{server}}
	if server == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return err
		}
		defer m.Close()
		option = rueidis.ClientOption{InitAddress: []string{m.Addr()}, ForceSingleClient: true, DisableCache: true}
	}

	collector := redlatchprom.New(redlatchprom.Options{Class: func(_, name string) string {
		class, _, _ := strings.Cut(name, ":") // "order:4711" is an order
		return class
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector())
	red, err := redlatch.Open(ctx, option, collector.Instrument(redlatch.Options{
		CallTimeout: 5 * time.Second,
		Locks:       func(o *rlock.Options) { o.WatchdogTimeout = 3 * time.Second }, // renewals are seen at once
	}))
	if err != nil {
		return err
	}
	defer red.Close(context.WithoutCancel(ctx))
	collector.Watch(red)

	pages := http.NewServeMux()
	pages.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	pages.Handle("/debug/redlatch", redlatchdebug.Handler(red))
	web := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(l)
	defer web.Close()
	fmt.Printf("http://%[1]s/metrics\nhttp://%[1]s/debug/redlatch\n", l.Addr())

	var all sync.WaitGroup
	defer all.Wait()
	repeat := func(n int, pause time.Duration, f func(ctx context.Context, red *redlatch.Client) error) {
		for range n {
			all.Go(func() { again(ctx, red, pause, f) })
		}
	}
	repeat(8, 20*time.Millisecond, orders)
	repeat(1, 100*time.Millisecond, report)
	repeat(6, 50*time.Millisecond, exports)
	repeat(1, 5*time.Second, sale)
	repeat(1, 5*time.Second, packet)
	repeat(1, 50*time.Millisecond, visits)
	repeat(1, 7*time.Second, lose)
	repeat(1, 2*time.Second, barrier)
	<-ctx.Done()
	return nil
}

// again calls f until ctx ends, with pauses of about that length.
func again(ctx context.Context, red *redlatch.Client, pause time.Duration,
	f func(ctx context.Context, red *redlatch.Client) error) {
	for ctx.Err() == nil {
		if err := f(ctx, red); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// orders are four names that eight goroutines contend for, some with little patience.
func orders(ctx context.Context, red *redlatch.Client) error {
	lock := red.Locks().Reentrant(fmt.Sprint("order:", rand.N(4))).WithWait(rand.N(200 * time.Millisecond))
	err := lock.Do(ctx, func(context.Context) error {
		time.Sleep(rand.N(40 * time.Millisecond))
		return nil
	})
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return nil // another works on that order
	}
	return err
}

// report holds its lock for longer than a renewal takes to come.
func report(ctx context.Context, red *redlatch.Client) error {
	return red.Locks().Fenced("report:daily").Do(ctx, func(context.Context) error {
		time.Sleep(2500 * time.Millisecond)
		return nil
	})
}

func exports(ctx context.Context, red *redlatch.Client) error {
	return red.Semaphores().Semaphore("exports", 3).Do(ctx, 1, func(context.Context) error {
		time.Sleep(rand.N(100 * time.Millisecond))
		return nil
	})
}

// sale is 200 units, and 300 buyers at a time.
func sale(ctx context.Context, red *redlatch.Client) error {
	s := red.Stocks().Stock(fmt.Sprintf("sale:%d", time.Now().UnixNano()))
	if _, err := s.Open(ctx, stock.Spec{Limit: 200, OpenFor: time.Minute, Retain: time.Minute}); err != nil {
		return err
	}
	var buyers sync.WaitGroup
	for i := range 300 {
		buyers.Go(func() { _, _ = s.Claim(ctx, fmt.Sprint("buyer ", i)) })
	}
	buyers.Wait()
	for range 50 {
		_, _ = s.ClaimAny(ctx, 1) // sold out: the process knows that by now
	}
	return nil
}

func packet(ctx context.Context, red *redlatch.Client) error {
	p := red.RedPackets().Packet(fmt.Sprintf("packet:%d", time.Now().UnixNano()))
	if _, err := p.Send(ctx,
		redpacket.Spec{Total: 5000, Shares: 50, OpenFor: time.Minute, Retain: time.Minute}); err != nil {
		return err
	}
	var users sync.WaitGroup
	for i := range 80 {
		users.Go(func() { _, _ = p.Grab(ctx, fmt.Sprint("user ", i)) })
	}
	users.Wait()
	return nil
}

func visits(ctx context.Context, red *redlatch.Client) error {
	_, err := red.Counters().Counter("visits:home", rcounter.CounterOptions{}).Incr(ctx)
	return err
}

// lose has its lock taken away by an operator. Its Unlock says that it was lost.
func lose(ctx context.Context, red *redlatch.Client) error {
	lock := red.Locks().Reentrant("job:stuck")
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := lock.ForceUnlock(ctx); err != nil {
		return err
	}
	select {
	case <-hold.Done():
	case <-ctx.Done():
	}
	if err := hold.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return err
	}
	return nil
}

func barrier(ctx context.Context, red *redlatch.Client) error {
	_, err := red.Semaphores().CyclicBarrier("rounds", 1).Await(ctx)
	return err
}
