package stock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// A server whose memory is full answers who has units, and takes units back.
func TestSale_ServerFull_AnswersWinnersAndTakesBack(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"with a ledger": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			raw := redistest.Start(t).Client(t)
			o := exact
			o.CallTimeout, o.RetryTimeout = time.Second, time.Second
			is := spec(9)
			is.Ledger = keeps
			s := opened(t, on(t, raw, o), "s", is)
			ann := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
			part := redistest.NoError(s.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: 2}}}))(t)
			for _, id := range []string{"over", "cancelled", "sold"} {
				redistest.NoError(s.Reserve(ctx, stock.Order{ID: id, User: "of " + id}, time.Hour))(t)
			}
			redistest.NoError(s.Pay(ctx, "sold"))(t)
			record := rig.Hash(t, raw, s.Keys()[1])["over"]
			rig.Must(t, raw, "HSET", s.Keys()[1], "over", "R1"+record[len("R1796007487890"):])
			rig.Must(t, raw, "ZADD", s.Keys()[2], "XX", "1", "over")
			rig.Must(t, raw, "CONFIG", "SET", "maxmemory", "100kb")
			defer rig.Must(t, raw, "CONFIG", "SET", "maxmemory", "0")
			for id, verb := range map[string]func() (stock.Answer, error){
				"over":      func() (stock.Answer, error) { return s.Status(ctx, "over") },
				"ann":       func() (stock.Answer, error) { return s.Buy(ctx, stock.Order{User: "ann"}) },
				"cancelled": func() (stock.Answer, error) { return s.Cancel(ctx, "cancelled") },
				"sold":      func() (stock.Answer, error) { return s.Return(ctx, "sold") },
				part.ID:     func() (stock.Answer, error) { return s.Return(ctx, part.ID) },
			} {
				a, err := verb()
				require.NoError(t, err, id)
				require.Equal(t, id == "ann", a.Won(), id)
				if id == "ann" {
					require.Equal(t, ann.Lines, a.Lines)
				}
			}
			redistest.Eventually(t, 10*time.Second, "an order of another is ErrUnavailable", func() bool {
				brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, err := s.Buy(brief, stock.Order{User: "bob"})
				require.Error(t, err)
				return errors.Is(err, errs.ErrUnavailable)
			})
			rig.Must(t, raw, "CONFIG", "SET", "maxmemory", "0")
			st := redistest.NoError(s.Inspect(ctx))(t)
			require.Equal(t, []int64{1, 0}, []int64{st.Items[""].Sold, st.Items[""].Reserved})
		})
	}
}

func TestSale_Cluster_EveryVerbWorks(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	b := &book{}
	c := on(t, srv.Client(t), stock.Options{KeyPrefix: "shop:", CallTimeout: 10 * time.Second,
		Books: func(string) stock.Book { return b }})
	for i := range 6 {
		*b = book{}
		s := opened(t, c, fmt.Sprint("sale", i), spec(5))
		for _, verb := range []func() (stock.Answer, error){
			func() (stock.Answer, error) { return s.Buy(ctx, stock.Order{User: "ann"}) },
			func() (stock.Answer, error) { return s.Buy(ctx, stock.Order{Anyone: true}) },
			func() (stock.Answer, error) { return s.Reserve(ctx, stock.Order{ID: "x"}, time.Hour) },
			func() (stock.Answer, error) { return s.Extend(ctx, "x", 2*time.Hour) },
			func() (stock.Answer, error) { return s.Pay(ctx, "x") },
			func() (stock.Answer, error) { return s.Cancel(ctx, "y") },
			func() (stock.Answer, error) { return s.Return(ctx, "x") },
			func() (stock.Answer, error) { return s.Status(ctx, "x") },
		} {
			redistest.NoError(verb())(t)
		}
		redistest.NoError(s.Ledger(ctx, 100, b.Move))(t)
		redistest.NoError(s.Restore(ctx, spec(5)))(t)
		n := 0
		for _, err := range s.Holders(ctx) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
		require.NoError(t, s.EndSale(ctx))
		st := redistest.NoError(s.Inspect(ctx))(t)
		require.Equal(t, "ended", st.Phase)
		require.NoError(t, s.Delete(ctx))
		require.NoError(t, s.Delete(ctx), "there is none")
		_, err := s.Inspect(ctx)
		require.ErrorIs(t, err, stock.ErrNoStock)
	}
}

