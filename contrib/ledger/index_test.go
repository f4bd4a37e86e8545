package redlatchledger_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// fill moves n grants of two units to customers of their own, of every third of which the first unit is returned.
func fill(t *testing.T, m *redlatchledger.Mover, epoch int64, n int) {
	require.NoError(t, m.Announce(t.Context(), epoch))
	var entries []stock.Entry
	for i := range n {
		e := stock.Entry{Serial: int64(len(entries)) + 1, Epoch: epoch, Kind: stock.KindGrant, Ordinal: 1 + 2*int64(i), N: 2,
			Claimant: fmt.Sprint("customer ", i), Request: fmt.Sprint("order ", i)}
		if entries = append(entries, e); i%3 == 0 {
			e.Serial, e.Kind, e.N = e.Serial+1, stock.KindReturn, 1
			entries = append(entries, e)
		}
	}
	for len(entries) > 0 {
		some := entries[:min(10_000, len(entries))]
		require.NoError(t, m.Move(t.Context(), some))
		entries = entries[len(some):]
	}
}

// The units of one customer are found by an index, by UnitsOf and in the view: the rows of the others are not read.
func TestUnitsOf_ManyClaimants_AreReadByAnIndex(t *testing.T) {
	t.Parallel()
	const customers = 3_000
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		m := redlatchledger.Mover{DB: open(), Dialect: d, Stock: "sale"}
		fill(t, &m, 7, customers)
		m.DB.SetMaxOpenConns(1) // whose counts MySQL tells
		analyze := "ANALYZE"
		if d == redlatchledger.MySQL {
			analyze = "ANALYZE TABLE moves"
		}
		_, err := m.DB.Exec(analyze)
		require.NoError(t, err)

		var units []stock.Entry
		for e, err := range m.UnitsOf(t.Context(), 7, "customer 999") {
			require.NoError(t, err)
			units = append(units, e)
		}
		require.Equal(t, []stock.Entry{{Serial: 1333, Epoch: 7, Kind: stock.KindGrant, Ordinal: 2000, N: 1,
			Claimant: "customer 999", Request: "order 999"}}, units)

		query := redlatchledger.UnitsOfQuery
		for _, v := range []string{"'sale'", "'customer 999'", "7"} {
			query = strings.Replace(query, "?", v, 1)
		}
		for name, query := range map[string]string{"UnitsOf": query,
			"the view": `SELECT * FROM units WHERE stock = 'sale' AND claimant = 'customer 999'`} {
			switch d {
			case redlatchledger.SQLite:
				plan := text(t, m.DB, "EXPLAIN QUERY PLAN "+query)
				require.NotRegexp(t, `SCAN moves`, plan, name)
				require.Contains(t, plan, "moves_by_claimant", name)
			case redlatchledger.PostgreSQL:
				plan := text(t, m.DB, "EXPLAIN "+query)
				require.NotContains(t, plan, "Seq Scan on moves", name)
				require.Contains(t, plan, "moves_by_claimant", name)
			case redlatchledger.MySQL:
				_, err := m.DB.Exec("FLUSH STATUS")
				require.NoError(t, err)
				text(t, m.DB, query)
				rows := 0
				for _, line := range strings.Split(strings.TrimSpace(text(t, m.DB, "SHOW SESSION STATUS LIKE 'Handler_read%'")),
					"\n") {
					var n int
					_, err := fmt.Sscan(strings.Fields(line)[1], &n)
					require.NoError(t, err)
					rows += n
				}
				require.Less(t, rows, 60, "%s: of %d", name, customers*4/3)
			}
		}
	})
}

// text is all that a query returns, a row in a line.
func text(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.Query(query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
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
