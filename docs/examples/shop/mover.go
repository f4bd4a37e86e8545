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

// The shop's own table is in the database that has the ledger's tables. The state of an order follows the stock.
const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, user text NOT NULL, state text NOT NULL)`
	upsertOrder  = `INSERT INTO orders VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET state = excluded.state`
	loseHolds    = `UPDATE orders SET state = $1 WHERE state = $2`
	selectSold   = `SELECT id FROM orders WHERE state = $1`
)

// became is what an entry of the ledger makes of its order.
var became = map[stock.Kind]state{
	stock.KindHeld: held, stock.KindExpired: expired, stock.KindCancelled: cancelled,
	stock.KindGrant: sold, stock.KindLate: sold, stock.KindReturn: returned,
}

// openOrders opens the order database, and returns a mover that writes into it. Several movers may run side by side.
func openOrders(ctx context.Context, file, name string) (*redlatchledger.Mover, error) {
	db, err := sql.Open("sqlite3", "file:"+file+"?_pragma=busy_timeout(20000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if err := redlatchledger.SQLite.Create(ctx, db); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, createOrders)
	return &redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: name, Also: enterOrders}, err
}

// enterOrders brings the orders up to date. It gets each entry once, in order, in the transaction that writes the
// ledger's own rows. So it may overwrite a state with the next one, and need not ask for the one before.
func enterOrders(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
	for _, e := range entries {
		if s, ok := became[e.Kind]; ok {
			if _, err := tx.ExecContext(ctx, upsertOrder, e.Request, e.Claimant, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// openSale opens the stock for the first time, and announces it to the database: otherwise no mover writes what it
// sells. It does not open a stock that the database knows and Redis has lost: see restore.
func openSale(ctx context.Context, sale *stock.Stock, orders *redlatchledger.Mover, units int64) (epoch int64,
	err error) {
	spec := spec(units)
	spec.Opened = orders.Opened
	now, err := sale.OpenOrJoin(ctx, spec)
	if err != nil {
		return 0, err
	}
	return now.Epoch, orders.Announce(ctx, now.Epoch)
}

func spec(units int64) stock.Spec {
	return stock.Spec{Limit: units, OpenFor: 24 * time.Hour, Ledger: true}
}

// suspend is the operator's first step after Redis has lost the stock: it is opened, and grants nothing.
func suspend(ctx context.Context, sale *stock.Stock, units int64) (epoch int64, err error) {
	spec := spec(units)
	spec.Suspended = true
	return sale.Open(ctx, spec)
}

// restore is the second step: the rows of the database are carried over to the new opening, and the stock gets what is
// sold from them. Reservations are lost: a payment for one of them goes back. The movers may run on, because the ledger
// stays empty until Restore has ended.
func restore(ctx context.Context, sale *stock.Stock, orders *redlatchledger.Mover, from, to int64) error {
	if err := orders.Carry(ctx, from, to); err != nil {
		return err
	}
	if _, err := orders.DB.ExecContext(ctx, loseHolds, expired, held); err != nil {
		return err
	}
	_, err := sale.Restore(ctx, orders.Entries(ctx, to))
	return err
}

// compare fails unless the stock, the order database and the bank agree on the orders that are sold.
func compare(ctx context.Context, sale *stock.Stock, orders *redlatchledger.Mover, b *bank) error {
	for n := 1; n > 0; { // what the movers have left
		var err error
		if n, err = sale.Ledger(ctx, 100, orders.Move); err != nil {
			return err
		}
	}
	rows, err := orders.DB.QueryContext(ctx, selectSold, sold)
	if err != nil {
		return err
	}
	defer rows.Close()
	inDatabase := map[string]bool{}
	for rows.Next() {
		var order string
		if err := rows.Scan(&order); err != nil {
			return err
		}
		inDatabase[order] = true
	}
	now, err := sale.Inspect(ctx)
	if err != nil {
		return err
	}
	if kept := b.kept(); !maps.Equal(inDatabase, kept) || now.Sold != int64(len(kept)) {
		return fmt.Errorf("the stock has sold %d, the database %v, and the bank has the money of %v", now.Sold,
			inDatabase, kept)
	}
	return rows.Err()
}
