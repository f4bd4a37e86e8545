package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// schema is SQLite's, and PostgreSQL's except for the view's IF NOT EXISTS. Each unit of an entry is one row, which is written
// once and never changed or deleted. The view shows the present owner of each unit, whatever the order of the rows.
const schema = `
CREATE TABLE IF NOT EXISTS moves (
  stock    text   NOT NULL,
  epoch    bigint NOT NULL,
  ordinal  bigint NOT NULL,
  kind     text   NOT NULL CHECK (kind IN ('grant', 'return')),
  entry    text   NOT NULL, -- the ID of the ledger's entry
  claimant text   NOT NULL,
  request  text   NOT NULL,
  PRIMARY KEY (stock, epoch, ordinal, kind)
);
CREATE VIEW IF NOT EXISTS units AS
  SELECT stock, epoch, ordinal, claimant, request FROM moves g
  WHERE kind = 'grant' AND NOT EXISTS (
    SELECT 1 FROM moves r
    WHERE r.stock = g.stock AND r.epoch = g.epoch AND r.ordinal = g.ordinal AND r.kind = 'return');
`

const (
	insertMove = `INSERT INTO moves (stock, epoch, ordinal, kind, entry, claimant, request) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	carryMoves = `INSERT INTO moves SELECT stock, CAST($1 AS bigint), ordinal, kind, entry, claimant, request FROM moves WHERE stock = $2 AND epoch = $3 ON CONFLICT DO NOTHING`
	selectMove = `SELECT entry, claimant, request FROM moves WHERE stock = $1 AND epoch = $2 AND ordinal = $3 AND kind = $4`
)

// errReissued: the server has given out an ordinal that already has another owner in the database. A failover lost the first
// grant, or the return.
var errReissued = errors.New("ordinal given out twice")

// books is the database into which ledgers are moved.
type books struct{ db *sql.DB }

func openBooks(file string) (*books, error) {
	db, err := sql.Open("sqlite3", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		db.Close()
		return nil, err
	}
	return &books{db}, nil
}

// move is what Ledger calls. It returns nil only after the commit, and then the entries are removed from the stream.
//
// Ledger hands over every entry at least once: again after a crash, and late, when another mover has moved what came after it.
// A row that is there already is left as it is if it is of the same entry. If it is of another, nothing of the batch is
// written and the entries stay in the stream: the stock has to be restored from the database (see entries), and the entry
// that was wrong removed from the stream (XDEL) before the ledger can be moved on.
func (b *books) move(ctx context.Context, name string, entries []stock.Entry) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, e := range entries {
		kind := "grant"
		if e.Back {
			kind = "return"
		}
		for ordinal := e.Ordinal; ordinal < e.Ordinal+e.N; ordinal++ {
			res, err := tx.ExecContext(ctx, insertMove, name, e.Epoch, ordinal, kind, e.ID, e.Claimant, e.Request)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil {
				return err
			} else if n == 1 {
				continue
			}
			var entry, claimant, request string
			if err := tx.QueryRowContext(ctx, selectMove, name, e.Epoch, ordinal, kind).Scan(&entry, &claimant, &request); err != nil {
				return err
			}
			if entry != e.ID || claimant != e.Claimant || request != e.Request {
				return fmt.Errorf("%w: %s of %d of %q: entry %s says %q %q, the database %q %q, by entry %s",
					errReissued, kind, ordinal, name, e.ID, e.Claimant, e.Request, claimant, request, entry)
			}
		}
	}
	return tx.Commit()
}

// carry copies the rows of an opening to the one that goes on with its sale: after a loss of the stock, between Open with
// Spec.Suspended, which answers to, and Restore with the entries of to. What is returned from then on is an entry of to,
// and would be the return of no row of from. Running it twice changes nothing.
func (b *books) carry(ctx context.Context, stock string, from, to int64) error {
	_, err := b.db.ExecContext(ctx, carryMoves, to, stock, from)
	return err
}

// holders is who has which unit of an opening, by ordinal.
func (b *books) holders(ctx context.Context, stock string, epoch int64) (map[int64]string, error) {
	rows, err := b.db.QueryContext(ctx, `SELECT ordinal, claimant FROM units WHERE stock = $1 AND epoch = $2`, stock, epoch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64]string{}
	for rows.Next() {
		var ordinal int64
		var claimant string
		if err := rows.Scan(&ordinal, &claimant); err != nil {
			return nil, err
		}
		all[ordinal] = claimant
	}
	return all, rows.Err()
}

// entries is all that the database knows of an opening, as Restore takes it: the units that are held, and those that were returned.
func (b *books) entries(ctx context.Context, name string, epoch int64) func(yield func(stock.Entry, error) bool) {
	return func(yield func(stock.Entry, error) bool) {
		rows, err := b.db.QueryContext(ctx, `
			SELECT ordinal, claimant, request, 0 FROM units WHERE stock = $1 AND epoch = $2
			UNION ALL SELECT ordinal, claimant, request, 1 FROM moves WHERE stock = $1 AND epoch = $2 AND kind = 'return'`, name, epoch)
		if err != nil {
			yield(stock.Entry{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			e := stock.Entry{N: 1}
			err := rows.Scan(&e.Ordinal, &e.Claimant, &e.Request, &e.Back)
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(stock.Entry{}, err)
		}
	}
}
