package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redlatch/redlatch/rsemaphore"
)

// Three workers, in any processes, go through two steps together. Between the steps the last worker to arrive merges
// the results.
func ExampleCyclicBarrier() {
	c, end := onEmbedded()
	defer end()

	step := c.CyclicBarrier("simulation", 3).WithAction(func(ctx context.Context) error {
		fmt.Println("merge")
		return nil
	})
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for range 2 {
				// … work …
				if _, err := step.Await(context.Background()); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	workers.Wait()
	state, _ := step.Inspect(context.Background())
	fmt.Println("next generation:", state.Generation)
	// Output:
	// merge
	// merge
	// next generation: 3
}

// A party that will not come, or whose process dies, does not keep the others waiting forever: the generation is
// broken for all, and they begin the next together.
func ExampleCyclicBarrier_Await_broken() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	b := c.CyclicBarrier("simulation", 3)
	impatient, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for _, ctx := range []context.Context{ctx, impatient} {
		workers.Go(func() {
			_, err := b.Await(ctx)
			fmt.Println("broken:", errors.Is(err, rsemaphore.ErrBrokenBarrier))
		})
	}
	for {
		if state, err := b.Inspect(ctx); err != nil || state.Waiting == 2 {
			break
		}
	}
	cancel()
	workers.Wait()
	state, _ := b.Inspect(ctx)
	fmt.Println("waiting:", state.Waiting, "next generation:", state.Generation)
	// Output:
	// broken: true
	// broken: true
	// waiting: 0 next generation: 2
}
