package redlatchledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// batch is how many entries Keep moves in one transaction.
const batch = 500

// announcing is how many times Keep asks whether an opening is known before it ends with ErrUnknownOpening: the program
// that opens a stock tells the database of it a moment later, and a unit may be sold in between.
const announcing = 10

// maxText is the longest text in bytes: as long as a claimant or an id may be, and as MySQL's columns.
const maxText = 1024

// row is an entry of a ledger as its table has it: request is a column of moves, cents one of shares.
type row struct {
	epoch, serial int64
	kind          string
	ordinal, n    int64
	claimant      string
	request       string
	cents         int64
	at            time.Time
}

// names are those of the stocks, or those of the red packets.
type names struct {
	moves, mark string // tables
	object      string // the column that names the stock or packet
	last        string // the column that the other has not
}

var (
	ofStocks  = names{moves: "moves", mark: "mark", object: "stock", last: "request"}
	ofPackets = names{moves: "shares", mark: "packets", object: "packet", last: "cents"}
)

// query writes a query with the names in it. Its parameters are question marks.
func (t *names) query(d Dialect, query string) string {
	return d.bind(strings.NewReplacer("{moves}", t.moves, "{mark}", t.mark, "{object}", t.object, "{last}",
		t.last).Replace(query))
}

// fields are where the columns go, and what they are: columns lists them.
func (t *names) fields(r *row) []any {
	all := []any{&r.serial, &r.kind, &r.ordinal, &r.n, &r.claimant, &r.request}
	if t.last == "cents" {
		all[len(all)-1] = &r.cents
	}
	return all
}

const columns = `serial, kind, ordinal, n, claimant, {last}`

// The first two statements of a transaction lock the mark and read it: the update locks the row in PostgreSQL and
// MySQL, and the database in SQLite. So movers wait for each other, and the one that comes second sees what the first
// has written: PostgreSQL reads what is committed then, and MySQL takes its snapshot with its first read, which is the
// second statement.
const (
	lockMark  = `UPDATE {mark} SET next = next WHERE {object} = ? AND epoch = ?`
	readMark  = `SELECT next FROM {mark} WHERE {object} = ? AND epoch = ?`
	raiseMark = `UPDATE {mark} SET next = ? WHERE {object} = ? AND epoch = ?`
	pastMoves = `SELECT ` + columns +
		` FROM {moves} WHERE {object} = ? AND epoch = ? AND serial BETWEEN ? AND ? ORDER BY serial`
	openings = `SELECT epoch, nth FROM {mark} WHERE {object} = ? ORDER BY nth`
)

// book is what the Movers of stocks and of red packets have in common. E is an entry of theirs.
type book[E any] struct {
	names
	db      *sql.DB
	dialect Dialect
	name    string
	row     func(E) row
	also    func(ctx context.Context, tx *sql.Tx, entries []E) error
	after   func(ctx context.Context, entries []E) error
	failed  func(err error)
	balance func(ctx context.Context, tx *sql.Tx, epoch int64, fresh []row) error // if set, may refuse rows
}

func (b *book[E]) check() error {
	if b.db == nil {
		return invalid("DB", "nil", "a database")
	}
	field := strings.ToUpper(b.object[:1]) + b.object[1:]
	if b.name == "" {
		return invalid(field, `""`, "the name of the "+b.object)
	}
	if len(b.name) > maxText { // no database has an index on it
		return fmt.Errorf("redlatchledger: %w: %s has %d bytes, must be at most %d", redlatch.ErrInvalidOption, field,
			len(b.name), maxText)
	}
	return b.dialect.check()
}

func (b *book[E]) sql(query string) string { return b.query(b.dialect, query) }

