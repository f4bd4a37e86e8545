package redlatchledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

const (
	// batch is how many entries Keep moves in one transaction.
	batch = 500
	// maxText is the longest text in bytes: as long as an id may be, and as MySQL's columns.
	maxText = 1024
)

// tables are those of sales, or those of red packets. E is an entry of theirs.
type tables[E any] struct {
	heads   string // the table with a row for each sale or packet: the opening whose entries it takes, its last serial
	entries string // the table with a row for each entry
	name    string // the column with the name of the sale or packet
	columns string // the other columns of entries
	create  string // a statement that makes the row of heads if there is none; "": see Announce

	fields func(*E) []any // the fields of an entry, as the columns
	number func(*E) (epoch, serial int64)
	at     func(*E) *time.Time
}

// micros is the column of an instant: microseconds since 1970, or 0 for none.
type micros struct{ *time.Time }

// Value is for INSERT.
func (m micros) Value() (driver.Value, error) {
	if m.IsZero() {
		return int64(0), nil
	}
	return m.UnixMicro(), nil
}

// Scan is for SELECT.
func (m micros) Scan(value any) error {
	var us sql.NullInt64
	err := us.Scan(value)
	if us.Int64 != 0 {
		*m.Time = time.UnixMicro(us.Int64).UTC()
	}
	return err
}

// ledger is the ledger of one sale or packet, as its database has it.
type ledger[E comparable] struct {
	tables[E]
	db      *sql.DB
	dialect Dialect
	of      string // the name of the sale or packet
	also    func(ctx context.Context, tx *sql.Tx, entries []E) error
	after   func(ctx context.Context, entries []E) error
	failed  func(err error)
	balance func(ctx context.Context, tx *sql.Tx, fresh []E) error // if set, may refuse entries
	missing error                                                  // of KeepLedger; Keep goes on after it
}

func (l *ledger[E]) check() error {
	field := strings.ToUpper(l.name[:1]) + l.name[1:]
	switch {
	case l.db == nil:
		return invalid("DB", "nil", "a database")
	case l.of == "":
		return invalid(field, `""`, "the name of the "+l.name)
	case len(l.of) > maxText: // no database has an index on it
		return invalid(field, fmt.Sprintf("of %d bytes", len(l.of)), fmt.Sprintf("at most %d", maxText))
	}
	return l.dialect.check()
}

// sql writes the names of tables and columns into a query.
func (l *ledger[E]) sql(query string) string {
	return l.dialect.bind(strings.NewReplacer("{heads}", l.heads, "{entries}", l.entries, "{name}", l.name, "{columns}",
		l.columns).Replace(query))
}

