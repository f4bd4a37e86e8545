package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// serve is a hub on an embedded server. A program would call pubsub.Dial with its server's address.
func serve() (hub *pubsub.Hub, server *miniredis.Miniredis, end func()) {
	server = miniredis.NewMiniRedis()
	check(server.Start())
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
	check(err)
	hub, err = pubsub.New(client, pubsub.Options{})
	check(err)
	return hub, server, func() { hub.Close(context.Background()); client.Close(); server.Close() }
}

// demo is a client on an embedded server, which may take its time on a busy machine.
func demo() (c *stock.Client, server *miniredis.Miniredis, end func()) {
	hub, server, stop := serve()
	c, err := stock.New(hub, stock.Options{CallTimeout: 10 * time.Second})
	check(err)
	return c, server, func() { c.Close(context.Background()); stop() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// opens opens a sale of one item or of several.
func opens(ctx context.Context, s *stock.Sale, items map[string]stock.Item) {
	check(s.Open(ctx, stock.Spec{Items: items, OpenFor: time.Hour, Ledger: true}))
}

// phoneSale is an open sale of so many phones, of which a user may have three.
func phoneSale(ctx context.Context, units int64) (s *stock.Sale, end func()) {
	c, _, end := demo()
	s = c.Sale("phones")
	opens(ctx, s, map[string]stock.Item{"": {Limit: units, PerUser: 3}})
	return s, end
}

// printingBank prints what it pays back.
type printingBank struct{ refunded map[string]int64 }

func (b *printingBank) RefundUpTo(_ context.Context, order string, total []stock.Line) error {
	if b.refunded == nil {
		b.refunded = map[string]int64{}
	}
	for _, l := range total {
		key := order + l.Item
		if l.N > b.refunded[key] {
			fmt.Println("the bank pays back", l.N-b.refunded[key], "of", order)
			b.refunded[key] = l.N
		}
	}
	return nil
}

func printAnswer(order string, a stock.Answer) {
	if a.Why == "" {
		fmt.Println(order, a.State)
		return
	}
	fmt.Println(order, a.State, a.Why)
}

// printStates prints what has become of orders.
func printStates(ctx context.Context, s *stock.Sale, ids ...string) {
	for _, id := range ids {
		a, err := s.Status(ctx, id)
		check(err)
		printAnswer(id, a)
	}
}

// bank pays money back. RefundUpTo brings what was paid back for an order, in all, to a total: its idempotency key is
// the order with the total, so a call that is repeated pays nothing.
type bank interface {
	RefundUpTo(ctx context.Context, order string, total []stock.Line) error
}

var errNothing = errors.New("nothing was sold")

// 1. Every process announces the sale when it starts, and Buy answers each request.
func announce(ctx context.Context, c *stock.Client, noon time.Time) error {
	return c.Sale("phones").Open(ctx, stock.Spec{Limit: 100, Ledger: true,
		StartIn: max(0, time.Until(noon)), OpenFor: time.Hour})
}

func buy(ctx context.Context, c *stock.Client, user string) (unit int64, err error) {
	a, err := c.Sale("phones").Buy(ctx, stock.Order{User: user})
	switch {
	case err != nil:
		return 0, err // ask again
	case a.Won():
		return a.Lines[0].Ordinal, nil
	}
	return 0, fmt.Errorf("%w: %s", errNothing, a.Why)
}

// A hundred phones, and whoever comes first gets one. The answer to a repeated call is the same.
func ExampleSale_Buy() {
	c, _, end := demo()
	defer end()
	ctx := context.Background()
	check(announce(ctx, c, time.Now()))
	for _, user := range []string{"ann", "bob", "ann"} {
		unit, err := buy(ctx, c, user)
		fmt.Println(user, unit, err)
	}
	for i := range 98 {
		_, err := buy(ctx, c, fmt.Sprint("user ", i))
		check(err)
	}
	_, err := buy(ctx, c, "cid")
	fmt.Println("cid:", err)
	a, err := c.Sale("phones").Buy(ctx, stock.Order{Anyone: true})
	fmt.Println("a customer without a name:", a.State, a.Why, err)
	// Output:
	// ann 1 <nil>
	// bob 2 <nil>
	// ann 1 <nil>
	// cid: nothing was sold: sold out
	// a customer without a name: refused sold out <nil>
}

// 2. The page shows what Reserve answers. Called again it is the same.
func reserve(ctx context.Context, s *stock.Sale, order, user string, cart ...stock.Line) (stock.Answer, error) {
	return s.Reserve(ctx, stock.Order{ID: order, User: user, Lines: cart}, 10*time.Minute)
}

// webhook is called by the bank: in time, late, twice, or by a job that reads payments that nobody has told of. An
// error is HTTP 500, and the bank calls again. paid are all lines that the customer has paid for.
func webhook(ctx context.Context, s *stock.Sale, bank bank, order string, paid ...stock.Line) error {
	a, err := s.Pay(ctx, order, paid...)
	if err != nil {
		return err // nothing is decided, or nobody knows: never a refund
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

// giveUp is for what was never paid: the customer's browser, or a job. A payment in flight is refunded by webhook.
func giveUp(ctx context.Context, s *stock.Sale, order string) (sold bool, err error) {
	a, err := s.Cancel(ctx, order)
	return a.State == stock.Sold, err
}

// Customers pay in time, twice, late, and after they gave up.
func ExampleSale_Reserve() {
	c, server, end := demo()
	defer end()
	ctx, s, at := context.Background(), c.Sale("phones"), &printingBank{}
	one := stock.Line{N: 1}
	opens(ctx, s, map[string]stock.Item{"": {Limit: 3, PerUser: 3}})
	for _, order := range []string{"in time", "given up", "late", "too late"} {
		a, err := reserve(ctx, s, order, "ann of "+order)
		check(err)
		printAnswer(order, a)
	}

	check(webhook(ctx, s, at, "in time", one))
	check(webhook(ctx, s, at, "in time", one)) // the bank calls twice
	sold, err := giveUp(ctx, s, "given up")
	fmt.Println("given up, and sold before:", sold, err)
	check(webhook(ctx, s, at, "given up", one))

	_, err = reserve(ctx, s, "too late", "ann of too late")
	check(err)
	server.SetTime(time.Now().Add(11 * time.Minute))
	_, err = buy(ctx, c, "bob")
	check(err)
	check(webhook(ctx, s, at, "late", one)) // a unit is left
	check(webhook(ctx, s, at, "too late", one))
	check(webhook(ctx, s, at, "never reserved", one))
	printStates(ctx, s, "in time", "given up", "late", "too late", "never reserved")
	// Output:
	// in time reserved
	// given up reserved
	// late reserved
	// too late refused sold out
	// given up, and sold before: false <nil>
	// the bank pays back 1 of given up
	// the bank pays back 1 of too late
	// the bank pays back 1 of never reserved
	// in time sold
	// given up closed cancelled
	// late sold
	// too late closed expired
	// never reserved closed forbidden
}

// 3. A cart is an order of several lines: all or none. Refused says what is left of each.
func cart(ctx context.Context, s *stock.Sale, order, user string, lines []stock.Line) (missing []string, err error) {
	a, err := reserve(ctx, s, order, user, lines...)
	if err != nil || a.State != stock.Refused {
		return nil, err
	}
	for i, left := range a.Lines {
		if left.N < lines[i].N {
			missing = append(missing, left.Item)
		}
	}
	return missing, nil
}

// All lines of a cart are reserved, or none. If none is, the answer tells what is left of each.
func ExampleSale_Reserve_cart() {
	c, _, end := demo()
	defer end()
	ctx, s := context.Background(), c.Sale("shirts")
	opens(ctx, s, map[string]stock.Item{"red": {Limit: 1}, "blue": {Limit: 5}})
	lines := []stock.Line{{Item: "red", N: 1}, {Item: "blue", N: 1}}
	for _, user := range []string{"ann", "bob"} {
		missing, err := cart(ctx, s, "cart of "+user, user, lines)
		fmt.Println(user, "misses", missing, err)
	}
	is, err := s.Inspect(ctx)
	fmt.Println("blue shirts reserved:", is.Items["blue"].Reserved, err)
	// Output:
	// ann misses [] <nil>
	// bob misses [red] <nil>
	// blue shirts reserved: 1 <nil>
}

// 4. Refund all, or all but what the customer keeps.
func refund(ctx context.Context, s *stock.Sale, bank bank, order string, paid []stock.Line, keep ...stock.Line) error {
	a, err := s.Return(ctx, order, keep...)
	if err != nil {
		return err
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

// A customer gives two of three tickets back, and then the third. A repeated step pays nothing.
func ExampleSale_Return() {
	c, _, end := demo()
	defer end()
	ctx, s, at := context.Background(), c.Sale("tickets"), &printingBank{}
	opens(ctx, s, map[string]stock.Item{"": {Limit: 9, PerUser: 3}})
	paid := []stock.Line{{N: 3}}
	a, err := s.Buy(ctx, stock.Order{ID: "order-1", User: "ann", Lines: paid})
	check(err)
	fmt.Println(a.State, a.Lines[0].N)
	for range 2 {
		check(refund(ctx, s, at, "order-1", paid, stock.Line{N: 1}))
	}
	for range 2 {
		check(refund(ctx, s, at, "order-1", paid))
	}
	printStates(ctx, s, "order-1")
	// Output:
	// sold 3
	// the bank pays back 2 of order-1
	// the bank pays back 1 of order-1
	// order-1 closed returned
}

// 5. The night shift pauses and ends the sale, and repairs it if the server came back empty, with a part, or after a
// failover. Until Restore returns nil every verb is an error.
func pause(ctx context.Context, s *stock.Sale, paused bool) error {
	return s.Change(ctx, stock.Change{Paused: &paused})
}

func repair(ctx context.Context, s *stock.Sale, spec stock.Spec) error {
	lost, err := s.Restore(ctx, spec)
	for _, e := range lost {
		slog.Warn("an order that a failover forgot", "order", e.ID, "user", e.User, "item", e.Item, "n", e.N)
	}
	return err // run it again
}

// The night shift pauses the sale, mends it after the server came back empty, and ends it.
func ExampleSale_Restore() {
	hub, server, end := serve()
	defer end()
	orders := &book{} // in memory; a program has its books in a database
	c, err := stock.New(hub,
		stock.Options{Books: func(string) stock.Book { return orders }, CallTimeout: 10 * time.Second})
	check(err)
	ctx, s := context.Background(), c.Sale("phones")
	defer c.Close(ctx)
	spec := stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true}
	check(s.Open(ctx, spec))
	unit, err := buy(ctx, c, "ann")
	fmt.Println("ann", unit, err)

	check(pause(ctx, s, true))
	_, err = buy(ctx, c, "bob")
	fmt.Println("paused:", errors.Is(err, stock.ErrLater))
	check(pause(ctx, s, false))

	_, err = s.Ledger(ctx, 100, orders.Move) // a mover does it all the time: see KeepLedger
	check(err)
	server.FlushAll()
	_, err = buy(ctx, c, "ann")
	fmt.Println("lost:", errors.Is(err, stock.ErrNoStock))
	check(repair(ctx, s, spec))
	for _, user := range []string{"ann", "bob"} {
		unit, err = buy(ctx, c, user)
		fmt.Println(user, unit, err)
	}
	check(s.EndSale(ctx))
	_, err = buy(ctx, c, "cid")
	fmt.Println("cid:", err)
	// Output:
	// ann 1 <nil>
	// paused: true
	// lost: true
	// ann 1 <nil>
	// bob 2 <nil>
	// cid: nothing was sold: ended
}

// 6. A database gets the records. The interface Book says what its Move does.
func records(ctx context.Context, s *stock.Sale, orders stock.Book) error {
	return s.KeepLedger(ctx, time.Second, 1000, orders.Move)
}

// untilEmpty is a book that prints the entries that it gets, and ends when it has so many.
type untilEmpty struct {
	stock.Book
	most int64
	end  func()
}

func (b untilEmpty) Move(ctx context.Context, entries []stock.Entry) error {
	for _, e := range entries {
		fmt.Println(e.Serial, e.Kind, e.ID, e.N)
		if e.Serial == b.most {
			b.end()
		}
	}
	return b.Book.Move(ctx, entries)
}

// Everything that happens to units comes to the database, in order.
func ExampleSale_KeepLedger() {
	c, _, end := demo()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	s := c.Sale("phones")
	opens(ctx, s, map[string]stock.Item{"": {Limit: 3}})
	_, err := reserve(ctx, s, "order-1", "ann")
	check(err)
	_, err = s.Pay(ctx, "order-1")
	check(err)
	_, err = s.Buy(ctx, stock.Order{User: "bob"})
	check(err)
	_, err = s.Return(ctx, "bob")
	check(err)
	_, err = s.Pay(ctx, "unknown")
	check(err)
	err = records(ctx, s, untilEmpty{&book{}, 5, cancel})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// 1 reserved order-1 1
	// 2 paid order-1 1
	// 3 sold bob 1
	// 4 returned bob 1
	// 5 void unknown 0
	// true
}

// Every process opens the sale when it starts, and an Open with another limit is refused.
func ExampleSale_Open() {
	c, _, end := demo()
	defer end()
	ctx, s := context.Background(), c.Sale("phones")
	for _, limit := range []int64{100, 100, 200} {
		err := s.Open(ctx, stock.Spec{Limit: limit, OpenFor: time.Hour})
		fmt.Println("mismatch:", errors.Is(err, redlatch.ErrMismatch))
	}
	// Output:
	// mismatch: false
	// mismatch: false
	// mismatch: true
}

// A page shows the state of an order, which is empty if the sale does not know the order.
func ExampleSale_Status() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	_, err := s.Reserve(ctx, stock.Order{ID: "order-1", User: "ann"}, 10*time.Minute)
	check(err)
	for _, id := range []string{"order-1", "order-2"} {
		a, err := s.Status(ctx, id)
		check(err)
		fmt.Printf("%s %q\n", id, a.State)
	}
	// Output:
	// order-1 "reserved"
	// order-2 ""
}

// A customer cancels an order that is not paid, and the next customer gets the phone.
func ExampleSale_Cancel() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 1)
	defer end()
	_, err := s.Reserve(ctx, stock.Order{ID: "order-1", User: "ann"}, 10*time.Minute)
	check(err)
	a, err := s.Cancel(ctx, "order-1")
	check(err)
	fmt.Println(a.ID, a.State, a.Why)
	a, err = s.Reserve(ctx, stock.Order{ID: "order-2", User: "bob"}, 10*time.Minute)
	check(err)
	fmt.Println(a.ID, a.State)
	// Output:
	// order-1 closed cancelled
	// order-2 reserved
}

// The bank reports a payment twice, and gets the same decision.
func ExampleSale_Pay() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	_, err := s.Reserve(ctx, stock.Order{ID: "order-1", User: "ann"}, 10*time.Minute)
	check(err)
	for range 2 {
		a, err := s.Pay(ctx, "order-1")
		check(err)
		fmt.Println(a.State, "phone", a.Lines[0].Ordinal, "again:", a.Again)
	}
	// Output:
	// sold phone 1 again: false
	// sold phone 1 again: true
}

// A customer whose bank is slow gets more time to pay.
func ExampleSale_Extend() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	_, err := s.Reserve(ctx, stock.Order{ID: "order-1", User: "ann"}, 10*time.Minute)
	check(err)
	a, err := s.Extend(ctx, "order-1", 30*time.Minute)
	check(err)
	fmt.Println(a.State, "for", time.Until(a.Until).Round(10*time.Minute))
	// Output:
	// reserved for 30m0s
}

