package redlatchledger_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func TestMain(m *testing.M) { services.Main(m, nil) }

// onDatabases runs a test on each of them, with the tables.
func onDatabases(t *testing.T, test func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB)) {
	services.Each(t, func(t *testing.T, dialect string, open func() *sql.DB) {
		d := redlatchledger.Dialect(dialect)
		require.NoError(t, d.Create(t.Context(), open()))
		test(t, d, open)
	})
}

// shop is a sale, and a database that several movers write to.
type shop struct {
	t       *testing.T
	raw     rueidis.Client
	forward func(time.Duration)
	sale    *stock.Sale
	spec    stock.Spec
	open    func() *sql.DB // another connection
	redlatchledger.Book
}

// each runs a test on a sale with a book in each database.
func each(t *testing.T, spec stock.Spec, test func(t *testing.T, s *shop)) {
	spec.OpenFor, spec.Remember, spec.PerUser, spec.Ledger = 1000*time.Hour, 1000*time.Hour, spec.Limit, true
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		server := redistest.Embedded(t)
		s := &shop{t: t, raw: server.Client(t), forward: server.Clock(), open: open, spec: spec,
			Book: redlatchledger.Book{DB: open(), Dialect: d, Sale: "phones"}}
		s.sale = s.client(func(string) stock.Book { return s.Book }).Sale("phones")
		require.NoError(t, s.sale.Open(t.Context(), s.spec))
		test(t, s)
	})
}

func (s *shop) client(books func(string) stock.Book) *stock.Client {
	s.t.Helper()
	c, err := stock.New(rig.Hub(s.t, s.raw), stock.Options{CallTimeout: 10 * time.Second, SoldOutTrust: -1, Books: books})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// buy buys so many units, and returns the ordinal of the first.
func (s *shop) buy(user string, n int64) int64 {
	s.t.Helper()
	a := redistest.NoError(s.sale.Buy(s.t.Context(), stock.Order{User: user, Lines: []stock.Line{{N: n}}}))(s.t)
	require.True(s.t, a.Won())
	return a.Lines[0].Ordinal
}

// drain moves all that there is.
func (s *shop) drain() error {
	for {
		if n, err := s.sale.Ledger(s.t.Context(), 10, s.Move); n == 0 || err != nil {
			return err
		}
	}
}

// lose has the server lose everything.
func (s *shop) lose() {
	rig.Must(s.t, s.raw, "FLUSHALL")
	s.forward(time.Second) // openings are told apart by their times
}

// rows is what the database has.
func (s *shop) rows() (all []stock.Entry) {
	s.t.Helper()
	for e, err := range s.Entries(s.t.Context()) {
		require.NoError(s.t, err)
		all = append(all, e)
	}
	return all
}

var errCrash = errors.New("crashed")

// crashes fails now and then, and is slow now and then, so that others overtake.
func crashes(seed uint64) func() error {
	rnd := rand.New(rand.NewPCG(seed, 1))
	return func() error {
		if rnd.IntN(5) == 0 {
			time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
		}
		if rnd.IntN(10) == 0 {
			return errCrash
		}
		return nil
	}
}

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
	for i := range uint64(3) {
		rnd, crash := rand.New(rand.NewPCG(i, 2)), crashes(i)
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

// crashingBook crashes before or after it does something.
type crashingBook struct {
	stock.Book
	crash func() error
}

func (b crashingBook) Move(ctx context.Context, entries []stock.Entry) error {
	if err := b.crash(); err != nil {
		return err
	}
	return errors.Join(b.Book.Move(ctx, entries), b.crash())
}

func (b crashingBook) Continue(ctx context.Context, from, to int64) (int64, error) {
	if err := b.crash(); err != nil {
		return 0, err
	}
	last, err := b.Book.Continue(ctx, from, to)
	return last, errors.Join(err, b.crash())
}
