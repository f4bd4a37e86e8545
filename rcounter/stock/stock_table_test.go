package stock_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// stockState is what both keys of a stock hold. Times are ms from the server's now.
type stockState struct {
	limit, sold, seq, recorded int64
	start, end, gone           int64
	closed                     bool
	users                      map[string]string
}

const hour = 3600_000

const testEpoch = 1_700_000_000_000_001

// selling is a stock in the middle of its time.
func selling(limit, sold, seq, recorded int64, users ...string) stockState {
	st := stockState{limit: limit, sold: sold, seq: seq, recorded: recorded, start: -hour, end: hour, gone: 2 * hour,
		users: map[string]string{}}
	for i := 0; i < len(users); i += 2 {
		st.users[users[i]] = users[i+1]
	}
	return st
}

func (st stockState) pending() stockState { st.start = hour / 2; return st }
func (st stockState) ended() stockState   { st.end = -hour / 2; return st }
func (st stockState) over() stockState    { st.end, st.gone = -hour/2, -hour/4; return st }
func (st stockState) shut() stockState    { st.closed = true; return st }
func (st stockState) drop(users ...string) stockState {
	st.users = maps.Clone(st.users)
	for _, u := range users {
		delete(st.users, u)
	}
	return st
}

func (st stockState) write(t testing.TB, c rueidis.Client) {
	t.Helper()
	now := serverNow(t, c)
	state := "1"
	if st.closed {
		state = "2"
	}
	must(t, c, "DEL", "rc:{s}", "rc:{s}:u", "rc:{s}:r", "rc:{s}:h", "rc:{s}:o", "rc:{s}:l", "rc:{s}:f")
	must(t, c, "HSET", "rc:{s}", "limit", dec(st.limit), "sold", dec(st.sold), "seq", dec(st.seq), "recorded",
		dec(st.recorded), "per", "1", "held", "0", "requests", "0", "holds", "0",
		"start", dec(now+st.start), "end", dec(now+st.end), "gone", dec(now+st.gone), "epoch", dec(testEpoch), "state",
		state, "token", "T",
		"ledger", "0", "revision", "0")
	must(t, c, "PEXPIRE", "rc:{s}", "7200000")
	for u, r := range st.users {
		must(t, c, "HSET", "rc:{s}:u", u, r)
	}
	must(t, c, "PEXPIRE", "rc:{s}:u", "7200000")
}

// counts is what a script may change, as one comparable text.
func counts(t testing.TB, c rueidis.Client) string {
	t.Helper()
	h := hash(t, c, "rc:{s}")
	return fmt.Sprintf("sold %s seq %s recorded %s state %s users %v", h["sold"], h["seq"], h["recorded"], h["state"],
		hash(t, c, "rc:{s}:u"))
}

func countsOf(st stockState) string {
	if st.gone < 0 { // whoever comes first removes it
		return "sold  seq  recorded  state  users map[]"
	}
	state := 1
	if st.closed {
		state = 2
	}
	return fmt.Sprintf("sold %d seq %d recorded %d state %d users %v", st.sold, st.seq, st.recorded, state, st.users)
}

// answers is grants as text: "granted 1, sold out 0".
func answers(gs []stock.Grant) string {
	var out []string
	for _, g := range gs {
		out = append(out, string(g.Outcome)+" "+strconv.FormatInt(g.Ordinal, 10))
	}
	return strings.Join(out, ", ")
}

