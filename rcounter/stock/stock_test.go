package stock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// recorded takes in what a claimant was answered.
func recorded(w *judges.Winners, claimant string, g stock.Grant) {
	if g.Won() {
		w.Won(claimant, judges.Unit{Ordinal: g.Ordinal})
	} else {
		w.Refused(claimant)
	}
}

// A key that has lost its end gets it back from the next verb that writes.
func TestStock_KeyLostItsEnd_GetsItBack(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := opened(t, on(t, raw, patient), "s", 2)
		must(t, raw, "PERSIST", "rc:{s}")
		claimed(t, s, "a")
		requireEnds(t, raw)
		must(t, raw, "PERSIST", "rc:{s}:u")
		giveBack(t, s, "a", 1)
		requireEnds(t, raw)
	})
}

// Each key of a stock with claimants, requests and reservations is lost in turn: from then on nothing is granted, and
// nothing is created.
func TestStock_AnyKeyLost_StopsTheSale(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, exact).Stock("s")
		for _, key := range []string{"rc:{s}", "rc:{s}:u", "rc:{s}:r", "rc:{s}:h"} {
			for _, how := range []string{"DEL", "PEXPIRE"} {
				must(t, raw, "FLUSHALL")
				_, err := s.Open(ctx, stock.Spec{Limit: 100, PerUser: 10, OpenFor: time.Hour})
				require.NoError(t, err)
				require.True(t, claimed(t, s, "u").Won())
				_, err = s.ActsAs(ctx, "before", stock.Deed{Verb: "O", ID: "r", Claimant: "u", N: 3},
					stock.Deed{Verb: "R", ID: "h", Claimant: "u", N: 2, TTL: 10 * time.Minute})
				require.NoError(t, err)
				if must(t, raw, append([]string{how, key}, "1")[:map[string]int{"DEL": 2, "PEXPIRE": 3}[how]]...); how != "DEL" {
					redistest.Eventually(t, 10*time.Second, "the key expires", func() bool {
						return number(t, raw, "EXISTS", key) == 0
					})
				}
				before := keys(t, raw)
				verbs := stockVerbs(s)
				for _, not := range []string{"Open", "OpenOrJoin", "EndSale", "Ledger", "Restore", "Pause", "Resume", "SetEnd"} {
					delete(verbs, not)
				}
				for verb, call := range verbs {
					require.ErrorIs(t, call(), errs.ErrCorrupt, "%s with %s %s", verb, key, how)
				}
				require.ElementsMatch(t, before, keys(t, raw), key)
			}
		}
	})
}

func TestStocks_Cluster_EveryVerbWorks(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	c := on(t, srv.Client(t), stock.Options{KeyPrefix: "shop:", CallTimeout: patient.CallTimeout})
	for i := range redistest.Sized(8, 8, 30) {
		name := "sale" + strconv.Itoa(i)
		s, g := opened(t, c, name, 1), c.Group(name)
		claimed(t, s, "b")
		for range 20 { // the process comes to know that it is sold out, on the node that has it
			require.Equal(t, stock.SoldOut, claimed(t, s, "d").Outcome)
			require.Equal(t, stock.Replayed, claimed(t, s, "b").Outcome)
		}
		verbs := stockVerbs(s)
		delete(verbs, "Open")
		for verb, call := range verbs {
			require.NoError(t, call(), verb)
		}
		grouped(t, g, spec(2), "a", "b")
		for verb, call := range cartVerbs(g, lines(1, "a", "b")) {
			require.NoError(t, inSomeOrder(call("id")), verb)
		}
		p := watch(t, s, time.Hour) // by sharded channels
		p.says("gap")
		require.NoError(t, s.Publish(ctx, sold(1, 1)))
		p.says("1/1")
	}
}

