package redlatchprom_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// A program counts all that it does, by classes of names. Serve the registry with promhttp.HandlerFor.
func Example() {
	server, option := services.Redis()
	defer server.Close()
	collector := redlatchprom.New(redlatchprom.Options{Class: func(kind, name string) string {
		class, _, _ := strings.Cut(name, ":") // "order:4711" is of class "order"
		return class
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector) // which calls Describe; a scrape calls Collect
	red, err := redlatch.Open(context.Background(), option, collector.Instrument(redlatch.Options{}))
	services.Must(err)
	ctx := context.Background()
	defer red.Close(ctx)
	collector.Watch(red)

	err = red.Locks().Reentrant("order:4711").Do(ctx, func(context.Context) error { return nil })
	services.Must(err)
	families, err := registry.Gather()
	services.Must(err)
	for _, f := range families {
		if f.GetName() == "redlatch_acquisitions_total" {
			fmt.Println(f.Metric[0].Label[0].GetValue(), f.Metric[0].Label[2].GetValue(), f.Metric[0].Counter.GetValue())
		}
	}
	// Output: order acquired 1
}

// A program that uses the packages alone gives each client the Observer, and has each client watched.
func ExampleCollector_Observe() {
	server, option := services.Redis()
	defer server.Close()
	ctx := context.Background()
	c := redlatchprom.New(redlatchprom.Options{})
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{Observer: c.Observe})
	services.Must(err)
	defer hub.Close(ctx)
	c.WatchHub(hub)
	locks, err := rlock.New(hub, rlock.Options{Observer: c.Observe})
	services.Must(err)
	defer locks.Close(ctx)
	c.WatchLocks(locks)
	// Semaphores, red packets, counters and limiters are made and watched in the same way. Sales are not watched.
	fmt.Println(prometheus.Register(c))
	// Output: <nil>
}
