// Command example is a program with metrics: locks that are contended, a pool of permits, sales that sell out, counts
// and a lock that is lost, over and over, with a Redis of its own inside the process.
//
//	go -C contrib/prometheus run ./example -listen 127.0.0.1:9464
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchdebug"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "where /metrics and /debug/redlatch are served")
	flag.Parse()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	must(server.Start())
	collector := redlatchprom.New(redlatchprom.Options{Class: func(_, name string) string {
		class, _, _ := strings.Cut(name, ":") // "order:4711" is an order
		return class
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	ctx := context.Background()
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true}, collector.Instrument(redlatch.Options{CallTimeout: 5 * time.Second}))
	must(err)
	collector.Watch(red)

	again := func(callers int, pause time.Duration, do func() error) {
		for range callers {
			go func() {
				for ; ; time.Sleep(rand.N(pause)) {
					_ = do() // is in the metrics
				}
			}()
		}
	}
	work := func(context.Context) error { time.Sleep(rand.N(40 * time.Millisecond)); return nil }
	again(8, 40*time.Millisecond, func() error { // some with little patience
		order := red.Locks().Reentrant(fmt.Sprint("order:", rand.N(4)))
		return order.WithWait(rand.N(200*time.Millisecond)).Do(ctx, work)
	})
	again(6, 100*time.Millisecond, func() error { return red.Semaphores().Semaphore("exports", 3).Do(ctx, 1, work) })
	again(9, 100*time.Millisecond, func() error {
		sale := red.Sales().Sale(fmt.Sprint("sale:", time.Now().Unix()/10))
		_ = sale.Open(ctx, stock.Spec{Limit: 200, OpenFor: time.Minute, Retain: time.Minute})
		_, err := sale.Buy(ctx, stock.Order{User: fmt.Sprint("buyer ", rand.N(500))})
		return err
	})
	again(1, 100*time.Millisecond, func() error {
		_, err := red.Counters().Counter("visits:home", rcounter.CounterOptions{}).Incr(ctx)
		return err
	})
	again(1, 14*time.Second, func() error { // an operator takes it away
		job := red.Locks().Reentrant("job:stuck")
		return job.Do(ctx, func(context.Context) error { _, err := job.ForceUnlock(ctx); return err })
	})
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	http.Handle("/debug/redlatch", redlatchdebug.Handler(red))
	fmt.Printf("http://%[1]s/metrics\nhttp://%[1]s/debug/redlatch\n", *listen)
	must(http.ListenAndServe(*listen, nil))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
