package redlatchprom_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// server is one inside the process. Yours is rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}.
func server() (option rueidis.ClientOption, end func()) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		log.Fatal(err)
	}
	return rueidis.ClientOption{InitAddress: []string{m.Addr()}, ForceSingleClient: true, DisableCache: true}, m.Close
}

// A program counts all that it does, by classes of names. Serve the registry with promhttp.HandlerFor.
func Example() {
	option, end := server()
	defer end()
	collector := redlatchprom.New(redlatchprom.Options{Class: func(kind, name string) string {
		class, _, _ := strings.Cut(name, ":") // "order:4711" is of class "order"
		return class
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector) // which calls Describe; a scrape calls Collect
	red, err := redlatch.Open(context.Background(), option, collector.Instrument(redlatch.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer red.Close(ctx)
	collector.Watch(red)

	err = red.Locks().Reentrant("order:4711").Do(ctx, func(context.Context) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "redlatch_acquisitions_total" {
			fmt.Println(f.Metric[0].Label[0].GetValue(), f.Metric[0].Label[2].GetValue(), f.Metric[0].Counter.GetValue())
		}
	}
	// Output: order acquired 1
}

// A program that uses the packages alone gives each client its Observer, and has each client watched.
func ExampleCollector_Locks() {
	option, end := server()
	defer end()
	ctx := context.Background()
	c := redlatchprom.New(redlatchprom.Options{})
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{Observer: c.Hub()})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)
	c.WatchHub(hub)
	locks, err := rlock.New(hub, rlock.Options{Observer: c.Locks()})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	c.WatchLocks(locks)
	semaphores, err := rsemaphore.New(hub, rsemaphore.Options{Observer: c.Semaphores()})
	if err != nil {
		log.Fatal(err)
	}
	defer semaphores.Close(ctx)
	c.WatchSemaphores(semaphores)
	stocks, err := stock.New(hub, stock.Options{Observer: c.Stocks()})
	if err != nil {
		log.Fatal(err)
	}
	defer stocks.Close(ctx)
	c.WatchStocks(stocks)
	packets, err := redpacket.New(hub, redpacket.Options{Observer: c.RedPackets()})
	if err != nil {
		log.Fatal(err)
	}
	defer packets.Close(ctx)
	c.WatchRedPackets(packets)
	counters, err := rcounter.New(hub, rcounter.Options{Observer: c.Counters()})
	if err != nil {
		log.Fatal(err)
	}
	defer counters.Close(ctx)
	c.WatchCounters(counters)
	limiters, err := ratelimit.New(hub, ratelimit.Options{Observer: c.Limiters()})
	if err != nil {
		log.Fatal(err)
	}
	defer limiters.Close(ctx)
	c.WatchLimiters(limiters)
	fmt.Println(prometheus.Register(c))
	// Output: <nil>
}
