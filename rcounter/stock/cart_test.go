package stock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
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

func TestACartIsReservedConfirmedAndCancelledAsOne(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	g := on(t, raw, exact).Group("sale")
	o := spec(3)
	o.PerUser, o.Ledger = 3, true
	stocks := grouped(t, g, o, "shirt", "cap")
	a, b := stocks[0], stocks[1]

	c, err := g.Reserve(ctx, "ann",
		stock.CartRequest{ID: "o1", Lines: []stock.Line{{Stock: "shirt", N: 2}, {Stock: "cap", N: 1}}}, time.Minute)
	require.NoError(t, err)
	require.True(t, c.Won())
	require.Equal(t, stock.Granted, c.Outcome)
	require.Equal(t, []string{"cap", "shirt"}, []string{c.Lines[0].Stock, c.Lines[1].Stock})
	require.EqualValues(t, []int64{1, 2}, []int64{c.Lines[0].Grant.N, c.Lines[1].Grant.N})
	require.False(t, c.Until.IsZero())
	require.LessOrEqual(t, time.Until(c.Until), time.Minute)
	require.Equal(t, [][2]int64{{0, 2}, {0, 1}}, sums(t, a, b))
	c, err = g.Reserve(ctx, "ann",
		stock.CartRequest{ID: "o1", Lines: []stock.Line{{Stock: "cap", N: 1}, {Stock: "shirt", N: 2}}}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, c.Outcome)

	c, err = g.Reserve(ctx, "bob", stock.CartRequest{ID: "o2", Lines: lines(2, "shirt", "cap")}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.SoldOut, c.Outcome)
	require.Equal(t, []stock.Outcome{"", stock.SoldOut}, outcomes(c))
	require.EqualValues(t, 2, c.Lines[0].Grant.Remaining)
	require.EqualValues(t, 1, c.Lines[1].Grant.Remaining)
	require.Equal(t, [][2]int64{{0, 2}, {0, 1}}, sums(t, a, b))
	require.True(t, c.Until.IsZero())

	c, err = g.Confirm(ctx, "o1", lines(0, "shirt", "cap")...)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, c.Outcome)
	require.EqualValues(t, []int64{1, 1}, []int64{c.Lines[0].Grant.Ordinal, c.Lines[1].Grant.Ordinal})
	require.Equal(t, [][2]int64{{2, 0}, {1, 0}}, sums(t, a, b))
	c, err = g.Confirm(ctx, "o1", lines(0, "shirt", "cap")...)
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, c.Outcome)
	back, err := g.Cancel(ctx, "o1", "shirt", "cap")
	require.NoError(t, err)
	require.False(t, back, "it is sold")

	_, err = g.Reserve(ctx, "bob", stock.CartRequest{ID: "o3", Lines: lines(1, "shirt", "cap")}, time.Minute)
	require.NoError(t, err)
	back, err = g.Cancel(ctx, "o3", "shirt", "cap")
	require.NoError(t, err)
	require.True(t, back)
	back, err = g.Cancel(ctx, "o3", "cap", "shirt")
	require.NoError(t, err)
	require.False(t, back)
	c, err = g.Confirm(ctx, "o3", lines(0, "shirt", "cap")...)
	require.NoError(t, err)
	require.Equal(t, stock.Cancelled, c.Outcome)
	require.Equal(t, [][2]int64{{2, 0}, {1, 0}}, sums(t, a, b))
	requireEnds(t, raw)
}

