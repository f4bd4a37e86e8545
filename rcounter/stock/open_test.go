package stock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestOpen_OwnerKnowsIt_IsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, exact).Stock("s")
		asked, before, down := 0, false, error(nil)
		o := spec(2)
		o.Opened = func(context.Context) (bool, error) {
			asked++
			return before, down
		}
		for name, open := range map[string]func() error{
			"Open":       func() error { _, err := s.Open(ctx, o); return err },
			"OpenOrJoin": func() error { _, err := s.OpenOrJoin(ctx, o); return err },
		} {
			must(t, raw, "FLUSHALL")
			asked, before, down = 0, false, errors.New("the database is down")
			require.ErrorIs(t, open(), down, name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "ann").Outcome)
			down = nil
			require.NoError(t, open(), name)
			require.Equal(t, 2, asked)
			require.True(t, claimed(t, s, "ann").Won())

			before = true
			_, err := s.OpenOrJoin(ctx, o)
			require.NoError(t, err, "it stands")
			require.Equal(t, 2, asked, "only where there is none")
			must(t, raw, "FLUSHALL")
			require.ErrorIs(t, open(), errs.ErrCorrupt, name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "bob").Outcome, "nothing is sold twice")
		}
	})
}

// Replicas of a program start together, each with Spec.Opened. Between one's look at the server and its look at the
// database another opens the stock and tells the database. Nothing is lost.
func TestOpenOrJoin_OpenedMeanwhile_Joins(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	var known atomic.Bool // the database's row
	o := spec(2)
	o.Opened = func(context.Context) (bool, error) { return known.Load(), nil }
	start := func(c *stock.Client, o stock.Spec) error {
		_, err := c.Stock("s").OpenOrJoin(ctx, o)
		known.Store(known.Load() || err == nil)
		return err
	}
	a, b := on(t, raw, exact), on(t, srv.Client(t), exact)
	late := o
	late.Opened = func(ctx context.Context) (bool, error) {
		require.NoError(t, start(b, o))
		return o.Opened(ctx)
	}
	require.NoError(t, start(a, late))

	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		must(t, raw, "FLUSHALL")
		known.Store(false)
		failed := make(chan error, 4)
		for i := range 4 {
			go func() { failed <- start([]*stock.Client{a, b}[i%2], o) }()
		}
		for range 4 {
			require.NoError(t, <-failed)
		}
	}
	must(t, raw, "FLUSHALL")
	require.ErrorIs(t, start(a, o), errs.ErrCorrupt, "it is lost")
}

func TestOpenOrJoin_Contradiction_IsRefused(t *testing.T) {
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

func TestOpen_Times_AreRoundedUpAndRetainIsADay(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	srv.Embedded.SetTime(time.Now())
	c := on(t, srv.Client(t), patient)
	for name, tc := range map[string]struct {
		o                stock.Spec
		start, end, gone time.Duration
	}{
		"default":   {stock.Spec{OpenFor: time.Hour}, 0, time.Hour, 25 * time.Hour},
		"fractions": {stock.Spec{StartIn: 1, OpenFor: 1500_000, Retain: time.Hour}, 1e6, 3e6, time.Hour + 3e6},
	} {
		tc.o.Limit = 1
		_, err := c.Stock(name).Open(ctx, tc.o)
		require.NoError(t, err)
		st, err := c.Stock(name).Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{tc.start, tc.end, tc.gone},
			[]time.Duration{st.UntilStart, st.UntilEnd, st.UntilGone}, name)
	}
}

// The life of a stock on a clock that the test moves, to the millisecond.
func TestStock_WindowAndRetention_AreInServerTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	s := on(t, raw, patient).Stock("s")
	forward := srv.Clock()
	_, err := s.Open(ctx, stock.Spec{Limit: 3, StartIn: time.Minute, OpenFor: time.Hour, Retain: 24 * time.Hour})
	require.NoError(t, err)
	for _, step := range []struct {
		later    time.Duration
		claimant string
		want     stock.Outcome
	}{
		{time.Minute - time.Millisecond, "ann", stock.NotStarted},
		{time.Millisecond, "ann", stock.Granted},
		{time.Hour - time.Millisecond, "bob", stock.Granted},
		{time.Millisecond, "cid", stock.Ended},
		{24*time.Hour - time.Millisecond, "ann", stock.Replayed},
		{time.Millisecond, "ann", stock.NotOpen},
	} {
		forward(step.later)
		require.Equal(t, step.want, claimed(t, s, step.claimant).Outcome, "%+v", step)
	}
	require.Empty(t, keys(t, raw), "everything ends by itself")
}

func TestOpen_RememberTooShort_IsRefused(t *testing.T) {
	t.Parallel()
	s := on(t, redistest.Embedded(t).Client(t), patient).Stock("s") // a call may take 50 s
	for _, d := range []time.Duration{-1, time.Second, 99 * time.Second, lifetime + time.Hour} {
		o := spec(1)
		o.Remember = d
		_, err := s.Open(ctx, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "Remember")
	}
}
