package stock_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// A bank calls twice, and a unit comes back in between. Whatever the first call was told, the second is told the same
// units: none that is refunded is shipped as well.
func TestAPaymentIsAnsweredOnceAndForAll(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	open := func(name string, per int64) *stock.Stock {
		s := on(t, raw, exact).Stock(name)
		_, err := s.Open(ctx, stock.Spec{Limit: 3, PerUser: per, OpenFor: time.Hour})
		require.NoError(t, err)
		return s
	}
	// paid is what each of three payments for an order is answered.
	paid := func(s *stock.Stock, id string, want stock.Outcome, n, refund int64, between func(), units ...stock.Paid) {
		t.Helper()
		for i := range 3 {
			g, err := s.Confirm(ctx, id, units...)
			require.NoError(t, err)
			if want == stock.Granted && i > 0 {
				want = stock.Replayed
			}
			require.Equal(t, want, g.Outcome)
			require.True(t, g.Outcome.Final())
			require.Equal(t, [2]int64{n, refund}, [2]int64{g.N, g.Missing}, "time %d", i+1)
			between()
		}
	}
	nothing := func() {}
	for name, c := range map[string]struct {
		taken, n, refund int64
		paid             []stock.Paid
		want             stock.Outcome
	}{
		"nothing is left":           {3, 0, 2, nil, stock.Expired},
		"nothing is left of a part": {3, 0, 1, []stock.Paid{1}, stock.Expired},
		"one is left":               {2, 1, 1, nil, stock.Granted},
		"all is left":               {1, 2, 0, nil, stock.Granted},
		"all is left of a part":     {1, 1, 0, []stock.Paid{1}, stock.Granted},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(name, 3)
			_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 2}, time.Second)
			require.NoError(t, err)
			forward(2 * time.Second)
			all, err := s.ClaimAny(ctx, c.taken)
			require.NoError(t, err)
			paid(s, "order", c.want, c.n, c.refund, func() {
				_, err := s.Return(ctx, stock.Units{Request: all.Request, Ordinal: all.Ordinal, N: all.N})
				require.NoError(t, err)
			}, c.paid...)
		})
	}
	t.Run("the claimant has others", func(t *testing.T) {
		s := open("limit", 2)
		_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 2}, time.Second)
		require.NoError(t, err)
		forward(2 * time.Second)
		_, err = s.Claim(ctx, "ann", stock.Request{ID: "other", N: 2})
		require.NoError(t, err)
		paid(s, "order", stock.Expired, 0, 2, func() {
			_, err := s.Return(ctx, stock.Units{Request: "other"})
			require.NoError(t, err)
		})
	})
	t.Run("the sale is over, and goes on", func(t *testing.T) {
		s := open("over", 2)
		_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 2}, time.Second)
		require.NoError(t, err)
		require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(0)}))
		forward(2 * time.Second)
		paid(s, "order", stock.Expired, 0, 2, func() {
			require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}))
		})
	})
	t.Run("nobody knows the order", func(t *testing.T) {
		s := open("unknown", 2)
		reserve := func() {
			g, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 2}, time.Minute)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, g.Outcome)
		}
		paid(s, "order", stock.Cancelled, 0, 0, reserve)
		paid(s, "order", stock.Cancelled, 0, 2, reserve, 2)
	})
	t.Run("it was cancelled", func(t *testing.T) {
		s := open("cancelled", 2)
		for _, id := range []string{"held", "expired"} {
			_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Minute)
			require.NoError(t, err)
		}
		_, err := s.Cancel(ctx, "held")
		require.NoError(t, err)
		forward(2 * time.Minute)
		_, err = s.Cancel(ctx, "expired")
		require.NoError(t, err)
		paid(s, "held", stock.Cancelled, 0, 1, nothing)
		paid(s, "expired", stock.Expired, 0, 1, nothing)
	})
	t.Run("fewer were held than asked for", func(t *testing.T) {
		s := open("fewer", 9)
		_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 5, UpTo: true}, time.Minute)
		require.NoError(t, err)
		paid(s, "order", stock.Granted, 3, 0, nothing)
		n, err := s.Return(ctx, stock.Units{Request: "order", Keep: 1})
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		paid(s, "order", stock.Replayed, 1, 2, nothing)
		back, err := s.Return(ctx, stock.Units{Request: "order"})
		require.NoError(t, err)
		require.Positive(t, back)
		paid(s, "order", stock.Returned, 0, 3, nothing)
	})
	t.Run("part of what is held was paid", func(t *testing.T) {
		s := open("part", 9)
		_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 3}, time.Minute)
		require.NoError(t, err)
		paid(s, "order", stock.Granted, 2, 0, nothing, 2)
		paid(s, "order", stock.Replayed, 2, 1, nothing)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Remaining)
	})
}

// While a stock does not sell for a while, a payment that comes late is not decided.
func TestALatePaymentIsDecidedOnceTheStockSells(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	s := opened(t, on(t, raw, exact), "s", 3)
	_, err := s.Reserve(ctx, "ann", stock.Request{ID: "order", N: 1}, time.Second)
	require.NoError(t, err)
	forward(2 * time.Second)
	for want, c := range map[stock.Outcome][2]stock.Change{
		stock.Paused:     {{Pause: true}, {Resume: true}},
		stock.NotStarted: {{StartIn: stock.In(time.Minute)}, {StartIn: stock.In(0)}},
	} {
		require.NoError(t, s.Change(ctx, c[0]))
		g, err := s.Confirm(ctx, "order")
		require.NoError(t, err)
		require.Equal(t, want, g.Outcome)
		require.False(t, g.Outcome.Final())
		require.Zero(t, g.Missing)
		require.NoError(t, s.Change(ctx, c[1]))
	}
	g, err := s.Confirm(ctx, "order")
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
}