func TestInspect_EachPhase_IsTold(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	is := spec(5)
	is.StartIn = time.Minute
	s := opened(t, on(t, raw, exact), "s", is)
	phase := func(want string) {
		t.Helper()
		st := redistest.NoError(s.Inspect(ctx))(t)
		require.Equal(t, want, st.Phase)
	}
	phase("pending")
	a, err := s.Buy(ctx, stock.Order{User: "ann"})
	require.ErrorIs(t, err, stock.ErrLater)
	require.Equal(t, stock.NotStarted, a.Why)
	require.InDelta(t, time.Minute, time.Until(a.Until), float64(5*time.Second))
	forward(time.Minute)
	phase("open")
	paused, on := true, false
	require.NoError(t, s.Change(ctx, stock.Change{Paused: &paused}))
	phase("paused")
	a, err = s.Buy(ctx, stock.Order{User: "ann"})
	require.ErrorIs(t, err, stock.ErrLater)
	require.Equal(t, stock.Paused, a.Why)
	require.NoError(t, s.Change(ctx, stock.Change{Paused: &on}))
	rig.Must(t, raw, "HSET", s.Keys()[0], "state", "3")
	phase("suspended")
	a, err = s.Buy(ctx, stock.Order{User: "ann"})
	require.ErrorIs(t, err, stock.ErrLater)
	require.Equal(t, "suspended", a.Why)
	rig.Must(t, raw, "HSET", s.Keys()[0], "state", "1")
	forward(time.Hour)
	phase("ended")
	end := time.Hour
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: &end}))
	phase("open")
	require.NoError(t, s.EndSale(ctx))
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: &end, Paused: &on}))
	phase("ended")
	require.ErrorIs(t, s.Change(ctx, stock.Change{Items: map[string]stock.Item{"x": {Limit: 1}}}), errs.ErrInvalidName)
}

// The mover hears of what is over though no customer comes, waits while the sale is suspended, and says that it is
// gone.
func TestKeepLedger_QuietSale_MovesWhatLapses(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	c := on(t, raw, exact)
	s := opened(t, c, "s", spec(5))
	redistest.NoError(s.Reserve(ctx, stock.Order{ID: "x"}, time.Minute))(t)
	b := &book{}
	ended := make(chan error, 1)
	go func() { ended <- s.KeepLedger(ctx, time.Millisecond, 100, b.Move) }()
	has := func(n int) func() bool {
		return func() bool {
			all, err := b.Order(ctx, "x")
			return err == nil && len(all) == n
		}
	}
	redistest.Eventually(t, 10*time.Second, "the reservation is moved", has(1))
	rig.Must(t, raw, "HSET", s.Keys()[0], "state", "3")
	forward(2 * time.Minute)
	time.Sleep(20 * time.Millisecond)
	require.True(t, has(1)())
	rig.Must(t, raw, "HSET", s.Keys()[0], "state", "1")
	redistest.Eventually(t, 10*time.Second, "its end is moved", has(2))
	require.Equal(t, "lapsed", b.All[1].Kind)
	require.NoError(t, s.Delete(ctx))
	require.ErrorIs(t, <-ended, stock.ErrNoStock)
}

func TestHolders_OrdersWithUnits_AreYieldedOnce(t *testing.T) {
	t.Parallel()
	s := opened(t, on(t, redistest.Embedded(t).Client(t), exact), "s", spec(50))
	part := redistest.NoError(s.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: 5}}}))(t)
	redistest.NoError(s.Return(ctx, part.ID, stock.Line{N: 3}))(t)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	redistest.NoError(s.Reserve(ctx, stock.Order{ID: "held", User: "bob", Lines: []stock.Line{{N: 1}}}, time.Hour))(t)
	redistest.NoError(s.Cancel(ctx, "unknown"))(t)
	got := map[string]stock.Answer{}
	for a, err := range s.Holders(ctx) {
		require.NoError(t, err)
		require.True(t, a.Won())
		got[a.ID] = a
	}
	require.Len(t, got, 3)
	require.Equal(t, []any{"ann", int64(6)}, []any{got["ann"].User, got["ann"].Lines[0].Ordinal})
	require.InDelta(t, time.Hour, time.Until(got["held"].Until), float64(10*time.Second))
	for id, a := range got {
		if id != "ann" && id != "held" {
			require.Equal(t, []stock.Line{{N: 3, Ordinal: 1}}, a.Lines)
			is := redistest.NoError(s.Return(ctx, id))(t)
			require.Equal(t, stock.Returned, is.Why)
		}
	}
	for range s.Holders(ctx) {
		break // early
	}
}

