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

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Batches begin too early or too late, have been written, come again with another time, differ from what was written,
// or are of another opening. A batch that is refused has written nothing.
func TestBook_RandomBatches_WritesAsTheModel(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		b, ctx := redlatchledger.Book{DB: open(), Dialect: d, Sale: "phones"}, t.Context()
		r := rand.New(rand.NewPCG(1, 2))
		var model salebook.Book
		answers := map[error]int{}
		for n := range redistest.Sized(60, 80, 2000) {
			if r.IntN(6) == 0 {
				from, to := model.Epoch-int64(r.IntN(3)/2), model.Epoch+1
				want, refused := model.Continue(ctx, from, to)
				last, err := b.Continue(ctx, from, to)
				require.Equal(t, refused == nil, err == nil)
				require.Equal(t, want, last)
			}
			from := max(0, len(model.All)-r.IntN(4)) // what was written is among it, as a rule
			batch := slices.Clone(model.All[from:])
			past := len(batch)
			for range 1 + r.IntN(3) {
				batch = append(batch, stock.Entry{Epoch: max(1, model.Epoch), Serial: int64(from + len(batch) + 1), Kind: "sold",
					ID: fmt.Sprint(r.IntN(3)), User: "ann", Item: "red", Asked: 2, N: 1 + r.Int64N(2), Ordinal: int64(n) + 1,
					At: time.UnixMicro(int64(n) + 1).UTC(), Until: []time.Time{{}, time.UnixMilli(7).UTC()}[n%2], Why: "?"})
			}
			switch i := r.IntN(len(batch)); r.IntN(8) {
			case 0:
				batch[i].N = 5 - batch[i].N
			case 1:
				batch[i].ID = "3"
			case 2:
				batch = slices.Delete(batch, past, past+1)
			case 3:
				batch[i].Epoch++
			case 4:
				batch[i].Until = time.UnixMilli(8).UTC()
			}
			want := model.Move(ctx, batch)
			for i := range past { // the model compares the times of entries, and databases do not
				batch[i].At = time.UnixMicro(1).UTC()
			}
			switch err := b.Move(ctx, batch); {
			case want == nil:
				require.NoError(t, err, "%+v after %d", batch, len(model.All))
				answers[nil]++
			case errors.Is(err, redlatchledger.ErrHole):
				answers[redlatchledger.ErrHole]++
			default:
				require.ErrorIs(t, err, redlatch.ErrMismatch, "%+v after %d", batch, len(model.All))
				answers[redlatch.ErrMismatch]++
			}
		}
		t.Log(answers, len(model.All), "rows")
		require.Len(t, answers, 3)
		epoch := redistest.NoError(b.Opened(ctx))(t)
		require.Equal(t, model.Epoch, epoch)
		require.True(t, slices.Equal(model.All, (&shop{t: t, Book: b}).rows()))
	})
}

// Three movers, each with connections of its own, are slow now and then, and crash before the transaction, in it, and
// between the commit and the removal, while a crowd buys, reserves and returns. Each entry is in the database once, and
// so is what was done with it in its transaction.
func TestMovers_CrashAnywhere_WriteEveryEntryOnce(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 1000}, func(t *testing.T, s *shop) {
		redistest.NoError(s.DB.Exec(`CREATE TABLE orders (serial bigint PRIMARY KEY)`))(t)
		stop := crashingMovers(t, s.sale.Ledger, func(crash func() error) func(context.Context, []stock.Entry) error {
			own := s.Book
			own.DB = s.open()
			own.Also = func(ctx context.Context, tx *sql.Tx, entries []stock.Entry) error {
				for _, e := range entries {
					if _, err := tx.ExecContext(ctx, fmt.Sprint(`INSERT INTO orders VALUES (`, e.Serial, `)`)); err != nil {
						return err
					}
				}
				return crash()
			}
			return own.Move
		})
		ctx, has := t.Context(), map[string]int64{}
		for i := range 150 {
			id := fmt.Sprint("order ", i)
			a := redistest.NoError(s.sale.Reserve(ctx, stock.Order{ID: id, User: id, Lines: []stock.Line{{N: 2}}}, time.Hour))(t)
			if i%3 > 0 {
				a = redistest.NoError(s.sale.Pay(ctx, id))(t)
			}
			if i%3 == 2 {
				a = redistest.NoError(s.sale.Return(ctx, id, stock.Line{N: 1}))(t)
			}
			if a.State == stock.Sold {
				has[id] = a.Lines[0].N
			}
		}
		stop()
		rows := s.rows()
		require.Len(t, rows, 150+100+50)
		for i, e := range rows {
			require.EqualValues(t, i+1, e.Serial)
		}
		var orders int
		require.NoError(t, s.DB.QueryRow(`SELECT COUNT(*) FROM orders`).Scan(&orders))
		require.Equal(t, len(rows), orders, "each once")
		for id, n := range has {
			units := redistest.NoError(s.UnitsOf(ctx, id))(t)
			require.Len(t, units, 1)
			require.Equal(t, n, units[0].N)
		}
	})
}