func TestALineOfACartIsAReservationOfItsStock(t *testing.T) {
	t.Parallel()
	g := on(t, redistest.Embedded(t).Client(t), exact).Group("sale")
	stocks := grouped(t, g, spec(10), "a", "b")
	reserve := func(id string) {
		c, err := g.Reserve(ctx, id, stock.CartRequest{ID: id, Lines: lines(1, "a", "b")}, time.Hour)
		require.NoError(t, err)
		require.True(t, c.Won())
	}
	reserve("confirmed")
	got, err := stocks[0].Confirm(ctx, "confirmed")
	require.NoError(t, err)
	require.Equal(t, stock.Granted, got.Outcome)
	c, err := g.Confirm(ctx, "confirmed", lines(0, "a", "b")...)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, c.Outcome)
	require.Equal(t, []stock.Outcome{stock.Replayed, stock.Granted}, outcomes(c))
	require.Equal(t, [][2]int64{{1, 0}, {1, 0}}, sums(t, stocks...))

	reserve("cancelled")
	back, err := stocks[1].Cancel(ctx, "cancelled")
	require.NoError(t, err)
	require.True(t, back)
	c, err = g.Confirm(ctx, "cancelled", lines(0, "a", "b")...)
	require.NoError(t, err)
	require.Equal(t, stock.Cancelled, c.Outcome)
	require.Equal(t, []stock.Outcome{"", stock.Cancelled}, outcomes(c))
	require.Equal(t, [][2]int64{{1, 1}, {1, 0}}, sums(t, stocks...), "nothing is sold of the rest")
	back, err = g.Cancel(ctx, "cancelled", "a", "b")
	require.NoError(t, err)
	require.True(t, back)
	require.Equal(t, [][2]int64{{1, 0}, {1, 0}}, sums(t, stocks...))

	// a reservation by itself is no cart, and no part of one
	_, err = stocks[0].Reserve(ctx, "alone", stock.Request{ID: "alone", N: 1}, time.Hour)
	require.NoError(t, err)
	_, err = g.Reserve(ctx, "alone", stock.CartRequest{ID: "alone", Lines: lines(1, "a", "b")}, time.Hour)
	require.ErrorIs(t, err, errs.ErrMismatch)
	require.Equal(t, [][2]int64{{1, 1}, {1, 0}}, sums(t, stocks...))
}

func TestACartsIdIsThatOfOneCart(t *testing.T) {
	t.Parallel()
	g := on(t, redistest.Embedded(t).Client(t), exact).Group("sale")
	stocks := grouped(t, g, spec(10), "a", "b", "c")
	_, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(1, "a", "b")}, time.Hour)
	require.NoError(t, err)
	for _, other := range [][]stock.Line{lines(1, "a"), lines(1, "a", "c"), lines(1, "a", "b", "c")} {
		c, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: other}, time.Hour)
		require.ErrorIs(t, err, errs.ErrMismatch)
		require.Zero(t, c)
		_, err = g.Confirm(ctx, "id", other...)
		require.ErrorIs(t, err, errs.ErrMismatch)
		_, err = g.Cancel(ctx, "id", namesOf(other)...)
		require.ErrorIs(t, err, errs.ErrMismatch)
	}
	c, err := g.Reserve(ctx, "bob", stock.CartRequest{ID: "id", Lines: lines(1, "a", "b")}, time.Hour)
	require.ErrorIs(t, err, errs.ErrMismatch)
	require.ErrorIs(t, c.Lines[0].Err, errs.ErrMismatch)
	c, err = g.Reserve(ctx, "ann",
		stock.CartRequest{ID: "id", Lines: []stock.Line{{Stock: "a", N: 1}, {Stock: "b", N: 2}}}, time.Hour)
	require.ErrorIs(t, err, errs.ErrMismatch)
	require.NoError(t, c.Lines[0].Err)
	require.ErrorIs(t, c.Lines[1].Err, errs.ErrMismatch)
	require.Equal(t, [][2]int64{{0, 1}, {0, 1}, {0, 0}}, sums(t, stocks...))
}

