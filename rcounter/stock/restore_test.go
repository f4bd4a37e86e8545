package stock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// database is what a consumer of the ledger keeps: who has which unit, and which units were returned.
type database struct {
	rows map[int64]stock.Entry
	back map[int64]bool
	last stock.Entry
}

// move takes over what the ledger has.
func (d *database) move(t testing.TB, s *stock.Stock) {
	t.Helper()
	for {
		n, err := s.Ledger(ctx, 7, func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries {
				if e.Epoch != d.last.Epoch {
					d.last.Serial = 0
				}
				require.Equal(t, d.last.Serial+1, e.Serial, "a history without a hole, and no number twice")
				d.last = e
				for o := e.Ordinal; o > 0 && o < e.Ordinal+e.N; o++ {
					if e.Kind == stock.KindReturn {
						d.back[o] = true
						delete(d.rows, o)
					} else {
						row := e
						row.Ordinal, row.N = o, 1
						if _, taken := d.rows[o]; !taken && !d.back[o] { // the unique index
							d.rows[o] = row
						}
					}
				}
			}
			return nil
		})
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
}

func (d *database) winners() iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		for _, e := range d.rows { // in no order
			if !yield(e, nil) {
				return
			}
		}
		for o := range d.back {
			if !yield(stock.Entry{Ordinal: o, Kind: stock.KindReturn}, nil) {
				return
			}
		}
		last := d.last // of which only the serial counts
		last.Kind = stock.KindHeld
		yield(last, nil)
	}
}

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

func TestRestoreAfterLossesKeepsEveryWinnersUnitAndSellsNoneTwice(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	for name, wire := range map[string]rueidis.Client{"calm": raw, "twice": twice{Client: raw},
		"lossy": newLossy(t, srv, func() bool { return rand.IntN(5) == 0 })} {
		losses := []string{"rolled back", "all", "claimants", "records", "holds"}
		if name != "calm" {
			losses = losses[:redistest.Sized(1, 2, len(losses))]
		}
		for _, loss := range losses {
			t.Run(name+"/"+loss, func(t *testing.T) {
				must(t, raw, "FLUSHALL")
				calm := on(t, raw, exact)
				s := calm.Stock("s")
				const limit = 240
				o := stock.Spec{Limit: limit, PerUser: 5, OpenFor: time.Hour, Ledger: true}
				_, err := s.Open(ctx, o)
				require.NoError(t, err)
				db := &database{rows: map[int64]stock.Entry{}, back: map[int64]bool{}}
				users, requests, anys := map[string]int64{}, map[string]stock.Grant{}, []stock.Grant{}
				act := func(i int) {
					switch i % 5 {
					case 0, 1:
						u := "u" + strconv.Itoa(i)
						users[u] = claimed(t, s, u).Ordinal
						if i%20 == 1 {
							_, err := s.Return(ctx, stock.Units{Claimant: u, Ordinal: users[u]})
							require.NoError(t, err)
							delete(users, u)
						}
					case 2:
						id := "r" + strconv.Itoa(i)
						g, err := s.Claim(ctx, "buyer"+id, stock.Request{ID: id, N: 2})
						require.NoError(t, err)
						requests[id] = g
					case 3:
						g, err := s.ClaimAny(ctx, 3)
						require.NoError(t, err)
						back := g
						back.Ordinal, back.N = g.Ordinal+1, 1
						_, err = s.Return(ctx, stock.Units{Request: back.Request, Ordinal: back.Ordinal, N: back.N})
						require.NoError(t, err)
						anys = append(anys, g)
					case 4:
						id := "h" + strconv.Itoa(i)
						r, err := s.Reserve(ctx, "holder"+id, stock.Request{ID: id, N: 1}, time.Hour)
						require.NoError(t, err)
						require.True(t, r.Won())
						if i%10 == 4 {
							g, err := s.Confirm(ctx, id)
							require.NoError(t, err)
							requests[id] = g
						}
					}
				}
				for i := range 60 {
					act(i)
				}
				old := snapshot(t, raw)
				for i := 60; i < 100; i++ {
					act(i)
				}
				db.move(t, s)
				before, err := s.Inspect(ctx)
				require.NoError(t, err)
				require.EqualValues(t, len(db.rows), before.Sold)

				strangers := map[string]int64{}
				switch loss {
				case "rolled back": // a replica that had not received the last 40 was promoted, and sold on
					old()
					for i := range 5 {
						u := "stranger" + strconv.Itoa(i)
						ordinal := claimed(t, s, u).Ordinal
						if _, sold := db.rows[ordinal]; sold || db.back[ordinal] { // an ordinal went out twice: that is the harm
							strangers[u] = ordinal
						}
					}
					require.NotEmpty(t, strangers)
				case "claimants":
					must(t, raw, "DEL", "rc:{s}:u")
				case "records":
					must(t, raw, "DEL", "rc:{s}:r")
				case "holds":
					must(t, raw, "DEL", "rc:{s}:h")
				case "all":
					must(t, raw, append([]string{"DEL"}, stockKeys...)...)
					o.Suspended = true
					_, err := s.Open(ctx, o)
					require.NoError(t, err)
					require.Equal(t, stock.Suspended, claimed(t, s, "early").Outcome)
				}
				if loss != "all" && loss != "rolled back" {
					_, err := s.Claim(ctx, "x")
					require.ErrorIs(t, err, errs.ErrCorrupt)
				}
				out, err := on(t, wire, exact).Stock("s").Restore(ctx, db.winners())
				require.NoError(t, err)
				t.Logf("%d added, %d displaced, %d unaccounted", out.Added, len(out.Displaced), out.Unaccounted)
				requireEnds(t, raw)
				db.move(t, s)
				told, err := s.Inspect(ctx)
				require.NoError(t, err)
				require.EqualValues(t, told.Sold-out.Unaccounted, len(db.rows),
					"the ledger has told the database what that did not know")
				require.Len(t, out.Displaced, len(strangers))
				for _, e := range out.Displaced {
					require.Equal(t, strangers[e.Claimant], e.Ordinal)
				}

				st, err := s.Inspect(ctx)
				require.NoError(t, err)
				require.Equal(t, stock.PhaseOpen, st.Phase)
				require.GreaterOrEqual(t, st.Sold, before.Sold)
				require.GreaterOrEqual(t, st.Seq, before.Seq-1, "the last may have been a return")
				for u, ordinal := range users {
					g := claimed(t, s, u)
					require.Equal(t, stock.Replayed, g.Outcome)
					require.Equal(t, ordinal, g.Ordinal)
				}
				for id, was := range requests {
					var g stock.Grant
					var err error
					if id[0] == 'r' {
						g, err = s.Claim(ctx, "buyer"+id, stock.Request{ID: id, N: 2})
					} else {
						g, err = s.Confirm(ctx, id)
					}
					require.NoError(t, err)
					require.Equal(t, stock.Replayed, g.Outcome, id)
					require.Equal(t, was.Ordinal, g.Ordinal)
					require.Equal(t, was.N, g.N)
				}
				for _, g := range anys { // what is left of them can be returned, once
					part := g
					part.N = 1
					for _, want := range []int64{1, 0} {
						ok, err := s.Return(ctx, stock.Units{Request: part.Request, Ordinal: part.Ordinal, N: part.N})
						require.NoError(t, err)
						require.Equal(t, want, ok)
					}
				}
				db.move(t, s)
				for sold := 0; ; sold++ {
					g := claimed(t, s, "new"+strconv.Itoa(sold))
					if g.Outcome == stock.SoldOut {
						break
					}
					require.NotContains(t, db.rows, g.Ordinal, "no unit twice")
					db.rows[g.Ordinal] = stock.Entry{}
					require.LessOrEqual(t, sold, limit)
				}
				st, err = s.Inspect(ctx)
				require.NoError(t, err)
				require.LessOrEqual(t, len(db.rows)+int(st.Held)+int(out.Unaccounted), limit, "no unit too many")
			})
		}
	}
}

