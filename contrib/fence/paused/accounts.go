//go:build unix && !solaris && !aix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redis/rueidis"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// ways are how much of a guard is used.
var ways = []string{none, write, guard}

const (
	none  = "none"  // no token is checked
	write = "write" // it is checked with each write
	guard = "guard" // and before each reading
)

// account is accounts of one kind, each a number, 0 at first.
type account interface {
	create(ctx context.Context, names []string) error
	read(ctx context.Context, name string, token redlatchfence.Token) (int64, error)
	write(ctx context.Context, name string, token redlatchfence.Token, value int64) error
	// look reads without a token.
	look(ctx context.Context, name string) (int64, error)
}

// inSQL is rows of a table. The fences are a table of their own, or are in the rows.
type inSQL struct {
	db      *sql.DB
	dialect redlatchfence.Dialect
	rows    bool
	way     string
}

const createTable = `CREATE TABLE accounts (name varchar(100) PRIMARY KEY, n bigint NOT NULL, token bigint NOT NULL)`

// query is text with the parameters of the dialect.
func (a inSQL) query(text string) string {
	if a.dialect != redlatchfence.PostgreSQL {
		return text
	}
	var all []byte
	n := 0
	for _, c := range []byte(text) {
		if c == '?' {
			n++
			all = append(append(all, '$'), strconv.Itoa(n)...)
			continue
		}
		all = append(all, c)
	}
	return string(all)
}

func (a inSQL) create(ctx context.Context, names []string) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, name := range names {
		if _, err := tx.ExecContext(ctx, a.query(`INSERT INTO accounts VALUES (?, 0, 0)`), name); err != nil {
			return err
		}
	}
	return tx.Commit()
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (a inSQL) get(ctx context.Context, q querier, name string) (n int64, err error) {
	err = q.QueryRowContext(ctx, a.query(`SELECT n FROM accounts WHERE name = ?`), name).Scan(&n)
	return n, err
}

func (a inSQL) set(ctx context.Context, q querier, name string, n int64) error {
	_, err := q.ExecContext(ctx, a.query(`UPDATE accounts SET n = ? WHERE name = ?`), n, name)
	return err
}

func (a inSQL) look(ctx context.Context, name string) (int64, error) { return a.get(ctx, a.db, name) }

func (a inSQL) fences() redlatchfence.Fences {
	return redlatchfence.Fences{DB: a.db, Dialect: a.dialect}
}

func (a inSQL) inRows() redlatchfence.Rows {
	return redlatchfence.Rows{DB: a.db, Dialect: a.dialect, Table: "accounts", Key: "name"}
}

func (a inSQL) read(ctx context.Context, name string, token redlatchfence.Token) (n int64, err error) {
	switch {
	case a.way != guard:
	case a.rows:
		err = a.inRows().Advance(ctx, name, token)
	default:
		err = a.fences().Do(ctx, name, token, func(ctx context.Context, tx *sql.Tx) (err error) {
			n, err = a.get(ctx, tx, name)
			return err
		})
		return n, err
	}
	if err != nil {
		return 0, err
	}
	return a.look(ctx, name)
}

func (a inSQL) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	switch {
	case a.way == none:
		return a.set(ctx, a.db, name, n)
	case a.rows:
		return a.inRows().Update(ctx, name, token, "n = ?", n)
	}
	return a.fences().Do(ctx, name, token, func(ctx context.Context, tx *sql.Tx) error { return a.set(ctx, tx, name, n) })
}

// inRedis is a key each.
type inRedis struct {
	client rueidis.Client
	way    string
}

func (a inRedis) key(name string) string { return "account:" + name }

func (a inRedis) create(context.Context, []string) error { return nil }

func (a inRedis) look(ctx context.Context, name string) (int64, error) {
	n, err := a.client.Do(ctx, a.client.B().Get().Key(a.key(name)).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return n, err
}

func (a inRedis) read(ctx context.Context, name string, token redlatchfence.Token) (int64, error) {
	if a.way == guard {
		if err := (redlatchfence.Redis{Client: a.client}).Advance(ctx, a.key(name), token); err != nil {
			return 0, err
		}
	}
	return a.look(ctx, name)
}

func (a inRedis) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	value := strconv.FormatInt(n, 10)
	if a.way == none {
		return a.client.Do(ctx, a.client.B().Set().Key(a.key(name)).Value(value).Build()).Error()
	}
	return redlatchfence.Redis{Client: a.client}.Set(ctx, a.key(name), token, value)
}

// inObjects is a JSON object each.
type inObjects struct {
	store redlatchfence.S3
	way   string
}

func (a inObjects) objects() redlatchfence.Objects {
	return redlatchfence.Objects{Store: a.store, Stamp: redlatchfence.StampJSON}
}

func (a inObjects) create(context.Context, []string) error { return nil }

func (a inObjects) value(data []byte, err error) (int64, error) {
	if errors.Is(err, fs.ErrNotExist) || err == nil && data == nil {
		return 0, nil
	}
	var o struct{ N int64 }
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	return o.N, err
}

func (a inObjects) look(ctx context.Context, name string) (int64, error) {
	o, err := a.store.Get(ctx, name)
	return a.value(o.Data, err)
}

func (a inObjects) read(ctx context.Context, name string, token redlatchfence.Token) (int64, error) {
	if a.way == guard {
		return a.value(a.objects().Read(ctx, name, token))
	}
	return a.look(ctx, name)
}

func (a inObjects) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	data := fmt.Appendf(nil, `{"N": %d}`, n)
	if a.way == none {
		return put(ctx, a.store.Bucket+"/"+name, data)
	}
	return a.objects().Put(ctx, name, token, data)
}

// inFiles is a file each.
type inFiles struct {
	dir string
	way string
}

func (a inFiles) path(name string) string { return filepath.Join(a.dir, name) }

func (a inFiles) create(context.Context, []string) error { return nil }

func (a inFiles) look(_ context.Context, name string) (int64, error) {
	text, err := os.ReadFile(a.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

func (a inFiles) read(ctx context.Context, name string, token redlatchfence.Token) (int64, error) {
	if a.way == guard {
		if err := (redlatchfence.Files{}).Advance(ctx, a.path(name), token); err != nil {
			return 0, err
		}
	}
	return a.look(ctx, name)
}

func (a inFiles) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	text := []byte(strconv.FormatInt(n, 10))
	if a.way == none {
		next := fmt.Sprintf("%s.%d", a.path(name), os.Getpid()) // renamed, or a reader meets half of it
		if err := os.WriteFile(next, text, 0o644); err != nil {
			return err
		}
		return os.Rename(next, a.path(name))
	}
	return redlatchfence.Files{}.Write(ctx, a.path(name), token, text)
}
