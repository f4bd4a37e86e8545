package redpacket_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// demo is a client on an embedded server; a program would call pubsub.Dial with its server's address.
func demo(o redpacket.Options) (packets *redpacket.Client, end func()) {
	server := miniredis.NewMiniRedis()
	check(server.Start())
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
	check(err)
	hub, err := pubsub.New(client, pubsub.Options{})
	check(err)
	o.CallTimeout = 10 * time.Second // a busy machine takes its time
	packets, err = redpacket.New(hub, o)
	check(err)
	return packets, func() {
		packets.Close(context.Background())
		hub.Close(context.Background())
		client.Close()
		server.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// wages is a packet of ten yuan in three shares, of which ann and bob have one.
func wages(packets *redpacket.Client) *redpacket.Packet {
	packet := packets.Packet("wages")
	_, err := packet.Send(context.Background(), redpacket.Spec{Total: 1000, Shares: 3, Method: redpacket.Equal,
		OpenFor: 500 * time.Millisecond, Ledger: true})
	check(err)
	for _, user := range []string{"ann", "bob"} {
		_, err := packet.Grab(context.Background(), user)
		check(err)
	}
	return packet
}

// Ten yuan among five friends. A process that died before it noted the epoch sends again, and hears it.
func ExamplePacket_Send() {
	packets, end := demo(redpacket.Options{KeyPrefix: "party:"})
	defer end()
	ctx, spec := context.Background(), redpacket.Spec{Total: 1000, Shares: 5, OpenFor: 24 * time.Hour}

	epoch, err := packets.Packet("new-year").Send(ctx, spec)
	check(err)
	again, err := packets.Packet("new-year").Send(ctx, spec)
	fmt.Println(errors.Is(err, redlatch.ErrAlreadyOpen), again == epoch)
	// Output:
	// true true
}

// A user who asks again has the same share.
func ExamplePacket_Grab() {
	packets, end := demo(redpacket.Options{})
	defer end()
	ctx, packet := context.Background(), packets.Packet("new-year")
	_, err := packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 2, OpenFor: time.Hour,
		Rand: rand.New(rand.NewPCG(1, 2))}) // leave Rand out: these amounts can be predicted
	check(err)
	for _, user := range []string{"ann", "bob", "ann", "cid"} {
		share, err := packet.Grab(ctx, user)
		check(err) // no answer: asking again is safe
		fmt.Printf("%s %d %v %q\n", user, share.Cents, share.Again, share.Why)
	}
	_, err = packets.Packet("old-year").Grab(ctx, "ann")
	fmt.Println(errors.Is(err, redpacket.ErrNoPacket))
	// Output:
	// ann 231 false ""
	// bob 769 false ""
	// ann 231 true ""
	// cid 0 false "sold out"
	// true
}

// The page shows a user the amount, or why the user has no share.
func ExampleShare_Won() {
	packets, end := demo(redpacket.Options{})
	defer end()
	ctx, packet := context.Background(), packets.Packet("new-year")
	_, err := packet.Send(ctx, redpacket.Spec{Total: 1000, Shares: 1, OpenFor: time.Hour})
	check(err)
	for _, user := range []string{"ann", "bob"} {
		share, err := packet.Grab(ctx, user)
		check(err)
		if share.Won() {
			fmt.Println(user, "gets", share.Cents, "cents")
		} else {
			fmt.Println(user, "gets nothing:", share.Why)
		}
	}
	// Output:
	// ann gets 1000 cents
	// bob gets nothing: sold out
}

// What nobody took goes back once, however often it is asked for.
func ExamplePacket_Refund() {
	packets, end := demo(redpacket.Options{})
	defer end()
	ctx, packet := context.Background(), wages(packets)
	for n := 0; n < 2; {
		refund, err := packet.Refund(ctx)
		if errors.Is(err, redpacket.ErrNotEnded) {
			stand, err := packet.Inspect(ctx)
			check(err)
			time.Sleep(stand.UntilEnd)
			continue
		}
		check(err)
		fmt.Println(refund.Cents, refund.Again) // pay it out by an entry that is unique over (packet, refund.Epoch)
		n++
	}
	// Output:
	// 333 false
	// 333 true
}

func ExamplePacket_Inspect() {
	packets, end := demo(redpacket.Options{})
	defer end()
	stand, err := wages(packets).Inspect(context.Background())
	check(err)
	fmt.Println(stand.Taken, "of", stand.Shares, "shares,", stand.TakenCents, "of", stand.Total, "cents")
	// Output:
	// 2 of 3 shares, 667 of 1000 cents
}

// Shares yields the users and their shares, in the order in which they were taken.
func ExamplePacket_Shares() {
	packets, end := demo(redpacket.Options{})
	defer end()
	for share, err := range wages(packets).Shares(context.Background()) {
		check(err)
		fmt.Println(share.Ordinal, share.User, share.Cents)
	}
	// Output:
	// 1 ann 334
	// 2 bob 333
}

// The ledger moves into a database, here a map: an entry that comes again changes nothing, and another entry under its
// key is an error.
func ExamplePacket_Ledger() {
	packets, end := demo(redpacket.Options{})
	defer end()
	type key struct{ epoch, serial int64 }
	rows := map[key]redpacket.Entry{}
	n, err := wages(packets).Ledger(context.Background(), 500, func(_ context.Context, entries []redpacket.Entry) error {
		for _, e := range entries { // in one transaction
			k := key{e.Epoch, e.Serial}
			if was, there := rows[k]; there && (was.User != e.User || was.Cents != e.Cents) {
				return fmt.Errorf("place %d was given to %s and to %s", e.Ordinal, was.User, e.User)
			}
			rows[k] = e
			fmt.Println(e.Serial, e.Kind, e.User, e.Cents)
		}
		return nil
	})
	fmt.Println(n, err)
	// Output:
	// 1 grabbed ann 334
	// 2 grabbed bob 333
	// 2 <nil>
}

// A program moves the ledger until it ends.
func ExamplePacket_KeepLedger() {
	packets, end := demo(redpacket.Options{})
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	err := wages(packets).KeepLedger(ctx, time.Second, 1, func(_ context.Context, entries []redpacket.Entry) error {
		fmt.Println(entries[0].User, entries[0].Cents)
		if entries[0].Serial == 2 {
			stop()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// ann 334
	// bob 333
	// context canceled
}

// The draw alone, without a server.
func ExampleSplit() {
	shares, err := redpacket.Split(1000, 5, 100, 300, redpacket.DoubleMean, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(shares, err)
	_, err = redpacket.Split(10, 20, 1, 0, redpacket.Equal, nil)
	fmt.Println(err)
	// Output:
	// [225 191 123 254 207] <nil>
	// redpacket: invalid option: total is 10, must be at least n * lo, which is 20 * 1
}

// Metrics of what is taken, in cents.
func ExampleClient_observer() {
	taken := int64(0)
	packets, end := demo(redpacket.Options{Observer: func(ctx context.Context, e redlatch.Event) context.Context {
		taken += e.N
		fmt.Println(e.Name, e.Outcome, e.N, e.Err)
		return ctx
	}})
	defer end()
	wages(packets)
	fmt.Println(taken, "cents taken")
	// Output:
	// wages grabbed 334 <nil>
	// wages grabbed 333 <nil>
	// 667 cents taken
}
