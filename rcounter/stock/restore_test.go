package stock_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

var stockKeys = []string{"rc:{s}", "rc:{s}:u", "rc:{s}:r", "rc:{s}:h", "rc:{s}:o", "rc:{s}:l"}

// snapshot is what a replica knows of the stock now; put makes the server know no more than that.
func snapshot(t testing.TB, c rueidis.Client) (put func()) {
	t.Helper()
	dumps := map[string]string{}
	for _, k := range stockKeys {
		if d := text(t, c, "DUMP", k); d != "(nil)" {
			dumps[k] = d
		}
	}
	return func() {
		must(t, c, append([]string{"DEL"}, stockKeys...)...)
		for k, d := range dumps {
			must(t, c, "RESTORE", k, "3600000", d)
		}
	}
}

func TestRestore_Fails_LeavesTheStockSuspended(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), exact), "s", 2)
		claimed(t, s, "ann")
		boom := errors.New("boom")
		for what, tc := range map[string]struct {
			winners iter.Seq2[stock.Entry, error]
			err     error
		}{
			"the database fails": {func(yield func(stock.Entry, error) bool) { yield(stock.Entry{}, boom) }, boom},
			"nobody's":           {sequence(stock.Entry{Ordinal: 1}), errs.ErrInvalidOption},
			"no ordinal":         {sequence(stock.Entry{Claimant: "x"}), errs.ErrInvalidOption},
			"one unit, two": {sequence(stock.Entry{Claimant: "x", Ordinal: 1}, stock.Entry{Claimant: "y", Ordinal: 1}),
				errs.ErrCorrupt},
			"held and returned": {sequence(stock.Entry{Claimant: "x", Request: "r", Ordinal: 2, N: 3},
				stock.Entry{Request: "r", Ordinal: 2, N: 3, Kind: stock.KindReturn}), errs.ErrCorrupt},
			"a request in two pieces": {sequence(stock.Entry{Claimant: "x", Request: "r", Ordinal: 1},
				stock.Entry{Claimant: "y", Ordinal: 2}, stock.Entry{Claimant: "x", Request: "r", Ordinal: 3}), errs.ErrCorrupt},
			"two units, one": {sequence(stock.Entry{Claimant: "x", Ordinal: 1}, stock.Entry{Claimant: "x", Ordinal: 2}),
				errs.ErrInvalidOption},
		} {
			_, err := s.Restore(ctx, tc.winners)
			require.ErrorIs(t, err, tc.err, what)
			if errors.Is(tc.err, boom) {
				require.Same(t, boom, err)
			}
			require.Equal(t, stock.Suspended, claimed(t, s, "bob").Outcome)
			require.Equal(t, stock.Replayed, claimed(t, s, "ann").Outcome, "what is known is told")
		}
		_, err := s.Restore(ctx, nil)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		ended, cancel := context.WithCancel(ctx)
		_, err = s.Restore(ended, func(yield func(stock.Entry, error) bool) {
			cancel()
			require.False(t, yield(stock.Entry{Claimant: "ann", Ordinal: 1}, nil), "no more is asked for")
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errs.ErrUnavailable)
		_, err = on(t, srv.Client(t), exact).Stock("none").Restore(ctx, sequence())
		require.ErrorIs(t, err, stock.ErrNotOpen)

		out, err := s.Restore(ctx,
			sequence(stock.Entry{Claimant: "cid", Ordinal: 7}, stock.Entry{Claimant: "dan", Ordinal: 8},
				stock.Entry{Claimant: "ann", Ordinal: 1}))
		require.NoError(t, err)
		require.Equal(t, stock.Restored{Added: 2}, out)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, []int64{3, 3, 8}, []int64{st.Limit, st.Sold, st.Seq}, "more winners than units")
		require.Equal(t, stock.SoldOut, claimed(t, s, "bob").Outcome)

		require.NoError(t, s.EndSale(ctx))
		_, err = s.Restore(ctx, sequence())
		require.NoError(t, err)
		require.Equal(t, stock.Ended, claimed(t, s, "bob").Outcome, "a closed stock stays closed")
	})
}

