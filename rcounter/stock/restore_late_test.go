package stock_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// sequence is entries as a database tells them.
func sequence(entries ...stock.Entry) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A sale that goes on must not be suspended by a request that the network held back.
func TestRestore_LateCopy_SuspendsNothing(t *testing.T) {
	t.Parallel()
	ann := stock.Entry{Claimant: "ann", Ordinal: 1}
	for name, tc := range map[string]struct {
		match func([]string) bool
		try   func(t *testing.T, s *stock.Stock, other *stock.Stock)
	}{
		"that failed": {has("begin"), func(t *testing.T, s, _ *stock.Stock) {
			short, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
			defer cancel()
			_, err := s.Restore(short, sequence(ann))
			require.ErrorIs(t, err, errs.ErrUnknownOutcome)
			<-short.Done()
			time.Sleep(10 * time.Millisecond)
		}},
		"that was followed by another": {once(has("begin")), func(t *testing.T, s, other *stock.Stock) {
			_, err := s.Restore(ctx, func(yield func(stock.Entry, error) bool) {
				_, err := other.Restore(ctx, sequence(ann))
				require.NoError(t, err)
				yield(ann, nil)
			})
			require.ErrorIs(t, err, stock.ErrRestoring)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			s := opened(t, on(t, srv.Client(t), exact), "s", 10)
			claimed(t, s, "ann")
			wire := newLate(t, srv, tc.match)
			tc.try(t, on(t, wire, exact).Stock("s"), s)
			require.Equal(t, stock.Granted, claimed(t, s, "bob").Outcome, "it sells")
			wire.Deliver(t)
			require.Equal(t, stock.Granted, claimed(t, s, "cid").Outcome, "and goes on")
			require.NoError(t, s.Change(ctx, stock.Change{Limit: 12}))
			wire.Deliver(t)
			require.Equal(t, stock.Granted, claimed(t, s, "dan").Outcome)
		})
	}
}

func TestRestore_LateCopies_ChangeNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	s := opened(t, on(t, admin, exact), "s", 100)
	var winners []stock.Entry
	for i := range 20 {
		u := "u" + strconv.Itoa(i)
		winners = append(winners, stock.Entry{Claimant: u, Ordinal: claimed(t, s, u).Ordinal})
	}
	for _, id := range []string{"h1", "h2"} {
		_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Hour)
		require.NoError(t, err)
	}
	must(t, admin, "HDEL", "rc:{s}:u", "u3", "u4")
	winners[7].Claimant, winners[8].Claimant = "x7", "x8"
	wire := &recording{Client: admin}
	rounds := 0
	wire.Before = func(args []string) { // something changes in the middle of the first round
		if has("unhold")(args) {
			if rounds++; rounds == 1 {
				must(t, admin, "HINCRBY", "rc:{s}", "sold", "1")
			}
		}
	}
	_, err := on(t, wire, exact).Stock("s").Restore(ctx, sequence(winners...))
	require.NoError(t, err)
	require.Greater(t, rounds, 1)

	act := func(i int) {
		g := claimed(t, s, "new"+strconv.Itoa(i))
		require.Equal(t, stock.Granted, g.Outcome)
		if i == 1 {
			ok, err := s.Return(ctx, stock.Units{Claimant: "u1", Ordinal: 2})
			require.NoError(t, err)
			require.Positive(t, ok)
			_, err = s.Cancel(ctx, "h1")
			require.NoError(t, err)
		}
	}
	state := func() (all []map[string]string) {
		for _, k := range []string{"rc:{s}", "rc:{s}:u", "rc:{s}:r"} {
			all = append(all, hash(t, admin, k))
		}
		return append(all, map[string]string{"held": dec(number(t, admin, "ZCARD", "rc:{s}:h"))})
	}
	for i := range 3 {
		act(i)
		before := state()
		for _, j := range rand.Perm(len(wire.Sent)) {
			if has("HSCAN")(wire.Sent[j]) {
				continue
			}
			require.NoError(t, raw(admin, wire.Sent[j]...).Error())
			require.Equal(t, before, state(), wire.Sent[j])
		}
	}
}

