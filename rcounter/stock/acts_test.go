package stock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// What was lost may have sold under the ordinals that would come next, and Restore writes the deadlines that it has
// read.
func TestStock_Suspended_ConfirmsAndExtendsNothing(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s := opened(t, on(t, raw, exact), "s", 10)
	_, err := s.Reserve(ctx, "ann", stock.Request{ID: "h", N: 1}, time.Hour)
	require.NoError(t, err)
	must(t, raw, "HSET", "rc:{s}", "state", "3")
	before := hash(t, raw, "rc:{s}:r")
	for _, d := range []stock.Deed{{Verb: "C", ID: "h"}, {Verb: "C", ID: "h", N: 1},
		{Verb: "E", ID: "h", TTL: 2 * time.Hour}} {
		got, err := s.ActsAs(ctx, "call"+d.Verb, d)
		require.NoError(t, err)
		require.NoError(t, got[0].Err)
		require.Equal(t, stock.Suspended, got[0].Grant.Outcome, d.Verb)
		require.Equal(t, before, hash(t, raw, "rc:{s}:r"), d.Verb)
	}
}

func TestExtend_RunsTwice_MovesTheEndOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	s := opened(t, on(t, raw, exact), "s", 10)
	_, err := s.Reserve(ctx, "ann", stock.Request{ID: "h", N: 1}, time.Minute)
	require.NoError(t, err)
	var end string
	for n := range 3 {
		got, err := s.ActsAs(ctx, "call", stock.Deed{Verb: "E", ID: "h", TTL: 10 * time.Minute})
		require.NoError(t, err)
		require.Equal(t, stock.Granted, got[0].Grant.Outcome)
		if n == 0 {
			end = hash(t, raw, "rc:{s}:r")["r:h"]
		}
		require.Equal(t, end, hash(t, raw, "rc:{s}:r")["r:h"])
		forward(time.Second)
	}
}

// What an id is twice in is never one call, or a second run would tell who reserved it that it is cancelled. Equal acts
// are done once.
func TestActs_SameID_AreInSeveralCalls(t *testing.T) {
	t.Parallel()
	wire := &gauge{Client: redistest.Embedded(t).Client(t)}
	s := on(t, wire, exact).Stock("s")
	_, err := s.Open(ctx, spec(5))
	require.NoError(t, err)
	hold := stock.Deed{Verb: "R", ID: "a", Claimant: "ann", N: 1, TTL: time.Hour}
	_, err = s.ActsAs(ctx, "warm", hold)
	require.NoError(t, err)
	_, err = s.Cancel(ctx, "a")
	require.NoError(t, err)
	hold.ID = "b"
	wire.calls.Store(0)
	got := s.ShareAs(ctx, hold, hold, stock.Deed{Verb: "C", ID: "b"}, stock.Deed{Verb: "X", ID: "never"},
		stock.Deed{Verb: "X", ID: "b"})
	require.EqualValues(t, 3, wire.calls.Load(), "to reserve it, to confirm it, and to cancel it")
	for i, want := range []stock.Outcome{stock.Granted, stock.Replayed, stock.Granted, "", ""} {
		require.NoError(t, got[i].Err)
		require.Equal(t, want, got[i].Grant.Outcome, i)
		require.False(t, got[i].Back)
	}
	twice := slices.Repeat([]stock.Deed{{Verb: "B", ID: "b"}}, 2)
	got = s.ShareAs(ctx, twice...)
	require.True(t, got[0].Back)
	require.False(t, got[1].Back, "the other one did it")
	_, err = s.ActsAs(ctx, "both", twice...)
	require.ErrorContains(t, err, "one id is in two acts")
}

func TestActs_WrongRecord_IsTheErrorOfItsOwnAct(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	s := opened(t, on(t, raw, exact), "s", 5)
	for _, id := range []string{"a", "b"} {
		_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Hour)
		require.NoError(t, err)
	}
	must(t, raw, "HSET", "rc:{s}:r", "r:a", "nonsense")
	for _, verb := range []string{"C", "E", "X", "B", "R", "V", "O", "U"} {
		got, err := s.ActsAs(ctx, "call"+verb, stock.Deed{Verb: verb, ID: "a", Claimant: "a", N: 1, TTL: time.Hour},
			stock.Deed{Verb: "C", ID: "b"})
		require.NoError(t, err)
		require.ErrorIs(t, got[0].Err, errs.ErrCorrupt, verb)
		require.NoError(t, got[1].Err, verb)
		require.True(t, got[1].Grant.Won(), verb)
	}
}

// A call names the server's time at which its caller's patience ends. A copy that the network kept longer does nothing:
// it would find no record of an id that is forgotten by then.
func TestActs_LateCopy_DoesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	o := exact
	o.CallTimeout = 500 * time.Millisecond
	opened(t, on(t, raw, exact), "s", 5)
	for _, deeds := range [][]stock.Deed{
		{{Verb: "R", ID: "a", Claimant: "ann", N: 1, TTL: time.Hour}},
		{{Verb: "R", ID: "b", Claimant: "bob", N: 1, TTL: time.Hour}, {Verb: "O", ID: "c", Claimant: "cid", N: 1},
			{Verb: "X", ID: "d"}},
	} {
		late := newLate(t, srv, once(has(deeds[0].ID)))
		s := on(t, late, o).Stock("s")
		_, err := s.ActsAs(ctx, "warm", stock.Deed{Verb: "C", ID: "none"}) // now it knows the server's time
		require.NoError(t, err)
		_, err = s.ActsAs(ctx, "call", deeds...) // its first request is kept on the way, the second is answered
		require.NoError(t, err)
		must(t, raw, "DEL", "rc:{s}:r", "rc:{s}:h") // as if it was forgotten
		must(t, raw, "HSET", "rc:{s}", "held", "0", "sold", "0", "requests", "0", "holds", "0")
		forward(time.Minute)
		before := hash(t, raw, "rc:{s}")
		late.Deliver(t)
		require.Equal(t, before, hash(t, raw, "rc:{s}"))
		require.Zero(t, number(t, raw, "EXISTS", "rc:{s}:r"))
		got, err := s.ActsAs(ctx, "after", deeds...) // the client's idea of the time is a minute old, and it learns
		require.NoError(t, err)
		require.Equal(t, stock.Granted, got[0].Grant.Outcome)
		must(t, raw, "DEL", "rc:{s}:r", "rc:{s}:h")
		must(t, raw, "HSET", "rc:{s}", "held", "0", "sold", "0", "requests", "0", "holds", "0")
	}
}