func TestACartThatIsCancelledOrPaidBeforeItIsMadeNeverIs(t *testing.T) {
	t.Parallel()
	g := on(t, redistest.Embedded(t).Client(t), exact).Group("sale")
	stocks := grouped(t, g, spec(10), "a", "b")
	back, err := g.Cancel(ctx, "cancelled", "b", "a")
	require.NoError(t, err)
	require.False(t, back)
	for _, id := range []string{"cancelled", "paid"} {
		for range 2 {
			c, err := g.Confirm(ctx, id, lines(1, "a", "b")...)
			require.NoError(t, err)
			require.Equal(t, []stock.Outcome{stock.Cancelled, stock.Cancelled}, outcomes(c))
			require.EqualValues(t, 1, c.Lines[0].Grant.Missing)
			c, err = g.Reserve(ctx, "ann", stock.CartRequest{ID: id, Lines: lines(1, "a", "b")}, time.Hour)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, c.Outcome)
		}
	}
	require.Equal(t, [][2]int64{{0, 0}, {0, 0}}, sums(t, stocks...))
}

// A cart is its lines, and nothing else: one that is extended or sold is known for as long as they are, also if the
// sale goes on for longer than it was to.
func TestACartIsKnownAsLongAsItsLines(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	g := on(t, raw, exact).Group("sale")
	o := spec(10)
	o.OpenFor, o.Retain, o.Remember, o.PerUser = 2*time.Hour, time.Hour, 10*time.Minute, 2
	stocks := grouped(t, g, o, "a", "b")
	both := lines(2, "a", "b")
	for _, id := range []string{"extended", "expires", "sold", "returned"} {
		_, err := g.Reserve(ctx, id, stock.CartRequest{ID: id, Lines: both}, time.Minute)
		require.NoError(t, err)
	}
	answer := func(want stock.Outcome, n, missing int64) func(stock.Cart, error) {
		return func(c stock.Cart, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, c.Outcome)
			for _, l := range c.Lines {
				require.Equal(t, want, l.Grant.Outcome)
				require.Equal(t, [2]int64{n, missing}, [2]int64{l.Grant.N, l.Grant.Missing})
			}
		}
	}
	known := func(id string, want stock.Outcome, n int64) {
		t.Helper()
		all, err := g.Lookup(ctx, id, "b", "a")
		require.NoError(t, err)
		require.Len(t, all, 2)
		for _, h := range all {
			require.Equal(t, want, h.Outcome)
			require.Equal(t, n, h.N)
		}
	}
	answer(stock.Granted, 2, 0)(g.Extend(ctx, "extended", 90*time.Minute, "b", "a"))
	answer(stock.Granted, 1, 0)(g.Confirm(ctx, "sold", lines(1, "a", "b")...))
	answer(stock.Replayed, 1, 1)(g.Confirm(ctx, "sold", lines(0, "a", "b")...))
	answer(stock.Granted, 2, 0)(g.Confirm(ctx, "returned", both...))
	for _, want := range []int64{4, 0} {
		n, err := g.Return(ctx, "returned", "a", "b")
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	known("returned", stock.Returned, 2)
	known("extended", stock.Replayed, 2)
	forward(80 * time.Minute)
	known("expires", stock.Expired, 2)
	for _, s := range stocks { // also forgets what has ended
		require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(24 * time.Hour)}))
		_, err := s.Reap(ctx)
		require.NoError(t, err)
	}
	require.Equal(t, [][2]int64{{1, 2}, {1, 2}}, sums(t, stocks...))
	answer(stock.Granted, 2, 0)(g.Confirm(ctx, "extended", both...))
	forward(20 * time.Hour) // long after the end that the sale was to have
	for _, id := range []string{"extended", "sold"} {
		c, err := g.Confirm(ctx, id, lines(0, "a", "b")...)
		require.NoError(t, err)
		require.Equal(t, stock.Replayed, c.Outcome, id)
	}
	known("returned", "", 0)
	_, err := g.Extend(ctx, "returned", time.Minute, "a", "b")
	require.ErrorIs(t, err, stock.ErrNotFound)
	for _, key := range keys(t, raw) {
		require.Contains(t, key, "rc:{sale}{", "no key is the cart's")
	}
}

