package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
)

// The safe profile refuses a server that may lose what it has confirmed, such as this one, which writes no file. What a
// package is not to have is taken back in its function.
func ExampleOptions_surviveFailover() {
	defer serve()()
	_, err := redlatch.Open(context.Background(), option, redlatch.Options{
		SurviveFailover: true,
		Locks:           func(o *rlock.Options) { o.Fenced = false },
	})
	fmt.Println(errors.Is(err, redlatch.ErrInvalidOption))
	// Output: true
}

// One observer for all packages, here of what takes and what counts.
func ExampleObserver() {
	defer serve()()
	ctx := context.Background()
	var observe redlatch.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		switch e.Kind {
		case redlatch.EventAcquired, redlatch.EventReleased, redlatch.EventWritten:
			fmt.Println(e.Package, e.Kind, e.Name, e.Err)
		}
		return ctx
	}
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second, Observer: observe})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)
	red.Locks().Reentrant("report").Do(ctx, func(ctx context.Context) error {
		_, err := red.Counters().Counter("reports", rcounter.CounterOptions{}).Incr(ctx)
		return err
	})
	// Output:
	// rlock acquired report <nil>
	// rcounter written reports <nil>
	// rlock released report <nil>
}

// Every package through one door. An error is answered with what the package says of it; here it ends the program.
func ExampleClient() {
	defer serve()()
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}

	var red *redlatch.Client
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second,
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }}) // for a program that rather waits
	check(err)
	defer red.Close(ctx)

	// At most three exports at a time, across processes.
	exports := red.Semaphores().Semaphore("exports", 3)
	check(exports.Do(ctx, 1, func(context.Context) error { fmt.Println("exporting"); return nil }))

	// One process leads, and all others know where it is.
	err = red.Elections().Election("scheduler").Run(ctx, "10.0.0.7:8080",
		func(ctx context.Context, l *election.Leadership) error {
			leader, err := red.Elections().Election("scheduler").Leader(ctx)
			fmt.Println("leader:", leader.Value)
			return err
		})
	check(err)

	visits, err := red.Counters().Counter("visits", rcounter.CounterOptions{}).Incr(ctx)
	check(err)
	fmt.Println("visit", visits)

	// The first hundred buyers win.
	sale := red.Sales().Sale("phones")
	check(sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour}))
	order, err := sale.Buy(ctx, stock.Order{User: "ann"})
	check(err)
	fmt.Println("sold to ann:", order.Won())

	packet := red.RedPackets().Packet("new-year")
	_, err = packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 1, OpenFor: time.Hour})
	check(err)
	share, err := packet.Grab(ctx, "ann")
	check(err)
	fmt.Println("cents for ann:", share.Cents)

	api := red.Limiters().Limiter("api", ratelimit.LimiterOptions{Rate: 10, Per: time.Second, Burst: 20})
	admission, err := api.Allow(ctx, "ann", 1)
	check(err)
	fmt.Println("allowed:", admission.Allowed)

	// Other commands can go over the same connections.
	server := red.Hub().Client()
	check(server.Do(ctx, server.B().Ping().Build()).Error())
	// Output:
	// exporting
	// leader: 10.0.0.7:8080
	// visit 1
	// sold to ann: true
	// cents for ann: 1000
	// allowed: true
}
