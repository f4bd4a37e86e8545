package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestTheProgramEndsWithBooksThatAreRight(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "%s", out.String())
	require.Contains(t, out.String(), "as Redis says 20, as the database says 20")
}

// shop is a sale, and a database that two movers write to.
type shop struct {
	server *miniredis.Miniredis
	sale   *stock.Stock
	epoch  int64
	file   string
	books  *books
}

func newShop(t *testing.T, limit int64) *shop {
	t.Helper()
	s := &shop{server: miniredis.RunT(t), file: filepath.Join(t.TempDir(), "sale.db")}
	c, end, err := dial(s.server.Addr())
	require.NoError(t, err)
	t.Cleanup(end)
	s.sale = c.Stock("sale")
	s.epoch, err = s.sale.Open(t.Context(), stock.Spec{Limit: limit, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	s.books, err = openBooks(s.file)
	require.NoError(t, err)
	t.Cleanup(func() { s.books.db.Close() })
	return s
}

func (s *shop) claim(t *testing.T, user string) stock.Grant {
	t.Helper()
	g, err := s.sale.Claim(t.Context(), user)
	require.NoError(t, err)
	return g
}

// rule is a way to book entries, and to tell who has what.
type rule struct {
	move    func(ctx context.Context, b *books, entries []stock.Entry) error
	holders func(ctx context.Context, b *books, epoch int64) (map[int64]string, error)
}

var appendOnly = rule{
	func(ctx context.Context, b *books, entries []stock.Entry) error {
		return b.move(ctx, "sale", entries)
	},
	func(ctx context.Context, b *books, epoch int64) (map[int64]string, error) {
		return b.holders(ctx, "sale", epoch)
	},
}

// deleting is the rule not to use: "insert … on conflict do nothing, or delete".
var deleting = rule{
	func(ctx context.Context, b *books, entries []stock.Entry) error {
		tx, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS held (epoch bigint, ordinal bigint, claimant text, PRIMARY KEY (epoch, ordinal))`); err != nil {
			return err
		}
		for _, e := range entries {
			statement, args := `INSERT INTO held VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, []any{e.Epoch, e.Ordinal, e.Claimant}
			if e.Back {
				statement, args = `DELETE FROM held WHERE epoch = $1 AND ordinal = $2`, args[:2]
			}
			if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
				return err
			}
		}
		return tx.Commit()
	},
	func(ctx context.Context, b *books, epoch int64) (map[int64]string, error) {
		rows, err := b.db.QueryContext(ctx, `SELECT ordinal, claimant FROM held WHERE epoch = $1`, epoch)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		all := map[int64]string{}
		for rows.Next() {
			var ordinal int64
			var claimant string
			if err := rows.Scan(&ordinal, &claimant); err != nil {
				return nil, err
			}
			all[ordinal] = claimant
		}
		return all, rows.Err()
	},
}

// A mover reads a grant and is slow. The unit is returned; another mover moves the grant and the return, and removes both.
// Then the first one books what it has.
func TestASlowMoverLeavesTheBooksRight(t *testing.T) {
	for name, tc := range map[string]struct {
		rule rule
		has  int
	}{"rows that stay": {appendOnly, 0}, "rows that are deleted": {deleting, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 3)
			g := s.claim(t, "ann")
			read, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := s.sale.Ledger(t.Context(), 10, func(ctx context.Context, entries []stock.Entry) error {
					close(read)
					<-goOn
					return tc.rule.move(ctx, s.books, entries)
				})
				done <- err
			}()
			<-read
			ok, err := s.sale.Return(t.Context(), "ann", g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
			n, err := s.sale.Ledger(t.Context(), 10, func(ctx context.Context, entries []stock.Entry) error { return tc.rule.move(ctx, s.books, entries) })
			require.NoError(t, err)
			require.Equal(t, 2, n)
			close(goOn)
			require.NoError(t, <-done)
			held, err := tc.rule.holders(t.Context(), s.books, s.epoch)
			require.NoError(t, err)
			require.Len(t, held, tc.has, "nobody has a unit")
		})
	}
}

var errCrash = errors.New("crashed")

