package redlatchfence_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

// accounts is a table of accounts with a token each: one by name, one by number.
func accounts(t *testing.T, d redlatchfence.Dialect, db *sql.DB) (byName, byNumber redlatchfence.Rows) {
	for _, create := range []string{
		`CREATE TABLE named (name varchar(64) NOT NULL PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL)`,
		`CREATE TABLE numbered (id bigint NOT NULL PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL)`,
		`INSERT INTO named VALUES ('account:7', 100, 0)`,
		`INSERT INTO numbered VALUES (7, 100, 0)`,
	} {
		redistest.NoError(db.Exec(create))(t)
	}
	return redlatchfence.Rows{DB: db, Dialect: d, Table: "named", Key: "name"},
		redlatchfence.Rows{DB: db, Dialect: d, Table: "numbered", Key: "id", Column: "fence"}
}

func balance(t *testing.T, db *sql.DB, table string) (n int64) {
	require.NoError(t, db.QueryRow(`SELECT balance FROM `+table).Scan(&n))
	return n
}

func TestRows_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		db := open()
		named, numbered := accounts(t, d, db)
		rules(t, named, resource)
		ctx := t.Context()
		require.NoError(t, numbered.Update(ctx, "7", 33, "balance = balance - ?", 10))
		require.NoError(t, numbered.Update(ctx, "7", 33, "balance = ?", 90), "it is so already: no row changes in MySQL")
		require.NoError(t, numbered.Update(ctx, "7", 33, "balance = balance - ?", 10))
		require.NoError(t, numbered.Advance(ctx, "7", 34))
		require.ErrorIs(t, numbered.Update(ctx, "7", 33, "balance = balance - ?", 10), redlatchfence.ErrStale)
		require.EqualValues(t, 80, balance(t, db, "numbered"))
		require.ErrorIs(t, numbered.Update(ctx, "8", 33, "balance = 0"), sql.ErrNoRows)
	})
}

func TestRows_BadFields_AreRefused(t *testing.T) {
	good := redlatchfence.Rows{DB: services.FreshSQLite(t)(), Dialect: redlatchfence.SQLite, Table: "a.b", Key: "id"}
	for field, spoil := range map[string]func(r *redlatchfence.Rows){
		"DB":      func(r *redlatchfence.Rows) { r.DB = nil },
		"Dialect": func(r *redlatchfence.Rows) { r.Dialect = "" },
		"Table":   func(r *redlatchfence.Rows) { r.Table = "a; DROP TABLE a" },
		"Key":     func(r *redlatchfence.Rows) { r.Key = "" },
		"Column":  func(r *redlatchfence.Rows) { r.Column = "token --" },
	} {
		r := good
		spoil(&r)
		err := r.Advance(t.Context(), "7", 33)
		require.ErrorIs(t, err, redlatchfence.ErrInvalid, field)
		require.ErrorContains(t, err, field+" is ")
	}
}

// 34 writes between what a transaction of 33 has read and its Update.
func TestRows_NewerWriteDuringATransaction_RefusesTheUpdate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		if d == redlatchfence.SQLite {
			return // it has one writer at a time: 34 waits for the transaction of 33
		}
		db := open()
		_, rows := accounts(t, d, db)
		ctx := t.Context()
		require.NoError(t, rows.Advance(ctx, "7", 33))
		tx := redistest.NoError(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
		defer tx.Rollback()
		var n int64
		require.NoError(t, tx.QueryRow(`SELECT balance FROM numbered WHERE id = 7`).Scan(&n))
		later := rows
		later.DB = open()
		require.NoError(t, later.Update(ctx, "7", 34, "balance = 150"))
		rows.DB = tx
		err := rows.Update(ctx, "7", 33, "balance = 110")
		require.Error(t, err, "its snapshot still has 33")
		if d == redlatchfence.MySQL {
			require.ErrorIs(t, err, redlatchfence.ErrStale)
		}
		tx.Rollback()
		require.EqualValues(t, 150, balance(t, db, "numbered"))
	})
}