// TestRestore_DatabaseIsRight_StockFollows has a database say what the stock does not know: whose units are, how many
// an order has, and that some came back. Once the stock has followed, it stays so, and what comes back later stays
// back.
func TestRestore_DatabaseIsRight_StockFollows(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	order := func(claimant, id string, ordinal, n int64) stock.Entry {
		return stock.Entry{Claimant: claimant, Request: id, Ordinal: ordinal, N: n}
	}
	unit := func(claimant string, ordinal int64) stock.Entry { return order(claimant, "", ordinal, 1) }
	back := func(ordinal, n int64) stock.Entry { return stock.Entry{Ordinal: ordinal, N: n, Kind: stock.KindReturn} }
	five := func(s *stock.Stock) error { return second(s.OnceAs(ctx, "call", "order", "ann", 5)) } // 1 to 5
	for name, tc := range map[string]struct {
		story     func(s *stock.Stock) error
		winners   []stock.Entry
		displaced []stock.Entry
		has       string // afterwards, by ordinal
		seq       int64
	}{
		"fewer units": {five, []stock.Entry{order("ann", "order", 1, 3), unit("bob", 4)},
			[]stock.Entry{order("ann", "order", 4, 2)}, "1:ann/order 2:ann/order 3:ann/order 4:bob/", 5},
		"more units": {five, []stock.Entry{order("ann", "order", 1, 6), unit("bob", 7)}, nil,
			"1:ann/order 2:ann/order 3:ann/order 4:ann/order 5:ann/order 6:ann/order 7:bob/", 7},
		"another claimant": {five, []stock.Entry{order("eve", "order", 1, 5), unit("bob", 6)},
			[]stock.Entry{order("ann", "order", 1, 5)},
			"1:eve/order 2:eve/order 3:eve/order 4:eve/order 5:eve/order 6:bob/", 6},
		"other units": {five, []stock.Entry{order("ann", "order", 4, 1), order("ann", "order", 5, 3), unit("bob", 1)},
			[]stock.Entry{order("ann", "order", 1, 3)}, "1:bob/ 4:ann/order 5:ann/order 6:ann/order 7:ann/order", 7},
		"units that nobody had here": {func(*stock.Stock) error { return nil },
			[]stock.Entry{unit("ann", 1), back(2, 3)}, nil, "1:ann/", 4},
		"returns that a failover forgot": {func(s *stock.Stock) error {
			return errors.Join(second(s.Claim(ctx, "ann")), second(s.OnceAs(ctx, "call", "r", "bob", 1)),
				second(s.Claim(ctx, "cid")), second(s.AnyAs(ctx, "any", 4)), second(s.Claim(ctx, "dan")))
		}, []stock.Entry{back(1, 1), back(2, 1), back(2, 1), unit("cid", 3), back(5, 2)},
			[]stock.Entry{unit("ann", 1), order("bob", "r", 2, 1), order("", "any", 5, 2)},
			"3:cid/ 4:/any 7:/any 8:dan/", 8},
		"returns in part": {func(s *stock.Stock) error {
			var err error
			for _, id := range []string{"known", "forgotten", "unheard"} {
				err = errors.Join(err, second(s.OnceAs(ctx, "call "+id, id, "ann", 3)))
			}
			return errors.Join(err, second(s.Return(ctx, stock.Units{Request: "known", Keep: 2})))
		}, []stock.Entry{order("ann", "known", 1, 3), // its return is not in the database yet
			order("ann", "forgotten", 4, 1), back(5, 2),
			back(9, 1)}, // "unheard" has 7 and 8 yet, which the database does not say
			[]stock.Entry{order("ann", "forgotten", 5, 2), order("ann", "unheard", 9, 1)},
			"1:ann/known 2:ann/known 4:ann/forgotten 7:ann/unheard 8:ann/unheard", 9},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, raw, "FLUSHALL")
			s := on(t, raw, exact).Stock("s")
			_, err := s.Open(ctx, stock.Spec{Limit: 20, PerUser: 9, OpenFor: time.Hour})
			require.NoError(t, err)
			require.NoError(t, tc.story(s))
			has := func() string {
				var all []string
				units := hasUnits(t, raw)
				for _, o := range slices.Sorted(maps.Keys(units)) {
					all = append(all, dec(o)+":"+units[o])
				}
				return strings.Join(all, " ")
			}
			for range 2 { // and again: what is right stays so
				out, err := s.Restore(ctx, sequence(tc.winners...))
				require.NoError(t, err)
				require.Equal(t, tc.displaced, out.Displaced)
				require.Equal(t, tc.has, has())
				st, err := s.Inspect(ctx)
				require.NoError(t, err)
				require.Equal(t, [2]int64{int64(len(strings.Fields(tc.has))), tc.seq},
					[2]int64{st.Sold - out.Unaccounted, st.Seq})
				tc.displaced = nil
			}
			for _, id := range []string{"order", "known", "forgotten", "unheard"} {
				_, err := s.Return(ctx, stock.Units{Request: id})
				require.NoError(t, err)
			}
			_, err = s.Restore(ctx, sequence(tc.winners...))
			require.NoError(t, err)
			require.NotRegexp(t, "/(order|known|forgotten|unheard)", has())
		})
	}
}
