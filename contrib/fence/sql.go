package redlatchfence

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. The zero Dialect is none, and is refused.
const (
	SQLite     Dialect = "SQLite"     // SQLite 3.24 and later
	PostgreSQL Dialect = "PostgreSQL" // PostgreSQL 9.6 and later
	MySQL      Dialect = "MySQL"      // MySQL 8.0 and later, MariaDB 10.5 and later; tables of InnoDB
)

func (d Dialect) check() error {
	switch d {
	case SQLite, PostgreSQL, MySQL:
		return nil
	}
	return invalid("Dialect", strconv.Quote(string(d)), "SQLite, PostgreSQL or MySQL")
}

// Schema returns the statement that creates the table fences (resource, token) unless it exists. Rows are never
// deleted: a row that is deleted forgets its token.
func (d Dialect) Schema() string {
	// MySQL compares texts without regard to case or to spaces at their end: two resources would be one.
	text, engine := "text", ""
	if d == MySQL {
		text, engine = "varbinary(1024)", " ENGINE=InnoDB"
	}
	return `CREATE TABLE IF NOT EXISTS fences (
  resource ` + text + ` NOT NULL PRIMARY KEY,
  token bigint NOT NULL
)` + engine + ";\n"
}

// Create runs Schema. Several processes may call it when they start. It returns ErrInvalid for a Dialect that is none,
// or the database's error.
func (d Dialect) Create(ctx context.Context, db *sql.DB) error {
	if err := d.check(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if d == PostgreSQL { // which fails one of two processes that create a table at the same time, despite IF NOT EXISTS
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('redlatchfence'))`); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, d.Schema()); err != nil {
		return err
	}
	return tx.Commit()
}

// bind returns a query with parameters as the dialect writes them; they are question marks in this package.
func (d Dialect) bind(query string) string {
	if d != PostgreSQL {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// Fences guards transactions of a database by its table fences: see Dialect.Schema. Resources are any names; a
// transaction with a stale token is refused before it does anything. Its fields are not changed while it is used, and
// it is safe for concurrent use.
//
// A token counts as seen once the transaction that brought it is committed. If that is rolled back, it is not: its
// holder has changed nothing in this database, and what it has read there may have been changed since by an older one.
// Use Advance where the holder acts elsewhere, too.
//
// A holder that is suspended within a transaction keeps the fence's row locked, and the next holder waits until the
// database ends that connection: set idle_in_transaction_session_timeout in PostgreSQL, and in MariaDB
// idle_write_transaction_timeout. On SQLite it keeps all writers waiting.
type Fences struct {
	// DB has the table fences. An SQLite database needs its busy timeout set. Required.
	DB *sql.DB
	// Dialect is the SQL that DB speaks. Required.
	Dialect Dialect
}

func (f Fences) check(resource string, token Token) error {
	if f.DB == nil {
		return invalid("DB", "nil", "a database")
	}
	if err := f.Dialect.check(); err != nil {
		return err
	}
	return admissible(resource, token)
}

// Advance is a transaction of its own: see Guard. Once it has returned nil the token stays seen.
func (f Fences) Advance(ctx context.Context, resource string, token Token) error {
	return f.Do(ctx, resource, token, func(context.Context, *sql.Tx) error { return nil })
}

// Do begins a transaction, checks and stores the token in one round trip, calls act, and commits. Transactions of one
// resource run one after the other; act reads what those before it have committed.
//
//   - nil: act was called once, and what it did is committed.
//   - ErrStale: act was not called.
//   - act's error: all is rolled back, the token too.
//   - any other error is the database's. If the commit failed it may be committed; otherwise all is rolled back.
//
// act uses tx alone, and neither commits nor rolls back.
func (f Fences) Do(ctx context.Context, resource string, token Token,
	act func(ctx context.Context, tx *sql.Tx) error) error {
	if err := f.check(resource, token); err != nil {
		return err
	}
	if act == nil {
		return invalid("act", "nil", "a function")
	}
	// Read committed is enough, and is as strict as serializable here, because the first statement locks the fence's row
	// until the end, so that the transactions of a resource run one after the other. What happens to 33 and 34:
	//
	//   - 34 commits, then 33 begins: the condition fails, ErrStale.
	//   - 33 has the row, 34 waits for it. 33 commits; the statement of 34 goes on with the row as it is now, and each
	//     later statement of 34 sees what 33 wrote, since at this level each takes a new snapshot.
	//   - 34 has the row, 33 waits for it. 34 commits: the condition of 33 is evaluated again, on the new row: ErrStale.
	//     34 rolls back: 33 goes on, as if 34 had never begun. Nothing of 34 is there to be overwritten.
	//   - the resource has no row yet: the unique index makes the second INSERT wait for the first, as above.
	//   - 34 and 34: one waits for the other; both are admitted.
	//
	// Repeatable read would be as safe but refuse more: PostgreSQL takes the snapshot with the first statement, before
	// that waits, and fails it with 40001 if the row has changed since. SQLite has one writer at a time and no levels;
	// because the first statement writes, a deferred transaction has no snapshot that could be outdated.
	tx, err := f.begin(ctx, resource, token)
	for try := 0; err != nil && f.Dialect == MySQL && !errors.Is(err, ErrStale) && ctx.Err() == nil && try < 3; try++ {
		// Several that insert one resource wait for the first of them; if that rolls back, InnoDB gives each a lock that the
		// others wait for, and ends all but one with a deadlock. Nothing was done yet. Once the row is committed, with a
		// token that every holder's exceeds, they wait for one lock in turn.
		_, _ = f.DB.ExecContext(ctx, `INSERT IGNORE INTO fences (resource, token) VALUES (?, 0)`, resource)
		tx, err = f.begin(ctx, resource, token)
	}
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := act(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// begin begins a transaction in which the token was checked.
func (f Fences) begin(ctx context.Context, resource string, token Token) (*sql.Tx, error) {
	level := sql.LevelReadCommitted
	if f.Dialect == SQLite {
		level = sql.LevelDefault
	}
	tx, err := f.DB.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return nil, err
	}
	if err := f.Check(ctx, tx, resource, token); err != nil {
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

const (
	advance = `INSERT INTO fences (resource, token) VALUES (?, ?)
		ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fences.token <= excluded.token`
	// In MySQL the number of affected rows does not tell an equal token from a stale one. LAST_INSERT_ID returns the
	// greatest token with the reply, whatever the connection's flags are.
	advanceMySQL = `INSERT INTO fences (resource, token) VALUES (?, LAST_INSERT_ID(?))
		ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, VALUES(token)))`
)

// Check checks and stores the token in a transaction of yours, in one round trip. Call it as the first statement: at
// repeatable read and above what was read before it is older than what it waits for. For several resources call it in
// the order of their names, or transactions may deadlock; in MySQL they also may at a resource's first token, unless
// Advance came before. After ErrStale roll back. At repeatable read and serializable
// PostgreSQL fails a transaction that had to wait with error 40001: begin it again.
func (f Fences) Check(ctx context.Context, tx *sql.Tx, resource string, token Token) error {
	if err := f.Dialect.check(); err != nil {
		return err
	}
	if err := admissible(resource, token); err != nil {
		return err
	}
	query := advance
	if f.Dialect == MySQL {
		query = advanceMySQL
	}
	res, err := tx.ExecContext(ctx, f.Dialect.bind(query), resource, int64(token))
	if err != nil {
		return err
	}
	if f.Dialect == MySQL {
		seen, err := res.LastInsertId()
		if err == nil && Token(seen) != token {
			err = stale(resource, token)
		}
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = stale(resource, token)
	}
	return err
}