// With replicas that do not confirm, a loser hears that nothing is left, and what was sold to Anyone comes back.
func TestAnyone_NotReplicated_ComesBack(t *testing.T) {
	t.Parallel()
	raw := redistest.Start(t, "--hz", "100").Client(t)
	s := opened(t, on(t, raw, stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1,
		ReplicaTimeout: 10 * time.Millisecond}),
		"s", spec(2))
	_, err := s.Buy(ctx, stock.Order{Anyone: true})
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	redistest.Eventually(t, 20*time.Second, "it comes back", func() bool {
		st, err := s.Inspect(ctx)
		return err == nil && st.Items[""].Sold == 0
	})
	_, err = s.Buy(ctx, stock.Order{ID: "x", Lines: []stock.Line{{N: 2}}})
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	for _, o := range []stock.Order{{Anyone: true}, {User: "ann"}, {ID: "y"}} {
		a := redistest.NoError(s.Buy(ctx, o))(t)
		require.Equal(t, stock.SoldOut, a.Why)
	}
}

// A failover sets the stream back while a database writes what it had, and another entry gets the number.
func TestLedger_EntryReplaced_RemovesNothing(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s := opened(t, on(t, raw, exact), "s", spec(5))
	redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	_, err := s.Ledger(ctx, 10, func(context.Context, []stock.Entry) error {
		rig.Must(t, raw, "DEL", s.Keys()[4])
		rig.Must(t, raw, "XADD", s.Keys()[4], "1-0", "k", "sold", "d", "bob", "u", "bob", "i", "", "a", "1", "n", "1", "o",
			"1", "t", "0", "w", "", "at", "1", "e", "1")
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, rig.Number(t, raw, "XLEN", s.Keys()[4]))
	require.EqualValues(t, 0, rig.Number(t, raw, "HGET", s.Keys()[0], "moved"))
}

// A copy of Delete that comes after the name was opened again removes nothing.
func TestDelete_LateCopy_RemovesNoOtherOpening(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	forward := srv.Clock()
	w := &wire{Client: srv.Client(t), copies: 1}
	s := opened(t, on(t, w, exact), "s", spec(5))
	w.late = func([]string) bool { return true }
	require.NoError(t, s.Delete(ctx))
	w.late = nil
	forward(time.Millisecond)
	require.NoError(t, s.Open(ctx, spec(5)))
	for _, args := range w.kept {
		w.deliver(args)
	}
	redistest.NoError(s.Inspect(ctx))(t)
}

// Another Restore begins while one goes on: that one goes on, and the first hears so. Each request arrives twice.
func TestRestore_AnotherBegins_TheFirstHearsSo(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	b := &book{}
	o := exact
	o.Books = func(string) stock.Book { return b }
	w := &wire{Client: raw, copies: 2}
	s := opened(t, on(t, w, o), "s", spec(5))
	_, err := s.Reserve(ctx, stock.Order{ID: "held", User: "ann"}, time.Hour)
	require.NoError(t, err)
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	for _, step := range []string{"XRANGE", "put", "resume", "none"} {
		epoch := rig.Text(t, raw, "HGET", s.Keys()[0], "epoch")
		other, seen := on(t, &wire{Client: raw, copies: 2}, o).Sale("s"), false
		w.off = func(args []string) bool {
			if !seen && (args[0] == step || len(args) > 12 && args[12] == step) {
				seen = true
				redistest.NoError(other.Restore(ctx, spec(5)))(t)
			}
			return false
		}
		_, err = s.Restore(ctx, spec(5))
		if w.off = nil; step == "none" {
			require.NoError(t, err)
		} else {
			require.True(t, seen)
			require.ErrorIs(t, err, stock.ErrLater)
		}
		require.NotEqual(t, epoch, rig.Text(t, raw, "HGET", s.Keys()[0], "epoch"))
		a := redistest.NoError(s.Status(ctx, "held"))(t)
		require.Equal(t, stock.Reserved, a.State)
		redistest.NoError(s.Extend(ctx, "held", 2*time.Hour))(t)
		_, err := s.Ledger(ctx, 10, b.Move) // the book goes on with the opening that stands
		require.NoError(t, err)
	}
}

// The hash is lost, or its retention is over, while Restore writes: there is no sale, and Restore makes it when it runs
// again.
func TestRestore_HashLostMeanwhile_IsNoStock(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	b, o := &book{}, exact
	o.Books = func(string) stock.Book { return b }
	w := &wire{Client: raw, copies: 1}
	s := opened(t, on(t, w, o), "s", spec(5))
	_, err := s.Reserve(ctx, stock.Order{ID: "held", User: "ann"}, time.Hour)
	require.NoError(t, err)
	for _, step := range []string{"put", "resume"} {
		w.off = func(args []string) bool {
			if len(args) > 12 && args[12] == step {
				rig.Must(t, raw, "DEL", s.Keys()[0])
			}
			return false
		}
		_, err = s.Restore(ctx, spec(5))
		require.ErrorIs(t, err, stock.ErrNoStock)
		require.NotErrorIs(t, err, stock.ErrLater)
		w.off = nil
		redistest.NoError(s.Restore(ctx, spec(5)))(t)
		a := redistest.NoError(s.Status(ctx, "held"))(t)
		require.Equal(t, stock.Reserved, a.State)
	}
}

// Callers that leave while their shared call is under way lose no unit: the library gives it back.
func TestAnyone_CallersLeaveTheirBatch_LoseNoUnit(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	w := &wire{Client: srv.Client(t), copies: 1, off: func([]string) bool {
		time.Sleep(50 * time.Millisecond)
		return false
	}}
	s := opened(t, on(t, w, exact), "s", spec(1000))
	var won atomic.Int64
	rig.Crowd(12, 3, func(caller, _ int) {
		patience, cancel := context.WithTimeout(ctx, time.Duration(20+caller*15)*time.Millisecond)
		defer cancel()
		if a, err := s.Buy(patience, stock.Order{Anyone: true}); err == nil && a.Won() {
			won.Add(1)
		}
	})
	redistest.Eventually(t, 30*time.Second, "the others are given back", func() bool {
		st, err := s.Inspect(ctx)
		return err == nil && st.Items[""].Sold == won.Load()
	})
}

// Calls of one id that want different things share no call: each is done.
func TestCancel_BesideStatus_IsDone(t *testing.T) {
	t.Parallel()
	w := &wire{Client: redistest.Embedded(t).Client(t), copies: 1}
	s := opened(t, on(t, w, exact), "s", spec(1000))
	w.off = func([]string) bool { time.Sleep(20 * time.Millisecond); return false } // so that calls are shared
	for i := range 3 {
		id := fmt.Sprint("o", i)
		redistest.NoError(s.Reserve(ctx, stock.Order{ID: id}, time.Hour))(t)
		rig.Crowd(40, 1, func(caller, _ int) {
			if caller%4 != 1 {
				_, _ = s.Status(ctx, id)
			} else if a, err := s.Cancel(ctx, id); err != nil || a.Why != stock.Cancelled {
				t.Error(a, err)
			}
		})
	}
}

// Equal calls at the same time: one of them made the order.
func TestReserve_SameOrderAtOnce_IsMadeByOne(t *testing.T) {
	t.Parallel()
	s := opened(t, on(t, redistest.Embedded(t).Client(t), exact), "s", spec(1000))
	for i := range 4 {
		var made atomic.Int64
		id := fmt.Sprint("o", i)
		rig.Crowd(24, 1, func(int, int) {
			a, err := s.Reserve(ctx, stock.Order{ID: id, User: id}, time.Hour)
			if err != nil || a.State != stock.Reserved {
				t.Error(a, err)
			}
			if !a.Again {
				made.Add(1)
			}
		})
		require.EqualValues(t, 1, made.Load())
	}
}

// A process that hears nothing says that an item is sold out for SoldOutTrust, and no longer.
func TestSoldOut_ServerStandsStill_IsNotSaid(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	opened(t, on(t, admin, exact), "s", spec(1))
	o := stock.Options{CallTimeout: 50 * time.Millisecond, SoldOutTrust: 300 * time.Millisecond}
	s := on(t, srv.Client(t), o).Sale("s")
	redistest.Eventually(t, 20*time.Second, "sold out", func() bool {
		a, err := s.Buy(ctx, stock.Order{User: "ann"})
		return err == nil && a.Won()
	})
	redistest.Eventually(t, 20*time.Second, "answered by the process", func() bool {
		before := redistest.ScriptCalls(t, admin)
		for range 2 {
			_, _ = s.Buy(ctx, stock.Order{Anyone: true})
		}
		return redistest.ScriptCalls(t, admin) == before
	})
	srv.Stop(t)
	// before the client itself finds that the connection is dead, some 10 s later
	redistest.Eventually(t, 6*time.Second, "no answer is not an answer", func() bool {
		_, err := s.Buy(ctx, stock.Order{Anyone: true})
		return err != nil
	})
	for range 3 {
		_, err := s.Buy(ctx, stock.Order{Anyone: true})
		require.Error(t, err, "and stays so")
	}
	srv.Resume(t)
	redistest.Eventually(t, 20*time.Second, "until the server answers again", func() bool {
		a, err := s.Buy(ctx, stock.Order{Anyone: true})
		return err == nil && a.Why == stock.SoldOut
	})
}
