package stock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// Nothing is lost, and there is no ledger. Only the winners of the caller are old, and somebody runs Restore.
func TestRestore_DatabaseBehind_LeavesEveryUnit(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := opened(t, on(t, raw, exact), "s", 10)
		claimed(t, s, "ann")
		giveBack(t, s, "ann", 1)
		claimed(t, s, "ann")
		out, err := s.Restore(ctx, sequence(stock.Entry{Claimant: "ann", Ordinal: 1}))
		require.NoError(t, err)
		require.Zero(t, out)
		require.Equal(t, map[int64]string{2: "ann/"}, hasUnits(t, raw))
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Sold)
	})
}

// The record of an order that was returned is forgotten after Spec.Remember, and the record of a claimant names its
// last return only. Where a Restore writes the ledger anew and is broken off, the next one has nothing but the records.
func TestRestore_ReturnedAndForgotten_GivesNothingBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"", "relist", "lines"} {
		t.Run("broken off at "+step, func(t *testing.T) {
			srv := redistest.Embedded(t)
			at := time.Now()
			srv.Embedded.SetTime(at)
			raw := srv.Client(t)
			wire := &recording{Client: raw}
			s := on(t, wire, exact).Stock("s")
			epoch, err := s.Open(ctx,
				stock.Spec{Limit: 10, PerUser: 9, OpenFor: 10 * time.Hour, Ledger: true, Remember: time.Hour})
			require.NoError(t, err)
			b := newBooks()
			claimed(t, s, "cid")
			for _, id := range []string{"a", "b"} {
				_, err = s.Claim(ctx, "ann", stock.Request{ID: id, N: 1})
				require.NoError(t, err)
			}
			b.drain(t, s)
			giveBack(t, s, "cid", 1)
			for _, id := range []string{"a", "b"} {
				_, err = s.Return(ctx, stock.Units{Request: id})
				require.NoError(t, err)
			}
			srv.Embedded.SetTime(at.Add(3 * time.Hour))
			giveBack(t, s, "cid", claimed(t, s, "cid").Ordinal)
			claimed(t, s, "cid")
			has := map[int64]string{5: "cid/"}
			if step == "" { // no record could say both what b has and what it had
				g, err := s.Claim(ctx, "ann", stock.Request{ID: "b", N: 1})
				require.NoError(t, err)
				require.EqualValues(t, 6, g.Ordinal, "the id was forgotten")
				has[6] = "ann/b"
			} else {
				_, err := s.Claim(ctx, "eve")
				require.NoError(t, err)
				has[6] = "eve/"
			}
			_, err = s.Reap(ctx)
			require.NoError(t, err)
			require.NotContains(t, hash(t, raw, "rc:{s}:r"), "r:a")

			winners := b.winners(epoch)
			if step != "" {
				// The database has an entry of a reservation that a failover forgot, so that the ledger is written anew.
				require.NoError(t, b.move(ctx,
					[]stock.Entry{{Epoch: epoch, Serial: b.next[epoch], Kind: stock.KindHeld, N: 1, Claimant: "dan", Request: "h"}}))
				winners = b.winners(epoch)
				broken, stop := context.WithCancel(ctx)
				defer stop()
				wire.Before = func(args []string) {
					if slices.Contains(args, step) {
						stop()
					}
				}
				_, err := s.Restore(broken, winners)
				require.ErrorIs(t, err, context.Canceled)
				wire.Before = nil
			}
			out, err := s.Restore(ctx, winners)
			require.NoError(t, err)
			require.Zero(t, out)
			require.Equal(t, has, hasUnits(t, raw))
			b.drain(t, s)
			units, _, _ := b.units(epoch)
			require.Equal(t, has, units)
		})
	}
}

// keyOf is the key whose loss is meant.
var keyOf = map[string]string{"claimants": "rc:{s}:u", "records": "rc:{s}:r", "holds": "rc:{s}:h"}

// A sale whose database is behind the ledger by any number of entries, with and without a failover that lost entries or
// the loss of the ledger, or one with the whole ledger in its database that lost a key. Restores are broken off at any
// request, and in some sales all calls run twice or a fifth of the replies are lost. A winner keeps the unit unless the
// database says that another claimant has it. A returned unit stays returned unless the ledger is lost. Afterwards the
// stock and the database agree, and no unit is sold twice.
func TestRestore_RandomLosses_ChangesNoAnswer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	wires := []rueidis.Client{raw, twice{Client: raw}, newLossy(t, srv, func() bool { return rand.IntN(5) == 0 })}
	for _, seed := range redistest.Seeds(t, redistest.Sized(12, 12, 8000)) {
		for _, loss := range []string{"nothing", "ledger", "failover", "claimants", "records", "holds"} {
			if wrong := laggingSale(t, raw, wires[seed%3], seed, loss); wrong != nil {
				t.Errorf("%s lost: %v\nagain: %s=%d", loss, wrong, redistest.SeedsEnv, seed)
			}
		}
	}
}

