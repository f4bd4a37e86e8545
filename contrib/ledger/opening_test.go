package redlatchledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// sellOut claims every unit.
func (s *shop) sellOut(t *testing.T) {
	t.Helper()
	for i := range s.spec.Limit {
		s.claim(t, "u"+strconv.FormatInt(i, 10))
	}
}

func (s *shop) sold(t *testing.T) (n int64) {
	t.Helper()
	require.NoError(t, s.DB.QueryRow(`SELECT COALESCE(SUM(n), 0) FROM units WHERE stock = 'sale'`).Scan(&n))
	return n
}

// Redis loses the stock, and a process that starts opens it again: everything would be sold a second time, in an
// opening whose numbers contradict nothing. The database knows the first, also if no entry of it was moved.
func TestOpening_SecondAfterALoss_IsRefusedByMoverAndOpener(t *testing.T) {
	t.Parallel()
	for _, moved := range []int64{0, 9} {
		each(t, 9, func(t *testing.T, s *shop) {
			ctx := t.Context()
			known, err := (&redlatchledger.Mover{DB: s.DB, Dialect: s.Dialect, Stock: "another"}).Opened(ctx)
			require.NoError(t, err)
			require.False(t, known)
			s.sellOut(t)
			if moved > 0 {
				require.NoError(t, s.drain(t))
			}
			require.Equal(t, moved, s.sold(t))

			s.server.Redis().FlushAll()
			asking := s.spec
			asking.Opened = s.Opened
			_, err = s.sale.OpenOrJoin(ctx, asking)
			require.ErrorIs(t, err, redlatch.ErrCorrupt)
			st, err := s.sale.Inspect(ctx)
			require.NoError(t, err)
			require.Zero(t, st.Epoch, "nobody has opened it again")

			st, err = s.sale.OpenOrJoin(ctx, s.spec) // a process that does not ask
			require.NoError(t, err)
			s.sellOut(t)
			keeping, stop := context.WithTimeout(ctx, 20*time.Second)
			defer stop()
			refused := fmt.Sprintf(`the database does not know this opening: stock "sale", opening %d: `+
				`the last one that it knows is %d`, st.Epoch, s.epoch)
			for _, err := range []error{s.Announce(ctx, st.Epoch), s.drain(t), s.Keep(keeping, s.sale, time.Millisecond)} {
				require.ErrorIs(t, err, redlatchledger.ErrUnknownOpening)
				require.ErrorContains(t, err, refused)
			}
			require.Equal(t, moved, s.sold(t), "the limit at most")
			_, err = s.sale.OpenOrJoin(ctx, asking)
			require.NoError(t, err, "it is there")
			require.NoError(t, s.Admit(ctx, st.Epoch)) // it was meant so
			require.NoError(t, s.drain(t))
			require.Equal(t, moved+9, s.sold(t))
		})
	}
}

// Whoever opens a stock tells the database a moment later, when movers may have an entry already.
func TestKeep_OpeningNotAnnounced_WaitsForIt(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		_, err := s.DB.Exec(`DELETE FROM mark`)
		require.NoError(t, err)
		s.claim(t, "ann")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		heard := 0
		s.Failed = func(err error) {
			require.ErrorIs(t, err, redlatchledger.ErrUnknownOpening)
			require.ErrorContains(t, err, "it knows none of this name")
			if heard++; heard == 3 {
				require.NoError(t, s.Announce(ctx, s.epoch))
			}
		}
		s.After = func(context.Context, []stock.Entry) error { stop(); return nil }
		require.ErrorIs(t, s.Keep(ctx, s.sale, time.Millisecond), context.Canceled)
		require.Equal(t, 3, heard)
		require.EqualValues(t, 1, s.sold(t))
	})
}

