package stock_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// A process that knows a stock sold out must not say so when the server would say something else: not while the stock
// is paused, not after an end that came sooner, not when there are more units.
func TestNobodyAnswersSoldOutOfAStockThatIsPausedOrOver(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	mine := opened(t, on(t, srv.Client(t), patient), "s", 1)
	theirs := on(t, srv.Client(t), patient).Stock("s")
	claimed(t, mine, "winner")
	for i, change := range []struct {
		call func() error
		want stock.Outcome
	}{
		{func() error { return mine.Change(ctx, stock.Change{Pause: true}) }, stock.Paused},
		{func() error { return mine.Change(ctx, stock.Change{Resume: true}) }, stock.SoldOut},
		{func() error { return mine.Change(ctx, stock.Change{EndIn: stock.In(0)}) }, stock.Ended},
		{func() error { return mine.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}) }, stock.SoldOut},
		{func() error { return mine.Change(ctx, stock.Change{Limit: 2}) }, stock.Granted},
	} {
		loser := "loser" + strconv.Itoa(i)
		if i%2 == 0 {
			for _, s := range []*stock.Stock{mine, theirs} {
				quiet(t, admin, func() { loses(t, s) })
			}
		}
		require.NoError(t, change.call())
		require.Equal(t, change.want, freshly(t, mine, loser).Outcome, "at once where it was changed: %d", i)
		want, ask := change.want, freshly
		if want == stock.Granted {
			want, ask = stock.Replayed, claimed
		}
		redistest.Eventually(t, 30*time.Second, "the others have the news", func() bool {
			return ask(t, theirs, loser).Outcome == want
		})
		require.Equal(t, stock.Replayed, claimed(t, theirs, "winner").Outcome)
	}
}

// What a paused stock does and does not do, and that it keeps what it does until Resume.
func TestAPausedStockGrantsNothingAndConfirmsWhatItHolds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := opened(t, on(t, twice{Client: raw}, exact), "s", 10)
		for _, id := range []string{"a", "b", "c"} {
			_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Hour)
			require.NoError(t, err)
		}
		require.NoError(t, s.Change(ctx, stock.Change{Pause: true}))
		require.NoError(t, s.Change(ctx, stock.Change{Pause: true}))
		answer := func(want stock.Outcome) func(stock.Grant, error) {
			return func(g stock.Grant, err error) {
				t.Helper()
				require.NoError(t, err)
				require.Equal(t, want, g.Outcome)
			}
		}
		answer(stock.Paused)(s.Claim(ctx, "ann"))
		answer(stock.Paused)(s.ClaimAny(ctx, 1))
		answer(stock.Paused)(s.Claim(ctx, "ann", stock.Request{ID: "r", N: 1}))
		answer(stock.Paused)(s.Reserve(ctx, "ann", stock.Request{ID: "h", N: 1}, time.Hour))
		answer(stock.Replayed)(s.Reserve(ctx, "a", stock.Request{ID: "a", N: 1}, time.Hour))
		answer(stock.Granted)(s.Extend(ctx, "a", 2*time.Hour))
		answer(stock.Granted)(s.Confirm(ctx, "a"))
		answer(stock.Granted)(s.Confirm(ctx, "b"))
		ok, err := s.Cancel(ctx, "c")
		require.NoError(t, err)
		require.True(t, ok)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, stock.PhasePaused, st.Phase)
		_, err = s.Restore(ctx, sequence())
		require.NoError(t, err)
		answer(stock.Paused)(s.Claim(ctx, "ann"))
		require.NoError(t, s.Change(ctx, stock.Change{Resume: true}))
		answer(stock.Granted)(s.Claim(ctx, "ann"))
		require.NoError(t, s.EndSale(ctx))
		require.NoError(t, s.Change(ctx, stock.Change{Pause: true}))
		require.NoError(t, s.Change(ctx, stock.Change{Resume: true}))
		answer(stock.Ended)(s.Claim(ctx, "bob"))
		none := on(t, raw, exact).Stock("none")
		for _, err := range []error{none.Change(ctx, stock.Change{Pause: true}),
			none.Change(ctx, stock.Change{Resume: true}), none.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)})} {
			require.ErrorIs(t, err, stock.ErrNotOpen)
		}
	})
}

