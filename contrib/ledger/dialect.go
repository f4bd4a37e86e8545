package redlatchledger

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. The zero Dialect is none, and is refused.
const (
	SQLite     Dialect = "SQLite"     // SQLite 3.28 and later
	PostgreSQL Dialect = "PostgreSQL" // PostgreSQL 9.6 and later
	MySQL      Dialect = "MySQL"      // MySQL 8.0 and later, MariaDB 10.5 and later; tables of InnoDB
)

func (d Dialect) check() error {
	if d != SQLite && d != PostgreSQL && d != MySQL {
		return invalid("Dialect", strconv.Quote(string(d)), "SQLite, PostgreSQL or MySQL")
	}
	return nil
}

func invalid(field string, value any, must string) error {
	return fmt.Errorf("redlatchledger: %w: %s is %v, must be %s", redlatch.ErrInvalidOption, field, value, must)
}

// Create runs the statements of Schema, one at a time, and changes nothing that is there. Several processes may call it
// when they start. The error is the database's, or redlatch.ErrInvalidOption for a Dialect that is none.
func (d Dialect) Create(ctx context.Context, db *sql.DB) error {
	if err := d.check(); err != nil {
		return err
	}
	var run interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	} = db
	done := func() error { return nil }
	if d == PostgreSQL {
		// Of two processes that create one table at the same time, PostgreSQL fails one, whatever IF NOT EXISTS says.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('redlatchledger'))`); err != nil {
			return err
		}
		run, done = tx, tx.Commit
	}
	for statement := range strings.SplitSeq(d.Schema(), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := run.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return done()
}

// unlessThere ends an INSERT that changes nothing if there is a row of that key.
func (d Dialect) unlessThere(key string) string {
	if d == MySQL {
		return " ON DUPLICATE KEY UPDATE " + key + " = " + key
	}
	return " ON CONFLICT DO NOTHING"
}

// bind is a query as the dialect writes its parameters, which are question marks everywhere else.
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