// lasting reports whether err is one that trying again does not cure.
func lasting(err error) bool {
	for _, e := range []error{ErrHole, ErrReissued, ErrUnbalanced, redlatch.ErrInvalidOption} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// keep runs a KeepLedger with move, again and again.
func (b *book[E]) keep(ctx context.Context, every time.Duration,
	run func(ctx context.Context, every time.Duration, most int, fn func(context.Context, []E) error) error) error {
	if err := b.check(); err != nil {
		return err
	}
	unknown := 0 // how often in a row an opening was
	for {
		var theirs error
		err := run(ctx, every, batch, func(ctx context.Context, entries []E) error {
			if theirs = b.move(ctx, entries); theirs == nil {
				unknown = 0
			}
			return theirs
		})
		if theirs == nil || ctx.Err() != nil || lasting(theirs) {
			return err
		}
		if errors.Is(theirs, ErrUnknownOpening) {
			if unknown++; unknown == announcing {
				return err
			}
		}
		if b.failed != nil {
			b.failed(theirs)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

func (b *book[E]) move(ctx context.Context, entries []E) error {
	if err := b.check(); err != nil {
		return err
	}
	if err := b.commit(ctx, entries); err != nil {
		return err
	}
	if b.after != nil {
		if err := b.after(ctx, entries); err != nil && b.failed != nil {
			b.failed(err)
		}
	}
	return nil
}

func (b *book[E]) commit(ctx context.Context, entries []E) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows := make([]row, len(entries))
	for i, e := range entries {
		rows[i] = b.row(e)
	}
	var fresh []E
	for len(rows) > 0 { // each opening by itself
		n := 1
		for n < len(rows) && rows[n].epoch == rows[0].epoch {
			n++
		}
		past, err := b.write(ctx, tx, rows[:n])
		if err != nil {
			return err
		}
		fresh = append(fresh, entries[past:n]...)
		rows, entries = rows[n:], entries[n:]
	}
	if b.also != nil && len(fresh) > 0 {
		if err := b.also(ctx, tx, fresh); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// write writes rows of one opening, but for the first past of them, which the database has.
func (b *book[E]) write(ctx context.Context, tx *sql.Tx, rows []row) (past int, err error) {
	first, epoch := rows[0].serial, rows[0].epoch
	for i, r := range rows {
		if r.serial != first+int64(i) {
			return 0, fmt.Errorf("%w: %q, opening %d: entry %d comes after %d", ErrHole, b.name, epoch, r.serial,
				rows[i-1].serial)
		}
	}
	next, err := b.lock(ctx, tx, epoch)
	if err != nil {
		return 0, err
	}
	if first > next {
		return 0, fmt.Errorf("%w: %q, opening %d: entries %d to %d", ErrHole, b.name, epoch, next, first-1)
	}
	past = int(min(next-first, int64(len(rows))))
	if err := b.compare(ctx, tx, rows[:past]); err != nil {
		return 0, err
	}
	fresh := rows[past:]
	if len(fresh) == 0 {
		return past, nil
	}
	for some := range slices.Chunk(fresh, 50) {
		if err := b.insert(ctx, tx, some); err != nil {
			return 0, err
		}
	}
	if b.balance != nil {
		if err := b.balance(ctx, tx, epoch, fresh); err != nil {
			return 0, err
		}
	}
	_, err = tx.ExecContext(ctx, b.sql(raiseMark), fresh[len(fresh)-1].serial+1, b.name, epoch)
	return past, err
}

// lock has other transactions of this opening wait for tx, and returns which serial comes next.
func (b *book[E]) lock(ctx context.Context, tx *sql.Tx, epoch int64) (next int64, err error) {
	if _, err := tx.ExecContext(ctx, b.sql(lockMark), b.name, epoch); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, b.sql(readMark), b.name, epoch).Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		known, _, err := b.openings(ctx, tx)
		if err != nil {
			return 0, err
		}
		return 0, b.unknown(epoch, known)
	}
	return next, err
}

func (b *book[E]) unknown(epoch int64, known []int64) error {
	if len(known) == 0 {
		return fmt.Errorf("%w: %s %q, opening %d: it knows none of this name; see Announce", ErrUnknownOpening, b.object,
			b.name, epoch)
	}
	return fmt.Errorf("%w: %s %q, opening %d: the last one that it knows is %d", ErrUnknownOpening, b.object, b.name,
		epoch, known[len(known)-1])
}

// compare reports whether the database has these rows, as they are but for their times: a claim that a failover forgot
// and that was repeated may have the same number again, and tells the same.
func (b *book[E]) compare(ctx context.Context, tx *sql.Tx, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	have, err := tx.QueryContext(ctx, b.sql(pastMoves), b.name, rows[0].epoch, rows[0].serial, rows[len(rows)-1].serial)
	if err != nil {
		return err
	}
	defer have.Close()
	for _, r := range rows {
		was := row{epoch: r.epoch, at: r.at}
		if have.Next() {
			if err := have.Scan(b.fields(&was)...); err != nil {
				return err
			}
		} else if err := have.Err(); err != nil {
			return err
		}
		if was.serial != r.serial {
			return fmt.Errorf("%w: %q, opening %d: the database has entry %d no more", ErrHole, b.name, r.epoch, r.serial)
		}
		if was != r {
			return fmt.Errorf("%w: %q, opening %d, entry %d: the ledger says %s, the database %s", ErrReissued, b.name, r.epoch,
				r.serial, b.text(r), b.text(was))
		}
	}
	return have.Close()
}

func (b *book[E]) text(r row) string {
	if b.last == "cents" {
		return fmt.Sprintf("%s of %d cents, %.64q", r.kind, r.cents, r.claimant)
	}
	return fmt.Sprintf("%s of %d units from %d, %.64q %.64q", r.kind, r.n, r.ordinal, r.claimant, r.request)
}

func (b *book[E]) insert(ctx context.Context, tx *sql.Tx, rows []row) error {
	query := `INSERT INTO {moves} ({object}, epoch, at, ` + columns + `) VALUES ` +
		strings.Repeat(`, (?, ?, ?, ?, ?, ?, ?, ?, ?)`, len(rows))[2:]
	var args []any
	for i := range rows {
		args = append(args, b.name, rows[i].epoch, rows[i].at.UnixMicro())
		args = append(args, b.fields(&rows[i])...)
	}
	_, err := tx.ExecContext(ctx, b.sql(query), args...)
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// openings are the openings that the database knows, in their order, and the number of the last.
func (b *book[E]) openings(ctx context.Context, q querier) (epochs []int64, nth int64, err error) {
	rows, err := q.QueryContext(ctx, b.sql(openings), b.name)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var epoch int64
		if err := rows.Scan(&epoch, &nth); err != nil {
			return nil, 0, err
		}
		epochs = append(epochs, epoch)
	}
	return epochs, nth, rows.Err()
}

// open tells the database of an opening: only if it is the first one, unless another may be there. columns and values
// are what its row has besides. Of two processes that tell of two openings, each for the first, the unique key on nth
// lets one through, and the other finds it when it looks again.
func (b *book[E]) open(ctx context.Context, epoch int64, another bool, columns string, values ...any) error {
	if err := b.check(); err != nil {
		return err
	}
	if epoch < 1 {
		return invalid("epoch", epoch, "that of an opening")
	}
	insert := b.sql(`INSERT INTO {mark} ({object}, epoch, nth, next` + columns + `) VALUES (?, ?, ?, 1` +
		strings.Repeat(`, ?`, len(values)) + `)`)
	var refused error
	for tried := int64(-1); ; {
		known, nth, err := b.openings(ctx, b.db)
		switch {
		case err != nil:
			return err
		case slices.Contains(known, epoch):
			return nil
		case len(known) > 0 && !another:
			return b.unknown(epoch, known)
		case nth == tried: // no one was faster
			return refused
		}
		if _, refused = b.db.ExecContext(ctx, insert, append([]any{b.name, epoch, nth + 1}, values...)...); refused == nil {
			return nil
		}
		tried = nth
	}
}

func (b *book[E]) opened(ctx context.Context) (bool, error) {
	if err := b.check(); err != nil {
		return false, err
	}
	known, _, err := b.openings(ctx, b.db)
	return len(known) > 0, err
}

// read yields what a query returns with the columns of columns.
func (b *book[E]) read(ctx context.Context, epoch int64, entry func(row) E, query string,
	args ...any) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		if err := b.check(); err != nil {
			yield(none, err)
			return
		}
		rows, err := b.db.QueryContext(ctx, b.sql(query), args...)
		if err != nil {
			yield(none, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			r := row{epoch: epoch}
			if err := rows.Scan(b.fields(&r)...); err != nil {
				yield(none, err)
				return
			}
			if !yield(entry(r), nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, err)
		}
	}
}
