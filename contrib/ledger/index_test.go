package redlatchledger_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Orders and the units of one user are found by an index: the rows of the others are not read.
func TestBook_ManyOrders_AreReadByAnIndex(t *testing.T) {
	t.Parallel()
	const users = 3_000
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		b, ctx := redlatchledger.Book{DB: open(), Dialect: d, Sale: "phones"}, t.Context()
		var entries []stock.Entry
		for i := range int64(users) { // of every third a unit was returned
			e := stock.Entry{Serial: int64(len(entries)) + 1, Epoch: 7, Kind: "sold", Ordinal: 1 + 2*i, N: 2, Asked: 2,
				User: fmt.Sprint("user ", i), ID: fmt.Sprint("order ", i)}
			if entries = append(entries, e); i%3 == 0 {
				e.Serial, e.Kind, e.N, e.Ordinal = e.Serial+1, "returned", 1, e.Ordinal+1
				entries = append(entries, e)
			}
		}
		require.NoError(t, b.Move(ctx, entries))
		b.DB.SetMaxOpenConns(1) // whose counts MySQL tells
		analyze := "ANALYZE"
		if d == redlatchledger.MySQL {
			analyze = "ANALYZE TABLE sale_entries"
		}
		redistest.NoError(b.DB.Exec(analyze))(t)

		units := redistest.NoError(b.UnitsOf(ctx, "user 999"))(t)
		require.Equal(t, []stock.Entry{{Kind: "sold", Ordinal: 1999, N: 1, User: "user 999", ID: "order 999"}}, units)
		order := redistest.NoError(b.Order(ctx, "order 999"))(t)
		require.Equal(t, entries[1332:1334], order)

		for index, query := range map[string]string{
			"sale_entries_by_user":  `SELECT * FROM sale_units WHERE sale = 'phones' AND user_id = 'user 999' ORDER BY item`,
			"sale_entries_by_order": `SELECT * FROM sale_entries WHERE sale = 'phones' AND order_id = 'order 999'`,
		} {
			switch d {
			case redlatchledger.SQLite:
				plan := text(t, b.DB, "EXPLAIN QUERY PLAN "+query)
				require.NotRegexp(t, `SCAN sale_entries`, plan)
				require.Contains(t, plan, index)
			case redlatchledger.PostgreSQL:
				plan := text(t, b.DB, "EXPLAIN "+query)
				require.NotContains(t, plan, "Seq Scan", index)
				require.Contains(t, plan, index)
			case redlatchledger.MySQL:
				redistest.NoError(b.DB.Exec("FLUSH STATUS"))(t)
				text(t, b.DB, query)
				rows := 0
				for _, line := range strings.Split(strings.TrimSpace(text(t, b.DB, "SHOW SESSION STATUS LIKE 'Handler_read%'")),
					"\n") {
					var n int
					redistest.NoError(fmt.Sscan(strings.Fields(line)[1], &n))(t)
					rows += n
				}
				require.Less(t, rows, 60, "%s: of %d", index, users*4/3)
			}
		}
	})
}

// text is all that a query returns, a row in a line.
func text(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows := redistest.NoError(db.Query(query))(t)
	defer rows.Close()
	columns := redistest.NoError(rows.Columns())(t)
	var out strings.Builder
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		for _, v := range values {
			out.WriteString(v.String + " ")
		}
		out.WriteString("\n")
	}
	require.NoError(t, rows.Err())
	return out.String()
}