func TestReservations_Crowd_ShareCalls(t *testing.T) {
	t.Parallel()
	wire := &gauge{Client: redistest.Start(t).Client(t), hold: time.Millisecond}
	c := on(t, wire, exact)
	const callers, each = 64, 10
	s, gone := opened(t, c, "s", callers*each), c.Stock("none")
	wire.calls.Store(0)
	crowd(callers, each, func(caller, i int) {
		id := fmt.Sprint(caller*each + i)
		held, err1 := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Hour)
		sold, err2 := s.Confirm(ctx, id)
		is, err3 := s.Lookup(ctx, stock.Units{Request: id})
		none, err4 := s.Lookup(ctx, stock.Units{Request: "no " + id})
		if err := errors.Join(err1, err2, err3, err4); err != nil || held.Outcome != stock.Granted ||
			sold.Outcome != stock.Granted || is.Claimant != id || none != (stock.Holding{Epoch: held.Epoch}) {
			t.Error(held, sold, is, none, err)
		}
		h, err := gone.Lookup(ctx, stock.Units{Request: "id"})
		if !errors.Is(err, stock.ErrNotOpen) || h != (stock.Holding{}) {
			t.Error(h, err)
		}
	})
	require.Less(t, wire.calls.Load(), int64(callers*each*5/2), "half of what it is one by one")
	require.Positive(t, c.Stats().SharedCalls)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, [2]int64{callers * each, callers * each}, [2]int64{st.Sold, st.Seq})
}

// However many reservations come to nothing, the server does not keep them.
func TestRecords_Ended_AreForgotten(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	s := on(t, raw, exact).Stock("s")
	o := spec(1000)
	o.OpenFor, o.Remember = 24*time.Hour, 2*time.Minute
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	for i := range 300 {
		id := fmt.Sprint("id", i)
		_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Minute)
		require.NoError(t, err)
		switch i % 3 {
		case 0:
			_, err = s.Cancel(ctx, id)
		case 1:
			if _, err = s.Confirm(ctx, id); err == nil && i%2 == 0 {
				_, err = s.Return(ctx, stock.Units{Request: id})
			}
		}
		require.NoError(t, err)
	}
	_, err = s.Cancel(ctx, "never made")
	require.NoError(t, err)
	forward(time.Minute + time.Millisecond) // what is held expires
	n, err := s.Reap(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 100, n)
	forward(time.Minute - 2*time.Millisecond)
	for range 3 {
		_, err = s.Reap(ctx)
		require.NoError(t, err)
	}
	g, err := s.Reserve(ctx, "id0", stock.Request{ID: "id0", N: 1}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.Cancelled, g.Outcome, "still remembered")
	forward(2 * time.Minute)
	for range 3 {
		_, err = s.Reap(ctx)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2*50, number(t, raw, "HLEN", "rc:{s}:r"), "what is sold, and how many its claimants have")
	require.Zero(t, number(t, raw, "EXISTS", "rc:{s}:f"))
	g, err = s.Reserve(ctx, "ann", stock.Request{ID: "id0", N: 2}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.UserLimit, g.Outcome, "a new id, which may ask for something else")
	g, err = s.Reserve(ctx, "ann", stock.Request{ID: "id0", N: 1}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
	g, err = s.Confirm(ctx, "id1")
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, g.Outcome, "what is sold is not forgotten")
	requireEnds(t, raw)
}

// While a stock does not sell for a while, a payment that comes late is not decided.
func TestConfirm_LateAndPaused_IsDecidedOnceItSells(t *testing.T) {
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

// Anybody who may name ids can have any number of them forbidden. There is a bound, and what is forgotten makes room.
func TestCancel_UnknownIDs_AreBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	forward := srv.Clock()
	s := on(t, raw, exact).Stock("s")
	o := spec(5)
	o.OpenFor, o.Remember = 24*time.Hour, 2*time.Minute
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	must(t, raw, "HSET", "rc:{s}", "forbidden", "999997")
	_, err = s.Cancel(ctx, "a")
	require.NoError(t, err)
	_, err = s.Confirm(ctx, "b")
	require.NoError(t, err)
	answers, err := s.ActsAs(ctx, "call", stock.Deed{Verb: "X", ID: "c"}, stock.Deed{Verb: "C", ID: "d"})
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
	require.ErrorIs(t, answers[1].Err, errs.ErrOutOfRange)
	_, err = s.Cancel(ctx, "a")
	require.NoError(t, err, "it is forbidden already")
	_, err = s.Reserve(ctx, "ann", stock.Request{ID: "e", N: 1}, time.Minute)
	require.NoError(t, err)
	done, err := s.Cancel(ctx, "e")
	require.NoError(t, err)
	require.True(t, done)
	forward(3 * time.Minute)
	_, err = s.Cancel(ctx, "d")
	require.NoError(t, err)
	require.EqualValues(t, 999_998, number(t, raw, "HGET", "rc:{s}", "forbidden"))
}
