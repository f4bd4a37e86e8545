package stock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// cartModel is a group of stocks as its documentation describes it.
type cartModel struct {
	stocks map[string]*requestModel
}

func (m *requestModel) copy() *requestModel {
	n := *m
	n.acts = map[string]*act{}
	for id, a := range m.acts {
		b := *a
		n.acts[id] = &b
	}
	return &n
}

// cartAnswer is what a verb of a group answers.
type cartAnswer struct {
	lines []stock.LineGrant
	back  int64
	err   error
}

// do does one verb on the lines, in the order of their names: 'R', 'C', 'E', 'X' or 'B'.
func (m *cartModel) do(verb, id, claimant string, lines []stock.Line, ttl time.Duration) (a cartAnswer) {
	what := ""
	for _, l := range lines {
		what += l.Stock + " "
	}
	for _, l := range lines {
		if b := m.stocks[l.Stock].acts[id]; b != nil && b.cart != "" && b.cart != what {
			return cartAnswer{err: errs.ErrMismatch}
		}
	}
	after := map[string]*requestModel{}
	refused, undecided, fresh, alone := false, false, false, false
	var wrote []bool
	for _, l := range lines {
		s := m.stocks[l.Stock].copy()
		before := s.acts[id]
		state, vain, deadline := "", false, time.Duration(0)
		if before != nil {
			state, vain, deadline = before.state, before.vain, before.deadline
		}
		g := stock.LineGrant{Stock: l.Stock}
		switch verb {
		case "R":
			if g.Grant, g.Err = s.reserve(id, claimant, l.N, ttl, false); before == nil && g.Grant.Won() {
				s.acts[id].cart = what
			}
		case "C":
			g.Grant, g.Err = s.confirm(id, l.N)
		case "E":
			g.Grant, g.Err = s.extend(id, ttl)
		case "X":
			var back bool
			if back, g.Err = s.cancel(id); back {
				a.back++
			}
		case "B":
			a.back += s.giveBack(id, 0)
		}
		writes := before == nil && s.acts[id] != nil ||
			before != nil && (s.acts[id].state != state || s.acts[id].vain != vain || s.acts[id].deadline != deadline)
		alone = alone || before != nil && before.cart == ""
		switch {
		case g.Err != nil || verb != "X" && verb != "B" && !g.Grant.Won() &&
			(verb != "C" || g.Grant.Outcome != stock.Expired):
			refused, undecided = true, undecided || !g.Grant.Outcome.Final()
		case writes:
			fresh = true
		}
		if a.err == nil {
			a.err = g.Err
		}
		wrote = append(wrote, writes)
		after[l.Stock] = s
		a.lines = append(a.lines, g)
	}
	if verb == "R" && !refused && fresh && alone {
		return cartAnswer{err: errs.ErrMismatch}
	}
	if refused {
		a.back = 0
		for i := range a.lines {
			switch {
			case verb == "C" && !undecided && a.lines[i].Grant.Outcome == stock.Cancelled: // of an id that was unknown, too
				m.stocks[a.lines[i].Stock] = after[a.lines[i].Stock]
			case wrote[i]:
				a.lines[i].Grant = stock.Grant{}
			}
		}
	} else {
		for name, s := range after {
			m.stocks[name] = s
		}
	}
	return a
}

// call is one call that runs so many times: what one run was granted stays granted.
func (m *cartModel) call(times int, verb, id, claimant string, lines []stock.Line, ttl time.Duration) (a cartAnswer) {
	for range times {
		b := m.do(verb, id, claimant, lines, ttl)
		for i := range min(len(a.lines), len(b.lines)) {
			if a.lines[i].Grant.Outcome == stock.Granted {
				b.lines[i].Grant.Outcome = stock.Granted
			}
		}
		b.back = max(b.back, a.back)
		a = b
	}
	return a
}

