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
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// setup is a Redis server in this process, a client of it, and an SQLite database with the tables.
func setup(ctx context.Context) (server *services.Embedded, red *redlatch.Client, db *sql.DB, end func()) {
	red, server, disconnect := services.Redlatch()
	dir, err := os.MkdirTemp("", "sale")
	services.Must(err)
	db, err = sql.Open("sqlite3", "file:"+filepath.Join(dir, "sale.db")+"?_pragma=busy_timeout(10000)")
	services.Must(err)
	services.Must(redlatchledger.SQLite.Create(ctx, db))
	return server, red, db, func() {
		disconnect()
		db.Close()
		os.RemoveAll(dir)
	}
}

// A sale moves into a database. Then Redis loses it all, and the database has it sold on.
func ExampleMover() {
	ctx := context.Background()
	server, red, db, end := setup(ctx)
	defer end()
	_, err := db.Exec(`CREATE TABLE orders (epoch bigint, serial bigint, customer text)`)
	services.Must(err)

	sale, spec := red.Stocks().Stock("sale"), stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true}
	mover := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale", After: sale.Publish,
		Also: func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
			for _, e := range entries {
				if e.Kind == stock.KindGrant { // each exactly once
					if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1, $2, $3)`, e.Epoch, e.Serial,
						e.Claimant); err != nil {
						return err
					}
				}
			}
			return nil
		}}
	// What every process does when it starts.
	spec.Opened = mover.Opened // so that nobody opens it again when Redis has lost it
	st, err := sale.OpenOrJoin(ctx, spec)
	services.Must(err)
	services.Must(mover.Announce(ctx, st.Epoch))
	for _, user := range []string{"ann", "bob"} {
		_, err := sale.Claim(ctx, user)
		services.Must(err)
	}
	n, err := sale.Ledger(ctx, 1000, mover.Move)
	fmt.Println("moved", n, err)
	keeping, stop := context.WithCancel(ctx)
	stop() // a program keeps it until it ends
	fmt.Println(mover.Keep(keeping, sale, time.Second))

	server.FlushAll()
	_, err = sale.OpenOrJoin(ctx, spec)
	fmt.Println("lost:", errors.Is(err, redlatch.ErrCorrupt))
	spec.Suspended, spec.Opened = true, nil
	again, err := sale.Open(ctx, spec)
	services.Must(err)
	services.Must(mover.Carry(ctx, st.Epoch, again))
	_, err = sale.Restore(ctx, mover.Entries(ctx, again))
	services.Must(err)
	g, err := sale.Claim(ctx, "cid")
	fmt.Println("cid", g.Outcome, g.Ordinal, err)
	_, err = sale.Ledger(ctx, 1000, mover.Move)
	services.Must(err)
	for e, err := range mover.Units(ctx, again) {
		fmt.Println(e.Claimant, "has", e.Ordinal, err)
	}
	// Output:
	// moved 2 <nil>
	// context canceled
	// lost: true
	// cid granted 3 <nil>
	// ann has 1 <nil>
	// bob has 2 <nil>
	// cid has 3 <nil>
}

// The next sale of the same name is admitted by whoever decides to hold it. Otherwise its entries are refused, as if
// Redis had lost the last sale.
func ExampleMover_Admit() {
	ctx := context.Background()
	_, _, db, end := setup(ctx)
	defer end()
	mover := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	sold := func(epoch int64) []stock.Entry { // what Stock.Ledger hands to Move
		return []stock.Entry{{Epoch: epoch, Serial: 1, Kind: stock.KindGrant, Ordinal: 1, N: 1, Claimant: "ann"}}
	}
	services.Must(mover.Announce(ctx, 1))
	fmt.Println("monday:", mover.Move(ctx, sold(1)))
	fmt.Println("tuesday:", mover.Move(ctx, sold(2)))
	services.Must(mover.Admit(ctx, 2))
	fmt.Println("tuesday:", mover.Move(ctx, sold(2)))
	// Output:
	// monday: <nil>
	// tuesday: redlatchledger: the database does not know this opening: stock "sale", opening 2: the last one that it knows is 1
	// tuesday: <nil>
}

// A customer's units are found by an index, however many others there are.
func ExampleMover_UnitsOf() {
	ctx := context.Background()
	_, _, db, end := setup(ctx)
	defer end()
	mover := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	services.Must(mover.Announce(ctx, 1))
	err := mover.Move(ctx, []stock.Entry{
		{Epoch: 1, Serial: 1, Kind: stock.KindGrant, Ordinal: 1, N: 5, Claimant: "ann", Request: "order 7"},
		{Epoch: 1, Serial: 2, Kind: stock.KindGrant, Ordinal: 6, N: 1, Claimant: "bob"},
		{Epoch: 1, Serial: 3, Kind: stock.KindReturn, Ordinal: 2, N: 1, Claimant: "ann", Request: "order 7"},
	})
	services.Must(err)
	for e, err := range mover.UnitsOf(ctx, 1, "ann") {
		fmt.Println(e.N, "from", e.Ordinal, "by", e.Request, err)
	}
	// Output:
	// 1 from 1 by order 7 <nil>
	// 3 from 3 by order 7 <nil>
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
	server, red, db, end := setup(ctx)
	defer end()
	packet, spec := red.RedPackets().Packet("new-year"), redpacket.Spec{Total: 1000, Shares: 4, Method: redpacket.Equal,
		OpenFor: time.Hour, Ledger: true}
	mover := redlatchledger.PacketMover{DB: db, Dialect: redlatchledger.SQLite, Packet: "new-year",
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
	books, err := mover.Books(ctx, epoch)
	fmt.Println(books.TakenCents, "+", books.RefundCents, "=", books.Total, err)
	// Output:
	// grant ann 250
	// grant bob 250
	// refund  500
	// 500 + 500 = 1000 <nil>
}