func TestClaimTable(t *testing.T) {
	t.Parallel()
	two := selling(2, 1, 1, 1, "a", "1;A")
	full := selling(1, 1, 1, 1, "a", "1;A")
	returned := selling(2, 0, 1, 1, "a", "0;A;1;R")
	last := int64(1<<53 - 1)
	cases := []struct {
		name      string
		state     stockState
		call      string
		claimants string // in one batch
		want      string
		remaining int64
		err       error
		after     stockState
	}{
		{"a unit", two, "B", "b", "granted 2", 0, nil, selling(2, 2, 2, 2, "a", "1;A", "b", "2;B")},
		{"the same claimant", two, "B", "a", "replayed 1", 1, nil, two},
		{"the same call", two, "A", "a", "granted 1", 1, nil, two},
		{"sold out", full, "B", "b", "sold out 0", 0, nil, full},
		{"the last winner again, sold out", full, "B", "a", "replayed 1", 0, nil, full},
		{"not started", two.pending(), "B", "b", "not started 0", 1, nil, two},
		{"ended", two.ended(), "B", "b", "ended 0", 1, nil, two},
		{"a winner after the end", two.ended(), "B", "a", "replayed 1", 1, nil, two},
		{"ended and sold out", full.ended(), "B", "b", "ended 0", 0, nil, full},
		{"closed", two.shut(), "B", "b", "ended 0", 1, nil, two.shut()},
		{"closed before its start", two.shut().pending(), "B", "b", "ended 0", 1, nil, two.shut()},
		{"a winner after Close", two.shut(), "B", "a", "replayed 1", 1, nil, two.shut()},
		{"retained no longer", two.over(), "B", "a b", "not open 0, not open 0", 0, nil, two.over()},
		{"a batch", two, "B", "b a c", "granted 2, replayed 1, sold out 0", 0, nil,
			selling(2, 2, 2, 2, "a", "1;A", "b", "2;B")},
		{"one claimant twice in a batch", selling(5, 1, 1, 1, "a", "1;A"), "B", "b b a b",
			"granted 2, replayed 2, replayed 1, replayed 2", 3, nil,
			selling(5, 2, 2, 2, "a", "1;A", "b", "2;B")},
		{"again after a return", returned, "B", "a", "granted 2", 1, nil, selling(2, 1, 2, 1, "a", "2;B;1;R")},
		{"again after a return, twice in a batch", returned, "B", "a a", "granted 2, replayed 2", 1, nil,
			selling(2, 1, 2, 1, "a", "2;B;1;R")},
		{"a duplicate that comes after the return", returned, "A", "a", "granted 1", 2, nil, returned},
		{"a returned unit to somebody else", selling(1, 0, 1, 1, "a", "0;A;1;R"), "B", "b", "granted 2", 0, nil,
			selling(1, 1, 2, 2, "a", "0;A;1;R", "b", "2;B")},
		{"again after a return, sold out", selling(1, 1, 2, 2, "a", "0;A;1;R", "b", "2;B"), "C", "a", "sold out 0", 0, nil,
			selling(1, 1, 2, 2, "a", "0;A;1;R", "b", "2;B")},
		{"up to 10^15 and on", selling(2e15, 1e15-1, 1e15-1, 0), "B", "b c",
			"granted 1000000000000000, granted 1000000000000001", 1e15 - 1, nil,
			selling(2e15, 1e15+1, 1e15+1, 2, "b", "1000000000000000;B", "c", "1000000000000001;B")},
		{"the last ordinal", selling(last, last-1, last-1, 0), "B", "b", "granted 9007199254740991", 0, nil,
			selling(last, last, last, 1, "b", "9007199254740991;B")},
		{"the ordinals are used up", selling(9, 3, last, 0), "B", "b", "", 0, errs.ErrOverflow, selling(9, 3, last, 0)},
		{"all records lost", two.drop("a"), "B", "b", "", 0, errs.ErrCorrupt, two.drop("a")},
		{"one record lost, asked by one that is not", selling(5, 2, 2, 2, "a", "1;A"), "B", "a", "", 0, errs.ErrCorrupt,
			selling(5, 2, 2, 2, "a", "1;A")},
		{"a record too many", selling(5, 1, 1, 1, "a", "1;A", "x", "2;X"), "B", "b", "", 0, errs.ErrCorrupt,
			selling(5, 1, 1, 1, "a", "1;A", "x", "2;X")},
		{"a record that is none", selling(5, 1, 1, 1, "a", "?"), "B", "b a", "", 0, errs.ErrCorrupt,
			selling(5, 1, 1, 1, "a", "?")},
		{"a return record that is none", selling(5, 0, 1, 1, "a", "0;A"), "A", "b a", "", 0, errs.ErrCorrupt,
			selling(5, 0, 1, 1, "a", "0;A")},
		{"more sold than there are", selling(1, 2, 2, 0), "B", "b", "", 0, errs.ErrCorrupt, selling(1, 2, 2, 0)},
		{"more sold than granted", selling(5, 2, 1, 0), "B", "b", "", 0, errs.ErrCorrupt, selling(5, 2, 1, 0)},
		{"less than nothing sold", selling(5, -1, 1, 0), "B", "b", "", 0, errs.ErrCorrupt, selling(5, -1, 1, 0)},
		{"128 claimants", selling(200, 0, 0, 0), "B", strings.Repeat("b ", 127) + "b",
			"granted 1" + strings.Repeat(", replayed 1", 127), 199, nil, selling(200, 1, 1, 1, "b", "1;B")},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				tc.state.write(t, c)
				for range 2 { // and again: the script may run twice
					got, err := s.ClaimAs(ctx, tc.call, strings.Fields(tc.claimants)...)
					require.ErrorIs(t, err, tc.err)
					require.Equal(t, tc.want, answers(got))
					for _, g := range got {
						require.Equal(t, tc.remaining, g.Remaining)
					}
					require.Equal(t, countsOf(tc.after), counts(t, c))
					requireEnds(t, c)
				}
			})
		}
	})
}