// A Pause that comes while Restore runs stands, and so does a Resume.
func TestAPauseWhileAStockIsRestoredStands(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	s := opened(t, on(t, srv.Client(t), exact), "s", 10)
	for _, paused := range []bool{true, false} {
		step := once(has("end"))
		wire := &recording{Client: srv.Client(t), Before: func(args []string) {
			if step(args) {
				require.NoError(t, s.Change(ctx, stock.Change{Pause: paused, Resume: !paused}))
				require.Equal(t, stock.Suspended, claimed(t, s, "ann").Outcome)
			}
		}}
		_, err := on(t, wire, exact).Stock("s").Restore(ctx, sequence())
		require.NoError(t, err)
		want := stock.Granted
		if paused {
			want = stock.Paused
		}
		require.Equal(t, want, claimed(t, s, "ann").Outcome)
	}
}

// The end that was set is that of all keys, and the retention follows it. Copies of a call that come late change
// nothing.
func TestAnEndThatWasSetMovesAllEndsAndLateCopiesMoveNothing(t *testing.T) {
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

func TestOpenOrJoinTakesWhatStandsAndRefusesAContradiction(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := on(t, srv.Client(t), exact).Stock("s")
		o := stock.Spec{Limit: 10, PerUser: 2, OpenFor: time.Hour, StartIn: 0, Retain: 2 * time.Hour, Ledger: true}
		first, err := s.OpenOrJoin(ctx, o)
		require.NoError(t, err)
		require.Equal(t, stock.PhaseOpen, first.Phase)
		claimed(t, s, "ann")
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 20}))
		require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(5 * time.Hour)}))
		again := o
		again.StartIn = time.Minute
		st, err := s.OpenOrJoin(ctx, again)
		require.NoError(t, err)
		require.Equal(t, []int64{first.Epoch, 20, 1}, []int64{st.Epoch, st.Limit, st.Sold})
		for says, change := range map[string]func(o *stock.Spec){
			"Limit 10, not 20":         func(o *stock.Spec) { o.Limit = 20 },
			"PerUser 2, not 1":         func(o *stock.Spec) { o.PerUser = 0 },
			"OpenFor 1h0m0s, not 5h":   func(o *stock.Spec) { o.OpenFor = 5 * time.Hour },
			"Retain 2h0m0s, not 24h":   func(o *stock.Spec) { o.Retain = 0 },
			"Ledger true, not false":   func(o *stock.Spec) { o.Ledger = false },
			"Remember 72h0m0s, not 2h": func(o *stock.Spec) { o.Remember = 2 * time.Hour },
		} {
			other := o
			change(&other)
			_, err := s.OpenOrJoin(ctx, other)
			require.ErrorIs(t, err, errs.ErrMismatch)
			require.ErrorContains(t, err, says)
		}
	})
}

// Part of a request was returned. Restore leaves it so, if the winners do not know yet; and takes it back, if a
// failover forgot it.
func TestRestoreKeepsToAReturnInPart(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := on(t, srv.Client(t), exact).Stock("s")
		_, err := s.Open(ctx, stock.Spec{Limit: 20, PerUser: 9, OpenFor: time.Hour})
		require.NoError(t, err)
		for _, id := range []string{"known", "forgotten", "unheard"} {
			_, err := s.Claim(ctx, "ann", stock.Request{ID: id, N: 3})
			require.NoError(t, err)
		}
		n, err := s.Return(ctx, stock.Units{Request: "known", Keep: 2})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		for range 2 {
			out, err := s.Restore(ctx, sequence(
				stock.Entry{Ordinal: 1, N: 3, Claimant: "ann", Request: "known"}, // its return is not in the database yet
				stock.Entry{Ordinal: 4, N: 1, Claimant: "ann", Request: "forgotten"},
				stock.Entry{Ordinal: 5, N: 2, Kind: stock.KindReturn},
				// "unheard" has 7 and 8 yet, which the database does not say
				stock.Entry{Ordinal: 9, N: 1, Kind: stock.KindReturn}))
			require.NoError(t, err)
			require.Zero(t, out.Unaccounted)
			has, err := unitsOf(s, "ann")
			require.NoError(t, err)
			var units [][2]int64
			for _, h := range has {
				units = append(units, [2]int64{h.Ordinal, h.N})
			}
			require.Equal(t, [][2]int64{{1, 2}, {4, 1}, {7, 2}}, units)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, []int64{5, 9}, []int64{st.Sold, st.Seq})
		}
	})
}

// A change is made as a whole: a limit that is too low leaves the rest as it was. The start can be put off, and brought
// forward, and what a claimant may have can be raised and lowered. Nobody loses a unit by it.
func TestAChangeIsMadeAsAWhole(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	s := on(t, raw, exact).Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: 3, OpenFor: time.Hour})
	require.NoError(t, err)
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
