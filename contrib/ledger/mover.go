package redlatchledger

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// Mover moves the ledger of one stock into a database. Its fields are not changed while it is used. Several Movers, in
// one process or in many, may move one ledger. A Mover without a required field is refused with
// redlatch.ErrInvalidOption.
type Mover struct {
	// DB has the tables of Dialect.Schema. An SQLite database that several connections write to needs its busy timeout
	// set. Required.
	DB *sql.DB
	// Dialect is the SQL that DB speaks. Required.
	Dialect Dialect
	// Stock is the stock's name in the tables. Required.
	Stock string
	// Also, if set, is called with the entries that are new to the database, in the order of their serials, in the
	// transaction that writes them. What it does with tx is done once for every entry, and an error of it undoes all. It
	// neither commits nor rolls back.
	Also func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error
	// After, if set, is called with all entries of a batch once they are committed, also with those that the database had
	// already: a mover that crashed before this call leaves them on the server, and so they come again. It gets every
	// entry at least once, and what it returns stops nothing. Stock.Publish is such a function, for a live page.
	After func(ctx context.Context, entries []stock.Entry) error
	// Failed, if set, hears of the errors after which Keep goes on, and of After's.
	Failed func(err error)
}

func (m *Mover) book() *book[stock.Entry] {
	return &book[stock.Entry]{names: ofStocks, db: m.DB, dialect: m.Dialect, name: m.Stock, also: m.Also, after: m.After,
		failed: m.Failed,
		row: func(e stock.Entry) row {
			return row{epoch: e.Epoch, serial: e.Serial, kind: string(e.Kind), ordinal: e.Ordinal, n: e.N, claimant: e.Claimant,
				request: e.Request, at: e.At}
		}}
}

func entryOf(r row) stock.Entry {
	return stock.Entry{Epoch: r.epoch, Serial: r.serial, Kind: stock.Kind(r.kind), Ordinal: r.ordinal, N: r.n,
		Claimant: r.claimant, Request: r.request}
}

// Keep moves the ledger of s until ctx ends: at once again while there are entries, and at the interval every (at least
// a millisecond) while there are none, or after an error of the database. It returns ctx's error, ErrHole, ErrReissued,
// or an error of the stock that asking again does not cure, as KeepLedger does. It returns ErrUnknownOpening after it
// has heard it ten times in a row, at the same interval: the program that opened the stock may be about to announce it.
func (m *Mover) Keep(ctx context.Context, s *stock.Stock, every time.Duration) error {
	if s == nil {
		return invalid("s", "nil", "a stock")
	}
	return m.book().keep(ctx, every, s.KeepLedger)
}

// Move writes entries, in the order of their serials, in one transaction, and returns nil once it is committed. It is
// made for Stock.Ledger and Stock.KeepLedger. After an error nothing is written: ErrHole, ErrReissued,
// ErrUnknownOpening, Also's, or the database's. (After an error of the commit it may be written. Then the entries come
// again and change nothing.)
func (m *Mover) Move(ctx context.Context, entries []stock.Entry) error {
	return m.book().move(ctx, entries)
}

// Announce tells the database of the first opening of the stock, which is what Open and OpenOrJoin return. Until then a
// Mover moves nothing. Every process may call it when it has opened or joined the stock: it changes nothing if the
// database knows that opening.
//
// The error is ErrUnknownOpening if it knows only others: the server has lost the stock, and it was opened again
// (see Carry), or this is another sale of the same name (see Admit). Otherwise it is the database's.
func (m *Mover) Announce(ctx context.Context, epoch int64) error {
	return m.book().open(ctx, epoch, false, "")
}

// Admit tells the database of an opening that is another sale of the same name, and none of whose units was sold in an
// earlier one. It is a decision: call it where you decide to sell once more, and never where a process starts. Running
// it again changes nothing.
func (m *Mover) Admit(ctx context.Context, epoch int64) error {
	return m.book().open(ctx, epoch, true, "")
}

// Opened reports whether the database knows of an opening of the stock. It is made for stock.Spec.Opened: then no
// process opens the stock a second time after Redis has lost it.
func (m *Mover) Opened(ctx context.Context) (bool, error) { return m.book().opened(ctx) }

