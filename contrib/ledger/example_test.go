package redlatchledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// setup is a Redis server in this process, a client of it that has books in an SQLite database, and their Book. change
// is applied to each Book.
func setup(ctx context.Context, change func(b *redlatchledger.Book)) (server *services.Embedded, red *redlatch.Client,
	book func(sale string) redlatchledger.Book, end func()) {
	dir, err := os.MkdirTemp("", "sale")
	services.Must(err)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "sale.db")+"?_pragma=busy_timeout(10000)")
	services.Must(err)
	services.Must(redlatchledger.SQLite.Create(ctx, db))
	book = func(sale string) redlatchledger.Book {
		b := redlatchledger.Book{DB: db, Dialect: redlatchledger.SQLite, Sale: sale}
		if change != nil {
			change(&b)
		}
		return b
	}
	server, option := services.Redis()
	red, err = redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second,
		Sales: func(o *stock.Options) { o.Books = func(sale string) stock.Book { return book(sale) } }})
	services.Must(err)
	return server, red, book, func() {
		_ = red.Close(ctx) // the Example has shown what it shows
		server.Close()
		db.Close()
		os.RemoveAll(dir)
	}
}

// A sale moves into a database. Then Redis loses it all, and the sale goes on from the database.
func ExampleBook() {
	ctx := context.Background()
	server, red, book, end := setup(ctx, func(b *redlatchledger.Book) {
		b.Also = func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
			for _, e := range entries { // each exactly once
				if _, err := tx.ExecContext(ctx, `INSERT INTO mails VALUES ($1, $2)`, e.Serial, e.User); err != nil {
					return err
				}
			}
			return nil
		}
	})
	defer end()
	_, err := book("phones").DB.Exec(`CREATE TABLE mails (serial bigint, customer text)`)
	services.Must(err)

	// What every process does when it starts.
	sale, spec := red.Sales().Sale("phones"), stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true}
	services.Must(sale.Open(ctx, spec))
	keeping, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- book("phones").Keep(keeping, sale, time.Second) }()

	for _, user := range []string{"ann", "bob"} {
		_, err := sale.Buy(ctx, stock.Order{User: user})
		services.Must(err)
	}
	for n := 1; n > 0; { // to have all of it in the database now
		n, err = sale.Ledger(ctx, 1000, book("phones").Move)
		services.Must(err)
	}
	stop() // a program keeps it until it ends
	fmt.Println(<-ended)

	server.FlushAll()
	fmt.Println("lost:", errors.Is(sale.Open(ctx, spec), stock.ErrNoStock))
	_, err = sale.Restore(ctx, spec)
	services.Must(err)
	for _, user := range []string{"ann", "cid"} {
		a, err := sale.Buy(ctx, stock.Order{User: user})
		services.Must(err)
		fmt.Println(user, "has", a.Lines[0].Ordinal)
	}
	// Output:
	// context canceled
	// lost: true
	// ann has 1
	// cid has 3
}

// The database answers for an order or a customer without the server, by an index.
func ExampleBook_Order() {
	ctx := context.Background()
	_, red, book, end := setup(ctx, nil)
	defer end()
	sale := red.Sales().Sale("tickets")
	services.Must(sale.Open(ctx, stock.Spec{Limit: 9, PerUser: 5, OpenFor: time.Hour, Ledger: true}))
	_, err := sale.Reserve(ctx, stock.Order{ID: "order-1", User: "ann", Lines: []stock.Line{{N: 5}}}, 10*time.Minute)
	services.Must(err)
	for _, id := range []string{"order-1", "order-1", "no such order"} { // payments
		_, err := sale.Pay(ctx, id)
		services.Must(err)
	}
	_, err = sale.Return(ctx, "order-1", stock.Line{N: 3}) // these stay
	services.Must(err)
	_, err = sale.Ledger(ctx, 1000, book("tickets").Move)
	services.Must(err)
	for _, id := range []string{"order-1", "no such order"} {
		entries, err := book("tickets").Order(ctx, id)
		services.Must(err)
		for _, e := range entries {
			fmt.Printf("%s: %s %d %q\n", e.ID, e.Kind, e.N, e.Why)
		}
	}
	units, err := book("tickets").UnitsOf(ctx, "ann")
	services.Must(err)
	for _, e := range units {
		fmt.Println("ann has", e.N, "from", e.Ordinal, "by", e.ID)
	}
	// Output:
	// order-1: reserved 5 ""
	// order-1: paid 5 ""
	// order-1: returned 2 ""
	// no such order: void 0 "forbidden"
	// ann has 3 from 1 by order-1
}