func TestReturnTable(t *testing.T) {
	t.Parallel()
	held := selling(2, 2, 5, 2, "a", "4;A", "b", "5;B")
	back := selling(2, 1, 5, 2, "a", "0;A;4;R", "b", "5;B")
	again := selling(2, 2, 6, 2, "a", "6;C;4;R", "b", "5;B")
	cases := []struct {
		name     string
		state    stockState
		call     string
		claimant string
		ordinal  int64
		want     bool
		err      error
		after    stockState
	}{
		{"the unit held", held, "R", "a", 4, true, nil, back},
		{"a second call", back, "S", "a", 4, false, nil, back},
		{"a duplicate", back, "R", "a", 4, true, nil, back},
		{"another's ordinal", held, "R", "a", 5, false, nil, held},
		{"a claimant without a unit", held, "R", "c", 4, false, nil, held},
		{"an ordinal never given", held, "R", "a", 9, false, nil, held},
		{"a duplicate after the next claim", again, "R", "a", 4, true, nil, again},
		{"a second call after the next claim", again, "S", "a", 4, false, nil, again},
		{"the next unit", again, "S", "a", 6, true, nil, selling(2, 1, 6, 2, "a", "0;C;6;S", "b", "5;B")},
		{"a duplicate after two returns", selling(2, 1, 6, 2, "a", "0;C;6;S", "b", "5;B"), "R", "a", 4, false, nil,
			selling(2, 1, 6, 2, "a", "0;C;6;S", "b", "5;B")},
		{"after the end", held.ended(), "R", "a", 4, true, nil, back},
		{"after Close", held.shut(), "R", "a", 4, true, nil, back.shut()},
		{"retained no longer", held.over(), "R", "a", 4, false, nil, held.over()},
		{"above 10^15", selling(2e15, 1e15+1, 1e15+1, 1, "a", "1000000000000001;A"), "R", "a", 1e15 + 1, true, nil,
			selling(2e15, 1e15, 1e15+1, 1, "a", "0;A;1000000000000001;R")},
		{"records lost", held.drop("b"), "R", "a", 4, false, errs.ErrCorrupt, held.drop("b")},
		{"a record that is none", selling(2, 1, 1, 1, "a", "x"), "R", "a", 1, false, errs.ErrCorrupt,
			selling(2, 1, 1, 1, "a", "x")},
		{"nothing sold", selling(2, 0, 1, 1, "a", "1;A"), "R", "a", 1, false, errs.ErrCorrupt,
			selling(2, 0, 1, 1, "a", "1;A")},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				tc.state.write(t, c)
				for range 2 {
					got, err := s.ReturnAs(ctx, tc.call, tc.claimant, tc.ordinal)
					require.ErrorIs(t, err, tc.err)
					require.Equal(t, tc.want, got)
					require.Equal(t, countsOf(tc.after), counts(t, c))
					requireEnds(t, c)
				}
			})
		}
	})
}

