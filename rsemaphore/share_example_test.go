package rsemaphore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch/rsemaphore"
)

// One customer has a backlog. The call of another is served next, and not behind it.
func ExampleSemaphore_For() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	workers := c.Semaphore("workers", 1)
	running, err := workers.For("large customer").WithMax(1).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	order, done := make(chan string), make(chan error)
	work := func(customer *rsemaphore.Semaphore, name string) {
		done <- customer.Do(ctx, 1, func(context.Context) error {
			order <- name
			return nil
		})
	}
	wait := func(customer string, calls int) { // until so many are queued
		for state := (rsemaphore.SemaphoreState{}); state.Tenants[customer].Waiting < calls; {
			state, _ = workers.Inspect(ctx)
		}
	}
	for range 3 {
		go work(workers.For("large customer"), "large")
	}
	wait("large customer", 3)
	go work(workers.For("small customer").WithWeight(2), "small")
	wait("small customer", 1)
	if err := running.Release(ctx); err != nil {
		log.Fatal(err)
	}
	small := 0
	for turn := range 4 {
		if name := <-order; name == "small" {
			small = turn
		}
		if err := <-done; err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the small customer's call was among the first two:", small < 2)
	// Output: the small customer's call was among the first two: true
}
