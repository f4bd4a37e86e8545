package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rsemaphore"
)

// The shop opens when three caches are warm, whichever processes warm them.
func ExampleCountDownLatch() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	warm := c.CountDownLatch("caches-warm")
	if _, err := warm.TrySetCount(ctx, 3, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, cache := range []string{"prices", "stock", "images"} {
		go func() {
			// … warm it …
			if _, err := warm.CountDownBy(ctx, cache); err != nil {
				log.Print(err)
			}
		}()
	}
	fmt.Println("open:", warm.Await(ctx) == nil)
	// Output:
	// open: true
}

// A job that is delivered twice, or restarted, counts once.
func ExampleCountDownLatch_CountDownBy() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	l := c.CountDownLatch("import")
	if _, err := l.TrySetCount(ctx, 2, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, job := range []string{"job-1", "job-1", "job-2"} {
		left, err := l.CountDownBy(ctx, job)
		fmt.Println(job, left, err)
	}
	// Output:
	// job-1 1 <nil>
	// job-1 1 <nil>
	// job-2 0 <nil>
}

// A process that was to count down has died. Without a TTL the waiters would wait forever.
func ExampleCountDownLatch_Await_expired() {
	c, end := onEmbedded()
	defer end()
	ctx := context.Background()

	l := c.CountDownLatch("import")
	if _, err := l.TrySetCount(ctx, 2, 50*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	err := l.Await(ctx)
	fmt.Println(errors.Is(err, rsemaphore.ErrLatchExpired))
	// Output:
	// true
}