func TestRestore_ManyUnits_CostsByRecords(t *testing.T) {
	srv := redistest.Start(t)
	s := opened(t, on(t, srv.Client(t), exact), "s", int64(1<<53-1))
	n := int64(10_000_000) // would have taken a gigabyte
	g, err := s.ClaimAny(ctx, n)
	require.NoError(t, err)
	part := g
	part.Ordinal, part.N = 11, n-20
	ok, err := s.Return(ctx, stock.Units{Request: part.Request, Ordinal: part.Ordinal, N: part.N})
	require.NoError(t, err)
	require.Positive(t, ok)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := s.Restore(ctx,
		sequence(stock.Entry{Request: "lot", Ordinal: n + 1, N: n}, stock.Entry{Claimant: "ann", Ordinal: 3}))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	require.Equal(t, []stock.Entry{{Request: g.Request, Ordinal: 3, N: 1}}, out.Displaced)
	require.EqualValues(t, n+1, out.Added)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 19+n+1, st.Sold)
	require.EqualValues(t, 2*n, st.Seq)
}

func TestRestore_FieldNoRecord_IsCorrupt(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		admin := srv.Client(t)
		for _, field := range []string{"", "x", "r", "zz:top"} {
			must(t, admin, "FLUSHALL")
			s := opened(t, on(t, admin, exact), "s", 10)
			_, err := s.Claim(ctx, "ann", stock.Request{ID: "r", N: 1})
			require.NoError(t, err)
			must(t, admin, "HSET", "rc:{s}:r", field, "1")
			_, err = s.Claim(ctx, "bob")
			require.ErrorIs(t, err, errs.ErrCorrupt)
			_, err = s.Restore(ctx, sequence())
			require.ErrorIs(t, err, errs.ErrCorrupt)
		}
	})
}

// A stock is lost with all that it has, and opened anew to be restored. Copies of what was asked of the one before
// arrive in their order, within the time that a caller may wait for an answer: none of them gives the new one another
// limit, or lets it sell.
func TestOpen_LateCopiesOfAnotherOpening_ChangeNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		admin := srv.Client(t)
		wire := &recording{Client: admin}
		s := on(t, wire, exact).Stock("s")
		_, err := s.Open(ctx, spec(10))
		require.NoError(t, err)
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 200}))
		ann := claimed(t, s, "ann")
		_, err = s.Restore(ctx,
			sequence(stock.Entry{Claimant: "ann", Ordinal: ann.Ordinal}, stock.Entry{Claimant: "bob", Ordinal: 7}))
		require.NoError(t, err)
		claimed(t, s, "cid")
		_, err = s.Reserve(ctx, "h1", stock.Request{ID: "h1", N: 1}, time.Hour)
		require.NoError(t, err)
		_, err = s.ClaimAny(ctx, 5)
		require.NoError(t, err)
		_, err = s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: ann.Ordinal})
		require.NoError(t, err)
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 300}))
		require.NoError(t, s.EndSale(ctx))

		must(t, admin, "DEL", "rc:{s}", "rc:{s}:u", "rc:{s}:r", "rc:{s}:h", "rc:{s}:o", "rc:{s}:l", "rc:{s}:f")
		sent := slices.Clone(wire.Sent)
		o := spec(10)
		o.Suspended = true
		calm := on(t, admin, exact).Stock("s")
		_, err = calm.Open(ctx, o)
		require.NoError(t, err)
		before := [2]map[string]string{hash(t, admin, "rc:{s}"), hash(t, admin, "rc:{s}:u")}
		for _, args := range sent {
			if has("HSCAN")(args) {
				continue
			}
			require.NoError(t, raw(admin, args...).Error())
			require.Equal(t, before, [2]map[string]string{hash(t, admin, "rc:{s}"), hash(t, admin, "rc:{s}:u")}, args)
		}

		_, err = calm.Restore(ctx, sequence(stock.Entry{Claimant: "cid", Ordinal: 8}))
		require.NoError(t, err)
		for _, args := range sent {
			if has("HSCAN")(args) {
				continue
			}
			require.NoError(t, raw(admin, args...).Error())
			is := hash(t, admin, "rc:{s}")
			require.Equal(t, []string{"10", "1"}, []string{is["limit"], is["state"]}, args)
		}
	})
}