// Ten more phones arrive during the sale.
func ExampleSale_Change() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 1)
	defer end()
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	check(err)
	for _, limit := range []int64{1, 11} {
		check(s.Change(ctx, stock.Change{Items: map[string]stock.Item{"": {Limit: limit}}}))
		a, err := s.Buy(ctx, stock.Order{User: "bob"})
		check(err)
		fmt.Println("of", limit, "phones, bob's order is", a.State)
	}
	// Output:
	// of 1 phones, bob's order is refused
	// of 11 phones, bob's order is sold
}

// A sale that has ended refuses new orders, and an order that is reserved can still be paid.
func ExampleSale_EndSale() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	_, err := s.Reserve(ctx, stock.Order{ID: "order-1", User: "ann"}, 10*time.Minute)
	check(err)
	check(s.EndSale(ctx))
	a, err := s.Buy(ctx, stock.Order{User: "bob"})
	check(err)
	fmt.Println("bob:", a.State, a.Why)
	a, err = s.Pay(ctx, "order-1")
	check(err)
	fmt.Println("ann:", a.State)
	// Output:
	// bob: refused ended
	// ann: sold
}

// The sale of a rehearsal is deleted, and its name is free for the real sale.
func ExampleSale_Delete() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	check(s.Delete(ctx))
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	fmt.Println("no sale:", errors.Is(err, stock.ErrNoStock))
	check(s.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour}))
	a, err := s.Buy(ctx, stock.Order{User: "ann"})
	check(err)
	fmt.Println(a.State)
	// Output:
	// no sale: true
	// sold
}