// keep runs a KeepLedger with move, again and again.
func (l *ledger[E]) keep(ctx context.Context, every time.Duration,
	run func(ctx context.Context, every time.Duration, most int, fn func(context.Context, []E) error) error) error {
	if err := l.check(); err != nil {
		return err
	}
	for {
		var refused error
		err := run(ctx, every, batch, func(ctx context.Context, entries []E) error {
			refused = l.move(ctx, entries)
			return refused
		})
		if ctx.Err() != nil || refused == nil && !errors.Is(err, l.missing) || lasting(refused) {
			return err
		}
		l.report(ctx, err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// lasting reports whether err is one that trying again does not cure.
func lasting(err error) bool { return errors.Is(err, ErrHole) || errors.Is(err, ErrUnbalanced) }

// report hands an error that stops nothing to the owner of the ledger.
func (l *ledger[E]) report(ctx context.Context, err error) {
	if l.failed != nil {
		l.failed(err)
		return
	}
	slog.WarnContext(ctx, "redlatchledger: a ledger could not be moved; trying again", l.name, l.of, "err", err)
}

func (l *ledger[E]) move(ctx context.Context, entries []E) error {
	if err := l.check(); err != nil || len(entries) == 0 {
		return err
	}
	err := l.inTx(ctx, func(tx *sql.Tx, epoch, last int64) error {
		fresh, err := l.write(ctx, tx, epoch, last, entries)
		if err != nil || l.also == nil || len(fresh) == 0 {
			return err
		}
		return l.also(ctx, tx, fresh)
	})
	if err != nil {
		return err
	}
	if l.after != nil {
		if err := l.after(ctx, entries); err != nil {
			l.report(ctx, err)
		}
	}
	return nil
}

// inTx runs do in a transaction, with what begin returns.
func (l *ledger[E]) inTx(ctx context.Context, do func(tx *sql.Tx, epoch, last int64) error) error {
	if l.create != "" { // before the transaction: if one of several that insert a row rolls back, MySQL finds a deadlock
		if _, err := l.db.ExecContext(ctx, l.sql(l.create), l.of); err != nil {
			return err
		}
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	epoch, last, err := l.begin(ctx, tx)
	if err != nil {
		return err
	}
	if err := do(tx, epoch, last); err != nil {
		return err
	}
	return tx.Commit()
}

// begin has other transactions on this ledger wait for tx. The result is the opening whose entries the ledger takes,
// 0 for any, and the last serial that it has. What tx reads afterwards is not older: MySQL takes its snapshot with the
// first read that locks nothing.
func (l *ledger[E]) begin(ctx context.Context, tx *sql.Tx) (epoch, last int64, err error) {
	query := `SELECT epoch, last_serial FROM {heads} WHERE {name} = ?`
	if l.dialect == SQLite { // a write locks the database, also of no row
		_, err = tx.ExecContext(ctx, l.sql(`UPDATE {heads} SET epoch = epoch WHERE {name} = ?`), l.of)
	} else {
		query += ` FOR UPDATE`
	}
	if err == nil {
		err = tx.QueryRowContext(ctx, l.sql(query), l.of).Scan(&epoch, &last)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = l.mismatch("the database knows no %s of this name; see Announce", l.name)
	}
	return epoch, last, err
}

func (l *ledger[E]) mismatch(format string, args ...any) error {
	return fmt.Errorf("redlatchledger: %w: %q: "+format, append([]any{redlatch.ErrMismatch, l.of}, args...)...)
}

func (l *ledger[E]) hole(serial int64) error {
	return fmt.Errorf("%w: %q, entry %d", ErrHole, l.of, serial)
}

// write writes the entries that the database does not have, and returns them. takes and last are what begin returned.
func (l *ledger[E]) write(ctx context.Context, tx *sql.Tx, takes, last int64, entries []E) (fresh []E, err error) {
	_, first := l.number(&entries[0])
	past := 0
	for i := range entries {
		switch epoch, serial := l.number(&entries[i]); {
		case serial > last && takes != 0 && epoch != takes:
			return nil, l.mismatch("entry %d is of opening %d, and the database takes those of %d", serial, epoch, takes)
		case serial != first+int64(i) || first > last+1:
			return nil, l.hole(min(first, last+1) + int64(i))
		case serial > last:
			takes = epoch
		default:
			past++
		}
	}
	if err := l.compare(ctx, tx, entries[:past]); err != nil {
		return nil, err
	}
	fresh = entries[past:]
	if len(fresh) == 0 {
		return nil, nil
	}
	for some := range slices.Chunk(fresh, 50) {
		if err := l.insert(ctx, tx, some); err != nil {
			return nil, err
		}
	}
	if l.balance != nil {
		if err := l.balance(ctx, tx, fresh); err != nil {
			return nil, err
		}
	}
	return fresh, l.end(ctx, tx, takes, last+int64(len(fresh)))
}

// compare reports whether the database has these entries. Their times may differ: an act that a failover forgot and
// that was repeated may have the same serial again, and says the same.
func (l *ledger[E]) compare(ctx context.Context, tx *sql.Tx, entries []E) error {
	if len(entries) == 0 {
		return nil
	}
	_, first := l.number(&entries[0])
	next := 0
	for was, err := range l.query(ctx, tx, selectEntries+`{name} = ? AND serial BETWEEN ? AND ? ORDER BY serial`, l.of,
		first, first+int64(len(entries))-1) {
		if err != nil {
			return err
		}
		is := entries[next]
		if _, serial := l.number(&was); serial != first+int64(next) {
			break
		}
		if *l.at(&was) = *l.at(&is); was != is {
			return l.mismatch("the database has %+v, not %+v", was, is)
		}
		next++
	}
	if next < len(entries) {
		return l.hole(first + int64(next))
	}
	return nil
}

func (l *ledger[E]) insert(ctx context.Context, tx *sql.Tx, entries []E) error {
	var args []any
	for i := range entries {
		args = append(append(args, l.of), l.fields(&entries[i])...)
	}
	row := ", (?" + strings.Repeat(", ?", len(args)/len(entries)-1) + ")"
	_, err := tx.ExecContext(ctx, l.sql(`INSERT INTO {entries} ({name}, {columns}) VALUES `+
		strings.Repeat(row, len(entries))[2:]), args...)
	return err
}

// end writes what begin read.
func (l *ledger[E]) end(ctx context.Context, tx *sql.Tx, epoch, last int64) error {
	_, err := tx.ExecContext(ctx, l.sql(`UPDATE {heads} SET epoch = ?, last_serial = ? WHERE {name} = ?`), epoch, last,
		l.of)
	return err
}

// opened is the opening whose entries the database takes, or 0.
func (l *ledger[E]) opened(ctx context.Context) (epoch int64, err error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	err = l.db.QueryRowContext(ctx, l.sql(`SELECT epoch FROM {heads} WHERE {name} = ?`), l.of).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return epoch, err
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

const selectEntries = `SELECT {columns} FROM {entries} WHERE `

// query yields what a query returns, with the columns of entries.
func (l *ledger[E]) query(ctx context.Context, q querier, query string, args ...any) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		if err := l.check(); err != nil {
			yield(none, err)
			return
		}
		rows, err := q.QueryContext(ctx, l.sql(query), args...)
		if err != nil {
			yield(none, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var e E
			if err := rows.Scan(l.fields(&e)...); err != nil {
				yield(none, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, err)
		}
	}
}

// collect is all that entries yields.
func collect[E any](entries iter.Seq2[E, error]) (all []E, err error) {
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
