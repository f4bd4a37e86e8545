package main

import (
	"context"
	"database/sql"
	"time"

	_ "modernc.org/sqlite"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// schema is the shop's own table, in the database that has those of the ledger. An order is one row, whose state
// follows the stock.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
  id    text    PRIMARY KEY,
  user  text    NOT NULL,
  state text    NOT NULL,
  unit  bigint  NOT NULL, -- 0 until it is sold
  late  boolean NOT NULL  -- paid when its time was over
);
`

const (
	upsertOrder = `INSERT INTO orders (id, user, state, unit, late) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, unit = max(unit, excluded.unit), late = late OR excluded.late`
	selectOrders = `SELECT id, user, state, unit, late FROM orders ORDER BY id`
	selectMoves  = `SELECT kind, n FROM moves WHERE stock = $1 ORDER BY epoch, serial`
)

// became is what an entry of the ledger makes of its order.
var became = map[stock.Kind]state{
	stock.KindHeld: held, stock.KindExpired: expired, stock.KindCancelled: cancelled,
	stock.KindGrant: sold, stock.KindLate: sold, stock.KindReturn: returned,
}

// orderBooks is the order database. Movers write it, and the final check reads it.
type orderBooks struct {
	db    *sql.DB
	mover redlatchledger.Mover
}

func openOrders(file, name string) (*orderBooks, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if err := redlatchledger.SQLite.Create(context.Background(), db); err != nil {
		db.Close()
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		db.Close()
		return nil, err
	}
	return &orderBooks{db,
		redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: name, Also: enterOrders}}, nil
}

func (b *orderBooks) close() { b.db.Close() }

// keep moves the ledger of sale until ctx ends.
func (b *orderBooks) keep(ctx context.Context, sale *stock.Stock) error {
	return b.mover.Keep(ctx, sale, 50*time.Millisecond)
}

// enterOrders brings the orders up to date. It gets each entry once, in order, in the transaction that writes the
// ledger's own rows; so it may overwrite a state with the next one and need not ask what came before.
func enterOrders(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
	for _, e := range entries {
		s, ok := became[e.Kind]
		if !ok {
			continue // more time for its payment
		}
		if _, err := tx.ExecContext(ctx, upsertOrder, e.Request, e.Claimant, s, e.Ordinal,
			e.Kind == stock.KindLate); err != nil {
			return err
		}
	}
	return nil
}

// orderRow is an order, as the database knows it.
type orderRow struct {
	Order, User string
	State       state
	Unit        int64
	Late        bool
}

// orders are all orders that ever held a unit, by id.
func (b *orderBooks) orders(ctx context.Context) (all []orderRow, err error) {
	rows, err := b.db.QueryContext(ctx, selectOrders)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o orderRow
		if err := rows.Scan(&o.Order, &o.User, &o.State, &o.Unit, &o.Late); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

// peak is the most units that were sold and held at one time: after every single entry of the ledger.
func (b *orderBooks) peak(ctx context.Context) (most int64, err error) {
	rows, err := b.db.QueryContext(ctx, selectMoves, b.mover.Stock)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	out := int64(0)
	for rows.Next() {
		var kind stock.Kind
		var n int64
		if err := rows.Scan(&kind, &n); err != nil {
			return 0, err
		}
		switch kind {
		case stock.KindHeld, stock.KindLate:
			out += n
		case stock.KindExpired, stock.KindCancelled, stock.KindReturn:
			out -= n
		} // a grant was held before: nothing here is sold without a reservation
		most = max(most, out)
	}
	return most, rows.Err()
}
