package redlatchledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/stretchr/testify/require"
)

// shop is a sale, and a database that several movers write to.
type shop struct {
	server *redlatchtest.Server
	sale   *stock.Stock
	epoch  int64
	spec   stock.Spec
	open   func() *sql.DB // another connection
	redlatchledger.Mover
}

// onDatabases runs a test on each of them, with the tables.
func onDatabases(t *testing.T, test func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB)) {
	services.Each(t, func(t *testing.T, dialect string, open func() *sql.DB) {
		d := redlatchledger.Dialect(dialect)
		require.NoError(t, d.Create(t.Context(), open()))
		test(t, d, open)
	})
}

// each runs a test on a sale of which each database knows.
func each(t *testing.T, limit int64, test func(t *testing.T, s *shop)) {
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		s := &shop{open: open, spec: stock.Spec{Limit: limit, PerUser: 9, OpenFor: time.Hour, Ledger: true}}
		s.server = redlatchtest.New(t)
		s.sale = s.server.Open().Stocks().Stock("sale")
		var err error
		s.epoch, err = s.sale.Open(t.Context(), s.spec)
		require.NoError(t, err)
		s.Mover = redlatchledger.Mover{DB: s.open(), Dialect: d, Stock: "sale"}
		require.NoError(t, s.Announce(t.Context(), s.epoch))
		test(t, s)
	})
}

// sql is a query as the database wants its parameters, which are question marks here.
func (s *shop) sql(query string) string {
	for n := 1; s.Dialect == redlatchledger.PostgreSQL && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	return query
}

func (s *shop) claim(t *testing.T, user string) stock.Grant {
	t.Helper()
	g, err := s.sale.Claim(t.Context(), user)
	require.NoError(t, err)
	require.True(t, g.Won())
	return g
}

func (s *shop) giveBack(t *testing.T, user string, ordinal int64) {
	t.Helper()
	ok, err := s.sale.Return(t.Context(), stock.Units{Claimant: user, Ordinal: ordinal})
	require.NoError(t, err)
	require.Positive(t, ok)
}

// drain moves all that there is.
func (s *shop) drain(t *testing.T) error {
	t.Helper()
	for {
		if n, err := s.sale.Ledger(t.Context(), 10, s.Move); n == 0 || err != nil {
			return err
		}
	}
}

// holders is who has which unit, by the database.
func (s *shop) holders(t *testing.T) map[int64]string {
	t.Helper()
	all := map[int64]string{}
	for e, err := range s.Units(t.Context(), s.epoch) {
		require.NoError(t, err)
		for o := e.Ordinal; o < e.Ordinal+e.N; o++ {
			require.NotContains(t, all, o)
			all[o] = e.Claimant
		}
	}
	return all
}

var errCrash = errors.New("crashed")

// crashingMovers are three movers of a ledger, with connections of their own by move, that are slow now and then, and
// crash before the transaction, in it where move calls crash, and between the commit and the removal. stop has them end
// once the ledger is empty.
func crashingMovers[E any](t *testing.T,
	ledger func(context.Context, int, func(context.Context, []E) error) (int, error),
	move func(crash func() error) func(context.Context, []E) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var movers sync.WaitGroup
	failed := make(chan error, 3)
	for i := range 3 {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		crash := func() error {
			if rnd.IntN(5) == 0 {
				time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond) // the others overtake
			}
			if rnd.IntN(10) == 0 {
				return errCrash
			}
			return nil
		}
		own := move(crash)
		movers.Go(func() {
			for {
				last := ctx.Err() != nil
				n, err := ledger(context.Background(), 1+rnd.IntN(20), func(ctx context.Context, entries []E) error {
					for _, step := range []func() error{crash, func() error { return own(ctx, entries) }, crash} {
						if err := step(); err != nil {
							return err
						}
					}
					return nil
				})
				switch {
				case errors.Is(err, errCrash):
				case err != nil:
					failed <- err
					return
				case n == 0 && last:
					return
				}
			}
		})
	}
	return func() {
		t.Helper()
		cancel()
		movers.Wait()
		close(failed)
		require.NoError(t, <-failed)
	}
}