// Two movers, each with a database connection of its own, are slow now and then, and crash before the commit and between
// the commit and the removal, while a crowd claims and returns.
func TestTwoMoversThatCrashBookEveryUnitOnce(t *testing.T) {
	s := newShop(t, 1000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var movers sync.WaitGroup
	mover := func(ctx context.Context, b *books, seed uint64) error {
		rnd := rand.New(rand.NewPCG(seed, 1))
		for {
			n, err := s.sale.Ledger(ctx, 1+rnd.IntN(20), func(ctx context.Context, entries []stock.Entry) error {
				if rnd.IntN(5) == 0 {
					time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond) // the other overtakes
				}
				if rnd.IntN(10) == 0 {
					return errCrash
				}
				if err := b.move(ctx, "sale", entries); err != nil {
					return err
				}
				if rnd.IntN(10) == 0 {
					return errCrash
				}
				return nil
			})
			switch {
			case errors.Is(err, errCrash):
			case err != nil:
				return err
			case n == 0:
				return nil
			}
		}
	}
	failed := make(chan error, 2)
	for i := range 2 {
		own, err := openBooks(s.file)
		require.NoError(t, err)
		movers.Go(func() {
			defer own.db.Close()
			for seed := uint64(i); ctx.Err() == nil; seed += 2 {
				if err := mover(context.Background(), own, seed); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	have := map[int64]string{}
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range 400 {
		user := "user-" + strconv.Itoa(i)
		g := s.claim(t, user)
		require.True(t, g.Won())
		have[g.Ordinal] = user
		for unit, user := range have { // any
			if rnd.IntN(2) == 0 {
				ok, err := s.sale.Return(t.Context(), user, unit)
				require.NoError(t, err)
				require.True(t, ok)
				delete(have, unit)
			}
			break
		}
	}
	stop()
	movers.Wait()
	require.Empty(t, failed)
	require.NoError(t, mover(t.Context(), s.books, 99))
	held, err := s.books.holders(t.Context(), "sale", s.epoch)
	require.NoError(t, err)
	require.Equal(t, have, held)
}

// After a failover to a replica that had not heard of the last grants and returns, ordinals go out again. The database
// says so, whoever gets them; Restore from it sets the stock right.
func TestAnOrdinalThatIsGivenOutTwiceStopsTheMover(t *testing.T) {
	for _, second := range []string{"bob", "ann"} {
		t.Run(fmt.Sprint("to ", second), func(t *testing.T) {
			s := newShop(t, 5)
			move := func() error {
				_, err := s.sale.Ledger(t.Context(), 10, func(ctx context.Context, entries []stock.Entry) error { return s.books.move(ctx, "sale", entries) })
				return err
			}
			g := s.claim(t, "ann")
			ok, err := s.sale.Return(t.Context(), "ann", g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, move())
			// the replica that was promoted has the stock as it was opened
			s.server.Del("rc:{sale}:u")
			s.server.HSet("rc:{sale}", "seq", "0", "recorded", "0")

			again := s.claim(t, second)
			require.Equal(t, g.Ordinal, again.Ordinal)
			require.ErrorIs(t, move(), errReissued)
			require.ErrorIs(t, move(), errReissued, "the entry stays")
			held, err := s.books.holders(t.Context(), "sale", s.epoch)
			require.NoError(t, err)
			require.Empty(t, held)

			// nobody has the unit by the database, nor by the stock from now on
			out, err := s.sale.Restore(t.Context(), s.books.entries(t.Context(), "sale", s.epoch))
			require.NoError(t, err)
			require.Equal(t, stock.Restored{Displaced: []stock.Entry{{Ordinal: g.Ordinal, N: 1, Claimant: second}}}, out)
			s.server.Del("rc:{sale}:l") // the entry that was wrong
			g = s.claim(t, second)
			require.EqualValues(t, 2, g.Ordinal)
			ok, err = s.sale.Return(t.Context(), second, g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, move())
		})
	}
	s := newShop(t, 5)
	for range 2 {
		g := s.claim(t, "ann")
		_, err := s.sale.Return(t.Context(), "ann", g.Ordinal)
		require.NoError(t, err)
	}
	_, err := s.sale.Ledger(t.Context(), 10, func(ctx context.Context, entries []stock.Entry) error { return s.books.move(ctx, "sale", entries) })
	require.NoError(t, err)
	epoch := s.claim(t, "cid").Epoch // and this grant is forgotten by both
	s.server.Del("rc:{sale}:u")
	s.server.Del("rc:{sale}:l")
	s.server.HSet("rc:{sale}", "sold", "0", "seq", "0", "recorded", "0")
	_, err = s.sale.Restore(t.Context(), s.books.entries(t.Context(), "sale", epoch))
	require.NoError(t, err)
	require.EqualValues(t, 3, s.claim(t, "bob").Ordinal, "1 and 2 are in the database")
}

// The stock is lost, and opened again from the database. That is another opening, in which units of the first are returned.
func TestTheBooksGoOnAfterALoss(t *testing.T) {
	s := newShop(t, 5)
	move := func() {
		_, err := s.sale.Ledger(t.Context(), 10, func(ctx context.Context, entries []stock.Entry) error { return s.books.move(ctx, "sale", entries) })
		require.NoError(t, err)
	}
	for _, user := range []string{"ann", "bob", "cid"} {
		s.claim(t, user)
	}
	_, err := s.sale.Return(t.Context(), "cid", 3)
	require.NoError(t, err)
	move()
	for range 2 { // the second time with what was carried over the first time
		s.server.FlushAll()
		epoch, err := s.sale.Open(t.Context(), stock.Spec{Limit: 5, OpenFor: time.Hour, Ledger: true, Suspended: true})
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.books.carry(t.Context(), "sale", s.epoch, epoch))
		}
		s.epoch = epoch
		_, err = s.sale.Restore(t.Context(), s.books.entries(t.Context(), "sale", epoch))
		require.NoError(t, err)
	}
	require.EqualValues(t, 4, s.claim(t, "cid").Ordinal, "3 is in the database")
	ok, err := s.sale.Return(t.Context(), "ann", 1)
	require.NoError(t, err)
	require.True(t, ok)
	move()
	held, err := s.books.holders(t.Context(), "sale", s.epoch)
	require.NoError(t, err)
	require.Equal(t, map[int64]string{2: "bob", 4: "cid"}, held)
}
