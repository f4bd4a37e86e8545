package stock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// From Redis 7.2 on WAIT waits for nothing if its connection has written nothing. So a call that only finds what its
// first copy, or another call, has done must write something, or its answer is confirmed by nobody.
func TestAnswers_Confirmed_ComeWithAWrite(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Start(t, "--hz", "100") // by default WAIT ends with the next 100 ms, whatever its timeout
	admin := srv.Client(t)
	c := on(t, srv.Client(t),
		stock.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond})
	s, plain := c.Stock("s"), on(t, admin, exact).Stock("s")
	o := spec(100)
	o.PerUser = 10
	o.Ledger = true
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	g := c.Group("sale")
	grouped(t, g, o, "a", "b")
	for _, tc := range []struct {
		name string
		call func() error
	}{
		{"Claim", func() error { _, err := s.ClaimAs(ctx, "C", "ann"); return err }},
		{"Claim, by another call", func() error { _, err := s.ClaimAs(ctx, "D", "ann"); return err }},
		{"Claim, returned meanwhile", func() error {
			_, err := plain.ReturnAs(ctx, "R", "ann", 1)
			require.NoError(t, err)
			_, err = s.ClaimAs(ctx, "C", "ann")
			return err
		}},
		{"ClaimOnce", func() error { _, err := s.OnceAs(ctx, "C", "r", "bob", 2); return err }},
		{"ClaimOnce, by another call", func() error { _, err := s.OnceAs(ctx, "D", "r", "bob", 2); return err }},
		{"ClaimOnce, returned meanwhile", func() error {
			_, err := plain.Return(ctx, stock.Units{Request: "r"})
			require.NoError(t, err)
			_, err = s.OnceAs(ctx, "C", "r", "bob", 2)
			return err
		}},
		{"ClaimAny", func() error { _, err := s.AnyAs(ctx, "A", 2); return err }},
		{"Reserve", func() error { _, err := s.ReserveAs(ctx, "C", "h", "bob", 1); return err }},
		{"Reserve, by another call", func() error { _, err := s.ReserveAs(ctx, "D", "h", "bob", 1); return err }},
		{"Confirm", func() error { _, err := s.ConfirmAs(ctx, "C", "h"); return err }},
		{"Confirm, by another call", func() error { _, err := s.ConfirmAs(ctx, "D", "h"); return err }},
		{"Group.Reserve", func() error {
			_, err := g.Reserve(ctx, "cid", stock.CartRequest{ID: "cart", Lines: lines(1, "a", "b")}, time.Hour)
			return err
		}},
		{"Group.Confirm", func() error { _, err := g.Confirm(ctx, "cart", lines(0, "a", "b")...); return err }},
		{"Group.Return", func() error { _, err := g.Return(ctx, "cart", "a", "b"); return err }},
		{"Group.Confirm, returned meanwhile", func() error {
			_, err := g.Confirm(ctx, "cart", lines(0, "a", "b")...)
			return err
		}},
		{"Group.Cancel", func() error { _, err := g.Cancel(ctx, "none", "a", "b"); return err }},
		{"Return", func() error { _, err := s.Return(ctx, stock.Units{Request: "h"}); return err }},
		{"Confirm, returned meanwhile", func() error { _, err := s.Confirm(ctx, "h"); return err }},
		{"Return of a claim", func() error { _, err := s.ReturnAs(ctx, "T", "ann", 1); return err }},
		{"Return of a claim, by another call", func() error {
			_, err := s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})
			return err
		}},
		{"Return of any", func() error {
			_, err := s.Return(ctx, stock.Units{Request: "A", Ordinal: 4, N: 2})
			return err
		}},
		{"Cancel", func() error { _, err := s.Cancel(ctx, "none"); return err }},
		{"Confirm of what is cancelled", func() error { _, err := s.Confirm(ctx, "none"); return err }},
		{"Reserve of what is cancelled", func() error { _, err := s.ReserveAs(ctx, "E", "none", "bob", 1); return err }},
		{"Confirm of what is unknown", func() error { _, err := s.Confirm(ctx, "other"); return err }},
		{"Ledger", func() error {
			_, err := s.Ledger(ctx, 100, func(context.Context, []stock.Entry) error {
				t.Error("moved what no replica has")
				return nil
			})
			return err
		}},
	} {
		require.ErrorIs(t, tc.call(), errs.ErrNotReplicated, tc.name)
		before := rig.Writes(t, admin)
		require.ErrorIs(t, tc.call(), errs.ErrNotReplicated, tc.name)
		require.Greater(t, rig.Writes(t, admin), before, tc.name)
	}
}
