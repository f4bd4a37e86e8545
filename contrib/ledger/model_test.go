package redlatchledger_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/oracle/stockmodel"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A Mover writes, and refuses, what the mover of the model does: batches that begin too early or too late, have been
// written, are told again later, differ from what was written, or are of another opening. Its errors say which, and a
// batch that is refused has written nothing.
func TestMover_RandomBatches_WritesAsTheModel(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		const known = 7
		m := redlatchledger.Mover{DB: open(), Dialect: d, Stock: "sale"}
		require.NoError(t, m.Announce(t.Context(), known))
		r := rand.New(rand.NewPCG(1, 2))
		var rows []stockmodel.Row
		answers := map[error]int{}
		for n := range redistest.Sized(60, 100, 2000) {
			from := max(0, len(rows)-r.IntN(4)) // what was written is among it, as a rule
			batch := slices.Clone(rows[from:])
			for range 1 + r.IntN(3) {
				batch = append(batch, stockmodel.Row{Epoch: known, Serial: int64(from + len(batch)), ID: r.Int64N(3),
					Entry: stockmodel.Entry{Kind: stockmodel.KindHeld, N: 1 + r.Int32N(3)}})
			}
			want := error(nil)
			switch i := r.IntN(len(batch)); r.IntN(8) {
			case 0:
				batch[i].N, want = 5-batch[i].N, redlatchledger.ErrReissued
			case 1:
				batch[i].ID, want = 3, redlatchledger.ErrReissued
			case 2:
				batch, want = slices.Delete(batch, i, i+1), redlatchledger.ErrHole
			case 3:
				for i := range batch {
					batch[i].Epoch++
				}
				want = redlatchledger.ErrUnknownOpening
			}
			if len(batch) == 0 {
				continue
			}
			entries := make([]stock.Entry, len(batch))
			for i, e := range batch {
				entries[i] = stock.Entry{Epoch: e.Epoch, Serial: e.Serial + 1, Kind: stock.Kind(e.Kind.String()), N: int64(e.N),
					Claimant: "ann", Request: strconv.FormatInt(e.ID, 10), At: time.UnixMicro(int64(n))}
			}
			fresh, ok := stockmodel.Write(rows, batch, known, stockmodel.Whole)
			err := m.Move(t.Context(), entries)
			if ok {
				want = nil // what was changed was new, or the last
			}
			require.ErrorIs(t, err, want, "%+v after %d", batch, len(rows))
			answers[want]++
			rows = append(rows, fresh...)
		}
		t.Log(answers, len(rows), "rows")
		for _, want := range []error{nil, redlatchledger.ErrReissued, redlatchledger.ErrHole,
			redlatchledger.ErrUnknownOpening} {
			require.Positive(t, answers[want], want)
		}
		var modelled strings.Builder
		for _, e := range rows {
			fmt.Fprintf(&modelled, "%d %d %d \n", e.Serial+1, e.N, e.ID)
		}
		require.Equal(t, modelled.String(), text(t, m.DB, "SELECT serial, n, request FROM moves ORDER BY serial"))
	})
}
