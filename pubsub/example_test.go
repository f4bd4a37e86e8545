package pubsub_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
)

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

// A gap says that messages may have been missed: look at the state itself.
func ExampleSubscription_Next() {
	server, _ := miniredis.Run()
	defer server.Close()
	hub, _ := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	defer hub.Close(context.Background())

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