// Carts, and reservations by themselves under the same ids, in any order, each call run once or several times:
// everything is as the model says, and no cart is held, sold or given back in part.
func TestCartsKeepToTheirModelHoweverOftenACallRuns(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for i := range redistest.Sized(2, 2, 60) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			srv := redistest.Embedded(t)
			if i%4 == 0 {
				srv = redistest.Start(t) // whose clock cannot be moved: nothing expires
			}
			walkCarts(t, srv, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func walkCarts(t *testing.T, srv *redistest.Server, rnd *rand.Rand) {
	began, now := time.Now().Truncate(time.Millisecond), time.Duration(0)
	life := time.Hour
	if srv.Embedded != nil {
		life = time.Second
		srv.Embedded.SetTime(began)
	}
	raw := srv.Client(t)
	wire := &copies{Client: srv.Client(t), n: 1}
	g := on(t, wire, exact).Group("sale")
	names := []string{"a", "b", "c", "d"}
	m := &cartModel{stocks: map[string]*requestModel{}}
	epochs := map[string]int64{}
	for _, name := range names {
		s := &requestModel{limit: 2 + rnd.Int64N(12), per: 1 + rnd.Int64N(6), acts: map[string]*act{},
			single: map[string]int64{}}
		m.stocks[name] = s
		var err error
		epochs[name], err = g.Stock(name).Open(ctx,
			stock.Spec{Limit: s.limit, PerUser: s.per, OpenFor: 1000 * time.Hour, Ledger: rnd.IntN(2) == 0,
				Remember: 500 * time.Hour})
		require.NoError(t, err)
	}
	var trace []string
	for range redistest.Sized(120, 120, 200) {
		if srv.Embedded != nil && rnd.IntN(4) == 0 {
			now += time.Duration(rnd.IntN(6000)) * time.Millisecond
			srv.Embedded.SetTime(began.Add(now))
		}
		for _, s := range m.stocks {
			s.now = now
			s.expire()
		}
		id, claimant := fmt.Sprint("id", rnd.IntN(16)), []string{"ann", "bob;1", "c\nd", "dan"}[rnd.IntN(4)]
		verb, ttl := string("RRRCCCEXB"[rnd.IntN(9)]), time.Duration(1+rnd.IntN(20))*life
		var lines []stock.Line
		for i, name := range names {
			if a := m.stocks[name].acts[id]; a != nil && a.asked > 0 && rnd.IntN(8) > 0 {
				claimant = a.claimant
				lines = append(lines, stock.Line{Stock: name, N: a.asked})
			} else if rnd.IntN(3) == 0 || i == len(names)-1 && lines == nil {
				lines = append(lines, stock.Line{Stock: name, N: 1 + rnd.Int64N(3)})
			}
		}
		if rnd.IntN(6) == 0 { // a reservation by itself
			lines = lines[:1]
			s, l := g.Stock(lines[0].Stock), lines[0]
			switch verb {
			case "R":
				want, wantErr := m.stocks[l.Stock].reserve(id, claimant, l.N, ttl, false)
				got, err := s.Reserve(ctx, claimant, stock.Request{ID: id, N: l.N}, ttl)
				require.ErrorIs(t, err, wantErr)
				require.Equal(t, want.Outcome, got.Outcome)
			case "C":
				want, wantErr := m.stocks[l.Stock].confirm(id, 0)
				got, err := s.Confirm(ctx, id)
				require.ErrorIs(t, err, wantErr)
				require.Equal(t, want.Outcome, got.Outcome)
			case "X":
				want, _ := m.stocks[l.Stock].cancel(id)
				got, err := s.Cancel(ctx, id)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			trace = append(trace, fmt.Sprintf("%v alone %s %s %s %v", now, verb, id, claimant, l))
			continue
		}

		wire.n = 1 + rnd.IntN(3)
		if verb == "C" && rnd.IntN(2) == 0 { // all that it holds
			for i := range lines {
				lines[i].N = 0
			}
		}
		want := m.call(wire.n, verb, id, claimant, lines, ttl)
		var got cartAnswer
		var c stock.Cart
		switch verb {
		case "R":
			mixed := slices.Clone(lines)
			rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			c, got.err = g.Reserve(ctx, claimant, stock.CartRequest{ID: id, Lines: mixed}, ttl)
		case "C":
			c, got.err = g.Confirm(ctx, id, lines...)
		case "E":
			c, got.err = g.Extend(ctx, id, ttl, namesOf(lines)...)
		case "X":
			var back bool
			if back, got.err = g.Cancel(ctx, id, namesOf(lines)...); back {
				want.back, got.back = min(want.back, 1), 1
			}
		case "B":
			got.back, got.err = g.Return(ctx, id, namesOf(lines)...)
		}
		wire.n = 1
		trace = append(trace[max(0, len(trace)-30):],
			fmt.Sprintf("%v %s %s %s %v: %v %v", now, verb, id, claimant, lines, c, got))
		story := strings.Join(trace, "\n")
		require.ErrorIs(t, got.err, want.err, story)
		require.Equal(t, want.back, got.back, story)
		if verb != "X" && verb != "B" {
			require.Len(t, c.Lines, len(want.lines), story)
		}
		for i, l := range c.Lines {
			w := want.lines[i]
			require.ErrorIs(t, l.Err, w.Err, story)
			if w.Err == nil {
				if verb == "E" && srv.Embedded == nil && w.Grant.Won() { // that server's clock goes on between a copy and the next
					if w.Grant.Outcome = l.Grant.Outcome; l.Grant.Outcome == "" { // it would have been put off, but for another line
						w.Grant = stock.Grant{}
					}
				}
				w.Grant.Until, w.Grant.Epoch, w.Grant.Remaining = l.Grant.Until, epochs[l.Stock], m.stocks[l.Stock].left()
			}
			w.Err = l.Err
			require.Equal(t, w, l, story)
		}
		reaped := rnd.IntN(3) == 0
		for _, name := range names {
			s := m.stocks[name]
			if reaped {
				_, err := g.Stock(name).Reap(ctx)
				require.NoError(t, err)
			}
			st, err := g.Stock(name).Inspect(ctx)
			require.NoError(t, err)
			if held := s.held(); !reaped && st.Held > held { // it counts what is over until something ends it
				st.Held = held
			}
			require.Equal(t, [3]int64{s.sold(), s.held(), s.seq}, [3]int64{st.Sold, st.Held, st.Seq}, "%s: %s", name, story)
			if number(t, raw, "EXISTS", "rc:{sale}{"+name+"}:o") == 1 {
				require.Zero(t, s.left(), "the flag stands while a unit is left")
			}
		}
		requireEnds(t, raw)
	}
}

func namesOf(lines []stock.Line) (names []string) {
	for _, l := range lines {
		names = append(names, l.Stock)
	}
	return names
}

// Carts of many callers at a time, over stocks with few units, with half of the replies lost: no stock sells beyond its
// limit, no cart is held or sold in part, and whoever asks again gets the same answer.
func TestCartsOfACrowdAreWholeWhateverRepliesAreLost(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, newLossy(t, srv, func() bool { return rand.IntN(2) == 0 }), patient)
	g := c.Group("sale")
	names, limit := []string{"a", "b", "c"}, int64(30)
	stocks := grouped(t, on(t, srv.Client(t), exact).Group("sale"),
		stock.Spec{Limit: limit, PerUser: 3, OpenFor: time.Hour}, names...)
	type result struct {
		n         [3]int64 // held or sold of each
		confirmed bool
	}
	var mu sync.Mutex
	won := map[string]result{}
	crowd(8, 12, func(caller, i int) {
		id := fmt.Sprint(caller, " ", i)
		var r result
		var cart []stock.Line
		for j := range names {
			if n := rand.Int64N(3); n > 0 || j == 2 && cart == nil {
				r.n[j] = max(n, 1)
				cart = append(cart, stock.Line{Stock: names[j], N: r.n[j]})
			}
		}
		got, err := g.Reserve(ctx, id, stock.CartRequest{ID: id, Lines: cart}, time.Hour)
		if err != nil {
			t.Error(err)
			return
		}
		if !got.Won() {
			if slices.ContainsFunc(got.Lines, func(l stock.LineGrant) bool { return l.Grant.Won() }) {
				t.Error("a part of a cart", got)
			}
			return
		}
		switch rand.IntN(3) {
		case 0:
			if back, err := g.Cancel(ctx, id, namesOf(cart)...); err != nil || !back {
				t.Error(back, err)
			}
			return
		case 1:
			first, err := g.Confirm(ctx, id, cart...)
			if err != nil || !first.Won() {
				t.Error(first, err)
			}
			again, err := g.Confirm(ctx, id, cart...)
			if err != nil || again.Outcome != stock.Replayed {
				t.Error(again, err)
			}
			for i := range min(len(first.Lines), len(again.Lines)) {
				if first.Lines[i].Grant.Ordinal != again.Lines[i].Grant.Ordinal {
					t.Error(first, again)
				}
			}
			r.confirmed = true
		}
		mu.Lock()
		won[id] = r
		mu.Unlock()
	})
	want := make([][2]int64, 3)
	for _, r := range won {
		for j, n := range r.n {
			if r.confirmed {
				want[j][0] += n
			} else {
				want[j][1] += n
			}
		}
	}
	require.Equal(t, want, sums(t, stocks...))
	for _, s := range want {
		require.LessOrEqual(t, s[0]+s[1], limit)
	}
	require.NotEmpty(t, won)
}

// A run of a cart's script may be broken off between any two of its writes, as a run of several acts may. Whatever was
// written by then, the numbers never say that more is left than the records do. Where every line was done or not done,
// the next try does the rest; where a line was broken off in the middle, its stock says so and the cart is refused.
func TestAnInterruptedCartSellsNothingTwiceAndTheNextTryEndsIt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	names := []string{"a", "b", "c"}
	for _, verb := range []string{"R", "C", "E", "X", "B"} {
		broken, completed := 0, 0
		for k := 0; ; k++ {
			tag := fmt.Sprint(verb, k)
			g := on(t, raw, exact).Group(tag)
			stocks := grouped(t, g, stock.Spec{Limit: 10, PerUser: 5, OpenFor: time.Hour, Ledger: true}, names...)
			args := []string{"call+" + stock.Digest(g, names...), "0", "9007199254740991", verb, "id"}
			if verb == "R" {
				args = append(args, "ann", "3600000", "2", "2", "2")
			} else {
				switch verb {
				case "C":
					args = append(args, "0", "0", "0")
				case "E":
					args = append(args, "7200000")
				}
				_, err := g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(2, names...)}, time.Hour)
				require.NoError(t, err)
			}
			if verb == "B" {
				_, err := g.Confirm(ctx, "id", lines(0, names...)...)
				require.NoError(t, err)
			}
			var all []string
			for _, name := range names {
				all = append(all, keysOf("rc:{"+tag+"}{"+name+"}")...)
			}
			err := raw.Do(ctx, raw.B().Eval().Script(brokenOff(k)+stock.Source("cart")).Numkeys(int64(len(all))).Key(all...).
				Arg(args...).Build()).Error()
			for _, key := range []string{all[0], all[7], all[14]} {
				requireCounted(t, raw, key)
			}
			if err == nil {
				break
			}
			require.ErrorContains(t, err, "broken off")
			broken++
			var c stock.Cart
			switch verb {
			case "R":
				c, err = g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: lines(2, names...)}, time.Hour)
			case "C":
				c, err = g.Confirm(ctx, "id", lines(0, names...)...)
			case "E":
				c, err = g.Extend(ctx, "id", 3*time.Hour, names...)
			case "X":
				_, err = g.Cancel(ctx, "id", names...)
			case "B":
				_, err = g.Return(ctx, "id", names...)
			}
			if err != nil {
				require.ErrorIs(t, err, errs.ErrCorrupt)
				continue
			}
			completed++
			require.Equal(t, verb != "X" && verb != "B", c.Won())
			short := 0
			for _, s := range sums(t, stocks...) {
				if s != map[string][2]int64{"R": {0, 2}, "E": {0, 2}, "C": {2, 0}}[verb] {
					short++
				}
			}
			require.LessOrEqual(t, short, map[string]int{"X": 1, "B": 1}[verb],
				"%s %d: what was cancelled and is still counted sells too little", verb, k)
			if verb == "C" {
				_, err = g.Cancel(ctx, "id", names...)
				require.NoError(t, err)
			}
		}
		require.Greater(t, broken, 5)
		require.GreaterOrEqual(t, completed, 3, "before the first line, and after each but the last")
	}
}
