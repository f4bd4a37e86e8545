package redlatchledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/stockmodel"
)

// A Mover writes, and refuses, what the mover of the model does: batches that begin too early or too late, have been
// written, differ from what was written, or are of another opening.
func TestAMoverWritesWhatTheModelOfStocksWrites(t *testing.T) {
	const known = 7
	db := freshSQLite(t)()
	require.NoError(t, redlatchledger.SQLite.Create(t.Context(), db))
	m := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	require.NoError(t, m.Announce(t.Context(), known))
	r := rand.New(rand.NewPCG(1, 2))
	var rows []stockmodel.Row
	accepted, refused := 0, 0
	for range redistest.Sized(60, 100, 2000) {
		from := max(0, len(rows)-r.IntN(4)) // what was written is among it, as a rule
		batch := slices.Clone(rows[from:])
		for range 1 + r.IntN(3) {
			batch = append(batch, stockmodel.Row{Epoch: known, Serial: int64(from + len(batch)), ID: r.Int64N(3),
				Entry: stockmodel.Entry{Kind: stockmodel.KindHeld, N: 1 + r.Int32N(3)}})
		}
		switch i := r.IntN(len(batch)); r.IntN(8) {
		case 0:
			batch[i].N = 5 - batch[i].N
		case 1:
			batch[i].ID = 3
		case 2:
			batch = slices.Delete(batch, i, i+1)
		case 3:
			for i := range batch {
				batch[i].Epoch++
			}
		}
		if len(batch) == 0 {
			continue
		}
		entries := make([]stock.Entry, len(batch))
		for i, e := range batch {
			id := strconv.FormatInt(e.ID, 10)
			entries[i] = stock.Entry{Epoch: e.Epoch, Serial: e.Serial + 1, Kind: stock.Kind(e.Kind.String()), N: int64(e.N),
				Claimant: "ann", Request: id, At: time.UnixMicro(1)}
		}
		fresh, ok := stockmodel.Write(rows, batch, known, stockmodel.Whole)
		err := m.Move(t.Context(), entries)
		require.Equal(t, ok, err == nil, "%+v after %d: %v", batch, len(rows), err)
		if rows = append(rows, fresh...); ok {
			accepted++
		} else {
			refused++
		}
	}
	t.Logf("%d batches accepted, %d refused, %d rows", accepted, refused, len(rows))
	require.Positive(t, accepted)
	require.Positive(t, refused)
	var written []string
	query, err := db.QueryContext(t.Context(), "SELECT serial, n, request FROM moves ORDER BY serial")
	require.NoError(t, err)
	defer query.Close()
	for query.Next() {
		var serial, n int64
		var request string
		require.NoError(t, query.Scan(&serial, &n, &request))
		written = append(written, fmt.Sprint(serial-1, n, request))
	}
	require.NoError(t, query.Err())
	var modelled []string
	for _, e := range rows {
		modelled = append(modelled, fmt.Sprint(e.Serial, e.N, strconv.FormatInt(e.ID, 10)))
	}
	require.Equal(t, modelled, written)
}