// A cart is extended as a whole: where a line holds nothing any more, nothing is changed.
func TestACartIsExtendedAsAWhole(t *testing.T) {
	t.Parallel()
	g := on(t, redistest.Embedded(t).Client(t), exact).Group("sale")
	stocks := grouped(t, g, spec(10), "a", "b", "c")
	_, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(1, "a", "b")}, time.Minute)
	require.NoError(t, err)
	for _, other := range [][]string{{"a"}, {"a", "c"}, {"a", "b", "c"}} {
		_, err = g.Extend(ctx, "id", time.Hour, other...)
		require.ErrorIs(t, err, errs.ErrMismatch)
		_, err = g.Return(ctx, "id", other...)
		require.ErrorIs(t, err, errs.ErrMismatch)
		_, err = g.Lookup(ctx, "id", other...)
		require.ErrorIs(t, err, errs.ErrMismatch)
	}
	_, err = stocks[1].Cancel(ctx, "id")
	require.NoError(t, err)
	c, err := g.Extend(ctx, "id", time.Hour, "a", "b")
	require.NoError(t, err)
	require.Equal(t, []stock.Outcome{"", stock.Cancelled}, outcomes(c))
	h, err := stocks[0].Lookup(ctx, stock.Units{Request: "id"})
	require.NoError(t, err)
	require.LessOrEqual(t, time.Until(h.Until), time.Minute)
}

func TestStocksOfOneNameInTwoGroupsAreTwo(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	c := on(t, raw, exact)
	names := map[string]*stock.Stock{"alone": c.Stock("a"), "the tag": c.Stock("sale"), "one": c.Group("sale").Stock("a"),
		"another":    c.Group("sale 2").Stock("a"),
		"like a key": c.Group("sale").Stock("u"), "with a colon": c.Group("sale").Stock("a:u")}
	for name, s := range names {
		_, err := s.Open(ctx, spec(10))
		require.NoError(t, err)
		_, err = s.Claim(ctx, name)
		require.NoError(t, err)
	}
	for name, s := range names {
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Sold, name)
		_, found, err := lookup(s, name)
		require.NoError(t, err)
		require.True(t, found)
	}
	require.Equal(t, keyname.Slot("{sale}"), keyname.Slot("rc:{sale}{a:u}:r"))
}

// A stock that is not open, or has lost a record, or sells nothing for another reason, is named.
func TestACartNamesTheLineThatIsInTheWay(t *testing.T) {
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
func TestACopyOfACartThatComesTooLateDoesNothing(t *testing.T) {
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

// Confirm sells of each line what is left, and names what it could not get.
func TestACartThatIsConfirmedLateNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	c := on(t, raw, exact)
	g := c.Group("sale")
	o := spec(3)
	o.PerUser = 3
	stocks := grouped(t, g, o, "a", "b", "c")
	_, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(3, "a", "b", "c")}, time.Minute)
	require.NoError(t, err)
	forward(2 * time.Minute)
	for i, n := range []int64{0, 1, 3} { // somebody else buys
		if n > 0 {
			_, err := stocks[i].ClaimAny(ctx, n)
			require.NoError(t, err)
		}
	}
	for i, won := range []stock.Outcome{stock.Granted, stock.Replayed} {
		got, err := g.Confirm(ctx, "id", lines(0, "a", "b", "c")...)
		require.NoError(t, err)
		require.Equal(t, stock.Expired, got.Outcome)
		require.Equal(t, []stock.Outcome{won, won, stock.Expired}, outcomes(got), "time %d", i+1)
		require.EqualValues(t, []int64{0, 1, 3},
			[]int64{got.Lines[0].Grant.Missing, got.Lines[1].Grant.Missing, got.Lines[2].Grant.Missing})
	}
	require.Equal(t, [][2]int64{{3, 0}, {3, 0}, {3, 0}}, sums(t, stocks...))
}

// A process that knows that a stock is sold out answers for a new cart, and asks the server about any other.
func TestACartOfASoldOutStockIsAnsweredWithoutTheServer(t *testing.T) {
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
	o.Observer = func(_ context.Context, e stock.Event) {
		switch e.Kind {
		case stock.EventClaimed:
			note(e.Name + " " + string(e.Outcome))
		case stock.EventAnsweredLocally:
			note(e.Name + " locally")
		}
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
