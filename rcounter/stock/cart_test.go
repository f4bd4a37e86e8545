package stock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// grouped are fresh stocks of a group, each with so many units.
func grouped(t testing.TB, g *stock.Group, o stock.Spec, names ...string) (stocks []*stock.Stock) {
	t.Helper()
	for _, name := range names {
		s := g.Stock(name)
		_, err := s.Open(ctx, o)
		require.NoError(t, err)
		stocks = append(stocks, s)
	}
	return stocks
}

// sums are what stocks have sold and hold.
func sums(t testing.TB, stocks ...*stock.Stock) (sums [][2]int64) {
	t.Helper()
	for _, s := range stocks {
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		sums = append(sums, [2]int64{st.Sold, st.Held})
	}
	return sums
}

func lines(n int64, names ...string) (lines []stock.Line) {
	for _, name := range names {
		lines = append(lines, stock.Line{Stock: name, N: n})
	}
	return lines
}

func outcomes(c stock.Cart) (all []stock.Outcome) {
	for _, l := range c.Lines {
		all = append(all, l.Grant.Outcome)
	}
	return all
}

// A stock that is not open, or has lost a record, or sells nothing for another reason, is named.
func TestCart_LineInTheWay_IsNamed(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	g := on(t, raw, exact).Group("sale")
	stocks := grouped(t, g, spec(2), "a", "b", "c")
	refused := func(want ...stock.Outcome) {
		t.Helper()
		c, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(1, "a", "b", "c", "d")[:len(want)]},
			time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, outcomes(c))
		require.Equal(t, want[slices.IndexFunc(want, func(o stock.Outcome) bool { return o != "" })], c.Outcome, "the first")
	}
	refused("", "", "", stock.NotOpen)
	_, err := stocks[1].Claim(ctx, "ann")
	require.NoError(t, err)
	refused("", stock.UserLimit)
	_, err = stocks[2].ClaimAny(ctx, 2)
	require.NoError(t, err)
	refused("", stock.UserLimit, stock.SoldOut)
	require.NoError(t, stocks[0].EndSale(ctx))
	refused(stock.Ended)
	must(t, raw, "DEL", "rc:{sale}{b}:u")
	_, err = g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(1, "c", "b")}, time.Hour)
	require.ErrorIs(t, err, errs.ErrCorrupt)
	require.ErrorContains(t, err, `"rc:{sale}{b}"`)
}

// A copy of a call that the network kept until its caller has long given up does nothing.
func TestCart_LateCopy_DoesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	stocks := grouped(t, on(t, raw, exact).Group("sale"), spec(10), "a", "b")
	late := newLate(t, srv, once(has("kept")))
	o := exact
	o.CallTimeout = time.Second
	g := on(t, late, o).Group("sale")
	// now it knows the server's time
	_, err := g.Reserve(ctx, "w", stock.CartRequest{ID: "warm", Lines: lines(1, "a")}, time.Hour)
	require.NoError(t, err)
	// its first request is kept on the way
	c, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "kept", Lines: lines(1, "a", "b")}, time.Hour)
	require.NoError(t, err)
	require.True(t, c.Won())
	back, err := g.Cancel(ctx, "kept", "a", "b")
	require.NoError(t, err)
	require.True(t, back)
	must(t, raw, "DEL", "rc:{sale}{b}:r") // as if it was forgotten
	must(t, raw, "HSET", "rc:{sale}{b}", "requests", "0")
	forward(time.Minute)
	late.Deliver(t)
	require.Equal(t, [][2]int64{{0, 1}, {0, 0}}, sums(t, stocks...))
}

// A process that knows that a stock is sold out answers for a new cart, and asks the server about any other.
func TestCart_StockSoldOut_IsAnsweredByTheProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	var mu sync.Mutex
	heard := map[string]int{}
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		heard[what]++
	}
	o := patient
	o.Observer = func(_ context.Context, e redlatch.Event) context.Context {
		switch e.Kind {
		case redlatch.EventClaimed:
			note(e.Name + " " + string(e.Outcome))
		case redlatch.EventAnsweredLocally:
			note(e.Name + " locally")
		}
		return nil
	}
	g := on(t, srv.Client(t), o).Group("sale")
	stocks := grouped(t, g, spec(1), "a", "b")
	c, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "first", Lines: lines(1, "b", "a")}, time.Hour)
	require.NoError(t, err)
	require.True(t, c.Won())
	_, err = stocks[1].Confirm(ctx, "first")
	require.NoError(t, err)
	_, err = stocks[0].Cancel(ctx, "first") // one is left of a, none of b
	require.NoError(t, err)
	quiet(t, admin, func() {
		c, err := g.Reserve(fresh, "bob", stock.CartRequest{ID: "second", Lines: lines(1, "b", "a")}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, stock.SoldOut, c.Outcome)
		require.Equal(t, []stock.Outcome{"", stock.SoldOut}, outcomes(c))
	})
	c, err = g.Reserve(ctx, "ann", stock.CartRequest{ID: "first", Lines: lines(1, "b", "a")}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, stock.Cancelled, c.Outcome)
	require.Equal(t, []stock.Outcome{stock.Cancelled, stock.Replayed}, outcomes(c))
	mu.Lock()
	defer mu.Unlock()
	for what, n := range map[string]int{"sale/a granted": 1, "sale/b granted": 1, "sale/a cancelled": 1,
		"sale/b replayed": 1} {
		require.Equal(t, n, heard[what], what)
	}
	require.Positive(t, heard["sale/b sold out"])
	require.Positive(t, heard["sale/b locally"])
	require.Zero(t, heard["sale/a sold out"]+heard["sale/a locally"]+heard["sale/a none"], heard)
}
