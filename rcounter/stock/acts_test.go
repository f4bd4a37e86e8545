package stock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// copies sends every script so many times, and hands out the last reply.
type copies struct {
	rueidis.Client
	n int
}

func (c *copies) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	cmd = cmd.Pin()
	for range c.n - 1 {
		c.Client.Do(ctx, cmd)
	}
	return c.Client.Do(ctx, cmd)
}

// one does one deed as the documentation says.
func (m *requestModel) one(d stock.Deed) (a stock.Answer) {
	switch d.Verb {
	case "R":
		a.Grant, a.Err = m.reserve(d.ID, d.Claimant, d.N, d.TTL, false)
	case "V":
		a.Grant, a.Err = m.reserve(d.ID, d.Claimant, d.N, d.TTL, true)
	case "O":
		a.Grant, a.Err = m.once(d.ID, d.Claimant, d.N, false)
	case "U":
		a.Grant, a.Err = m.once(d.ID, d.Claimant, d.N, true)
	case "C":
		a.Grant, a.Err = m.confirm(d.ID, d.N)
	case "E":
		a.Grant, a.Err = m.extend(d.ID, d.TTL)
	case "X":
		a.Back, a.Err = m.cancel(d.ID)
	case "B":
		a.Back = m.giveBack(d.ID, d.N) > 0
	}
	return a
}

// call does deeds one after the other, all of them so many times: what a copy was granted stays granted, what it was
// refused is still wanted by the next.
func (m *requestModel) call(times int, deeds []stock.Deed) []stock.Answer {
	answers := make([]stock.Answer, len(deeds))
	for range times {
		for i, d := range deeds {
			a := m.one(d)
			if before := answers[i]; before.Grant.Outcome == stock.Granted {
				a.Grant.Outcome = stock.Granted
			} else if before.Back {
				a.Back = true
			}
			answers[i] = a
		}
	}
	return answers
}

// Calls of several acts, each run once or several times, do what the same acts do one by one: no unit is sold twice, no
// claimant gets more than its limit, an id keeps its answer, and what is sold, held and left is the limit.
func TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for i := range redistest.Sized(2, 2, 60) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			srv := redistest.Embedded(t)
			if i%4 == 0 {
				srv = redistest.Start(t) // whose clock cannot be moved: nothing expires
			}
			walkActs(t, srv, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func walkActs(t *testing.T, srv *redistest.Server, rnd *rand.Rand) {
	began := time.Now().Truncate(time.Millisecond)
	life, remember := time.Hour, 2*time.Minute
	if srv.Embedded != nil {
		life = time.Second
		srv.Embedded.SetTime(began)
	}
	raw := srv.Client(t)
	wire := &copies{Client: srv.Client(t), n: 1}
	s := on(t, wire, exact).Stock("s")
	m := &requestModel{limit: 2 + rnd.Int64N(20), per: 1 + rnd.Int64N(5), acts: map[string]*act{},
		single: map[string]int64{}}
	epoch, err := s.Open(ctx,
		stock.Spec{Limit: m.limit, PerUser: m.per, OpenFor: 1000 * time.Hour, Ledger: rnd.IntN(2) == 0, Remember: remember})
	require.NoError(t, err)
	var trace []string
	forgotten := 0
	for range redistest.Sized(100, 100, 150) {
		var deeds []stock.Deed
		for _, id := range rnd.Perm(20)[:1+rnd.IntN(12)] {
			d := stock.Deed{Verb: string("RRRRVOUCCCCCEEXBB"[rnd.IntN(17)]), ID: fmt.Sprint("id", id),
				Claimant: []string{"ann", "bob;1", "c\nd", "dan", "eve"}[rnd.IntN(5)],
				N:        1 + rnd.Int64N(3), TTL: time.Duration(1+rnd.IntN(20)) * life}
			if a := m.acts[d.ID]; a != nil && a.asked > 0 && rnd.IntN(3) > 0 {
				d.Claimant, d.N = a.claimant, a.asked
			}
			if (d.Verb == "B" || d.Verb == "C") && rnd.IntN(2) == 0 {
				d.N = 0
			}
			deeds = append(deeds, d)
		}
		if srv.Embedded != nil && rnd.IntN(4) == 0 {
			m.now += time.Duration(rnd.IntN(12000)) * time.Millisecond
			srv.Embedded.SetTime(began.Add(m.now))
		}
		wire.n = 1 + rnd.IntN(3)
		m.expire()
		forgotten += m.forget(remember)
		want := m.call(wire.n, deeds)
		got, err := s.ActsAs(ctx, fmt.Sprintf("call%08d", rnd.Uint32()), deeds...)
		require.NoError(t, err)
		for i, d := range deeds {
			trace = append(trace[max(0, len(trace)-30):], fmt.Sprintf("%v x%d %v: %v", m.now, wire.n, d, got[i]))
			require.ErrorIs(t, got[i].Err, want[i].Err, "%s", strings.Join(trace, "\n"))
			require.Equal(t, want[i].Back, got[i].Back, "%s", strings.Join(trace, "\n"))
			if d.Verb == "E" && srv.Embedded == nil && want[i].Grant.Won() { // that server's clock goes on meanwhile
				want[i].Grant.Outcome = got[i].Grant.Outcome
			}
			if want[i].Grant.Outcome != "" {
				want[i].Grant.Epoch, want[i].Grant.Remaining, want[i].Grant.Until = epoch, m.left(), got[i].Grant.Until
			}
			require.Equal(t, want[i].Grant, got[i].Grant, "%s", strings.Join(trace, "\n"))
		}
		requireEnds(t, raw)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, [4]int64{m.limit, m.sold(), m.held(), m.seq}, [4]int64{st.Limit, st.Sold, st.Held, st.Seq}, "%s",
			strings.Join(trace, "\n"))
		if number(t, raw, "EXISTS", "rc:{s}:o") == 1 {
			require.Zero(t, m.left(), "the flag stands while a unit is left")
		}
	}
	t.Logf("%d ids forgotten", forgotten)
}