// The server loses the sale. No process opens it again, and Restore, which is killed at every step, goes on from the
// database. A mover that had read entries before the loss brings them afterwards.
func TestRestore_KilledAnywhere_GoesOnFromTheDatabase(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 20}, func(t *testing.T, s *shop) {
		ctx := t.Context()
		reserved, err := s.sale.Reserve(ctx, stock.Order{ID: "cart", User: "cid", Lines: []stock.Line{{N: 2}}}, 100*time.Hour)
		require.NoError(t, err)
		refund := redistest.NoError(s.sale.Pay(ctx, "no order"))(t)
		require.Equal(t, stock.Closed, refund.State)
		for round := range 3 {
			user := fmt.Sprint("ann ", round)
			ordinal := s.buy(user, 2)
			s.buy("bob "+user, 1)
			redistest.NoError(s.sale.Return(ctx, "bob "+user))(t)
			require.NoError(t, s.drain())
			s.buy("unmoved", 1)
			var old []stock.Entry
			_, err := s.sale.Ledger(ctx, 10, func(_ context.Context, entries []stock.Entry) error {
				old = entries
				return errCrash
			})
			require.ErrorIs(t, err, errCrash)
			s.lose()
			require.ErrorIs(t, s.sale.Open(ctx, s.spec), stock.ErrNoStock)
			killed := crashingBook{s.Book, crashes(uint64(round))}
			crashing := s.client(func(string) stock.Book { return killed }).Sale("phones")
			for crashed := 0; ; crashed++ {
				lost, err := crashing.Restore(ctx, s.spec)
				if err == nil {
					require.Empty(t, lost)
					break
				}
				require.ErrorIs(t, err, errCrash)
				require.Less(t, crashed, 100)
			}
			require.ErrorIs(t, s.Move(ctx, old), redlatch.ErrMismatch)
			require.NoError(t, s.drain())
			require.Equal(t, ordinal, s.buy(user, 2))
			for id, want := range map[string]stock.State{"cart": reserved.State, "no order": stock.Closed, "unmoved": "",
				"bob " + user: stock.Closed} {
				a := redistest.NoError(s.sale.Status(ctx, id))(t)
				require.Equal(t, want, a.State, id)
			}
		}
		paid := redistest.NoError(s.sale.Pay(ctx, "cart"))(t)
		require.Equal(t, stock.Sold, paid.State)
		require.NoError(t, s.drain())
	})
}

// Two processes restore the sale at the same time, again and again.
func TestRestore_Two_TheBookGoesOnWithTheOneThatStands(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 100}, func(t *testing.T, s *shop) {
		for round := range 5 {
			s.buy(fmt.Sprint("ann ", round), 1)
			if round > 0 {
				require.NoError(t, s.drain())
				s.lose()
			}
			errs := make([]error, 2)
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() {
					own := s.Book
					own.DB = s.open()
					other := s.client(func(string) stock.Book { return own }).Sale("phones")
					_, errs[i] = other.Restore(t.Context(), s.spec)
				})
			}
			both.Wait()
			for _, err := range errs {
				if err != nil { // that one has suspended the sale: run it again
					redistest.NoError(s.sale.Restore(t.Context(), s.spec))(t)
				}
			}
			for i := range round + 1 {
				require.EqualValues(t, i+1, s.buy(fmt.Sprint("ann ", i), 1))
			}
			require.NoError(t, s.drain())
		}
		require.Len(t, s.rows(), 5)
	})
}