// pastSales are grants and returns, a grant before what was returned of it: "grant" and "late" come before "return" in
// an alphabet. The indices of moves have them in this order.
const (
	pastSales = `SELECT ` + columns +
		` FROM moves WHERE stock = ? AND epoch = ? AND ordinal > 0 AND kind IN ('grant', 'late', 'return') ORDER BY ordinal, kind`
	pastSalesOf = `SELECT ` + columns +
		` FROM moves WHERE stock = ? AND claimant = ? AND epoch = ? AND ordinal > 0 AND kind IN ('grant', 'late', 'return') ORDER BY ordinal, kind`
	decidedNothing = `SELECT ` + columns + ` FROM moves WHERE stock = ? AND epoch = ? AND ordinal = 0 AND kind = 'nothing'`
	lastEntry      = `SELECT next - 1, 'held', 0, 0, '', '' FROM mark WHERE stock = ? AND epoch = ?`
)

// Units reads who has which units of an opening, by ordinal: entries of KindGrant, each a grant or what is left of one,
// without At.
func (m *Mover) Units(ctx context.Context, epoch int64) iter.Seq2[stock.Entry, error] {
	return pieces(m.book().read(ctx, epoch, entryOf, pastSales, m.Stock, epoch), false)
}

// UnitsOf is Units for one claimant. It reads the entries of that claimant and no others, by an index.
func (m *Mover) UnitsOf(ctx context.Context, epoch int64, claimant string) iter.Seq2[stock.Entry, error] {
	return pieces(m.book().read(ctx, epoch, entryOf, pastSalesOf, m.Stock, claimant, epoch), false)
}

// Entries reads what Stock.Restore takes: the units that are sold, those that came back, the ids of which it was
// decided that they get nothing, and the last entry whatever it is, so that the stock's ledger goes on with the next
// number. No one may move the ledger between this and the end of Restore.
func (m *Mover) Entries(ctx context.Context, epoch int64) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		for _, part := range []iter.Seq2[stock.Entry, error]{
			pieces(m.book().read(ctx, epoch, entryOf, pastSales, m.Stock, epoch), true),
			m.book().read(ctx, epoch, entryOf, decidedNothing, m.Stock, epoch),
			m.book().read(ctx, epoch, entryOf, lastEntry, m.Stock, epoch),
		} {
			for e, err := range part {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// pieces yields what is left of each grant: up to each return of a part of it, and after the last. It yields the
// returns, too, if wanted.
func pieces(sales iter.Seq2[stock.Entry, error], returns bool) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		var left stock.Entry // of the last grant, after what was returned
		for e, err := range sales {
			if err != nil {
				yield(stock.Entry{}, err)
				return
			}
			piece := left
			switch past := left.Ordinal + left.N; {
			case e.Kind != stock.KindReturn:
				left, left.Kind = e, stock.KindGrant
			case e.Ordinal < past:
				piece.N = e.Ordinal - left.Ordinal
				left.Ordinal = e.Ordinal + e.N
				left.N = past - left.Ordinal
			default:
				piece.N = 0
			}
			if piece.N > 0 && !yield(piece, nil) || returns && e.Kind == stock.KindReturn && !yield(e, nil) {
				return
			}
		}
		if left.N > 0 {
			yield(left, nil)
		}
	}
}

// carry copies rows with numbers below 0, which no entry has.
const carry = `INSERT INTO moves (stock, epoch, serial, kind, ordinal, n, claimant, request, at)
	SELECT m.stock, m.epoch + ?, m.serial - 9007199254740992, m.kind, m.ordinal, m.n, m.claimant, m.request, m.at
	FROM moves m WHERE m.stock = ? AND m.epoch = ?
	AND NOT EXISTS (SELECT 1 FROM moves c WHERE c.stock = m.stock AND c.epoch = m.epoch + ? AND c.serial = m.serial - 9007199254740992)`

// Carry copies the rows of an opening to the one that goes on with its sale: after the stock was lost, between Open
// with Spec.Suspended, which answers to, and Restore with the Entries of to. What is returned from then on is an entry
// of to, and would be the return of no row of from. The copies have numbers below 0. The entries of to can be moved
// from then on. Running it again changes nothing. ErrUnknownOpening if the database does not know from.
func (m *Mover) Carry(ctx context.Context, from, to int64) error {
	b := m.book()
	if err := b.check(); err != nil {
		return err
	}
	if from == to {
		return invalid("to", to, "another opening than from")
	}
	tx, err := m.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := b.lock(ctx, tx, from); err != nil { // two Carry wait for each other, and no Mover adds to from
		return err
	}
	if _, err := tx.ExecContext(ctx, b.sql(carry), to-from, m.Stock, from, to-from); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return m.Admit(ctx, to)
}