// An opening's requests stay in the network. The stock is opened by another copy of them, sells, and is lost with all
// that it has; then they arrive, after their caller has long had its answer. Nobody asked for what would sell again.
func TestOpen_LateCopy_OpensNothing(t *testing.T) {
	srv := redistest.Embedded(t)
	at := time.Now()
	srv.Embedded.SetTime(at)
	admin := srv.Client(t)
	wire := &recording{Client: admin}
	c := on(t, wire, exact)
	s := c.Stock("s")
	_, err := s.Open(ctx, spec(3))
	require.NoError(t, err)
	sent := slices.Clone(wire.Sent)
	require.True(t, claimed(t, s, "ann").Won())
	srv.Embedded.FlushAll()
	srv.Embedded.SetTime(at.Add(6 * exact.CallTimeout))
	for range 2 {
		for _, args := range sent {
			raw(admin, args...) // some are EVALSHA that the server does not know now
		}
		require.Equal(t, stock.NotOpen, claimed(t, s, "bob").Outcome)
		_, err = c.Stock("other").Open(ctx, spec(1)) // loads the scripts
		require.NoError(t, errOf(err, errs.ErrAlreadyOpen))
	}

	// what is opened then is what was asked for then
	_, err = s.Open(ctx, spec(1))
	require.NoError(t, err)
	for _, args := range sent {
		raw(admin, args...)
	}
	require.Equal(t, []stock.Outcome{stock.Granted, stock.SoldOut},
		[]stock.Outcome{claimed(t, s, "bob").Outcome, claimed(t, s, "cid").Outcome})
}

// errOf is err, nil if it is the one that may be.
func errOf(err, may error) error {
	if errors.Is(err, may) {
		return nil
	}
	return err
}

// While Restore has written some records and not the numbers, others hear that the stock is being restored, and not
// that something deletes keys. Whoever gives back what is over goes on. A Restore that was broken off is over after a
// minute.
func TestRestore_UnderWay_OthersHearSo(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now()
	srv.Embedded.SetTime(at)
	raw := srv.Client(t)
	other := on(t, raw, exact).Stock("s")
	_, err := other.Open(ctx, spec(10))
	require.NoError(t, err)
	claimed(t, other, "ann")
	hear := func(want error) {
		t.Helper()
		_, err := other.Claim(ctx, "bob")
		require.ErrorIs(t, err, want)
		_, err = other.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})
		require.ErrorIs(t, err, want)
		_, err = other.Reserve(ctx, "eve", stock.Request{ID: "r", N: 1}, time.Minute)
		require.ErrorIs(t, err, want)
		_, err = other.Reap(ctx)
		require.ErrorIs(t, err, want)
	}
	won := sequence(stock.Entry{Claimant: "cid", Ordinal: 1}, stock.Entry{Claimant: "dora", Ordinal: 2})
	short, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
	defer cancel()
	_, err = on(t, newLate(t, srv, has("end")), exact).Stock("s").Restore(short, won)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	hear(stock.ErrRestoring)
	st, err := other.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, stock.PhaseSuspended, st.Phase)
	reaping, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	require.ErrorIs(t, other.KeepReaped(reaping, time.Millisecond), context.DeadlineExceeded)
	srv.Embedded.SetTime(at.Add(2 * time.Minute))
	hear(errs.ErrCorrupt)
	_, err = on(t, raw, exact).Stock("s").Restore(ctx, won)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, claimed(t, other, "bob").Outcome)
}

