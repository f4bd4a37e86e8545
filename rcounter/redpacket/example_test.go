package redpacket_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
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
func demoClient() (c *redpacket.Client, end func()) {
	hub, end := demo()
	c, err := redpacket.New(hub, redpacket.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return c, end
}

// Ten yuan among five friends, of whom one asks again.
func ExamplePacket() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	packet := c.Packet("new-year")
	if _, err := packet.Send(ctx,
		redpacket.Spec{Total: 1000, Shares: 5, OpenFor: 24 * time.Hour, Retain: 7 * 24 * time.Hour,
			Rand: rand.New(rand.NewPCG(1, 2))}); err != nil { // leave Rand out: these amounts can be predicted
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob", "ann"} {
		share, err := packet.Grab(ctx, user)
		if err != nil {
			log.Fatal(err) // no answer: asking again is safe
		}
		fmt.Printf("%s %v: %d.%02d, %d left\n", user, share.Outcome, share.Cents/100, share.Cents%100, share.Left)
	}
	_, err := packet.Refund(ctx)
	fmt.Println("refund:", errors.Is(err, redpacket.ErrNotEnded))
	// Output:
	// ann granted: 2.51, 4 left
	// bob granted: 1.82, 3 left
	// ann replayed: 2.51, 3 left
	// refund: true
}

// What nobody took goes back once, however often it is asked for.
func ExamplePacket_Refund() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	packet := c.Packet("short")
	packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 4, Method: redpacket.Equal, OpenFor: 500 * time.Millisecond})
	packet.Grab(ctx, "ann")

	for n := 0; n < 2; {
		refund, err := packet.Refund(ctx)
		if errors.Is(err, redpacket.ErrNotEnded) {
			st, _ := packet.Inspect(ctx)
			time.Sleep(st.UntilEnd)
			continue
		}
		fmt.Println(refund.Cents, refund.Outcome) // pay it out by an entry that is unique over (packet, refund.Epoch)
		n++
	}
	// Output:
	// 750 granted
	// 750 replayed
}

// Shares lists the users and their shares, in the order in which they were taken.
func ExamplePacket_Shares() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	packet := c.Packet("equal")
	packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 3, Method: redpacket.Equal, OpenFor: time.Hour})
	packet.Grab(ctx, "ann")
	packet.Grab(ctx, "bob")

	var paid []redpacket.Share
	for share, err := range packet.Shares(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		paid = append(paid, share)
	}
	for _, share := range paid {
		fmt.Println(share.Ordinal, share.User, share.Cents)
	}
	// Output:
	// 1 ann 334
	// 2 bob 333
}

// The ledger moves into a database, here a map: an entry that comes again changes nothing, and another entry under its
// key is an error.
func ExamplePacket_Ledger() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	packet := c.Packet("wages")
	packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 3, Method: redpacket.Equal, OpenFor: time.Hour, Ledger: true})
	packet.Grab(ctx, "ann")
	packet.Grab(ctx, "bob")

	type key struct{ epoch, serial int64 }
	rows := map[key]redpacket.Entry{}
	insert := func(_ context.Context, entries []redpacket.Entry) error { // a transaction
		for _, e := range entries {
			k := key{e.Epoch, e.Serial}
			if was, there := rows[k]; there && (was.User != e.User || was.Cents != e.Cents) {
				return fmt.Errorf("place %d was given to %s and to %s", e.Ordinal, was.User, e.User)
			}
			rows[k] = e
			if e.Kind == redpacket.KindGrant {
				fmt.Println(e.Serial, "pay", e.User, e.Cents)
			}
		}
		return nil
	}
	n, err := packet.Ledger(ctx, 500, insert)
	fmt.Println(n, err)

	moving, stop := context.WithCancel(ctx)
	stop() // a program moves it until it ends
	fmt.Println(packet.KeepLedger(moving, time.Second, 500, insert))
	// Output:
	// 1 pay ann 334
	// 2 pay bob 333
	// 2 <nil>
	// context canceled
}

// The splitting alone, without a server.
func ExampleSplit() {
	shares, err := redpacket.Split(1000, 5, 100, 300, redpacket.DoubleMean, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(shares, err)
	_, err = redpacket.Split(10, 20, 1, 0, redpacket.Equal, nil)
	fmt.Println(err)
	// Output:
	// [225 191 123 254 207] <nil>
	// redpacket: invalid option: total is 10, must be at least n * lo, which is 20 * 1
}

// A packet of a client of its own, and what became of it.
func ExamplePacket_Inspect() {
	hub, end := demo()
	defer end()
	packets, err := redpacket.New(hub, redpacket.Options{KeyPrefix: "party:", CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer packets.Close(ctx)

	packet := packets.Packet("birthday")
	if _, err := packet.Send(ctx,
		redpacket.Spec{Total: 900, Shares: 3, Method: redpacket.Equal, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	share, err := packet.Grab(ctx, "ann")
	fmt.Println(share.Won(), share.Cents, err)
	var st redpacket.State
	if st, err = packet.Inspect(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(st.Phase == redpacket.PhaseOpen, st.Taken, st.TakenCents, st.Total)
	// Output:
	// true 300 <nil>
	// true 1 300 900
}

// Metrics of what is taken, in cents.
func ExampleClient_observer() {
	hub, end := demo()
	defer end()
	taken := int64(0)
	var metrics redpacket.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		taken += e.N
		fmt.Println(e.Name, e.Outcome, e.N, e.Err)
		return ctx
	}
	packets, err := redpacket.New(hub, redpacket.Options{CallTimeout: 10 * time.Second, Observer: metrics})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer packets.Close(ctx)
	packet := packets.Packet("wedding")
	packet.Send(ctx, redpacket.Spec{Total: 800, Shares: 1, OpenFor: time.Hour})
	packet.Grab(ctx, "ann")
	packet.Grab(ctx, "bob")
	fmt.Println(taken, "cents taken,", packets.Stats().SharedCalls, "calls shared")
	// Output:
	// wedding granted 800 <nil>
	// wedding sold out 0 <nil>
	// 800 cents taken, 0 calls shared
}