func TestRestoreThatFailsLeavesTheStockSuspended(t *testing.T) {
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
			"two units, one": {sequence(stock.Entry{Claimant: "x", Ordinal: 1}, stock.Entry{Claimant: "x", Ordinal: 2}),
				errs.ErrInvalidOption},
		} {
			_, err := s.Restore(ctx, tc.winners)
			require.ErrorIs(t, err, tc.err, what)
			require.Equal(t, stock.Suspended, claimed(t, s, "bob").Outcome)
			require.Equal(t, stock.Replayed, claimed(t, s, "ann").Outcome, "what is known is told")
		}
		_, err := s.Restore(ctx, nil)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
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

// Whatever part of the records is lost, and whatever part of them the winners know, no unit is sold twice.
func TestRestoreFromAnyPartOfTheWinnersOversellsNothing(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	for range redistest.Sized(10, 10, 60) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			must(t, raw, "FLUSHALL")
			s := opened(t, on(t, raw, exact), "s", 30)
			var entries []stock.Entry
			for i := range 20 {
				u := "u" + strconv.Itoa(i)
				entries = append(entries, stock.Entry{Claimant: u, Ordinal: claimed(t, s, u).Ordinal})
			}
			for _, e := range entries {
				if rnd.IntN(3) == 0 {
					must(t, raw, "HDEL", "rc:{s}:u", e.Claimant)
				}
			}
			known := slices.DeleteFunc(slices.Clone(entries), func(stock.Entry) bool { return rnd.IntN(3) == 0 })
			out, err := s.Restore(ctx, func(yield func(stock.Entry, error) bool) {
				for _, e := range known {
					if !yield(e, nil) {
						return
					}
				}
			})
			require.NoError(t, err)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 20, st.Sold)
			require.EqualValues(t, 20, st.Seq)
			for _, e := range known {
				require.Equal(t, e.Ordinal, claimed(t, s, e.Claimant).Ordinal)
			}
			for i := range 10 {
				require.EqualValues(t, 21+i, claimed(t, s, "new"+strconv.Itoa(i)).Ordinal)
			}
			require.Equal(t, stock.SoldOut, claimed(t, s, "late").Outcome)
			require.LessOrEqual(t, out.Unaccounted, int64(20-len(known)))
		})
	}
}