// laggingSale is one sale with some Restores. It returns what is wrong.
func laggingSale(t *testing.T, raw, over rueidis.Client, seed uint64, loss string) error {
	rnd := rand.New(rand.NewPCG(seed, 7))
	must(t, raw, "FLUSHALL")
	wire := &recording{Client: over}
	const limit = 50
	s := on(t, wire, exact).Stock("s")
	epoch, err := s.Open(ctx, stock.Spec{Limit: limit, PerUser: 20, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	b, ids := newBooks(), 0
	history := map[int64]stock.Entry{} // what this server has ever written, by serial
	last := int64(0)
	act := func() {
		ids++
		who, id := fmt.Sprint("u", rnd.IntN(4)), fmt.Sprint(ids)
		var err error
		switch rnd.IntN(9) {
		case 0, 1, 2:
			_, err = s.Claim(ctx, who)
		case 3:
			_, err = s.Claim(ctx, who, stock.Request{ID: id, N: 1 + rnd.Int64N(3)})
		case 4:
			_, err = s.ClaimAny(ctx, 3)
		case 5:
			_, err = s.Reserve(ctx, who, stock.Request{ID: id, N: 1}, time.Hour)
		default:
			err = undo(s, rnd, hasUnits(t, raw), hash(t, raw, "rc:{s}:r"))
		}
		require.NoError(t, err)
		peek := errors.New("only a look")
		_, err = s.Ledger(ctx, 1000, func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries {
				history[e.Serial], last = e, e.Serial
			}
			return peek
		})
		require.True(t, err == nil || errors.Is(err, peek), err)
	}
	walk := func(n int) {
		for range n {
			act()
			if rnd.IntN(5) == 0 {
				_, err := s.Ledger(ctx, 1+rnd.IntN(4), b.move)
				require.NoError(t, err)
			}
		}
	}
	walk(rnd.IntN(15))
	switch loss {
	case "nothing":
		walk(rnd.IntN(10))
	case "ledger": // of which the database has what was moved
		walk(rnd.IntN(10))
		must(t, raw, "DEL", "rc:{s}:l")
	case "failover":
		put, then := snapshot(t, raw), last
		walk(1 + rnd.IntN(8))
		put()
		for ; last > then; last-- {
			delete(history, last)
		}
		for range rnd.IntN(10) {
			act()
		}
	default:
		walk(rnd.IntN(10))
		b.drain(t, s)
		must(t, raw, "DEL", keyOf[loss])
	}

	before := hasUnits(t, raw)
	winners, back, _ := b.units(epoch)
	var out stock.Restored
	for tries := rnd.IntN(3); ; tries-- {
		ctx, stop := context.WithCancel(ctx)
		if left := rnd.IntN(12); tries > 0 {
			wire.Before = func([]string) {
				if left--; left < 0 {
					stop()
				}
			}
		}
		out, err = s.Restore(ctx, b.winners(epoch))
		wire.Before = nil
		stop()
		if err == nil {
			break
		}
		require.Positive(t, tries, err)
	}
	after := hasUnits(t, raw)
	changed := !maps.Equal(before, after) || out.Added != 0 || out.Displaced != nil || out.Unaccounted != 0
	if loss == "nothing" && changed {
		return fmt.Errorf("nothing was lost, the stock had %v and has %v: %+v", before, after, out)
	}
	came := map[string]bool{} // what came back here, by ordinal and holder
	for _, e := range history {
		for o := e.Ordinal; e.Kind == stock.KindReturn && o < e.Ordinal+e.N; o++ {
			came[fmt.Sprint(o, e.Claimant, "/", e.Request)] = true
		}
	}
	for o, who := range winners {
		switch returned := came[fmt.Sprint(o, who)]; {
		case returned && after[o] != "" && loss != "ledger": // a record alone names the last return only
			return fmt.Errorf("unit %d of %s was returned, and %s has it", o, who, after[o])
		case !returned && after[o] != who:
			return fmt.Errorf("unit %d is that of %s by the database, and %q has it", o, who, after[o])
		}
	}
	for _, o := range back {
		if after[o] != "" {
			return fmt.Errorf("unit %d was returned by the database, and %s has it", o, after[o])
		}
	}
	// by holder: the database says of a unit of its that somebody else has it, or that it has others
	taken := map[string]bool{}
	for o, who := range before {
		w, sold := winners[o]
		taken[who] = taken[who] || sold && w != who || slices.Contains(back, o)
	}
	for o, who := range winners {
		taken[who] = taken[who] || before[o] != who
	}
	for o, who := range before {
		if after[o] != who && !taken[who] {
			return fmt.Errorf("unit %d of %s went to %q, and nothing in the database says so", o, who, after[o])
		}
	}
	for round := range 2 {
		b.drain(t, s)
		units, _, _ := b.units(epoch)
		has := hasUnits(t, raw)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		if !maps.Equal(units, has) || st.Sold != int64(len(has))+out.Unaccounted {
			return fmt.Errorf("round %d: the database says %v, the stock %v and %d sold, %+v", round, units, has, st.Sold, out)
		}
		last = b.next[epoch] - 1
		walk(rnd.IntN(5))
	}
	has := hasUnits(t, raw)
	for i := 0; ; i++ {
		g := claimed(t, s, fmt.Sprint("new", i))
		if !g.Won() {
			break
		}
		if has[g.Ordinal] != "" {
			return fmt.Errorf("unit %d of %s is sold again", g.Ordinal, has[g.Ordinal])
		}
		has[g.Ordinal] = "new"
	}
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	if int64(len(has))+st.Held+out.Unaccounted != limit {
		return fmt.Errorf("%d sold, %d held, %+v", len(has), st.Held, out)
	}
	return nil
}

func giveBack(t testing.TB, s *stock.Stock, claimant string, ordinal int64) {
	t.Helper()
	ok, err := s.Return(ctx, stock.Units{Claimant: claimant, Ordinal: ordinal})
	require.NoError(t, err)
	require.Positive(t, ok)
}