func TestLookupTable(t *testing.T) {
	t.Parallel()
	held := selling(3, 1, 2, 2, "a", "2;A;1;R", "b", "0;B;1;R")
	found, none := stock.Holding{Outcome: stock.Replayed, Claimant: "a", Ordinal: 2, N: 1, Asked: 1, Epoch: testEpoch},
		stock.Holding{Epoch: testEpoch}
	cases := []struct {
		name     string
		state    stockState
		claimant string
		want     stock.Holding
		err      error
	}{
		{"a unit", held, "a", found, nil},
		{"a unit, pending", held.pending(), "a", found, nil},
		{"a unit, ended", held.ended(), "a", found, nil},
		{"a unit, closed", held.shut(), "a", found, nil},
		{"retained no longer", held.over(), "a", stock.Holding{}, nil},
		{"returned", held, "b", none, nil},
		{"never claimed", held, "c", none, nil},
		{"records lost", held.drop("b"), "a", stock.Holding{}, errs.ErrCorrupt},
		{"a record that is none", selling(3, 1, 1, 1, "a", "x"), "a", stock.Holding{}, errs.ErrCorrupt},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				tc.state.write(t, c)
				g, ok, err := lookup(s, tc.claimant)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.want, g)
				require.Equal(t, g.Won(), ok)
				require.Equal(t, countsOf(tc.state), counts(t, c))
			})
		}
	})
}

func TestStatusTable(t *testing.T) {
	t.Parallel()
	base := selling(3, 1, 2, 2, "a", "2;A", "b", "0;B;1;R")
	cases := []struct {
		name  string
		state stockState
		want  stock.Phase
		err   error
	}{
		{"open", base, stock.PhaseOpen, nil},
		{"pending", base.pending(), stock.PhasePending, nil},
		{"ended", base.ended(), stock.PhaseEnded, nil},
		{"closed", base.shut(), stock.PhaseClosed, nil},
		{"closed and ended", base.shut().ended(), stock.PhaseClosed, nil},
		{"retained no longer", base.over(), stock.PhaseAbsent, nil},
		{"records lost", base.drop("a"), stock.PhaseOpen, errs.ErrCorrupt},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				tc.state.write(t, c)
				st, err := s.Inspect(ctx)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.want, st.Phase)
				if st.Phase == stock.PhaseAbsent {
					require.Equal(t, stock.State{Phase: stock.PhaseAbsent}, st)
					return
				}
				for left, want := range map[int64]int64{st.UntilStart.Milliseconds(): tc.state.start,
					st.UntilEnd.Milliseconds(): tc.state.end, st.UntilGone.Milliseconds(): tc.state.gone} {
					require.LessOrEqual(t, left, max(want, 0))
					require.Greater(t, left, max(want, 0)-hour/10, "counts down from there")
				}
				st.UntilStart, st.UntilEnd, st.UntilGone = 0, 0, 0
				require.Equal(t, stock.State{Phase: tc.want, Limit: 3, Sold: 1, Remaining: 2, Seq: 2, Epoch: testEpoch}, st)
			})
		}
		must(t, c, "HDEL", "rc:{s}", "gone")
		_, err := s.Inspect(ctx)
		require.ErrorIs(t, err, errs.ErrCorrupt)
	})
}

func TestOpenTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		held := selling(2, 1, 1, 1, "a", "1;A")
		fresh := selling(7, 0, 0, 0)

		epoch, opened, err := s.OpenAs(ctx, "X", spec(7))
		require.NoError(t, err)
		require.True(t, opened)
		require.Equal(t, countsOf(fresh), counts(t, c))
		h := hash(t, c, "rc:{s}")
		require.Equal(t, map[string]string{"limit": "7", "sold": "0", "held": "0", "seq": "0", "recorded": "0",
			"requests": "0", "holds": "0", "per": "1", "state": "1", "token": "X",
			"ledger": "0", "revision": dec(epoch), "remember": "259200000", "spec": "7;1;3600000;3600000;0;259200000",
			"epoch": dec(epoch), "start": h["start"], "end": h["end"], "gone": h["gone"]}, h)
		start, _ := strconv.ParseInt(h["start"], 10, 64)
		require.Equal(t, dec(start+hour), h["end"])
		require.Equal(t, dec(start+2*hour), h["gone"])
		require.InDelta(t, float64(start), float64(epoch/1000), 1)
		require.LessOrEqual(t, number(t, c, "PTTL", "rc:{s}"), int64(2*hour))
		requireEnds(t, c)

		again, opened, err := s.OpenAs(ctx, "X", spec(7)) // a resend
		require.NoError(t, err)
		require.True(t, opened)
		require.Equal(t, epoch, again)

		for name, st := range map[string]stockState{"selling": held, "pending": held.pending(), "ended": held.ended(),
			"closed": held.shut()} {
			st.write(t, c)
			epoch, opened, err = s.OpenAs(ctx, "X", spec(7))
			require.NoError(t, err, name)
			require.False(t, opened, name)
			require.EqualValues(t, testEpoch, epoch)
			require.Equal(t, countsOf(st), counts(t, c), "nothing is overwritten")

			epoch, opened, err = s.OpenAs(ctx, "T", spec(7)) // a resend of the call that opened it
			require.NoError(t, err, name)
			require.True(t, opened, name)
			require.EqualValues(t, testEpoch, epoch)
			require.Equal(t, countsOf(st), counts(t, c))
		}

		held.over().write(t, c) // over, its expiry lost
		must(t, c, "PERSIST", "rc:{s}")
		must(t, c, "PERSIST", "rc:{s}:u")
		epoch, opened, err = s.OpenAs(ctx, "X", spec(7))
		require.NoError(t, err)
		require.True(t, opened)
		require.NotEqualValues(t, testEpoch, epoch)
		require.Equal(t, countsOf(fresh), counts(t, c))
		requireEnds(t, c)

		held.write(t, c) // the stock's half is lost
		must(t, c, "DEL", "rc:{s}")
		_, _, err = s.OpenAs(ctx, "X", spec(7))
		require.ErrorIs(t, err, errs.ErrCorrupt)
		require.Equal(t, []string{"rc:{s}:u"}, keys(t, c))

		must(t, c, "DEL", "rc:{s}:u")
		must(t, c, "HSET", "rc:{s}", "somebody", "else's")
		must(t, c, "PEXPIRE", "rc:{s}", "60000")
		_, _, err = s.OpenAs(ctx, "X", spec(7))
		require.ErrorIs(t, err, errs.ErrCorrupt)
		require.Equal(t, map[string]string{"somebody": "else's"}, hash(t, c, "rc:{s}"))
		g, err := s.Claim(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, stock.NotOpen, g.Outcome)
		require.NoError(t, s.EndSale(ctx))
		require.Equal(t, map[string]string{"somebody": "else's"}, hash(t, c, "rc:{s}"))
	})
}

func TestCloseTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		held := selling(2, 1, 1, 1, "a", "1;A")
		for _, st := range []stockState{held, held.pending(), held.ended(), held.shut()} {
			st.write(t, c)
			must(t, c, "PERSIST", "rc:{s}")
			for range 2 {
				require.NoError(t, s.EndSale(ctx))
				require.Equal(t, countsOf(held.shut()), counts(t, c))
				requireEnds(t, c)
			}
		}
		held.over().write(t, c)
		require.NoError(t, s.EndSale(ctx))
		require.Equal(t, countsOf(held.over()), counts(t, c))
		must(t, c, "FLUSHALL")
		require.NoError(t, s.EndSale(ctx))
		require.Empty(t, keys(t, c))
	})
}

func TestEveryFieldOfAStockIsNeeded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, field := range []string{"limit", "sold", "held", "seq", "recorded", "requests", "holds", "per", "start",
			"end", "gone", "epoch", "state", "ledger"} {
			selling(2, 1, 1, 1, "a", "1;A").write(t, c)
			must(t, c, "HSET", "rc:{s}", field, "x")
			before := counts(t, c)
			_, err := s.Claim(ctx, "b")
			require.ErrorIs(t, err, errs.ErrCorrupt, field)
			require.Equal(t, before, counts(t, c))
		}
	})
}