// A dashboard shows how many phones are sold, reserved and left.
func ExampleSale_Inspect() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 5)
	defer end()
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	check(err)
	_, err = s.Reserve(ctx, stock.Order{User: "bob"}, 10*time.Minute)
	check(err)
	stand, err := s.Inspect(ctx)
	check(err)
	phones := stand.Items[""]
	left := phones.Limit - phones.Sold - phones.Reserved
	fmt.Println(stand.Phase, "sold:", phones.Sold, "reserved:", phones.Reserved, "left:", left)
	// Output:
	// open sold: 1 reserved: 1 left: 3
}

// A report lists every order that has phones, in any order.
func ExampleSale_Holders() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 5)
	defer end()
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	check(err)
	_, err = s.Reserve(ctx, stock.Order{User: "bob"}, 10*time.Minute)
	check(err)
	for a, err := range s.Holders(ctx) {
		check(err)
		fmt.Println(a.User, a.State, a.Lines[0].N)
	}
	// Unordered output:
	// ann sold 1
	// bob reserved 1
}

// A job moves the entries of the ledger into a database, here to the screen.
func ExampleSale_Ledger() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	_, err := s.Buy(ctx, stock.Order{ID: "order-1", User: "ann"})
	check(err)
	for range 2 {
		n, err := s.Ledger(ctx, 1000, func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries { // in one transaction
				fmt.Println(e.Serial, e.Kind, e.ID, e.N)
			}
			return nil // the entries are removed from the server
		})
		fmt.Println("moved:", n, err)
	}
	// Output:
	// 1 sold order-1 1
	// moved: 1 <nil>
	// moved: 0 <nil>
}

// The customer has paid for both orders, and the money for the cancelled order goes back.
func ExampleAnswer_Refund() {
	ctx := context.Background()
	s, end := phoneSale(ctx, 3)
	defer end()
	for _, id := range []string{"order-1", "order-2"} {
		_, err := s.Reserve(ctx, stock.Order{ID: id, User: "ann"}, 10*time.Minute)
		check(err)
	}
	_, err := s.Cancel(ctx, "order-2")
	check(err)
	paid := stock.Line{N: 1}
	for _, id := range []string{"order-1", "order-2"} {
		a, err := s.Pay(ctx, id, paid)
		check(err)
		fmt.Println(id, a.State)
		for _, line := range a.Refund(paid) {
			fmt.Println("pay back", line.N, "of", id)
		}
	}
	// Output:
	// order-1 sold
	// order-2 closed
	// pay back 1 of order-2
}
