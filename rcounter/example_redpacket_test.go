package rcounter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/rcounter"
)

// Ten yuan among five friends, of whom one asks again.
func ExampleRedPacket() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	packet := c.RedPacket("new-year")
	if _, err := packet.Send(ctx, rcounter.PacketSpec{Total: 1000, Shares: 5, OpenFor: 24 * time.Hour, Retain: 7 * 24 * time.Hour,
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
	fmt.Println("refund:", errors.Is(err, rcounter.ErrNotEnded))
	// Output:
	// ann granted: 2.51, 4 left
	// bob granted: 1.82, 3 left
	// ann replayed: 2.51, 3 left
	// refund: true
}

// What nobody took goes back once, however often it is asked for.
func ExampleRedPacket_Refund() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	packet := c.RedPacket("short")
	packet.Send(ctx, rcounter.PacketSpec{Total: 1000, Shares: 4, Method: rcounter.Equal, OpenFor: 500 * time.Millisecond})
	packet.Grab(ctx, "ann")

	for n := 0; n < 2; {
		refund, err := packet.Refund(ctx)
		var early *rcounter.NotEndedError
		if errors.As(err, &early) {
			time.Sleep(early.Left)
			continue
		}
		fmt.Println(refund.Cents, refund.First) // pay it out by an entry unique over (packet, refund.Epoch)
		n++
	}
	// Output:
	// 750 true
	// 750 false
}

// Who took what, in the order of taking.
func ExampleRedPacket_Shares() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	packet := c.RedPacket("equal")
	packet.Send(ctx, rcounter.PacketSpec{Total: 1000, Shares: 3, Method: rcounter.Equal, OpenFor: time.Hour})
	packet.Grab(ctx, "ann")
	packet.Grab(ctx, "bob")

	for share, err := range packet.Shares(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(share.Ordinal, share.User, share.Cents)
	}
	// Output:
	// 1 ann 334
	// 2 bob 333
}

// The splitting alone, without a server.
func ExampleSplit() {
	shares, err := rcounter.Split(1000, 5, 100, 300, rcounter.DoubleMean, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(shares, err)
	_, err = rcounter.Split(10, 20, 1, 0, rcounter.Equal, nil)
	fmt.Println(err)
	// Output:
	// [225 191 123 254 207] <nil>
	// rcounter: invalid option: total is 10, must be at least n * min, which is 20 * 1
}