// forget removes what has ended so long ago.
func (m *requestModel) forget(remember time.Duration) (n int) {
	for id, a := range m.acts {
		if a.state != "granted" && a.state != "held" && m.now >= a.ended+remember {
			delete(m.acts, id)
			n++
		}
	}
	return n
}

// What was lost may have sold under the ordinals that would come next, and Restore writes the deadlines that it has
// read.
func TestASuspendedStockConfirmsAndExtendsNothing(t *testing.T) {
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

func TestAnExtendThatRunsTwiceMovesTheEndOnce(t *testing.T) {
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
func TestAnIdIsInOneActOfACall(t *testing.T) {
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

func TestAWrongRecordIsTheErrorOfItsOwnActOnly(t *testing.T) {
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
func TestACallOfActsThatComesTooLateDoesNothing(t *testing.T) {
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

func TestAClientThatDoesNotKnowTheServersTimeAsksOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	opened(t, on(t, srv.Client(t), exact), "s", 5)
	wire := &gauge{Client: srv.Client(t)}
	s := on(t, wire, exact).Stock("s")
	for i, want := range []int64{2, 3, 4} {
		_, err := s.Reserve(ctx, fmt.Sprint("user", i), stock.Request{ID: fmt.Sprint("id", i), N: 1}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, wire.calls.Load())
	}
}

// brokenOff is what stands before a script that is to be broken off before its write with the number k.
func brokenOff(k int) string {
	return fmt.Sprintf(`local real, writes, left = redis, {HSET = 1, ZADD = 1, ZREM = 1, XADD = 1, DEL = 1, HDEL = 1, RPUSH = 1, LPOP = 1, SET = 1, PEXPIRE = 1, HINCRBY = 1, XTRIM = 1}, %d
local redis = {error_reply = real.error_reply, call = function(...)
  if writes[({...})[1]] then
    if left == 0 then error('broken off') end
    left = left - 1
  end
  return real.call(...)
end}
`, k)
}

// keysOf are the keys of a stock, in the order of its scripts.
func keysOf(key string) []string {
	return []string{key, key + ":u", key + ":r", key + ":h", key + ":o", key + ":l", key + ":f"}
}

// requireCounted requires that the numbers of a stock say no less than its records.
func requireCounted(t testing.TB, c rueidis.Client, key string) (sold, held, inRecords int64) {
	t.Helper()
	var top, seq int64
	for field, record := range hash(t, c, key+":r") {
		if p := strings.Split(record, ";"); strings.HasPrefix(field, "r:") && (p[0] == "H" || p[0] == "G") {
			var ordinal, n int64
			fmt.Sscan(p[1], &ordinal)
			fmt.Sscan(p[2], &n)
			inRecords += n
			if ordinal > 0 {
				top = max(top, ordinal+n-1)
			}
		}
	}
	h := hash(t, c, key)
	fmt.Sscan(h["sold"], &sold)
	fmt.Sscan(h["held"], &held)
	fmt.Sscan(h["seq"], &seq)
	require.GreaterOrEqual(t, sold+held, inRecords, "%v", h)
	require.GreaterOrEqual(t, seq, top, "%v", h)
	require.Contains(t, []string{"10", "20"}, h["limit"])
	return sold, held, inRecords
}

// A run may be broken off between any two of its writes: by a server that stops, or that is out of memory. Whatever was
// written by then, the numbers never say that more is left than the records do, and no ordinal goes out again.
func TestARunOfSeveralActsThatIsBrokenOffSellsNothingTwice(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	broken := 0
	far := "9007199254740991"
	straight := []string{"R", "new", far, "c", "1", "3600000", "X", "cancel", far, "C", "confirm", far, "0"}
	for n, acts := range [][]string{straight,
		append(slices.Clip(straight), "O", "more", far, "d", "2", "B", "return", far, "0", "X", "forbidden", far, "C",
			"late", far, "0", "C", "part", far, "1", "E", "extend", far, "7200000", "B", "keep", far, "1")} {
		for k := 0; ; k++ {
			name := fmt.Sprint("s", n, "-", k)
			s := on(t, raw, exact).Stock(name)
			_, err := s.Open(ctx, stock.Spec{Limit: 20, PerUser: 20, OpenFor: time.Hour, Ledger: true})
			require.NoError(t, err)
			_, err = s.Reserve(ctx, "l", stock.Request{ID: "late", N: 2}, time.Hour)
			require.NoError(t, err)
			must(t, raw, "ZADD", "rc:{"+name+"}:h", "XX", "1", "late")
			_, err = s.Reap(ctx)
			require.NoError(t, err)
			got, err := s.ActsAs(ctx, "before", stock.Deed{Verb: "R", ID: "cancel", Claimant: "a", N: 3, TTL: time.Hour},
				stock.Deed{Verb: "R", ID: "confirm", Claimant: "a", N: 2, TTL: time.Hour},
				stock.Deed{Verb: "O", ID: "return", Claimant: "b", N: 4},
				stock.Deed{Verb: "R", ID: "part", Claimant: "a", N: 3, TTL: time.Hour},
				stock.Deed{Verb: "R", ID: "extend", Claimant: "e", N: 1, TTL: time.Hour},
				stock.Deed{Verb: "O", ID: "keep", Claimant: "b", N: 2})
			require.NoError(t, err)
			require.EqualValues(t, 5, got[2].Grant.Remaining)
			key := "rc:{" + name + "}"
			err = raw.Do(ctx, raw.B().Eval().Script(brokenOff(k)+stock.Source("acts")).Numkeys(7).Key(keysOf(key)...).
				Arg("call", "0", far).Arg(acts...).Build()).Error()
			sold, held, inRecords := requireCounted(t, raw, key)
			if err == nil {
				require.Equal(t, sold+held, inRecords)
				break
			}
			require.ErrorContains(t, err, "broken off")
			broken++
		}
	}
	require.Greater(t, broken, 15)
}

func TestReservationsShareCalls(t *testing.T) {
	t.Parallel()
	wire := &gauge{Client: redistest.Start(t).Client(t), hold: time.Millisecond}
	c := on(t, wire, exact)
	const callers, each = 64, 10
	s := opened(t, c, "s", callers*each)
	wire.calls.Store(0)
	crowd(callers, each, func(caller, i int) {
		id := fmt.Sprint(caller*each + i)
		g, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Hour)
		if err == nil && g.Outcome == stock.Granted {
			g, err = s.Confirm(ctx, id)
		}
		if err != nil || g.Outcome != stock.Granted {
			t.Error(g, err)
		}
	})
	require.Less(t, wire.calls.Load(), int64(callers*each), "half of what it is one by one")
	require.Positive(t, c.Stats().SharedCalls)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, callers*each, st.Sold)
	require.EqualValues(t, callers*each, st.Seq)

	wire.calls.Store(0)
	crowd(callers, each, func(caller, i int) {
		id := fmt.Sprint(caller*each + i)
		h, err := s.Lookup(ctx, stock.Units{Request: id})
		none, err2 := s.Lookup(ctx, stock.Units{Request: "no " + id})
		if err != nil || err2 != nil || h.Outcome != stock.Replayed || h.Claimant != id ||
			none != (stock.Holding{Epoch: st.Epoch}) {
			t.Error(h, none, err, err2)
		}
	})
	require.Less(t, wire.calls.Load(), int64(callers*each), "half of what it is one by one")
	gone := c.Stock("none")
	crowd(callers, 1, func(int, int) {
		if h, err := gone.Lookup(ctx, stock.Units{Request: "id"}); err != nil || h != (stock.Holding{}) {
			t.Error(h, err)
		}
	})
}

// However many reservations come to nothing, the server does not keep them.
func TestWhatHasEndedIsForgotten(t *testing.T) {
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

func TestRememberIsLongerThanTwoCalls(t *testing.T) {
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
