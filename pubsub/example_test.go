package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
)

// demo is a hub on an embedded server; a program would call Dial with its server's address.
func demo() (hub *pubsub.Hub, end func()) {
	server, err := miniredis.Run()
	check(err)
	hub, err = pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: []string{server.Addr()},
		ForceSingleClient: true, DisableCache: true}, pubsub.Options{})
	check(err)
	return hub, func() { hub.Close(context.Background()); server.Close() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	server, _ := miniredis.Run() // yours is a Redis or Valkey
	defer server.Close()
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hub.Close(context.Background())

	ctx := context.Background()
	sub, err := hub.Subscribe(ctx, "orders") // the server has confirmed when this returns
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	receivers, _ := hub.Publish(ctx, "orders", "order 7 paid")
	var m pubsub.Message
	m, err = sub.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receivers, m.Payload)
	// Output: 1 order 7 paid
}

// Publish returns the number of connections that received the new price.
func ExampleHub_Publish() {
	hub, end := demo()
	defer end()
	ctx := context.Background()
	sub, err := hub.Subscribe(ctx, "prices:tea")
	check(err)
	defer sub.Close()
	for _, channel := range []string{"prices:tea", "prices:rice"} {
		receivers, err := hub.Publish(ctx, channel, "2.40")
		fmt.Println(channel, receivers, err)
	}
	// Output:
	// prices:tea 1 <nil>
	// prices:rice 0 <nil>
}

// Two parts of a program follow one channel, and each receives every message.
func ExampleHub_Subscribe() {
	hub, end := demo()
	defer end()
	ctx := context.Background()
	page, err := hub.Subscribe(ctx, "prices")
	check(err)
	defer page.Close()
	report, err := hub.Subscribe(ctx, "prices")
	check(err)
	defer report.Close()
	_, err = hub.Publish(ctx, "prices", "tea 2.40")
	check(err)
	for _, sub := range []*pubsub.Subscription{page, report} {
		m, err := sub.Next(ctx)
		fmt.Println(m.Payload, err)
	}
	// Output:
	// tea 2.40 <nil>
	// tea 2.40 <nil>
}

// A program stops a goroutine that waits for messages.
func ExampleSubscription_Close() {
	hub, end := demo()
	defer end()
	ctx := context.Background()
	sub, err := hub.Subscribe(ctx, "prices")
	check(err)
	stopped := make(chan error)
	go func() {
		_, err := sub.Next(ctx)
		stopped <- err
	}()
	sub.Close()
	fmt.Println("closed:", errors.Is(<-stopped, redlatch.ErrClosed))
	// Output: closed: true
}

// A gap says that messages may have been missed: look at the state itself.
func ExampleSubscription_Next() {
	hub, end := demo()
	defer end()
	ctx := context.Background()
	sub, _ := hub.Subscribe(ctx, "orders")
	for i := range 200 { // more than a subscriber's buffer holds
		hub.Publish(ctx, "orders", fmt.Sprint(i))
	}
	last, _ := hub.Subscribe(ctx, "end")
	hub.Publish(ctx, "end", "") // behind them on the same connection: when it is here, they are
	last.Next(ctx)
	hub.Publish(ctx, "orders", "last")
	for {
		m, err := sub.Next(ctx)
		if err != nil || m.Payload == "last" {
			break
		}
		if m.Gap {
			fmt.Println("some orders were missed: read them all again")
		}
	}
	// Output: some orders were missed: read them all again
}

// A program that has a client already, and closes it itself, makes its hub with New.
func ExampleNew() {
	server, _ := miniredis.Run()
	defer server.Close()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	var hub *pubsub.Hub
	events := map[redlatch.EventKind]int{}
	var news pubsub.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		if events[e.Kind]++; e.Kind == redlatch.EventSubscribed {
			fmt.Println("subscribed to", e.Name)
		}
		if e.Kind == redlatch.EventLost {
			fmt.Println("cut off:", e.Err)
		}
		return ctx
	}
	hub, err = pubsub.New(client, pubsub.Options{Observer: news})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hub.Close(ctx)
	sub, err := hub.Subscribe(ctx, "prices")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	stats := hub.Stats()
	fmt.Println(hub.Client() == client, stats.Confirmed)
	lacks := func(l pubsub.Lack) { fmt.Println("without", l.Command, l.Effect, l.Err) } // of a server that refuses some
	for _, l := range stats.Lacks {
		lacks(l)
	}
	// Output:
	// subscribed to prices
	// true 1
}