// Units come back all the time, so something changes in each round. From the second on nobody else changes anything,
// and it ends.
func TestRestore_ReturnsGoOn_Ends(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	const sold = 40
	other := opened(t, on(t, raw, exact), "s", sold)
	var won []stock.Entry
	for i := range int64(sold) {
		g := claimed(t, other, "c"+dec(i))
		won = append(won, stock.Entry{Claimant: "c" + dec(i), Ordinal: g.Ordinal})
	}
	next, back, refused := 0, 0, 0
	wire := &recording{Client: raw, Before: func(args []string) {
		if !has("end")(args) || next == sold {
			return
		}
		ok, err := other.Return(ctx, stock.Units{Claimant: won[next].Claimant, Ordinal: won[next].Ordinal})
		if next++; errors.Is(err, stock.ErrRestoring) {
			refused++
			return
		}
		require.NoError(t, err)
		require.Positive(t, ok)
		back++
	}}
	_, err := on(t, wire, exact).Stock("s").Restore(ctx, sequence(won...))
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{back, refused})
	st, err := other.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, stock.PhaseOpen, st.Phase)
	require.EqualValues(t, sold-1, st.Sold)
	ok, err := other.Return(ctx, stock.Units{Claimant: won[sold-1].Claimant, Ordinal: won[sold-1].Ordinal})
	require.NoError(t, err)
	require.Positive(t, ok)
}

// What changes a sale while it is restored, before the winners are read or before a later step, stands afterwards.
func TestRestore_SaleChangedMeanwhile_KeepsTheChange(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(s *stock.Stock) error
		then   stock.Outcome
		limit  int64
	}{
		"closed":  {func(s *stock.Stock) error { return s.EndSale(ctx) }, stock.Ended, 10},
		"paused":  {func(s *stock.Stock) error { return s.Change(ctx, stock.Change{Pause: true}) }, stock.Paused, 10},
		"resumed": {func(s *stock.Stock) error { return s.Change(ctx, stock.Change{Resume: true}) }, stock.Granted, 10},
		"returned": {func(s *stock.Stock) error {
			return second(s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1}))
		}, stock.Granted, 10},
		"resized": {func(s *stock.Stock) error { return s.Change(ctx, stock.Change{Limit: 3}) }, stock.Granted, 3},
	} {
		for _, when := range []string{"", "unhold", "end"} {
			if name == "returned" && when == "end" {
				continue // TestRestore_ReturnsGoOn_Ends
			}
			srv := redistest.Embedded(t)
			s := opened(t, on(t, srv.Client(t), exact), "s", 10)
			claimed(t, s, "ann")
			_, err := s.Reserve(ctx, "bob", stock.Request{ID: "h", N: 1}, time.Hour)
			require.NoError(t, err)
			if name == "resumed" {
				require.NoError(t, s.Change(ctx, stock.Change{Pause: true}))
			}
			change := func() {
				require.NoError(t, tc.change(s))
				want := stock.Suspended
				if name == "closed" {
					want = stock.Ended
				}
				require.Equal(t, want, claimed(t, s, "cid").Outcome, "at once")
				g, err := s.Confirm(ctx, "h")
				require.NoError(t, err)
				require.Equal(t, stock.Suspended, g.Outcome, "its ordinal may be out already, for all the stock knows")
			}
			step := once(has(when))
			wire := &recording{Client: srv.Client(t), Before: func(args []string) {
				if when != "" && step(args) {
					change()
				}
			}}
			_, err = on(t, wire, exact).Stock("s").Restore(ctx, func(yield func(stock.Entry, error) bool) {
				if when == "" {
					change()
				}
				yield(stock.Entry{Claimant: "ann", Ordinal: 1}, nil)
			})
			require.NoError(t, err)
			require.Equal(t, tc.then, claimed(t, s, "cid").Outcome, "for good")
			g, err := s.Confirm(ctx, "h")
			require.NoError(t, err)
			require.Equal(t, stock.Granted, g.Outcome)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, tc.limit, st.Limit)
			require.NoError(t, s.Change(ctx, stock.Change{Limit: 12}), "another change works")
		}
	}
}
