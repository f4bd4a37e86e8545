package stock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestClaimsOfSeveralUnitsAreGrantedInPartAndReturnedOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, patient).Stock("s")
		o := spec(10)
		o.PerUser, o.Ledger = 4, true
		epoch, err := s.Open(ctx, o)
		require.NoError(t, err)
		grant := func(outcome stock.Outcome, ordinal, n, left int64, request string) stock.Grant {
			return stock.Grant{Outcome: outcome, Ordinal: ordinal, N: n, Remaining: left, Epoch: epoch, Request: request}
		}
		once := func(want stock.Grant, request, claimant string, n int64) {
			t.Helper()
			if want.Outcome == stock.Granted && want.N < n {
				g, err := s.Claim(ctx, claimant, stock.Request{ID: request, N: n})
				require.NoError(t, err)
				require.False(t, g.Won(), "all or none")
				require.Equal(t, want.Remaining+want.N, g.Remaining)
			}
			g, err := s.Claim(ctx, claimant, stock.Request{ID: request, N: n, UpTo: true})
			require.NoError(t, err)
			if want.Won() {
				want.Missing = n - want.N
			}
			require.Equal(t, want, g)
			requireEnds(t, raw)
		}
		once(grant(stock.Granted, 1, 3, 7, "r1"), "r1", "ann", 3)
		once(grant(stock.Replayed, 1, 3, 7, "r1"), "r1", "ann", 3)
		once(grant(stock.Granted, 4, 1, 6, "r2"), "r2", "ann", 3) // her fourth is her last
		once(grant(stock.UserLimit, 0, 0, 6, ""), "r3", "ann", 1)
		g, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, grant(stock.UserLimit, 0, 0, 6, ""), g)
		for _, other := range []struct {
			claimant string
			n        int64
		}{{"bob", 3}, {"ann", 2}} {
			_, err = s.Claim(ctx, other.claimant, stock.Request{ID: "r1", N: other.n})
			require.ErrorIs(t, err, errs.ErrMismatch)
		}
		anon, err := s.ClaimAny(ctx, 5)
		require.NoError(t, err)
		require.Equal(t, grant(stock.Granted, 5, 5, 1, anon.Request), anon)
		once(grant(stock.Granted, 10, 1, 0, "r4"), "r4", "bob", 4)
		once(grant(stock.SoldOut, 0, 0, 0, ""), "r5", "bob", 1)
		once(grant(stock.Replayed, 10, 1, 0, "r4"), "r4", "bob", 4)

		back := func(want, got int64, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, got)
			requireEnds(t, raw)
		}
		part := anon
		part.Ordinal, part.N = 6, 2
		ok, err := s.Return(ctx, stock.Units{Request: part.Request, Ordinal: part.Ordinal, N: part.N})
		back(2, ok, err)
		for _, again := range [][2]int64{{6, 2}, {7, 1}, {5, 5}, {5, 2}, {7, 2}, {4, 1}, {9, 2}, {10, 1}} {
			part.Ordinal, part.N = again[0], again[1]
			ok, err = s.Return(ctx, stock.Units{Request: part.Request, Ordinal: part.Ordinal, N: part.N})
			back(0, ok, err)
		}
		part.Ordinal, part.N = 8, 2
		ok, err = s.Return(ctx, stock.Units{Request: part.Request, Ordinal: part.Ordinal, N: part.N})
		back(2, ok, err)
		ok, err = s.Return(ctx, stock.Units{Request: "r1"})
		back(3, ok, err)
		ok, err = s.Return(ctx, stock.Units{Request: "r1"})
		back(0, ok, err)
		ok, err = s.Return(ctx, stock.Units{Request: "never"})
		back(0, ok, err)
		once(grant(stock.Returned, 0, 0, 7, ""), "r1", "ann", 3)
		once(grant(stock.Granted, 11, 3, 4, "r6"), "r6", "ann", 9)

		require.ErrorIs(t, s.Change(ctx, stock.Change{Limit: 5}), errs.ErrOutOfRange)
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 6}))
		once(grant(stock.SoldOut, 0, 0, 0, ""), "r7", "cid", 1)
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 8}))
		once(grant(stock.Granted, 14, 2, 0, "r7"), "r7", "cid", 3)
		require.ErrorIs(t, on(t, raw, patient).Stock("none").Change(ctx, stock.Change{Limit: 8}), stock.ErrNotOpen)

		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 8, st.Sold)
		require.EqualValues(t, 15, st.Seq)

		var got []stock.Entry
		n, err := s.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error { got = entries; return nil })
		require.NoError(t, err)
		require.Equal(t, len(got), n)
		for i := range got {
			require.EqualValues(t, i+1, got[i].Serial)
			require.NotZero(t, got[i].At)
			got[i].Serial, got[i].At = 0, time.Time{}
		}
		e := func(back bool, ordinal, n int64, claimant, request string) stock.Entry {
			kind := stock.KindGrant
			if back {
				kind = stock.KindReturn
			}
			return stock.Entry{Kind: kind, Epoch: epoch, Ordinal: ordinal, N: n, Claimant: claimant, Request: request}
		}
		require.Equal(t, []stock.Entry{
			e(false, 1, 3, "ann", "r1"), e(false, 4, 1, "ann", "r2"), e(false, 5, 5, "", anon.Request),
			e(false, 10, 1, "bob", "r4"),
			e(true, 6, 2, "", anon.Request), e(true, 8, 2, "", anon.Request), e(true, 1, 3, "ann", "r1"),
			e(false, 11, 3, "ann", "r6"), e(false, 14, 2, "cid", "r7"),
		}, got)
		n, err = s.Ledger(ctx, 100, func(context.Context, []stock.Entry) error { return nil })
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestAnAnonymousCallGivenUpNeverRuns(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 10)
		_, err := s.GiveUp(ctx, "late")
		require.NoError(t, err)
		g, err := s.AnyAs(ctx, "late", 3)
		require.NoError(t, err)
		require.Equal(t, stock.Returned, g.Outcome)
		_, err = s.AnyAs(ctx, "early", 3)
		require.NoError(t, err)
		for _, want := range []int64{3, 0} {
			n, err := s.GiveUp(ctx, "early")
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Zero(t, st.Sold)
	})
}

func TestAReservationIsSoldOrGoesBackOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	s := on(t, raw, patient).Stock("s")
	o := spec(3)
	o.PerUser = 3
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	r, err := s.Reserve(ctx, "ann", stock.Request{ID: "a", N: 2}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, r.Outcome)
	require.EqualValues(t, 2, r.N)
	require.EqualValues(t, 1, r.Remaining)
	require.InDelta(t, time.Until(r.Until).Seconds(), 60, 10)
	r, err = s.Reserve(ctx, "ann", stock.Request{ID: "a", N: 2}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, r.Outcome)
	require.Less(t, time.Until(r.Until), 2*time.Minute, "prolongs nothing")
	r, err = s.Reserve(ctx, "bob", stock.Request{ID: "b", N: 2}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.SoldOut, r.Outcome)
	require.EqualValues(t, 1, r.Remaining)
	r, err = s.Reserve(ctx, "bob", stock.Request{ID: "b", N: 1}, time.Hour)
	require.NoError(t, err)
	require.True(t, r.Won())
	g, err := s.Claim(ctx, "cid")
	require.NoError(t, err)
	require.Equal(t, stock.SoldOut, g.Outcome)

	g, err = s.Confirm(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
	require.EqualValues(t, 1, g.Ordinal)
	g, err = s.Confirm(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, g.Outcome)
	ok, err := s.Cancel(ctx, "b")
	require.NoError(t, err)
	require.False(t, ok, "sold")

	forward(time.Minute + time.Millisecond)
	over := func(want stock.Outcome) func(stock.Grant, error) {
		return func(g stock.Grant, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, g.Outcome)
			require.False(t, g.Won())
		}
	}
	over(stock.Expired)(s.Reserve(ctx, "ann", stock.Request{ID: "a", N: 2}, time.Minute))
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, st.Remaining)
	require.Zero(t, st.Held)

	ok, err = s.Cancel(ctx, "unmade")
	require.NoError(t, err)
	require.False(t, ok)
	over(stock.Cancelled)(s.Reserve(ctx, "ann", stock.Request{ID: "unmade", N: 1}, time.Minute))
	over(stock.Cancelled)(s.Claim(ctx, "ann", stock.Request{ID: "unmade", N: 1}))
	over(stock.Cancelled)(s.Confirm(ctx, "unmade"))
	over(stock.Cancelled)(s.Confirm(ctx, "unknown"))
	over(stock.Cancelled)(s.Reserve(ctx, "ann", stock.Request{ID: "unknown", N: 1}, time.Minute))
	_, err = s.Extend(ctx, "none", time.Minute)
	require.ErrorIs(t, err, stock.ErrNotFound)

	for _, id := range []string{"c", "d"} {
		r, err = s.Reserve(ctx, "cid", stock.Request{ID: id, N: 1}, time.Minute)
		require.NoError(t, err)
		require.True(t, r.Won())
	}
	forward(time.Minute + time.Millisecond)
	n, err := s.Reap(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	n, err = s.Reap(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = s.Return(ctx, stock.Units{Request: "b"})
	require.NoError(t, err)
	require.Positive(t, n)
	over(stock.Returned)(s.Confirm(ctx, "b"))
	over(stock.Returned)(s.Extend(ctx, "b", time.Minute))
	st, err = s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, st.Remaining)
	requireEnds(t, raw)
}