// Processes start at the same time, and each creates the tables and tells of what it has opened or joined.
func TestAnnounce_ManyOpeningsAtOnce_OneIsFirst(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		for round := range 4 {
			m := redlatchledger.Mover{DB: open(), Dialect: d, Stock: "sale " + strconv.Itoa(round)}
			m.DB.SetMaxIdleConns(6) // so that nobody has to connect first
			tell := func(epoch func(i int64) int64, how func(m *redlatchledger.Mover, epoch int64) error) (errs []error) {
				errs = make([]error, 6)
				var all, ready sync.WaitGroup
				ready.Add(len(errs))
				for i := range errs {
					all.Go(func() {
						err := d.Create(t.Context(), m.DB)
						ready.Done()
						ready.Wait() // Create has let one after the other through
						errs[i] = errors.Join(err, how(&m, epoch(int64(i))))
					})
				}
				all.Wait()
				return errs
			}
			same := func(int64) int64 { return 1 }
			first := func(m *redlatchledger.Mover, epoch int64) error { return m.Announce(t.Context(), epoch) }
			known := 0
			for _, err := range tell(func(i int64) int64 { return 1 + i }, first) {
				if err == nil {
					known++
				} else {
					require.ErrorIs(t, err, redlatchledger.ErrUnknownOpening)
				}
			}
			require.Equal(t, 1, known)
			m.Stock += " the same"
			require.NoError(t, errors.Join(tell(same, first)...))
			for range 2 {
				require.NoError(t, errors.Join(tell(func(i int64) int64 {
					return 1 + i/2
				}, func(m *redlatchledger.Mover, epoch int64) error {
					return m.Admit(t.Context(), epoch)
				})...))
			}
			var n, top int64
			require.NoError(t, m.DB.QueryRow(`SELECT COUNT(*), MAX(nth) FROM mark WHERE stock = '`+m.Stock+`'`).Scan(&n, &top))
			require.EqualValues(t, 3, n)
			require.EqualValues(t, 3, top)
		}
	})
}

// Names that MySQL's own texts would take for one.
func TestClaimants_SimilarNames_StayDistinct(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		for _, user := range []string{"ann", "Ann", "ann ", "änn", "a\u0308nn", "安"} {
			s.claim(t, user)
			require.NoError(t, s.drain(t))
			var has []string
			for e, err := range s.UnitsOf(t.Context(), s.epoch, user) {
				require.NoError(t, err)
				has = append(has, e.Claimant)
			}
			require.Equal(t, []string{user}, has)
		}
		require.Len(t, s.holders(t), 6)
	})
}

func TestMover_BadInput_IsRefused(t *testing.T) {
	t.Parallel()
	db := services.FreshSQLite(t)()
	good := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	none := redlatchledger.Dialect("Oracle")
	for want, err := range map[string]error{
		"DB is nil": (&redlatchledger.Mover{Dialect: redlatchledger.SQLite,
			Stock: "sale"}).Move(t.Context(), nil),
		`Dialect is ""`:       (&redlatchledger.Mover{DB: db, Stock: "sale"}).Announce(t.Context(), 1),
		`Dialect is "Oracle"`: none.Create(t.Context(), db),
		`Stock is ""`: (&redlatchledger.Mover{DB: db,
			Dialect: redlatchledger.SQLite}).Carry(t.Context(), 1, 2),
		`Packet is ""`: (&redlatchledger.PacketMover{DB: db,
			Dialect: redlatchledger.SQLite}).Move(t.Context(), nil),
		"s is nil":                         good.Keep(t.Context(), nil, time.Second),
		"epoch is 0":                       good.Announce(t.Context(), 0),
		"to is 7, must be another opening": good.Carry(t.Context(), 7, 7),
		"Stock has 1025 bytes, must be at ": (&redlatchledger.Mover{DB: db, Dialect: redlatchledger.MySQL,
			Stock: fmt.Sprintf("%01025d", 0)}).Announce(t.Context(), 1),
	} {
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, want)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, redlatchledger.SQLite.Create(t.Context(), db))
	require.NoError(t, good.Move(t.Context(), nil))
}
