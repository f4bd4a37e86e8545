package redlatchledger

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// Book is the ledger of one sale in a database: a stock.Book. Its fields are not changed while it is used. Several
// Books, in one process or in many, may move one ledger. A Book without a required field is refused with
// redlatch.ErrInvalidOption.
type Book struct {
	// DB has the tables of Dialect.Schema. An SQLite database that several connections write to needs its busy timeout
	// set. Required.
	DB *sql.DB
	// Dialect is the SQL that DB speaks. Required.
	Dialect Dialect
	// Sale is the name of the sale. A book has one sale of a name: the next sale has another one. Required.
	Sale string
	// Also, if set, is called with the entries that are new to the database, in the order of their serials, in the
	// transaction that writes them. What it does with tx is done once for every entry, and an error of it undoes all. It
	// neither commits nor rolls back.
	Also func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error
	// After, if set, is called with all entries of Move once they are committed, also with those that the database had
	// already: a mover that crashed before this call leaves them on the server, and so they come again. After gets every
	// entry at least once, and its error stops nothing. Live.Publish is such a function.
	After func(ctx context.Context, entries []stock.Entry) error
	// Failed, if set, is called with the errors after which Keep goes on, and with those of After. Defaults to a line of
	// slog.Default() for each.
	Failed func(err error)
}

var _ stock.Book = Book{}

func (b Book) ledger() *ledger[stock.Entry] {
	return &ledger[stock.Entry]{db: b.DB, dialect: b.Dialect, of: b.Sale, also: b.Also, after: b.After, failed: b.Failed,
		missing: stock.ErrNoStock,
		tables: tables[stock.Entry]{heads: "sales", entries: "sale_entries", name: "sale",
			columns: `serial, epoch, kind, order_id, user_id, item, asked, n, ordinal, at, until, why`,
			create:  `INSERT INTO sales (sale, epoch, last_serial) VALUES (?, 0, 0)` + b.Dialect.unlessThere("sale"),
			fields: func(e *stock.Entry) []any {
				return []any{&e.Serial, &e.Epoch, &e.Kind, &e.ID, &e.User, &e.Item, &e.Asked, &e.N, &e.Ordinal, micros{&e.At},
					micros{&e.Until}, &e.Why}
			},
			number: func(e *stock.Entry) (epoch, serial int64) { return e.Epoch, e.Serial },
			at:     func(e *stock.Entry) *time.Time { return &e.At }}}
}

// Keep moves the ledger of s until ctx ends: at once again while there are entries, and at the interval every (at least
// a millisecond) while there are none. Keep goes on after every error of Move but ErrHole, and while the server does
// not have the sale: Restore mends that, and no mover is stopped for it. The result is ctx's error, ErrHole, or an
// error of the sale that asking again does not cure.
func (b Book) Keep(ctx context.Context, s *stock.Sale, every time.Duration) error {
	if s == nil {
		return invalid("s", "nil", "a sale")
	}
	return b.ledger().keep(ctx, every, s.KeepLedger)
}

// Move writes entries, in the order of their serials, in one transaction, and returns nil once it is committed. Entries
// that the database has change nothing. Move is made for Sale.Ledger and Sale.KeepLedger.
//
// After an error nothing is written: redlatch.ErrMismatch if the database has other entries under their serials, or
// takes those of another opening, which Restore mends; ErrHole; Also's; or the database's. After an error of the commit
// they may be written. Then they come again and change nothing.
func (b Book) Move(ctx context.Context, entries []stock.Entry) error {
	return b.ledger().move(ctx, entries)
}

// Opened is the opening whose entries the database takes; 0: it knows none.
func (b Book) Opened(ctx context.Context) (epoch int64, err error) { return b.ledger().opened(ctx) }

// Continue has Move refuse entries of the opening from, from now on, and take those of to: Sale.Open and Sale.Restore
// call it. The error is redlatch.ErrMismatch if Opened is not from.
func (b Book) Continue(ctx context.Context, from, to int64) (last int64, err error) {
	l := b.ledger()
	if err := l.check(); err != nil {
		return 0, err
	}
	err = l.inTx(ctx, func(tx *sql.Tx, takes, serial int64) error {
		if takes != from {
			return l.mismatch("the database takes entries of opening %d, not %d", takes, from)
		}
		last = serial
		return l.end(ctx, tx, to, last)
	})
	return last, err
}

// Entries yields all entries of the sale, by serial.
func (b Book) Entries(ctx context.Context) iter.Seq2[stock.Entry, error] {
	return b.ledger().query(ctx, b.DB, selectEntries+`{name} = ? ORDER BY serial`, b.Sale)
}

// Order returns the entries of one order, by serial. They are found by an index.
func (b Book) Order(ctx context.Context, id string) ([]stock.Entry, error) {
	return collect(b.ledger().query(ctx, b.DB, selectEntries+`{name} = ? AND order_id = ? ORDER BY serial`, b.Sale, id))
}

// unitsOf is a row of sale_units as an entry.
const unitsOf = `SELECT 0, 0, 'sold', order_id, user_id, item, 0, n, ordinal, 0, 0, '' FROM sale_units
	WHERE sale = ? AND user_id = ? ORDER BY item, ordinal`

// UnitsOf returns what a user has: an entry of the kind sold for each order and item, with ID, User, Item, N and
// Ordinal. They are found by an index.
func (b Book) UnitsOf(ctx context.Context, user string) ([]stock.Entry, error) {
	return collect(b.ledger().query(ctx, b.DB, unitsOf, b.Sale, user))
}
