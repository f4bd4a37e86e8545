package redlatchfence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Rows guards the rows of a table of yours that has a column for the token, a bigint NOT NULL DEFAULT 0. The check is
// the condition of the UPDATE, so nothing can come between it and the write, at any isolation level. Its fields are not
// changed while it is used.
type Rows struct {
	// DB is a database, connection or transaction. In a transaction begin with Advance or Update. Required.
	DB interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	// Dialect is the SQL that DB speaks. Required.
	Dialect Dialect
	// Table, Key and Column are the names of the table, of its key and of the token's column. They are not quoted. Table
	// and Key are required; Column defaults to token.
	Table, Key, Column string
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	qualified  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)
)

func (r *Rows) check(key string, token Token) error {
	r.Column = cmp.Or(r.Column, "token")
	switch {
	case r.DB == nil:
		return invalid("DB", "nil", "a database")
	case !qualified.MatchString(r.Table):
		return invalid("Table", fmt.Sprintf("%.64q", r.Table), "the name of a table")
	case !identifier.MatchString(r.Key):
		return invalid("Key", fmt.Sprintf("%.64q", r.Key), "the name of a column")
	case !identifier.MatchString(r.Column):
		return invalid("Column", fmt.Sprintf("%.64q", r.Column), "the name of a column")
	}
	if err := r.Dialect.check(); err != nil {
		return err
	}
	return admissible(key, token)
}

// Advance sets the token of the row whose key is given, unless the row has a greater one: see Guard. A key that is a
// number is given as its text. It returns an error that wraps sql.ErrNoRows if there is no such row.
func (r Rows) Advance(ctx context.Context, key string, token Token) error {
	return r.Update(ctx, key, token, "")
}

// Update runs UPDATE Table SET set, Column = token WHERE Key = key AND Column <= token. set is SQL, such as
// "balance = balance - ?", with a question mark for each of args in every dialect.
//
//   - nil: the row is as set says.
//   - ErrStale: the row has a greater token. Nothing was changed.
//   - an error that wraps sql.ErrNoRows: there is no such row.
//   - any other error is the database's; without a transaction of yours the update may have been made.
//
// Before the first Update of a hold that writes what it has computed from the row, Advance, then read.
func (r Rows) Update(ctx context.Context, key string, token Token, set string, args ...any) error {
	if err := r.check(key, token); err != nil {
		return err
	}
	if set != "" {
		set += ", "
	}
	// The row's lock orders two of these. 33 waits for 34, and then its condition is evaluated on what 34 has written.
	query := fmt.Sprintf("UPDATE %s SET %s%s = ? WHERE %s = ? AND %s <= ?", r.Table, set, r.Column, r.Key, r.Column)
	args = append(slices.Clone(args), int64(token), key, int64(token))
	res, err := r.DB.ExecContext(ctx, r.Dialect.bind(query), args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	// Stale, or no row; or in MySQL a row that was already as set says, which it does not count. There the reading locks
	// the row: in a transaction at repeatable read a plain one shows the row as it was before 34 wrote, with the token 33.
	var seen Token
	query = fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", r.Column, r.Table, r.Key)
	if r.Dialect == MySQL {
		query += " FOR UPDATE"
	}
	err = r.DB.QueryRowContext(ctx, r.Dialect.bind(query), key).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("redlatchfence: %s has no row %.64q: %w", r.Table, key, err)
	case err != nil:
		return err
	case seen == token && r.Dialect == MySQL:
		return nil
	}
	return stale(key, token)
}
