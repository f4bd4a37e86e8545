package stock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// The end that was set is that of all keys, and the retention follows it. Copies of a call that come late change
// nothing.
func TestChange_End_MovesAllEndsAndLateCopiesNone(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	wire := &recording{Client: raw}
	s := opened(t, on(t, wire, exact), "s", 10)
	claimed(t, s, "ann")
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(10 * time.Hour)}))
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{10 * time.Hour, 11 * time.Hour}, []time.Duration{st.UntilEnd, st.UntilGone})
	requireEnds(t, raw)
	forward(5 * time.Hour)
	require.Equal(t, stock.Granted, claimed(t, s, "bob").Outcome, "its first end was four hours ago")
	copies := slices.Clone(wire.Sent)
	for _, args := range copies {
		must(t, raw, args...)
	}
	st, err = s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, 5*time.Hour, st.UntilEnd)
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(0)}))
	require.Equal(t, stock.Ended, claimed(t, s, "cid").Outcome)
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(time.Minute)}))
	require.Equal(t, stock.Granted, claimed(t, s, "cid").Outcome)
	forward(2 * time.Hour)
	require.Equal(t, stock.NotOpen, claimed(t, s, "cid").Outcome)
	require.Empty(t, keys(t, raw))
}

// A change is made as a whole: a limit that is too low leaves the rest as it was. The start can be put off, and brought
// forward, and what a claimant may have can be raised and lowered. Nobody loses a unit by it.
func TestChange_LimitTooLow_ChangesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	s := on(t, raw, exact).Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: 3, OpenFor: time.Hour})
	require.NoError(t, err)
	require.ErrorIs(t, on(t, raw, exact).Stock("none").Change(ctx, stock.Change{Pause: true}), stock.ErrNotOpen)
	three := stock.Request{ID: "r", N: 3}
	answer := func(want stock.Outcome, claimant string, r ...stock.Request) {
		t.Helper()
		g, err := s.Claim(ctx, claimant, r...)
		require.NoError(t, err)
		require.Equal(t, want, g.Outcome)
	}
	answer(stock.UserLimit, "ann", three)
	require.NoError(t, s.Change(ctx,
		stock.Change{PerUser: 4, Limit: 7, StartIn: stock.In(time.Minute), EndIn: stock.In(2 * time.Hour)}))
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, stock.PhasePending, st.Phase)
	require.EqualValues(t, 7, st.Limit)
	require.Equal(t, [2]time.Duration{time.Minute, 2 * time.Hour},
		[2]time.Duration{st.UntilStart.Round(time.Second), st.UntilEnd.Round(time.Second)})
	answer(stock.NotStarted, "ann", three)
	forward(time.Minute)
	answer(stock.Granted, "ann", three)
	require.ErrorIs(t, s.Change(ctx, stock.Change{PerUser: 1, Limit: 2, Pause: true}), errs.ErrOutOfRange)
	answer(stock.Granted, "ann")
	answer(stock.UserLimit, "ann", stock.Request{ID: "more", N: 1})
	require.NoError(t, s.Change(ctx, stock.Change{PerUser: 1}))
	answer(stock.Replayed, "ann", three)
	answer(stock.UserLimit, "bob", stock.Request{ID: "two", N: 2})
	answer(stock.Granted, "bob")
	require.NoError(t, s.Change(ctx, stock.Change{StartIn: stock.In(time.Hour)}))
	answer(stock.NotStarted, "cid")
	require.NoError(t, s.Change(ctx, stock.Change{StartIn: stock.In(0), Limit: 8}))
	answer(stock.Granted, "cid")
}
