package stock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// keysOf are the keys of a stock, in the order of its scripts.
func keysOf(key string) []string {
	return []string{key, key + ":u", key + ":r", key + ":h", key + ":o", key + ":l", key + ":f"}
}

// brokenOffEach runs a script again and again, each time on what prepare makes, and broken off one write later, until
// it runs whole.
func brokenOffEach(t *testing.T, raw rueidis.Client, file string, prepare func() (keys, args []string),
	check func(k int, whole bool)) {
	for k, whole := 0, false; !whole; k++ {
		keys, args := prepare()
		whole = rig.BrokenOff(t, raw, k, stock.Source(file), keys, args)
		check(k, whole)
	}
}

// requireCounted requires that the numbers of a stock say no less than its records, but for units without an id.
func requireCounted(t testing.TB, c rueidis.Client, key string, without int64) {
	t.Helper()
	var sold, held, seq, top int64
	for field, record := range hash(t, c, key+":r") {
		if p := strings.Split(record, ";"); strings.HasPrefix(field, "r:") && (p[0] == "H" || p[0] == "G") {
			if without += first(p[2]); first(p[1]) > 0 {
				top = max(top, first(p[1])+first(p[2])-1)
			}
		}
	}
	h := hash(t, c, key)
	sold, held, seq = first(h["sold"]), first(h["held"]), first(h["seq"])
	require.GreaterOrEqual(t, sold+held, without, "%v", h)
	require.GreaterOrEqual(t, seq, top, "%v", h)
}

// Whatever a run had written when it was broken off, the numbers never say that more is left than the records do, no
// ordinal goes out again, and the ledger tells what the stock knows, or every next call says that it does not.
func TestScripts_BrokenOff_SellTooLittleAtWorst(t *testing.T) {
	t.Parallel()
	raw := redistest.Start(t).Client(t)
	const far = "9007199254740991"
	for name, args := range map[string][]string{
		"acts": {"call", "0", far, "R", "new", far, "c", "1", "3600000", "X", "cancel", far, "C", "confirm", far, "0", "B",
			"return", far, "0", "O", "more", far, "d", "2", "X", "forbidden", far,
			"C", "late", far, "0", "C", "part", far, "1", "E", "extend", far, "7200000", "B", "keep", far, "1"},
		"acts back": {"call", "0", far, "X", "cancel", far, "B", "return", far, "0"},
		"acts in a straight": {"call", "0", far, "R", "new", far, "c", "1", "3600000", "X", "cancel", far, "C", "confirm",
			far, "0", "O", "more", far, "d", "2"},
		"acts that free more than they take": {"call", "0", far, "R", "new", far, "c", "1", "3600000", "X", "cancel", far,
			"C", "confirm", far, "0"},
		"acts reserve": {"call", "0", far, "R", "new", far, "c", "1", "3600000"},
		"acts confirm": {"call", "0", far, "C", "confirm", far, "0"},
		"acts cancel":  {"call", "0", far, "X", "cancel", far},
		"claim":        {"call", "0", "ann", "bob"},
		"any":          {"call", "0", "2"},
		"return":       {"call", "one", "7"},
		"returnany":    {"call", "any", "0", "0"},
		"reap":         {"128"},
	} {
		for _, moved := range []bool{false, true} { // by a mover, so that the run makes the key of the ledger anew
			t.Run(fmt.Sprint(name, ", moved ", moved), func(t *testing.T) {
				file, _, _ := strings.Cut(name, " ")
				s := on(t, raw, exact).Stock("s")
				var b *ledgerCopy
				var epoch int64
				noticed := 0
				brokenOffEach(t, raw, file, func() ([]string, []string) {
					must(t, raw, "FLUSHALL")
					var err error
					epoch, err = s.Open(ctx, stock.Spec{Limit: 40, PerUser: 5, OpenFor: time.Hour, Ledger: true})
					require.NoError(t, err)
					_, err = s.Reserve(ctx, "l", stock.Request{ID: "late", N: 2}, time.Hour)
					require.NoError(t, err)
					must(t, raw, "ZADD", "rc:{s}:h", "1", "late")
					_, err = s.Reap(ctx)
					require.NoError(t, err)
					_, err = s.ActsAs(ctx, "before", stock.Deed{Verb: "R", ID: "cancel", Claimant: "a", N: 3, TTL: time.Hour},
						stock.Deed{Verb: "R", ID: "confirm", Claimant: "a", N: 2, TTL: time.Hour},
						stock.Deed{Verb: "R", ID: "part", Claimant: "p", N: 3, TTL: time.Hour},
						stock.Deed{Verb: "R", ID: "extend", Claimant: "e", N: 1, TTL: time.Hour},
						stock.Deed{Verb: "O", ID: "return", Claimant: "b", N: 4}, stock.Deed{Verb: "O", ID: "keep", Claimant: "k", N: 2})
					require.NoError(t, err)
					claimed(t, s, "one")
					_, err = s.AnyAs(ctx, "any", 2)
					require.NoError(t, err)
					if b = newBooks(); moved {
						b.drain(t, s)
					}
					if name == "reap" {
						must(t, raw, "ZADD", "rc:{s}:h", "1", "cancel", "2", "confirm", "3", "part")
					}
					return keysOf("rc:{s}"), args
				}, func(k int, whole bool) {
					if file == "acts" {
						requireCounted(t, raw, "rc:{s}", 3)
					}
					st, err := s.Inspect(ctx)
					if errors.Is(err, errs.ErrCorrupt) {
						require.False(t, whole, err)
						noticed++
						return
					}
					require.NoError(t, err)
					b.drain(t, s)
					units, _, held := b.units(epoch)
					require.Equal(t, hasUnits(t, raw), units, "before write %d", k)
					require.GreaterOrEqual(t, st.Sold, int64(len(units)), "before write %d", k) // it may sell too little
					require.GreaterOrEqual(t, st.Held, held, "before write %d", k)
					if whole {
						require.EqualValues(t, len(units), st.Sold)
						require.Equal(t, held, st.Held)
					}
				})
				require.Positive(t, noticed)
			})
		}
	}
}

