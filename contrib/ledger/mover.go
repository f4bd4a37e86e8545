package redlatchledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

var (
	// ErrHole: entries between the last one in the database and the first one of the ledger are nowhere.
	ErrHole = errors.New("redlatchledger: entries are missing")
	// ErrReissued: the database has another entry under the number of one of the ledger's.
	ErrReissued = errors.New("redlatchledger: a serial was given twice")
	// ErrReopened: the ledger is that of an opening that the database does not know, and it knows an earlier one of the same stock. If
	// the stock was lost and opened anew, its units are being sold a second time: pause it, and see Mover.Carry. If it is another
	// sale of the same name, see Mover.Admit.
	ErrReopened = errors.New("redlatchledger: the stock was opened again")
)

// Mover moves the ledger of one stock into a database. Its fields are not changed while it is used. Several Movers, in
// one process or in many, may move one ledger.
type Mover struct {
	// DB has the tables of SQLite or PostgreSQL. An SQLite database that several connections write to needs its busy timeout set.
	// Required.
	DB *sql.DB
	// Stock is the stock's name in the tables. Required.
	Stock string
	// Also, if set, is called with the entries that are new to the database, in the order of their serials, in the transaction that
	// writes them. What it does with tx is done once for every entry, and an error of it undoes all. It neither commits nor rolls
	// back.
	Also func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error
	// After, if set, is called with all entries of a batch once they are committed, also with those that the database had already: a
	// mover that crashed before this call leaves them on the server, and so they come again. It gets every entry at least once, and
	// what it returns stops nothing. Stock.Publish is such a function, for a live page.
	After func(ctx context.Context, entries []stock.Entry) error
	// Failed, if set, hears of the errors after which Keep goes on, and of After's.
	Failed func(err error)
}

// batch is how many entries Keep moves in one transaction.
const batch = 500

