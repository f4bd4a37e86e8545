package rsemaphore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rsemaphore"
)

// Downloads share a gigabyte of memory. Each takes what it may need, and gives back what it turns out not to.
func ExampleClient_WeightedSemaphore() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	memory := c.WeightedSemaphore("memory", 1<<30)
	download, err := memory.Acquire(ctx, 600<<20) // waits until there is as much
	if err != nil {
		log.Fatal(err)
	}
	if err := download.ReleasePart(ctx, 500<<20); err != nil { // it is smaller than it might have been
		log.Fatal(err)
	}
	free, _ := memory.Available(ctx)
	fmt.Println("holds", download.N()>>20, "MiB, free", free>>20)
	if err := download.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = memory.Do(ctx, 1<<30, func(ctx context.Context) error {
		fmt.Println("all of it")
		return nil
	})
	fmt.Println(err)
	// Output:
	// holds 100 MiB, free 924
	// all of it
	// <nil>
}

// What is out, with its holders. The budget is changed while it is in use.
func ExampleSemaphore_Inspect_weights() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	cores := c.WeightedSemaphore("cores", 16)
	build, err := cores.WithLabel("build").TryAcquire(ctx, 12, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer build.Release(ctx)
	before, err := cores.Resize(ctx, 24)
	if err != nil {
		log.Fatal(err)
	}
	state, err := cores.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, held := range state.Permits {
		fmt.Println(held.Label, "has", held.N)
	}
	fmt.Println(before, "before, now", state.Available, "of", state.Capacity, "free")
	// Output:
	// build has 12
	// 16 before, now 12 of 24 free
}

// A job is handed to another process with the id of what it holds. That process keeps it, looks at it, and gives it
// back.
func ExampleSemaphore_ReleaseIDs_weights() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	memory := c.WeightedSemaphore("gpu-memory", 64<<10)
	share, err := memory.WithLabel("job-17").TryAcquire(ctx, 9<<10, 0, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	ids := share.IDs() // goes along with the job
	if err := memory.ExtendIDs(ctx, time.Hour, ids...); err != nil {
		log.Fatal(err)
	}
	seen, err := memory.InspectIDs(ctx, ids...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen[0].Label, "has", seen[0].N, "for up to", seen[0].Lease.Round(time.Minute))
	fmt.Println(memory.ReleaseIDs(ctx, ids...))
	// Output:
	// job-17 has 9216 for up to 1h0m0s
	// <nil>
}

// What is held grows with the work only up to what was asked for at first: take the most, and give back what is not
// needed.
func ExamplePermit_ReleasePart() {
	c, end := demo()
	defer end()
	ctx := context.Background()

	var job *rsemaphore.Permit
	job, err := c.WeightedSemaphore("tokens", 1000).Acquire(ctx, 800)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Release(ctx)
	for job.N() > 200 {
		if err := job.ReleasePart(ctx, 200); err != nil {
			log.Fatal(err)
		}
	}
	var state rsemaphore.SemaphoreState
	if state, err = c.WeightedSemaphore("tokens", 1000).Inspect(ctx); err != nil {
		log.Fatal(err)
	}
	var first rsemaphore.Holder = state.Permits[0]
	fmt.Println(first.N, "held,", state.Available, "free")
	// Output:
	// 200 held, 800 free
}
