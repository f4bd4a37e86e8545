package stock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// withEveryKey opens a sale that has each of its six keys.
func withEveryKey(t *testing.T, c *stock.Client, name string) *stock.Sale {
	t.Helper()
	s := opened(t, c, name, spec(2))
	redistest.NoError(s.Cancel(ctx, "closed"))(t)
	redistest.NoError(s.Reserve(ctx, stock.Order{ID: "reserved", User: "bob"}, 50*time.Minute))(t)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	a := redistest.NoError(s.Buy(ctx, stock.Order{User: "cid"}))(t)
	require.Equal(t, stock.SoldOut, a.Why)
	return s
}

// A key that has lost its end gets it back from the next call of the operator or of the mover. The flags, which a
// process may lose at any time, are removed instead.
func TestSale_KeyLostItsEnd_GetsItBack(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		b := &book{}
		verbs := map[string]func(s *stock.Sale) error{
			"open":    func(s *stock.Sale) error { return s.Open(ctx, spec(2)) },
			"inspect": func(s *stock.Sale) error { _, err := s.Inspect(ctx); return err },
			"ledger":  func(s *stock.Sale) error { _, err := s.Ledger(ctx, 1, b.Move); return err },
			"pause":   func(s *stock.Sale) error { return pause(ctx, s, false) },
			"end":     func(s *stock.Sale) error { return s.EndSale(ctx) },
		}
		for name, verb := range verbs {
			s := withEveryKey(t, on(t, raw, exact), name)
			*b = book{}
			for _, key := range s.Keys()[:6] {
				rig.Must(t, raw, "PERSIST", key)
				require.NoError(t, verb(s), name)
				rig.RequireEnds(t, raw)
				for i, kept := range s.Keys()[:6] {
					later := time.Hour // as long as the records outlive the hash
					if i == 0 {
						later = 0
					}
					if ms := rig.Number(t, raw, "PTTL", kept); i != 3 {
						require.InDelta(t, 2*time.Hour+later, time.Duration(ms)*time.Millisecond, float64(time.Minute), kept)
					}
				}
			}
			a := redistest.NoError(s.Status(ctx, "reserved"))(t)
			require.Equal(t, stock.Reserved, a.State)
		}
	})
}

// The verbs of a shop do not ask for the ends of the keys. They answer as ever until the retention is over.
func TestSale_KeyLostItsEnd_VerbsAnswerUntilTheRetentionIsOver(t *testing.T) {
	t.Parallel()
	for i, key := range []string{"sale", "orders", "reservations", "flags", "ledger", "endings"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Embedded(t)
			raw, forward := srv.Client(t), srv.Clock()
			s := withEveryKey(t, on(t, raw, exact), "s")
			rig.Must(t, raw, "PERSIST", s.Keys()[i])
			for id, want := range map[string]stock.State{"ann": stock.Sold, "reserved": stock.Sold, "closed": stock.Closed} {
				a := redistest.NoError(s.Pay(ctx, id))(t)
				require.Equal(t, want, a.State, id)
			}
			a := redistest.NoError(s.Return(ctx, "reserved"))(t)
			require.Equal(t, stock.Returned, a.Why)
			a = redistest.NoError(s.Buy(ctx, stock.Order{User: "dan"}))(t)
			require.Equal(t, stock.Sold, a.State)

			forward(2*time.Hour + time.Millisecond)
			_, err := s.Status(ctx, "ann")
			require.ErrorIs(t, err, stock.ErrNoStock)
			if key == "orders" || key == "ledger" || key == "endings" { // these look like the rest of a sale that was lost
				require.EqualValues(t, 1, rig.Number(t, raw, "EXISTS", s.Keys()[i]))
				require.ErrorIs(t, s.Open(ctx, spec(2)), stock.ErrNoStock)
				require.NoError(t, s.Delete(ctx))
			}
			require.NoError(t, s.Open(ctx, spec(2)))
			a = redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
			require.Equal(t, []any{stock.Sold, int64(1), false}, []any{a.State, a.Lines[0].Ordinal, a.Again})
		})
	}
}

// A process that has opened or joined a sale looks at it before its retention is over, although nobody calls it.
func TestSale_KeyLostItsEnd_ItsProcessGivesItBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		raw := servers[0].Client(t)
		is := stock.Spec{Limit: 2, OpenFor: time.Hour, Retain: time.Hour}
		s := opened(t, on(t, raw, exact), "s", is)
		redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
		rig.Must(t, raw, "PERSIST", s.Keys()[1])
		time.Sleep(2*time.Hour + time.Minute)
		require.Empty(t, rig.Keys(t, raw))
		require.NoError(t, s.Open(ctx, is))
	})
}

func TestSale_BigOneEnds_HoldsNobodyUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	c := on(t, raw, exact)
	rig.StallsLess(t, srv, func(t *testing.T) func() bool {
		s := opened(t, c, "s", stock.Spec{Limit: 1<<53 - 1, OpenFor: time.Hour})
		redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
		rig.Grown(t, raw, s.Keys()[1], rig.Records()-1)
		orders := rig.Dec(rig.Records())
		rig.Must(t, raw, "HSET", s.Keys()[0], "fields", orders, "sold:", orders, "seq:", orders)
		// its time is over soon, and Inspect gives the keys the ends that are theirs
		rig.Must(t, raw, "PERSIST", s.Keys()[1])
		now := redistest.NoError(rig.Raw(raw, "TIME").AsIntSlice())(t)
		rig.Must(t, raw, "HSET", s.Keys()[0], "gone", rig.Dec(now[0]*1000+1500))
		redistest.NoError(s.Inspect(ctx))(t)
		return func() bool {
			_, err := s.Inspect(ctx)
			require.True(t, err == nil || errors.Is(err, stock.ErrNoStock), err)
			return rig.Number(t, raw, "DBSIZE") == 0
		}
	})
}
