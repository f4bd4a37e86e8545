//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redis/rueidis"
)

// errStale: the write came with a token that is older than one the account has seen.
var errStale = errors.New("refused, a later holder has written")

// account keeps a balance. Its guard is all there is to fencing on the side of a resource: remember the greatest token,
// in the same atomic step in which the write is made, and refuse smaller ones.
type account interface {
	reset(ctx context.Context, balance int64) error
	read(ctx context.Context) (balance int64, err error)
	write(ctx context.Context, balance, token int64) error
	close()
}

func openAccount(o *office, kind, file string, guarded bool) (account, error) {
	switch kind {
	case "SQL":
		db, err := sql.Open("sqlite3", "file:"+file+"?_pragma=busy_timeout(10000)")
		if err != nil {
			return nil, err
		}
		return &sqlAccount{db, guarded}, nil
	case "Redis":
		return &redisAccount{o.redis(), guarded}, nil
	}
	return nil, fmt.Errorf("no account of kind %q, only SQL and Redis", kind)
}

type sqlAccount struct {
	db      *sql.DB
	guarded bool
}

func (a *sqlAccount) reset(ctx context.Context, balance int64) error {
	_, err := a.db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
		INSERT OR REPLACE INTO account VALUES (1, `+strconv.FormatInt(balance, 10)+`, 0);`)
	return err
}

func (a *sqlAccount) read(ctx context.Context) (balance int64, err error) {
	err = a.db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = 1`).Scan(&balance)
	return balance, err
}

func (a *sqlAccount) write(ctx context.Context, balance, token int64) error {
	update := `UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1`
	if a.guarded {
		update += ` AND fence <= ?2`
	}
	res, err := a.db.ExecContext(ctx, update, balance, token)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
}

func (a *sqlAccount) close() { a.db.Close() }

type redisAccount struct {
	client  rueidis.Client
	guarded bool
}

const redisKey = "{account}:balance"

func (a *redisAccount) reset(ctx context.Context, balance int64) error {
	b := a.client.B()
	return a.client.Do(ctx,
		b.Hset().Key(redisKey).FieldValue().FieldValue("balance", strconv.FormatInt(balance, 10)).FieldValue("fence",
			"0").Build()).Error()
}

func (a *redisAccount) read(ctx context.Context) (balance int64, err error) {
	return a.client.Do(ctx, a.client.B().Hget().Key(redisKey).Field("balance").Build()).AsInt64()
}

// Tokens are compared as numbers: they are under 2^53, which Lua counts exactly.
var guardedWrite = rueidis.NewLuaScript(`
if ARGV[3] == '1' and tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'balance', ARGV[1], 'fence', ARGV[2])
return 1`)

func (a *redisAccount) write(ctx context.Context, balance, token int64) error {
	guard := "0"
	if a.guarded {
		guard = "1"
	}
	n, err := guardedWrite.Exec(ctx, a.client, []string{redisKey},
		[]string{strconv.FormatInt(balance, 10), strconv.FormatInt(token, 10), guard}).AsInt64()
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}

func (a *redisAccount) close() {}
