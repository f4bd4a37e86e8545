package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	_ "modernc.org/sqlite"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// schema: each event of a unit is one row, which is written once and never changed. Who has what is a view, so it does not matter
// that a mover is slow, or moves what another one has moved before. Module contrib/ledger does that for any program.
const schema = `
CREATE TABLE IF NOT EXISTS moves (
  stock    text   NOT NULL,
  epoch    bigint NOT NULL,
  ordinal  bigint NOT NULL,
  kind     text   NOT NULL CHECK (kind IN ('grant', 'return')),
  entry    bigint NOT NULL,
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
	insertMove  = `INSERT INTO moves (stock, epoch, ordinal, kind, entry, claimant, request) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	selectEntry = `SELECT entry FROM moves WHERE stock = $1 AND epoch = $2 AND ordinal = $3 AND kind = $4`
	selectUnits = `SELECT ordinal, claimant, request FROM units WHERE stock = $1 ORDER BY ordinal`
	selectMoves = `SELECT kind, entry FROM moves WHERE stock = $1`
)

// errReissued: the server gave out an ordinal twice. A failover lost the first grant.
var errReissued = errors.New("ordinal given out twice")

// orderBooks is the order database. Movers write it, and the final check reads it.
type orderBooks struct{ db *sql.DB }

func openOrders(file string) (*orderBooks, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		db.Close()
		return nil, err
	}
	return &orderBooks{db}, nil
}

func (b *orderBooks) close() { b.db.Close() }

// move writes entries of the ledger, in one transaction. It may get any of them again. Of the kinds it takes those that
// sell units or give them back.
func (b *orderBooks) move(ctx context.Context, name string, entries []stock.Entry) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, e := range entries {
		kind := "grant"
		switch e.Kind {
		case stock.KindReturn:
			kind = "return"
		case stock.KindGrant, stock.KindLate:
		default:
			continue
		}
		for unit := e.Ordinal; unit < e.Ordinal+e.N; unit++ {
			if _, err := tx.ExecContext(ctx, insertMove, name, e.Epoch, unit, kind, e.Serial, e.Claimant, e.Request); err != nil {
				return err
			}
			var entry int64
			if err := tx.QueryRowContext(ctx, selectEntry, name, e.Epoch, unit, kind).Scan(&entry); err != nil {
				return err
			}
			if entry != e.Serial {
				return fmt.Errorf("%w: unit %d, by the entries %d and %d", errReissued, unit, entry, e.Serial)
			}
		}
	}
	return tx.Commit()
}

// unitRow is a unit and who has it.
type unitRow struct {
	Unit        int64
	User, Order string
}

// units are the units that somebody has, by number.
func (b *orderBooks) units(ctx context.Context, name string) (all []unitRow, err error) {
	rows, err := b.db.QueryContext(ctx, selectUnits, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var u unitRow
		if err := rows.Scan(&u.Unit, &u.User, &u.Order); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, rows.Err()
}

// peak is the most units that were sold at one time, by the entries in their order.
func (b *orderBooks) peak(ctx context.Context, name string) (most int64, err error) {
	rows, err := b.db.QueryContext(ctx, selectMoves, name)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	type move struct{ entry, by int64 }
	var all []move
	for rows.Next() {
		var kind string
		var entry int64
		if err := rows.Scan(&kind, &entry); err != nil {
			return 0, err
		}
		m := move{entry, 1}
		if kind == "return" {
			m.by = -1
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(x, y move) int { return cmp.Compare(x.entry, y.entry) })
	sold := int64(0)
	for _, m := range all {
		sold += m.by
		most = max(most, sold)
	}
	return most, rows.Err()
}