// Three movers, each with connections of its own, are slow now and then, and crash before the transaction, in it,
// between the commit and the removal, while a crowd claims, reserves and returns. Each entry is in the database once,
// and so is what was done with it in its transaction.
func TestMovers_CrashAnywhere_WriteEveryEntryOnce(t *testing.T) {
	t.Parallel()
	each(t, 1000, func(t *testing.T, s *shop) {
		_, err := s.DB.Exec(`CREATE TABLE orders (serial bigint PRIMARY KEY, claimant text)`)
		require.NoError(t, err)
		stop := crashingMovers(t, s.sale.Ledger, func(crash func() error) func(context.Context, []stock.Entry) error {
			own := redlatchledger.Mover{DB: s.open(), Dialect: s.Dialect, Stock: "sale",
				Also: func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
					for _, e := range entries {
						if _, err := tx.ExecContext(ctx, s.sql(`INSERT INTO orders VALUES (?, ?)`), e.Serial, e.Claimant); err != nil {
							return err
						}
					}
					return crash()
				}}
			return own.Move
		})
		have := map[int64]string{}
		rnd := rand.New(rand.NewPCG(7, 7))
		for i := range 200 {
			user := "user-" + strconv.Itoa(i)
			if i%3 == 0 {
				_, err := s.sale.Reserve(t.Context(), user, stock.Request{ID: user, N: 2}, time.Hour)
				require.NoError(t, err)
				if i%2 == 0 {
					g, err := s.sale.Confirm(t.Context(), user)
					require.NoError(t, err)
					have[g.Ordinal], have[g.Ordinal+1] = user, user
				} else {
					_, err := s.sale.Cancel(t.Context(), user)
					require.NoError(t, err)
				}
				continue
			}
			g := s.claim(t, user)
			if rnd.IntN(2) == 0 {
				s.giveBack(t, user, g.Ordinal)
			} else {
				have[g.Ordinal] = user
			}
		}
		stop()
		require.Equal(t, have, s.holders(t))
		var rows, orders, top int64
		require.NoError(t, s.DB.QueryRow(`SELECT count(*), max(serial), (SELECT count(*) FROM orders) FROM moves`).
			Scan(&rows, &top, &orders))
		require.Equal(t, top, rows, "no number is missing")
		require.Equal(t, top, orders, "each once")
	})
}

// The stock is lost, and opened again from the database. That is another opening, in which units of the first are
// returned.
func TestRestore_StockLost_GoesOnFromTheDatabase(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		for _, user := range []string{"ann", "bob", "cid"} {
			s.claim(t, user)
		}
		s.giveBack(t, "cid", 3)
		g, err := s.sale.Claim(t.Context(), "dan", stock.Request{ID: "order", N: 2})
		require.NoError(t, err)
		refund, err := s.sale.Confirm(t.Context(), "no order")
		require.NoError(t, err)
		require.Equal(t, stock.Cancelled, refund.Outcome)
		require.NoError(t, s.drain(t))
		require.ErrorIs(t, s.Carry(t.Context(), s.epoch, s.epoch), redlatch.ErrInvalidOption)
		require.ErrorIs(t, s.Carry(t.Context(), s.epoch+1, s.epoch+2), redlatchledger.ErrUnknownOpening)
		for range 2 { // the second time with what was carried over the first time
			s.server.Redis().FlushAll()
			s.spec.Suspended = true
			epoch, err := s.sale.Open(t.Context(), s.spec)
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, s.Carry(t.Context(), s.epoch, epoch))
			}
			s.epoch = epoch
			_, err = s.sale.Restore(t.Context(), s.Entries(t.Context(), epoch))
			require.NoError(t, err)
			require.NoError(t, s.drain(t))
			late, err := s.sale.Reserve(t.Context(), "dan", stock.Request{ID: "no order", N: 1}, time.Minute)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, late.Outcome, "it was decided that it gets nothing")
		}
		require.EqualValues(t, 6, s.claim(t, "cid").Ordinal, "3 is in the database")
		s.giveBack(t, "ann", 1)
		ok, err := s.sale.Return(t.Context(), stock.Units{Request: "order"})
		require.NoError(t, err)
		require.Positive(t, ok)
		require.NoError(t, s.drain(t))
		require.Equal(t, map[int64]string{2: "bob", 6: "cid"}, s.holders(t))
		require.EqualValues(t, 4, g.Ordinal)
	})
}

