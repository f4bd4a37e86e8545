package redlatchledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// A sale moves into a database. Then Redis loses it all, and the database has it sold on.
func ExampleMover() {
	ctx := context.Background()
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	red, err := redlatch.Open(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true}, redlatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)
	dir, err := os.MkdirTemp("", "sale")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "sale.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(redlatchledger.SQLite + `CREATE TABLE orders (epoch bigint, serial bigint, customer text)`); err != nil {
		log.Fatal(err)
	}

	sale, spec := red.Stocks().Stock("sale"), stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true}
	mover := redlatchledger.Mover{DB: db, Stock: "sale", After: sale.Publish, Also: func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
		for _, e := range entries {
			if e.Kind == stock.KindGrant { // each exactly once
				if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1, $2, $3)`, e.Epoch, e.Serial, e.Claimant); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	spec.Opened = mover.Opened // so that nobody opens it again when Redis has lost it
	epoch, err := sale.Open(ctx, spec)
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob"} {
		if _, err := sale.Claim(ctx, user); err != nil {
			log.Fatal(err)
		}
	}
	n, err := sale.Ledger(ctx, 1000, mover.Move)
	fmt.Println("moved", n, err)
	keeping, stop := context.WithCancel(ctx)
	stop() // a program keeps it until it ends
	fmt.Println(mover.Keep(keeping, sale, time.Second))

	server.FlushAll()
	_, err = sale.OpenOrJoin(ctx, spec)
	fmt.Println("lost:", errors.Is(err, stock.ErrCorrupt))
	spec.Suspended, spec.Opened = true, nil
	again, err := sale.Open(ctx, spec)
	if err != nil {
		log.Fatal(err)
	}
	if err := mover.Carry(ctx, epoch, again); err != nil {
		log.Fatal(err)
	}
	if _, err := sale.Restore(ctx, mover.Entries(ctx, again)); err != nil {
		log.Fatal(err)
	}
	g, err := sale.Claim(ctx, "cid")
	fmt.Println("cid", g.Outcome, g.Ordinal, err)
	if _, err := sale.Ledger(ctx, 1000, mover.Move); err != nil {
		log.Fatal(err)
	}
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

// The next sale of the same name is announced: without Admit its entries are ErrReopened, as if Redis had lost the last sale.
func ExampleMover_Admit() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sale")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "sale.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(redlatchledger.SQLite); err != nil {
		log.Fatal(err)
	}
	mover := redlatchledger.Mover{DB: db, Stock: "sale"}
	sold := func(epoch int64) []stock.Entry { // what Stock.Ledger hands to Move
		return []stock.Entry{{Epoch: epoch, Serial: 1, Kind: stock.KindGrant, Ordinal: 1, N: 1, Claimant: "ann"}}
	}
	fmt.Println("monday:", mover.Move(ctx, sold(1)))
	fmt.Println("tuesday:", errors.Is(mover.Move(ctx, sold(2)), redlatchledger.ErrReopened))
	if err := mover.Admit(ctx, 2); err != nil {
		log.Fatal(err)
	}
	fmt.Println("tuesday:", mover.Move(ctx, sold(2)))
	// Output:
	// monday: <nil>
	// tuesday: true
	// tuesday: <nil>
}
