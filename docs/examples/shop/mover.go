package main

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// The shop's own table is in the database that has the ledger's tables, and follows the ledger.
const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders
		(id varchar(100), item varchar(100), customer text NOT NULL, units bigint NOT NULL, PRIMARY KEY (id, item))`
	addUnits = `INSERT INTO orders VALUES ($1, $2, $3, $4)
		ON CONFLICT (id, item) DO UPDATE SET units = orders.units + excluded.units`
	selectUnits = `SELECT id, item, units FROM orders WHERE units <> 0`
)

// spec says what is sold. Every process of the shop opens the sale with it, or joins the sale that stands.
var spec = stock.Spec{OpenFor: 24 * time.Hour, Ledger: true,
	Items: map[string]stock.Item{"shirt": {Limit: 5, PerUser: 2}, "cap": {Limit: 3}}}

// openOrders opens the order database. The result is the book of the sale: movers write into it, as many as there are
// processes, and Restore makes a lost sale anew from it.
func openOrders(ctx context.Context, file, sale string) (redlatchledger.Book, error) {
	db, err := sql.Open("sqlite3", "file:"+file+"?_pragma=busy_timeout(20000)&_txlock=immediate")
	if err == nil {
		err = redlatchledger.SQLite.Create(ctx, db)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, createOrders)
	}
	return redlatchledger.Book{DB: db, Dialect: redlatchledger.SQLite, Sale: sale, Also: enterOrders}, err
}

// enterOrders brings the orders up to date. It gets each entry once, in order, in the transaction that writes the
// ledger's own rows.
func enterOrders(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
	sign := map[string]int64{"sold": 1, "paid": 1, "late": 1, "returned": -1}
	for _, e := range entries {
		if n := e.N * sign[e.Kind]; n != 0 {
			if _, err := tx.ExecContext(ctx, addUnits, e.ID, e.Item, e.User, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare fails unless the sale, the order database and the bank agree on who has how many units of what.
func compare(ctx context.Context, sale *stock.Sale, orders redlatchledger.Book, b *memoryBank) error {
	for n := 1; n > 0; { // what the movers have left
		var err error
		if n, err = sale.Ledger(ctx, 100, orders.Move); err != nil {
			return err
		}
	}
	onServer, inDatabase := books{}, books{}
	for a, err := range sale.Holders(ctx) {
		if err != nil {
			return err
		}
		for _, l := range a.Lines {
			if a.State == stock.Sold {
				onServer.add(a.ID, l.Item, l.N)
			}
		}
	}
	rows, err := orders.DB.QueryContext(ctx, selectUnits)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var of account
		var n int64
		if err := rows.Scan(&of.order, &of.item, &n); err != nil {
			return err
		}
		inDatabase[of] = n
	}
	if kept := b.kept(); !maps.Equal(onServer, kept) || !maps.Equal(inDatabase, kept) {
		return fmt.Errorf("the sale has sold %v, the database has %v, and the bank has the money for %v", onServer,
			inDatabase, kept)
	}
	return rows.Err()
}