// What is left of grants of which parts were returned, compared with a count unit by unit.
func TestView_PartsReturned_HasEveryUnitLeft(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		var before []stock.Entry
		for epoch := range int64(20) {
			rnd := rand.New(rand.NewPCG(uint64(epoch), 1))
			var entries []stock.Entry
			s.epoch = 100 + epoch
			require.NoError(t, s.Admit(t.Context(), s.epoch))
			enter := func(kind stock.Kind, ordinal, n int64, who string) {
				entries = append(entries,
					stock.Entry{Serial: int64(len(entries)) + 1, Kind: kind, Epoch: s.epoch, Ordinal: ordinal, N: n, Claimant: who})
			}
			want, next := map[int64]string{}, int64(1)
			for range 12 {
				who, n := fmt.Sprint(next), 1+rnd.Int64N(6)
				enter([]stock.Kind{stock.KindGrant, stock.KindLate}[rnd.IntN(2)], next, n, who)
				for o := next; o < next+n; o++ {
					want[o] = who
				}
				var parts [][2]int64
				for o := next; o < next+n; {
					k := min(1+rnd.Int64N(3), next+n-o)
					if rnd.IntN(2) == 0 {
						parts = append(parts, [2]int64{o, k})
					}
					o += k
				}
				rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
				for _, p := range parts {
					enter(stock.KindReturn, p[0], p[1], who)
					for o := p[0]; o < p[0]+p[1]; o++ {
						delete(want, o)
					}
				}
				enter(stock.KindHeld, 0, 3, who)
				next += n
			}
			require.NoError(t, s.Move(t.Context(), append(before, entries...)), "of two openings; the first is told again")
			before = slices.Clip(entries)
			require.Equal(t, want, s.holders(t), entries)
			var view, pieces []string
			for _, line := range strings.Split(strings.TrimSpace(text(t, s.DB,
				fmt.Sprint(`SELECT ordinal, n, claimant, serial FROM units WHERE epoch = `, s.epoch, ` ORDER BY ordinal`))), "\n") {
				view = append(view, strings.TrimSpace(line))
			}
			for e := range s.Units(t.Context(), s.epoch) {
				pieces = append(pieces, strings.TrimSpace(fmt.Sprintln(e.Ordinal, e.N, e.Claimant, e.Serial)))
			}
			require.Equal(t, pieces, view)
			var units, back, last int64
			for e, err := range s.Entries(t.Context(), s.epoch) {
				require.NoError(t, err)
				switch e.Kind {
				case stock.KindReturn:
					back += e.N
				case stock.KindGrant:
					units += e.N
				}
				last = max(last, e.Serial)
			}
			require.EqualValues(t, len(want), units)
			require.EqualValues(t, next-1, units+back)
			require.EqualValues(t, len(entries), last)
		}
	})
}

func TestKeep_DatabaseFails_GoesOnUntilAHole(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		var failures []error
		tries := 0
		s.Also = func(context.Context, *sql.Tx, []stock.Entry) error {
			if tries++; tries < 3 {
				return errCrash
			}
			return nil
		}
		moved := make(chan struct{})
		s.Failed = func(err error) {
			if failures = append(failures, err); len(failures) == 2 {
				close(moved)
			}
		}
		s.claim(t, "ann")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- s.Keep(ctx, s.sale, time.Millisecond) }()
		<-moved
		require.Eventually(t, func() bool { return len(s.holders(t)) == 1 }, time.Minute, 5*time.Millisecond)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, []error{errCrash, errCrash}, failures)
		require.NoError(t, s.drain(t)) // it may have been stopped after its commit, before it removed the entry

		_, err := s.DB.Exec(`UPDATE mark SET next = 1`)
		require.NoError(t, err)
		_, err = s.DB.Exec(`DELETE FROM moves`)
		require.NoError(t, err)
		s.claim(t, "bob")
		require.ErrorIs(t, s.Keep(t.Context(), s.sale, time.Millisecond), redlatchledger.ErrHole)
		require.Len(t, slices.Collect(func(yield func(error) bool) {
			for _, err := range s.Entries(t.Context(), -1) {
				yield(err)
			}
		}), 0)
	})
}

// A mover that crashes after its commit leaves the entries to the next one, which has nothing new to write and
// publishes them.
func TestMover_PublishFails_PublishesEveryEntryLater(t *testing.T) {
	t.Parallel()
	each(t, 9, func(t *testing.T, s *shop) {
		var failures []error
		s.Failed = func(err error) { failures = append(failures, err) }
		s.After = func(context.Context, []stock.Entry) error { return errCrash }
		s.claim(t, "ann")
		_, err := s.sale.Ledger(t.Context(), 100, func(ctx context.Context, entries []stock.Entry) error {
			return errors.Join(s.Move(ctx, entries), errCrash)
		})
		require.ErrorIs(t, err, errCrash)
		require.Equal(t, []error{errCrash}, failures, "it was told, and Move has not failed")
		s.claim(t, "bob")
		s.After = s.sale.Publish
		var seen []string
		for e, err := range s.sale.Events(t.Context(), time.Hour) {
			require.NoError(t, err)
			if e.Gap {
				n, err := s.sale.Ledger(t.Context(), 100, s.Move)
				require.NoError(t, err)
				require.Equal(t, 2, n)
				continue
			}
			if seen = append(seen, e.Claimant); len(seen) == 2 {
				break
			}
		}
		require.Equal(t, []string{"ann", "bob"}, seen)
		require.Len(t, failures, 1)
	})
}