func TestTheScriptItselfRefusesTooManyClaimants(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		selling(200, 0, 0, 0).write(t, c)
		many := make([]string, 129)
		for i := range many {
			many[i] = strconv.Itoa(i)
		}
		_, err := s.ClaimAs(ctx, "B", many...)
		require.ErrorContains(t, err, "1 to 128 claimants")
		_, err = s.ClaimAs(ctx, "B")
		require.ErrorContains(t, err, "1 to 128 claimants")
		require.Equal(t, countsOf(selling(200, 0, 0, 0)), counts(t, c))

		got, err := s.ClaimAs(ctx, "B", many[:128]...)
		require.NoError(t, err)
		for i, g := range got {
			require.Equal(t, stock.Grant{Outcome: stock.Granted, Ordinal: int64(i + 1), N: 1, Remaining: 72,
				Epoch: testEpoch}, g)
		}
	})
}

// leavings puts there what a stock leaves behind whose hash is gone, to end after so many ms, or never.
func leavings(t testing.TB, c rueidis.Client, ms int64) {
	t.Helper()
	selling(2, 1, 1, 1, "a", "1;A").write(t, c)
	must(t, c, "HSET", "rc:{s}:r", "r:order", "G;2;1;1;C;;0;a", "u:a", "1")
	must(t, c, "ZADD", "rc:{s}:h", "1", "hold")
	must(t, c, "XADD", "rc:{s}:l", "*", "op", "grant")
	must(t, c, "DEL", "rc:{s}")
	for _, k := range []string{"u", "r", "h", "l"} {
		if ms < 0 {
			must(t, c, "PERSIST", "rc:{s}:"+k)
		} else {
			must(t, c, "PEXPIRE", "rc:{s}:"+k, dec(ms))
		}
	}
}

// A stock's records outlive its hash by an hour. By what they have left it is known whether its retention was over when
// it went, or it was lost.
func TestTheNextCallRemovesWhatAStockLeavesExceptLosses(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		verbs := stockVerbs(s)
		for verb, call := range verbs {
			if verb == "Restore" || verb == "Ledger" { // the one changes nothing without a stock, the other only moves entries
				continue
			}
			leavings(t, c, hour)
			err := call()
			if verb == "Open" || verb == "OpenOrJoin" {
				require.NoError(t, err)
				require.Equal(t, []string{"rc:{s}"}, keys(t, c), "opened over what is over")
				must(t, c, "DEL", "rc:{s}")
				continue
			}
			require.NotErrorIs(t, err, errs.ErrCorrupt, verb)
			require.Empty(t, keys(t, c), verb)
		}
		for what, ms := range map[string]int64{"lost while it sold": hour + 60_000, "its end was taken off": -1} {
			for verb, call := range verbs {
				if verb == "Ledger" {
					continue
				}
				leavings(t, c, ms)
				call()
				require.Len(t, keys(t, c), 4, "%s: %s", what, verb)
			}
			_, err := s.Open(ctx, spec(1))
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
			g, err := s.Claim(ctx, "b")
			require.NoError(t, err)
			require.Equal(t, stock.NotOpen, g.Outcome)
		}
		for _, k := range []string{"u", "r", "h", "l"} { // of one key alone
			leavings(t, c, hour)
			must(t, c, "PEXPIRE", "rc:{s}:"+k, dec(hour+60_000))
			_, err := s.Open(ctx, spec(1))
			require.ErrorIs(t, err, errs.ErrCorrupt, k)
		}
	})
}

func TestTheProcessThatOpenedAStockRemovesWhatItLeaves(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	s := on(t, c, exact).Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: 1, OpenFor: 100 * time.Millisecond, Retain: 100 * time.Millisecond})
	require.NoError(t, err)
	_, err = s.Claim(ctx, "ann")
	require.NoError(t, err)
	redistest.Eventually(t, time.Minute, "nothing is left", func() bool { return len(keys(t, c)) == 0 })
}