// Keep moves the ledger of s until ctx ends: at once again while there are entries, and at the interval every (at least a millisecond)
// while there are none, or after an error of the database. It returns ctx's error, ErrHole, ErrReissued, ErrReopened, or an error of the
// stock that asking again does not cure, as KeepLedger does.
func (m *Mover) Keep(ctx context.Context, s *stock.Stock, every time.Duration) error {
	for {
		var theirs error
		err := s.KeepLedger(ctx, every, batch, func(ctx context.Context, entries []stock.Entry) error {
			theirs = m.Move(ctx, entries)
			return theirs
		})
		if theirs == nil || ctx.Err() != nil || errors.Is(theirs, ErrHole) || errors.Is(theirs, ErrReissued) || errors.Is(theirs, ErrReopened) {
			return err
		}
		if m.Failed != nil {
			m.Failed(theirs)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// Move writes entries, in the order of their serials, in one transaction, and returns nil once it is committed. It is made for
// Stock.Ledger and Stock.KeepLedger. After an error nothing is written: ErrHole, ErrReissued, ErrReopened, Also's, or the database's. (After an error
// of the commit it may be written. Then the entries come again and change nothing.)
func (m *Mover) Move(ctx context.Context, entries []stock.Entry) error {
	if err := m.commit(ctx, entries); err != nil {
		return err
	}
	if m.After != nil {
		if err := m.After(ctx, entries); err != nil && m.Failed != nil {
			m.Failed(err)
		}
	}
	return nil
}

func (m *Mover) commit(ctx context.Context, entries []stock.Entry) error {
	tx, err := m.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var fresh []stock.Entry
	for len(entries) > 0 { // each opening by itself
		n := 1
		for n < len(entries) && entries[n].Epoch == entries[0].Epoch {
			n++
		}
		some, err := m.move(ctx, tx, entries[:n])
		if err != nil {
			return err
		}
		fresh, entries = append(fresh, some...), entries[n:]
	}
	if m.Also != nil && len(fresh) > 0 {
		if err := m.Also(ctx, tx, fresh); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// The first statement of a transaction reads the mark and locks it: PostgreSQL's row, SQLite's database. So movers wait for each other,
// and the one that comes second sees what the first has written. The parameters come first in the order of their numbers: for SQLite
// $1 is a name, of the parameter that comes first.
const (
	// It makes the mark of the first opening only: see Admit.
	lockMark = `INSERT INTO mark (stock, epoch, next) SELECT CAST($1 AS text), CAST($2 AS bigint), 1
		WHERE NOT EXISTS (SELECT 1 FROM mark WHERE stock = $1 AND epoch <> $2) OR EXISTS (SELECT 1 FROM mark WHERE stock = $1 AND epoch = $2)
		ON CONFLICT (stock, epoch) DO UPDATE SET next = mark.next RETURNING next`
	newMark   = `INSERT INTO mark (stock, epoch, next) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING`
	raiseMark = `UPDATE mark SET next = $1 WHERE stock = $2 AND epoch = $3`
	pastMoves = `SELECT serial, kind, ordinal, n, claimant, request FROM moves WHERE stock = $1 AND epoch = $2 AND serial BETWEEN $3 AND $4 ORDER BY serial`
)

// move writes entries of one opening, and returns those that are new.
func (m *Mover) move(ctx context.Context, tx *sql.Tx, entries []stock.Entry) ([]stock.Entry, error) {
	first, epoch := entries[0].Serial, entries[0].Epoch
	for i, e := range entries {
		if e.Serial != first+int64(i) {
			return nil, fmt.Errorf("%w: %q, opening %d: entry %d comes after %d", ErrHole, m.Stock, epoch, e.Serial, entries[i-1].Serial)
		}
	}
	var next int64
	switch err := tx.QueryRowContext(ctx, lockMark, m.Stock, epoch).Scan(&next); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("%w: %q, opening %d", ErrReopened, m.Stock, epoch)
	case err != nil:
		return nil, err
	}
	if first > next {
		return nil, fmt.Errorf("%w: %q, opening %d: entries %d to %d", ErrHole, m.Stock, epoch, next, first-1)
	}
	past := min(next-first, int64(len(entries)))
	if err := m.compare(ctx, tx, entries[:past]); err != nil {
		return nil, err
	}
	fresh := entries[past:]
	if len(fresh) == 0 {
		return nil, nil
	}
	for rest := fresh; len(rest) > 0; {
		n := min(len(rest), 50)
		if err := m.insert(ctx, tx, rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	_, err := tx.ExecContext(ctx, raiseMark, fresh[len(fresh)-1].Serial+1, m.Stock, epoch)
	return fresh, err
}

// compare reports whether the database has these entries, as they are but for their times: a claim that a failover forgot and that was
// repeated may have the same number again, and tells the same.
func (m *Mover) compare(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	rows, err := tx.QueryContext(ctx, pastMoves, m.Stock, entries[0].Epoch, entries[0].Serial, entries[len(entries)-1].Serial)
	if err != nil {
		return err
	}
	defer rows.Close()
	for _, e := range entries {
		was := stock.Entry{Epoch: e.Epoch, At: e.At}
		if rows.Next() {
			if err := rows.Scan(&was.Serial, &was.Kind, &was.Ordinal, &was.N, &was.Claimant, &was.Request); err != nil {
				return err
			}
		} else if err := rows.Err(); err != nil {
			return err
		}
		if was.Serial != e.Serial {
			return fmt.Errorf("%w: %q, opening %d: the database has entry %d no more", ErrHole, m.Stock, e.Epoch, e.Serial)
		}
		if was != e {
			return fmt.Errorf("%w: %q, opening %d, entry %d: the ledger says %s, the database %s", ErrReissued, m.Stock, e.Epoch, e.Serial, text(e), text(was))
		}
	}
	return rows.Close()
}

func text(e stock.Entry) string {
	return fmt.Sprintf("%s of %d units from %d, %.64q %.64q", e.Kind, e.N, e.Ordinal, e.Claimant, e.Request)
}

func (m *Mover) insert(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
	var sql strings.Builder
	sql.WriteString(`INSERT INTO moves (stock, epoch, serial, kind, ordinal, n, claimant, request, at) VALUES `)
	var args []any
	for i, e := range entries {
		if i > 0 {
			sql.WriteByte(',')
		}
		k := 9 * i
		fmt.Fprintf(&sql, "($%d,$%d,$%d,$%d,$%d,$%d,$%d,$%d,$%d)", k+1, k+2, k+3, k+4, k+5, k+6, k+7, k+8, k+9)
		args = append(args, m.Stock, e.Epoch, e.Serial, string(e.Kind), e.Ordinal, e.N, e.Claimant, e.Request, e.At.UnixMicro())
	}
	_, err := tx.ExecContext(ctx, sql.String(), args...)
	return err
}

// Units reads who has which units of an opening, by ordinal: entries of KindGrant, each a grant or what is left of one.
func (m *Mover) Units(ctx context.Context, epoch int64) iter.Seq2[stock.Entry, error] {
	return m.read(ctx, `SELECT serial, 'grant', ordinal, n, claimant, request FROM units WHERE stock = $1 AND epoch = $2 ORDER BY ordinal`, epoch)
}

// Entries reads what Stock.Restore takes: the units that are sold, those that came back, and the last entry whatever it is, so that the
// stock's ledger goes on with the next number. Nobody may move the ledger between this and the end of Restore.
func (m *Mover) Entries(ctx context.Context, epoch int64) iter.Seq2[stock.Entry, error] {
	return m.read(ctx, `
		SELECT serial, 'grant', ordinal, n, claimant, request FROM units WHERE stock = $1 AND epoch = $2
		UNION ALL SELECT serial, kind, ordinal, n, claimant, request FROM moves WHERE stock = $1 AND epoch = $2 AND kind = 'return'
		UNION ALL SELECT next - 1, 'held', 0, 0, '', '' FROM mark WHERE stock = $1 AND epoch = $2`, epoch)
}

func (m *Mover) read(ctx context.Context, query string, epoch int64) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		rows, err := m.DB.QueryContext(ctx, query, m.Stock, epoch)
		if err != nil {
			yield(stock.Entry{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			e := stock.Entry{Epoch: epoch}
			err := rows.Scan(&e.Serial, &e.Kind, &e.Ordinal, &e.N, &e.Claimant, &e.Request)
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(stock.Entry{}, err)
		}
	}
}

// Carry copies the rows of an opening to the one that goes on with its sale: after the stock was lost, between Open with Spec.Suspended,
// which answers to, and Restore with the Entries of to. What is returned from then on is an entry of to, and would be the return of no
// row of from. The copies have numbers below 0. The entries of to can be moved from then on. Running it again changes nothing.
func (m *Mover) Carry(ctx context.Context, from, to int64) error {
	if from == to {
		return fmt.Errorf("redlatchledger: from and to are both %d, must be two openings", from)
	}
	if _, err := m.DB.ExecContext(ctx, `INSERT INTO moves (stock, epoch, serial, kind, ordinal, n, claimant, request, at)
		SELECT stock, CAST($1 AS bigint), serial - 9007199254740992, kind, ordinal, n, claimant, request, at FROM moves WHERE stock = $2 AND epoch = $3
		ON CONFLICT DO NOTHING`, to, m.Stock, from); err != nil {
		return err
	}
	return m.Admit(ctx, to)
}

// Opened reports whether the database knows of an opening of the stock. It is made for stock.Spec.Opened: then no process opens the stock
// a second time after Redis has lost it.
func (m *Mover) Opened(ctx context.Context) (bool, error) {
	var n int64
	err := m.DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM mark WHERE stock = $1`, m.Stock).Scan(&n)
	return n > 0, err
}

// Admit tells the database of an opening that is another sale of the same name, and none of whose units was sold in an earlier one. The
// first opening needs no Admit. Without it, the entries of every later one are ErrReopened, as if the stock had been lost. Running it
// again changes nothing.
func (m *Mover) Admit(ctx context.Context, epoch int64) error {
	_, err := m.DB.ExecContext(ctx, newMark, m.Stock, epoch)
	return err
}
