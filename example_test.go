package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// option is that of your server; here of one inside the process.
var option rueidis.ClientOption

func serve() (stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		log.Fatal(err)
	}
	option = rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true}
	return server.Close
}

func Example() {
	defer serve()()

	red, err := redlatch.Open(option, redlatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(context.Background())
	report := red.Locks().Reentrant("nightly-report").WithWait(10 * time.Second)
	err = report.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("one process at a time gets here") // ctx ends if the lock is lost: work under it
		return nil
	})
	if err != nil {
		log.Fatal(err) // errors.Is(err, rlock.ErrNotAcquired): another process had it all the time
	}
	fmt.Println("released")
	// Output:
	// one process at a time gets here
	// released
}