// A live page counts what is sold.
func ExampleLive() {
	ctx := context.Background()
	_, option := services.Redis() // a program has a hub, or makes one
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{})
	services.Must(err)
	defer hub.Close(ctx)
	live := redlatchledger.Live{Hub: hub, Channel: "live:phones"}
	_, red, book, end := setup(ctx, func(b *redlatchledger.Book) { b.After = live.Publish })
	defer end()
	sale := red.Sales().Sale("phones")
	services.Must(sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true}))
	_, err = sale.Buy(ctx, stock.Order{User: "ann"})
	services.Must(err)
	for e, err := range live.Events(ctx, time.Minute) {
		services.Must(err)
		if !e.Gap {
			fmt.Println(e.Kind, e.User)
			break
		}
		is, err := sale.Inspect(ctx)
		services.Must(err)
		fmt.Println("sold so far:", is.Items[""].Sold)
		_, err = sale.Buy(ctx, stock.Order{User: "bob"})
		services.Must(err)
		_, err = sale.Ledger(ctx, 1000, book("phones").Move)
		services.Must(err)
	}
	// Output:
	// sold so far: 1
	// sold ann
}

// A program makes the tables when it starts, or you put the text into your migrations.
func ExampleDialect() {
	db, err := sql.Open("sqlite3", ":memory:")
	services.Must(err)
	defer db.Close()
	fmt.Println(redlatchledger.SQLite.Create(context.Background(), db))
	migration := redlatchledger.PostgreSQL.Schema()
	fmt.Println(strings.Count(migration, "CREATE TABLE IF NOT EXISTS"), "tables")
	// Output:
	// <nil>
	// 4 tables
}

// The shares of a red packet are booked as they are taken, and what is left when it is refunded.
func ExamplePacketMover() {
	ctx := context.Background()
	server, red, book, end := setup(ctx, nil)
	defer end()
	packet, spec := red.RedPackets().Packet("new-year"), redpacket.Spec{Total: 1000, Shares: 4, Method: redpacket.Equal,
		OpenFor: time.Hour, Ledger: true}
	mover := redlatchledger.PacketMover{DB: book("").DB, Dialect: redlatchledger.SQLite, Packet: "new-year",
		Also: func(ctx context.Context, tx *sql.Tx, entries []redpacket.Entry) error {
			for _, e := range entries { // each exactly once: the place to pay
				fmt.Println(e.Kind, e.User, e.Cents)
			}
			return nil
		}}
	epoch, err := packet.Send(ctx, spec)
	if err != nil && !errors.Is(err, redlatch.ErrAlreadyOpen) { // a process that died here has sent it
		log.Fatal(err)
	}
	services.Must(mover.Announce(ctx, epoch, spec))
	for _, user := range []string{"ann", "bob"} {
		_, err := packet.Grab(ctx, user)
		services.Must(err)
	}
	server.Forward(2 * time.Hour) // it has ended
	_, err = packet.Refund(ctx)
	services.Must(err)
	_, err = packet.Ledger(ctx, 1000, mover.Move)
	services.Must(err)
	books, err := mover.Books(ctx)
	fmt.Println(books.TakenCents, "+", books.RefundCents, "=", books.Total, err)
	// Output:
	// grabbed ann 250
	// grabbed bob 250
	// refunded  500
	// 500 + 500 = 1000 <nil>
}
