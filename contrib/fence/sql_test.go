package redlatchfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

var errGivenUp = errors.New("given up")

// book is a table of what was written, in a database with fences.
func book(t *testing.T, db *sql.DB) {
	redistest.NoError(db.Exec(`CREATE TABLE book (token bigint NOT NULL, seen bigint NOT NULL)`))(t)
}

// enter writes a token, and the greatest that the transaction finds.
func enter(token redlatchfence.Token) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		var seen int64
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(token), 0) FROM book`).Scan(&seen); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO book VALUES (%d, %d)`, token, seen))
		return err
	}
}

func entries(t *testing.T, db *sql.DB) (all [][2]int64) {
	rows := redistest.NoError(db.Query(`SELECT token, seen FROM book ORDER BY token`))(t)
	defer rows.Close()
	for rows.Next() {
		var e [2]int64
		require.NoError(t, rows.Scan(&e[0], &e[1]))
		all = append(all, e)
	}
	require.NoError(t, rows.Err())
	return all
}

func TestFences_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		db := open()
		require.NoError(t, d.Create(t.Context(), db), "it may be called again")
		f := redlatchfence.Fences{DB: db, Dialect: d}
		rules(t, f, resource)
		require.NoError(t, f.Advance(t.Context(), "Account:7", 1), "a resource of its own: case counts")
		require.NoError(t, f.Advance(t.Context(), resource+" ", 1), "and so do spaces")
		require.NoError(t, f.Advance(t.Context(), strings.Repeat("x", 1024), 1))
	})
}

func TestFences_BadFields_AreRefused(t *testing.T) {
	ctx := t.Context()
	err := redlatchfence.Fences{Dialect: redlatchfence.SQLite}.Advance(ctx, resource, 33)
	require.ErrorIs(t, err, redlatchfence.ErrInvalid)
	require.ErrorContains(t, err, "DB is nil")
	db := services.FreshSQLite(t)()
	f := redlatchfence.Fences{DB: db}
	for _, err := range []error{f.Advance(ctx, resource, 33), redlatchfence.Dialect("Oracle").Create(ctx, db),
		f.Check(ctx, nil, resource, 33)} {
		require.ErrorIs(t, err, redlatchfence.ErrInvalid)
		require.ErrorContains(t, err, "Dialect is")
	}
	f.Dialect = redlatchfence.SQLite
	require.ErrorIs(t, f.Do(ctx, resource, 33, nil), redlatchfence.ErrInvalid)
	require.ErrorIs(t, f.Check(ctx, nil, "", 33), redlatchfence.ErrInvalid)
}

// The first of two transactions is held open while the second arrives. See Fences.Do for what each order means.
func TestFences_TwoTransactions_SecondWaitsForTheFirst(t *testing.T) {
	cases := []struct {
		name            string
		first, second   redlatchfence.Token
		firstRollsBack  bool
		secondIsRefused bool
		want            [][2]int64
	}{
		{"33 then 34", 33, 34, false, false, [][2]int64{{33, 0}, {34, 33}}},
		{"34 then 33", 34, 33, false, true, [][2]int64{{34, 0}}},
		{"34 rolled back then 33", 34, 33, true, false, [][2]int64{{33, 0}}},
		{"33 rolled back then 34", 33, 34, true, false, [][2]int64{{34, 0}}},
		{"34 then 34", 34, 34, false, false, [][2]int64{{34, 0}, {34, 34}}},
	}
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		ctx := t.Context()
		db := open()
		book(t, db)
		f, other := redlatchfence.Fences{DB: db, Dialect: d}, redlatchfence.Fences{DB: open(), Dialect: d}
		for _, c := range cases {
			for _, known := range []bool{true, false} { // the resource has a row
				name := fmt.Sprint(c.name, " ", known)
				t.Run(name, func(t *testing.T) {
					redistest.NoError(db.Exec(`DELETE FROM book`))(t)
					if known {
						require.NoError(t, f.Advance(ctx, name, 1))
					}
					began, end, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
					go func() {
						first <- f.Do(ctx, name, c.first, func(ctx context.Context, tx *sql.Tx) error {
							close(began)
							<-end
							if err := enter(c.first)(ctx, tx); err != nil || !c.firstRollsBack {
								return err
							}
							return errGivenUp
						})
					}()
					<-began
					second := make(chan error, 1)
					go func() { second <- other.Do(ctx, name, c.second, enter(c.second)) }()
					select {
					case err := <-second:
						t.Fatal("the second did not wait for the first: ", err)
					case <-time.After(20 * time.Millisecond): // one that has not got so far by now waits, or comes later
					}
					close(end)
					if err := <-first; c.firstRollsBack {
						require.ErrorIs(t, err, errGivenUp)
					} else {
						require.NoError(t, err)
					}
					if err := <-second; c.secondIsRefused {
						require.ErrorIs(t, err, redlatchfence.ErrStale)
					} else {
						require.NoError(t, err)
					}
					require.Equal(t, c.want, entries(t, db))
				})
			}
		}
	})
}