// A process without a book opens the sale a second time after a loss: everything would be sold a second time. The
// database takes the entries of the first opening only, and Restore takes back what the second has sold.
func TestBook_SoldASecondTime_TakesTheFirstOpening(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 9}, func(t *testing.T, s *shop) {
		ctx := t.Context()
		s.buy("ann", 5)
		require.NoError(t, s.drain())
		s.lose()
		careless := s.client(nil).Sale("phones")
		require.NoError(t, careless.Open(ctx, s.spec))
		a := redistest.NoError(careless.Buy(ctx, stock.Order{User: "bob", Lines: []stock.Line{{N: 9}}}))(t)
		require.True(t, a.Won())
		require.ErrorIs(t, s.drain(), redlatch.ErrMismatch)
		require.ErrorIs(t, s.sale.Open(ctx, s.spec), redlatch.ErrMismatch)
		lost := redistest.NoError(s.sale.Restore(ctx, s.spec))(t)
		require.Len(t, lost, 1)
		require.Equal(t, "bob", lost[0].ID)
		require.EqualValues(t, 6, s.buy("cid", 4))
		require.NoError(t, s.drain())
		require.Len(t, s.rows(), 2)
	})
}

// Keep goes on after errors of the database, and over a loss and a Restore; it ends at a hole.
func TestKeep_DatabaseAndServerFail_GoesOnUntilAHole(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 9}, func(t *testing.T, s *shop) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		failures := make(chan error, 1000)
		own, crash := s.Book, 2
		own.Failed = func(err error) { failures <- err }
		own.Also = func(context.Context, *sql.Tx, []stock.Entry) error {
			if crash--; crash >= 0 {
				return errCrash
			}
			return nil
		}
		s.buy("ann", 1)
		ended := make(chan error, 1)
		go func() { ended <- own.Keep(ctx, s.sale, time.Millisecond) }()
		heard := func(want error) {
			t.Helper()
			select {
			case err := <-failures:
				require.ErrorIs(t, err, want)
			case err := <-ended:
				require.NoError(t, err)
			}
		}
		heard(errCrash)
		heard(errCrash)
		moved := func(n int) {
			t.Helper()
			redistest.Eventually(t, time.Minute, "they are moved", func() bool { return len(s.rows()) == n })
		}
		moved(1)
		s.lose()
		heard(stock.ErrNoStock)
		redistest.NoError(s.sale.Restore(ctx, s.spec))(t)
		s.buy("bob", 1)
		moved(2)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, s.drain()) // it may have been stopped after its commit, before it removed the entry

		redistest.NoError(s.DB.Exec(`DELETE FROM sale_entries`))(t)
		redistest.NoError(s.DB.Exec(`UPDATE sales SET last_serial = 0`))(t)
		s.buy("cid", 1)
		require.ErrorIs(t, s.Keep(t.Context(), s.sale, time.Millisecond), redlatchledger.ErrHole)
		_, err := s.sale.Restore(t.Context(), s.spec)
		require.ErrorIs(t, err, redlatchledger.ErrHole)
	})
}

// A mover that crashes after its commit leaves the entries to the next one. That has nothing new to write, and hands
// them to After.
func TestBook_AfterFails_GetsEveryEntryLater(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 9}, func(t *testing.T, s *shop) {
		var failures []error
		s.Failed = func(err error) { failures = append(failures, err) }
		s.After = func(context.Context, []stock.Entry) error { return errCrash }
		s.buy("ann", 1)
		_, err := s.sale.Ledger(t.Context(), 100, func(ctx context.Context, entries []stock.Entry) error {
			require.NoError(t, s.Move(ctx, entries))
			return errCrash
		})
		require.ErrorIs(t, err, errCrash)
		require.Equal(t, []error{errCrash}, failures)
		s.buy("bob", 1)
		var seen []string
		s.After = func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries {
				seen = append(seen, e.User)
			}
			return nil
		}
		require.NoError(t, s.drain())
		require.Equal(t, []string{"ann", "bob"}, seen)
		require.Len(t, failures, 1)
	})
}