// What is deleted leaves nothing, whatever its state, and the name can be opened again.
func TestDelete_AnyState_LeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, exact).Stock("s")
		require.NoError(t, s.Delete(ctx), "there is none")
		for name, state := range map[string]func() error{
			"open":      func() error { return nil },
			"paused":    func() error { return s.Change(ctx, stock.Change{Pause: true}) },
			"closed":    func() error { return s.EndSale(ctx) },
			"ended":     func() error { return s.Change(ctx, stock.Change{EndIn: stock.In(0)}) },
			"lost":      func() error { return raw.Do(ctx, raw.B().Del().Key("rc:{s}").Build()).Error() },
			"corrupt":   func() error { return raw.Do(ctx, raw.B().Del().Key("rc:{s}:u").Build()).Error() },
			"twice":     func() error { return s.Delete(ctx) },
			"abandoned": func() error { return raw.Do(ctx, raw.B().Hdel().Key("rc:{s}").Field("gone").Build()).Error() },
		} {
			o := spec(3)
			o.Ledger = true
			_, err := s.Open(ctx, o)
			require.NoError(t, err, name)
			require.EqualValues(t, 1, claimed(t, s, "ann").Ordinal, name)
			_, err = s.Reserve(ctx, "bob", stock.Request{ID: "r", N: 1}, time.Minute)
			require.NoError(t, err, name)
			_, err = s.Claim(ctx, "carl", stock.Request{ID: "q", N: 1})
			require.NoError(t, err, name)
			require.Equal(t, stock.SoldOut, claimed(t, s, "dora").Outcome, name)
			require.NoError(t, state(), name)
			require.NoError(t, s.Delete(ctx), name)
			require.Empty(t, keys(t, raw), name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "ann").Outcome, name)
		}
	})
}

// A copy of a Delete that comes late removes no other opening, and neither does one for a stock that was lost.
func TestDelete_LateCopy_RemovesNoOtherOpening(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	for _, lost := range []bool{false, true} {
		s := opened(t, on(t, raw, exact), "s", 3)
		claimed(t, s, "ann")
		if lost {
			must(t, raw, "DEL", "rc:{s}")
		}
		late := newLate(t, srv, once(func(args []string) bool {
			n := len(args)
			return args[n-1] == "delete" && args[n-2] != "" // not the one that asks for the epoch
		}))
		require.NoError(t, on(t, late, exact).Stock("s").Delete(ctx))
		opened(t, on(t, raw, exact), "s", 3)
		require.EqualValues(t, 1, claimed(t, s, "bob").Ordinal)
		late.Deliver(t)
		_, ok, err := lookup(s, "bob")
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, s.Delete(ctx))
	}
}

// A server whose memory is full refuses new sales. A winner has its answer all the same, though a hold is over and ends
// in the same script, and what gives units back works.
func TestStock_ServerFull_AnswersWinnersAndTakesBack(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]bool{"with a ledger": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			raw := redistest.Start(t).Client(t)
			o := exact
			o.CallTimeout, o.RetryTimeout = time.Second, time.Second
			s := on(t, raw, o).Stock("s")
			_, err := s.Open(ctx, stock.Spec{Limit: 9, PerUser: 2, OpenFor: time.Hour, Ledger: ledger})
			require.NoError(t, err)
			unit := claimed(t, s, "ann")
			any, err := s.ClaimAny(ctx, 2)
			require.NoError(t, err)
			for _, id := range []string{"over", "cancelled", "sold"} {
				_, err = s.Reserve(ctx, "of "+id, stock.Request{ID: id, N: 1}, time.Hour)
				require.NoError(t, err)
			}
			_, err = s.Confirm(ctx, "sold")
			require.NoError(t, err)
			must(t, raw, "ZADD", "rc:{s}:h", "XX", "1", "over")
			must(t, raw, "CONFIG", "SET", "maxmemory", "100kb")
			again := claimed(t, s, "ann")
			require.Equal(t, stock.Replayed, again.Outcome)
			require.Equal(t, unit.Ordinal, again.Ordinal)
			// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
			redistest.Eventually(t, 10*time.Second, "a claim of another is ErrUnavailable", func() bool {
				brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, err := s.Claim(brief, "bob")
				require.Error(t, err)
				return errors.Is(err, errs.ErrUnavailable)
			})
			for _, u := range []stock.Units{{Claimant: "ann", Ordinal: unit.Ordinal},
				{Request: any.Request, Ordinal: any.Ordinal, N: 1}, {Request: "sold"}} {
				n, err := s.Return(ctx, u)
				require.NoError(t, err)
				require.EqualValues(t, 1, n)
			}
			back, err := s.Cancel(ctx, "cancelled")
			require.NoError(t, err)
			require.True(t, back)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, [2]int64{1, 0}, [2]int64{st.Sold, st.Held})
			must(t, raw, "CONFIG", "SET", "maxmemory", "0")
			require.Equal(t, stock.Granted, claimed(t, s, "bob").Outcome)
		})
	}
}