// In a transaction of the user's own, at every level: one that waited is refused, or fails, and never writes.
func TestFences_CheckInOwnTransaction_AdmitsNoStaleWrite(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
		if d == redlatchfence.SQLite {
			levels = []sql.IsolationLevel{sql.LevelDefault}
		}
		for i, level := range levels {
			ctx, name := t.Context(), fmt.Sprint("resource", i)
			f, other := redlatchfence.Fences{DB: open(), Dialect: d}, redlatchfence.Fences{DB: open(), Dialect: d}
			require.NoError(t, f.Advance(ctx, name, 32))
			later := redistest.NoError(f.DB.BeginTx(ctx, &sql.TxOptions{Isolation: level}))(t)
			require.NoError(t, f.Check(ctx, later, name, 34))
			checked := make(chan error, 1)
			go func() {
				late, err := other.DB.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				if err != nil {
					checked <- err
					return
				}
				defer late.Rollback()
				checked <- other.Check(ctx, late, name, 33)
			}()
			require.NoError(t, later.Commit())
			require.Error(t, <-checked, "%v", level)
			require.ErrorIs(t, f.Advance(ctx, name, 33), redlatchfence.ErrStale)
		}
	})
}

// Many holders at once, with new resources and rollbacks: what is committed never goes back to a smaller token. The
// order is that of the transactions, since each reads the greatest token before it.
func TestFences_ManyHolders_NeverGoBackToASmallerToken(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		db := open()
		book(t, db)
		db.SetMaxOpenConns(8)
		f := redlatchfence.Fences{DB: db, Dialect: d}
		var all sync.WaitGroup
		var refused, done sync.Map
		for i := range 8 {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for n := range 20 {
					if n < 10 { // each is new to all of them
						err := f.Do(t.Context(), fmt.Sprint("new", n), 1+redlatchfence.Token(rnd.IntN(9)),
							func(context.Context, *sql.Tx) error { return errGivenUp })
						if !errors.Is(err, errGivenUp) {
							t.Error(err)
						}
					}
					token := 1 + redlatchfence.Token(rnd.IntN(100))
					err := f.Do(t.Context(), resource, token, func(ctx context.Context, tx *sql.Tx) error {
						if err := enter(token)(ctx, tx); err != nil || rnd.IntN(4) > 0 {
							return err
						}
						return errGivenUp
					})
					switch {
					case err == nil:
						done.Store(token, true)
					case errors.Is(err, redlatchfence.ErrStale):
						refused.Store(token, true)
					case !errors.Is(err, errGivenUp):
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, e := range entries(t, db) {
			require.LessOrEqual(t, e[1], e[0], "token %d was written after %d", e[0], e[1])
			_, ok := done.Load(redlatchfence.Token(e[0]))
			require.True(t, ok)
		}
		n := 0
		refused.Range(func(any, any) bool { n++; return true })
		require.Positive(t, n, "nothing was stale: the test shows nothing")
	})
}

func TestFences_TokenRolledBack_IsForgotten(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB) {
		ctx, f := t.Context(), redlatchfence.Fences{DB: open(), Dialect: d}
		err := f.Do(ctx, resource, 34, func(context.Context, *sql.Tx) error { return errGivenUp })
		require.ErrorIs(t, err, errGivenUp)
		require.NoError(t, f.Advance(ctx, resource, 33), "34 has changed nothing, and was not seen")
		require.NoError(t, f.Advance(ctx, resource, 35))
		err = f.Do(ctx, resource, 35, func(context.Context, *sql.Tx) error { return errGivenUp })
		require.ErrorIs(t, err, errGivenUp)
		require.ErrorIs(t, f.Advance(ctx, resource, 34), redlatchfence.ErrStale, "what Advance has committed stays")
	})
}