// Processes start at the same time. Each creates the tables, and tells of an opening or moves the first entry of one.
func TestBook_ManyAtOnce_TakesOneOpening(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		for round := range 4 {
			b := redlatchledger.Book{DB: open(), Dialect: d, Sale: "sale " + strconv.Itoa(round)}
			took := make([]error, 6)
			var all sync.WaitGroup
			for i := range took {
				all.Go(func() {
					epoch, err := int64(1+i), d.Create(t.Context(), b.DB)
					if err == nil && i%2 == 0 {
						err = b.Move(t.Context(), []stock.Entry{{Epoch: epoch, Serial: 1, Kind: "sold", ID: "ann"}})
					} else if err == nil {
						_, err = b.Continue(t.Context(), 0, epoch)
					}
					took[i] = err
				})
			}
			all.Wait()
			took = slices.DeleteFunc(took, func(err error) bool { return errors.Is(err, redlatch.ErrMismatch) })
			require.Equal(t, []error{nil}, took)
		}
	})
}

// Names that MySQL's own texts would take for one.
func TestBook_SimilarNames_StayDistinct(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Limit: 9}, func(t *testing.T, s *shop) {
		for _, user := range []string{"ann", "Ann", "ann ", "änn", "a\u0308nn", "安"} {
			ordinal := s.buy(user, 1)
			require.NoError(t, s.drain())
			units := redistest.NoError(s.UnitsOf(t.Context(), user))(t)
			require.Equal(t, []stock.Entry{{Kind: "sold", ID: user, User: user, N: 1, Ordinal: ordinal}}, units)
			order := redistest.NoError(s.Order(t.Context(), user))(t)
			require.Len(t, order, 1)
		}
	})
}

func TestBook_BadInput_IsRefused(t *testing.T) {
	t.Parallel()
	db, ctx := services.FreshSQLite(t)(), t.Context()
	good := redlatchledger.Book{DB: db, Dialect: redlatchledger.SQLite, Sale: "phones"}
	require.NoError(t, redlatchledger.SQLite.Create(ctx, db))
	require.NoError(t, good.Move(ctx, nil))
	no := redlatchledger.PacketMover{DB: db, Dialect: redlatchledger.SQLite}
	refused := map[string]error{
		`Dialect is "Oracle"`: redlatchledger.Dialect("Oracle").Create(ctx, db),
		`Packet is ""`:        no.Move(ctx, nil),
		"s is nil":            good.Keep(ctx, nil, time.Second),
		"Hub is nil":          redlatchledger.Live{Channel: "c"}.Publish(ctx, nil),
	}
	for want, change := range map[string]func(b *redlatchledger.Book){
		"DB is nil":             func(b *redlatchledger.Book) { b.DB = nil },
		`Dialect is ""`:         func(b *redlatchledger.Book) { b.Dialect = "" },
		`Sale is ""`:            func(b *redlatchledger.Book) { b.Sale = "" },
		"Sale is of 1025 bytes": func(b *redlatchledger.Book) { b.Sale = strings.Repeat("x", 1025) },
	} {
		bad := good
		change(&bad)
		_, refused[want+" for Opened"] = bad.Opened(ctx)
		_, refused[want+" for Continue"] = bad.Continue(ctx, 0, 1)
		_, refused[want+" for Order"] = bad.Order(ctx, "ann")
		refused[want+" for Move"] = bad.Move(ctx, nil)
	}
	for want, err := range refused {
		want, _, _ = strings.Cut(want, " for ")
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, want)
		require.ErrorContains(t, err, want)
	}
}
