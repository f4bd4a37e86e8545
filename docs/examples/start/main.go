// Command start is the program of docs/getting-started.md: one process works, the others wait for its lock.
//
//	REDLATCH_REDIS=redis://127.0.0.1:6379 go -C docs/examples run ./start first
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	option, err := rueidis.ParseURL(os.Getenv("REDLATCH_REDIS"))
	if err != nil {
		log.Fatal(err)
	}
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(context.Background())

	log.Println("waiting for the lock")
	err = red.Locks().Reentrant("report").WithLabel(os.Args[1]).Do(ctx, work)
	log.Println("released the lock:", err)
}

// work stops when ctx ends: after Ctrl-C, and if the lock is lost.
func work(ctx context.Context) error {
	log.Println("got the lock")
	for page := 1; ; page++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
			log.Println("wrote page", page)
		}
	}
}