// Where every line of a cart was done or not done when its run was broken off, the next try does the rest; where a line
// was broken off in the middle, its stock says so and the cart is refused.
func TestCart_BrokenOff_IsEndedByTheNextTry(t *testing.T) {
	t.Parallel()
	raw := redistest.Start(t).Client(t)
	g, names := on(t, raw, exact).Group("g"), []string{"a", "b", "c"}
	all := slices.Concat(keysOf("rc:{g}{a}"), keysOf("rc:{g}{b}"), keysOf("rc:{g}{c}"))
	var stocks []*stock.Stock
	for verb, x := range map[string]struct {
		args  []string
		after [2]int64 // sold and held of each stock, once it is ended
		call  func() (stock.Cart, error)
	}{
		"R": {[]string{"ann", "3600000", "2", "2", "2"}, [2]int64{0, 2}, func() (stock.Cart, error) {
			return g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(2, names...)}, time.Hour)
		}},
		"C": {[]string{"0", "0", "0"}, [2]int64{2, 0}, func() (stock.Cart, error) {
			return g.Confirm(ctx, "id", lines(0, names...)...)
		}},
		"E": {[]string{"7200000"}, [2]int64{0, 2}, func() (stock.Cart, error) {
			return g.Extend(ctx, "id", 3*time.Hour, names...)
		}},
		"X": {nil, [2]int64{}, func() (stock.Cart, error) { return stock.Cart{}, second(g.Cancel(ctx, "id", names...)) }},
		"B": {nil, [2]int64{}, func() (stock.Cart, error) { return stock.Cart{}, second(g.Return(ctx, "id", names...)) }},
	} {
		completed := 0
		brokenOffEach(t, raw, "cart", func() ([]string, []string) {
			must(t, raw, "FLUSHALL")
			stocks = grouped(t, g, stock.Spec{Limit: 10, PerUser: 5, OpenFor: time.Hour, Ledger: true}, names...)
			if verb != "R" {
				_, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(2, names...)}, time.Hour)
				require.NoError(t, err)
			}
			if verb == "B" {
				_, err := g.Confirm(ctx, "id", lines(0, names...)...)
				require.NoError(t, err)
			}
			return all, append([]string{"call+" + stock.Digest(g, names...), "0", "9007199254740991", verb, "id"}, x.args...)
		}, func(k int, whole bool) {
			for _, name := range names {
				requireCounted(t, raw, "rc:{g}{"+name+"}", 0)
			}
			if whole {
				require.Greater(t, k, 2, verb)
				return
			}
			c, err := x.call()
			if err != nil {
				require.ErrorIs(t, err, errs.ErrCorrupt)
				return
			}
			completed++
			require.Equal(t, verb != "X" && verb != "B", c.Won())
			short := 0
			for _, s := range sums(t, stocks...) {
				if s != x.after {
					short++
				}
			}
			require.LessOrEqual(t, short, map[string]int{"X": 1, "B": 1}[verb],
				"%s %d: what was cancelled and is still counted sells too little", verb, k)
		})
		require.GreaterOrEqual(t, completed, 3, "before the first line, and after each but the last")
	}
}
