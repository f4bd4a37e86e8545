package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// demo is a hub on an embedded server; a program would call pubsub.Dial with its server's address.
func demo() (h *pubsub.Hub, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	if h, err = pubsub.New(client, pubsub.Options{}); err != nil {
		log.Fatal(err)
	}
	return h, func() { h.Close(context.Background()); client.Close(); server.Close() }
}

// demoClient is a client on an embedded server, which may take its time on a busy machine.
func demoClient() (c *stock.Client, end func()) {
	hub, end := demo()
	c, err := stock.New(hub, stock.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return c, end
}

// Two units, three claimants, and one of them asks again.
func Example() {
	hub, end := demo()
	defer end()
	c, err := stock.New(hub, stock.Options{KeyPrefix: "shop:", CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	ctx := context.Background()

	sale := c.Stock("sneakers")
	if _, err := sale.Open(ctx, stock.Spec{Limit: 2, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob", "cid", "bob"} {
		g, err := sale.Claim(ctx, user)
		if err != nil {
			log.Fatal(err) // no answer: asking again is safe
		}
		fmt.Println(user, g.Outcome, g.Ordinal)
	}
	// Output:
	// ann granted 1
	// bob granted 2
	// cid sold out 0
	// bob replayed 2
}

// A handler needs to know only whether the claimant won: the answer to a repeated request is the same.
func ExampleStock_Claim() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})

	for _, user := range []string{"ann", "bob", "ann"} {
		switch g, err := sale.Claim(ctx, user); {
		case err != nil:
			fmt.Println("503, try again:", err)
		case g.Won():
			fmt.Printf("%s has seat %d\n", user, g.Ordinal)
		default:
			fmt.Printf("%s: %v\n", user, g.Outcome)
		}
	}
	// Output:
	// ann has seat 1
	// bob: sold out
	// ann has seat 1
}

// A unit that is returned is sold again under a new ordinal, and a second copy of the cancellation changes nothing.
func ExampleStock_Return() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})

	first, _ := sale.Claim(ctx, "ann")
	returned, _ := sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: first.Ordinal})
	fmt.Println("returned", first.Ordinal, returned)
	again, _ := sale.Claim(ctx, "ann")
	fmt.Println(again.Outcome, again.Ordinal)
	returned, _ = sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: first.Ordinal})
	fmt.Println("returned", first.Ordinal, returned)
	// Output:
	// returned 1 1
	// granted 2
	// returned 1 0
}

// A sale that is announced: open it ahead, for an instant by time.Until.
func ExampleStock_Open() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	noon := time.Now().Add(3 * time.Hour)

	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 100, StartIn: max(0, time.Until(noon)), OpenFor: time.Hour,
		Retain: 7 * 24 * time.Hour})
	g, _ := sale.Claim(ctx, "ann")
	fmt.Println(g.Outcome)
	_, err := sale.Open(ctx, stock.Spec{Limit: 5, OpenFor: time.Hour}) // a second server of the fleet starts
	fmt.Println(errors.Is(err, redlatch.ErrAlreadyOpen))
	// Output:
	// not started
	// true
}

// A name that cannot be used is refused by the first verb, before anything is sent.
func ExampleClient_Stock_invalidName() {
	c, end := demoClient()
	defer end()

	_, err := c.Stock("sale{1}").Claim(context.Background(), "ann")
	fmt.Println(errors.Is(err, redlatch.ErrInvalidName))
	// Output: true
}
