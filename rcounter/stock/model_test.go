package stock_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/stockmodel"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// model answers as the library does for a stock that answers as the judge does.
type model struct {
	*stockmodel.Judge
	now   time.Duration
	carts map[string]string // the stocks of the cart of an id
	lines []stock.Entry     // of the ledger
}

func newModel(limit, per int64) *model {
	return &model{Judge: stockmodel.NewJudge(int32(limit), int32(per)), carts: map[string]string{}}
}

func (m *model) clone() *model {
	return &model{m.Clone(), m.now, maps.Clone(m.carts), slices.Clone(m.lines)}
}

func (m *model) expire() {
	ids, lines := m.Expire(m.now.Milliseconds())
	for i, id := range ids {
		m.enter(id, lines[i:i+1])
	}
}

func (m *model) enter(id string, lines []stockmodel.Entry) {
	for _, l := range lines {
		m.lines = append(m.lines, stock.Entry{Kind: stock.Kind(l.Kind.String()), Ordinal: int64(l.Ordinal),
			N: int64(l.N), Claimant: m.Kept[id].Claimant, Request: id})
	}
}

func (m *model) left() int64 { return int64(m.Left()) }

// numbers are what Inspect says.
func (m *model) numbers() [4]int64 {
	return [4]int64{int64(m.Limit), int64(m.Sold), int64(m.Held), int64(m.Seq)}
}

// numbered are the outcomes by their numbers in the scripts.
var numbered = map[int32]stock.Outcome{stockmodel.SoldOut: stock.SoldOut, stockmodel.Ended: stock.Ended,
	stockmodel.UserLimit: stock.UserLimit, stockmodel.WasReturn: stock.Returned, stockmodel.NoUnits: stock.Expired,
	stockmodel.WasCancel: stock.Cancelled, stockmodel.IsPaused: stock.Paused}

// asks are the verbs of deeds.
var asks = map[string]stockmodel.Ask{"R": {Verb: stockmodel.Reserve}, "V": {Verb: stockmodel.Reserve, Part: true},
	"O": {Verb: stockmodel.Claim}, "U": {Verb: stockmodel.Claim, Part: true}, "C": {Verb: stockmodel.Confirm},
	"E": {Verb: stockmodel.Extend}, "X": {Verb: stockmodel.Cancel}, "B": {Verb: stockmodel.Return}}

// do does a deed. back is how many units come back by it.
func (m *model) do(d stock.Deed) (a stock.Answer, back int64) {
	ask := asks[d.Verb]
	ask.N = int32(d.N)
	is, lines := m.Do(m.now.Milliseconds(), d.ID, d.Claimant, ask, d.TTL.Milliseconds())
	m.enter(d.ID, lines)
	k := m.Kept[d.ID]
	switch {
	case is.Outcome == stockmodel.Other:
		return stock.Answer{Err: errs.ErrMismatch}, 0
	case is.Outcome == stockmodel.Unknown:
		return stock.Answer{Err: stock.ErrNotFound}, 0
	case ask.Verb == stockmodel.Cancel || ask.Verb == stockmodel.Return:
		if !is.Again {
			back = int64(is.N)
		}
		return stock.Answer{Back: back > 0}, back
	}
	g := stock.Grant{Outcome: numbered[is.Outcome]}
	if is.Outcome == stockmodel.Granted {
		g = stock.Grant{Outcome: stock.Granted, Ordinal: int64(k.Ordinal), N: int64(k.N), Missing: int64(k.Asked - k.N),
			Request: d.ID}
		if is.Again {
			g.Outcome = stock.Replayed
		}
	}
	switch v := ask.Verb; {
	case !g.Outcome.Final():
	case v == stockmodel.Confirm && ask.N > 0: // of those that were paid for
		g.Missing = max(0, d.N-g.N)
	case v == stockmodel.Confirm, v == stockmodel.Extend && k.Is != stockmodel.Held: // of those that were held
		g.Missing = int64(k.Before) - g.N
	}
	return stock.Answer{Grant: g}, 0
}

// call does deeds one after the other, all of them so many times: what a copy was granted stays granted, what it was
// refused is still wanted by the next.
func (m *model) call(times int, deeds []stock.Deed) []stock.Answer {
	answers := make([]stock.Answer, len(deeds))
	for range times {
		for i, d := range deeds {
			a, _ := m.do(d)
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

// look is what became of an id.
func (m *model) look(id string) stock.Holding {
	k, ok := m.Kept[id]
	if !ok {
		return stock.Holding{}
	}
	h := stock.Holding{Outcome: stock.Replayed, Request: id, Claimant: k.Claimant, Ordinal: int64(k.Ordinal),
		N: int64(k.N), Asked: int64(k.Asked)}
	switch k.Is {
	case stockmodel.Returned:
		h.Outcome = stock.Returned
	case stockmodel.Cancelled, stockmodel.Forbidden:
		h.Outcome = stock.Cancelled
	case stockmodel.Expired, stockmodel.Void:
		h.Outcome = stock.Expired
	}
	return h
}

// group is the stocks of a group.
type group map[string]*model

// cartAnswer is what a verb of a group answers.
type cartAnswer struct {
	lines []stock.LineGrant
	back  int64
	err   error
}

// isOther reports whether the id is that of a cart of other stocks.
func (m group) isOther(id string, lines []stock.Line) (cart string, other bool) {
	for _, l := range lines {
		cart += l.Stock + " "
	}
	for _, l := range lines {
		has := m[l.Stock].carts[id]
		other = other || has != "" && has != cart
	}
	return cart, other
}

// do does a deed with each line, in the order of their names: all, or none but what stands for itself.
func (m group) do(d stock.Deed, lines []stock.Line) (a cartAnswer) {
	cart, other := m.isOther(d.ID, lines)
	if other {
		return cartAnswer{err: errs.ErrMismatch}
	}
	after := map[string]*model{}
	refused, undecided, fresh, alone := false, false, false, false
	var wrote []bool
	for _, l := range lines {
		s := m[l.Stock].clone()
		before, known := s.Kept[d.ID]
		if d.N = l.N; d.Verb == "B" {
			d.N = 0
		}
		is, back := s.do(d)
		if d.Verb == "X" {
			back = min(back, 1)
		}
		if a.back += back; d.Verb == "R" && !known && is.Grant.Won() {
			s.carts[d.ID] = cart
		}
		writes := s.Kept[d.ID] != before
		alone = alone || known && s.carts[d.ID] == ""
		switch {
		case is.Err != nil || d.Verb != "X" && d.Verb != "B" && !is.Grant.Won() &&
			(d.Verb != "C" || is.Grant.Outcome != stock.Expired):
			refused, undecided = true, undecided || !is.Grant.Outcome.Final()
		case writes:
			fresh = true
		}
		if a.err == nil {
			a.err = is.Err
		}
		wrote, after[l.Stock] = append(wrote, writes), s
		a.lines = append(a.lines, stock.LineGrant{Stock: l.Stock, Grant: is.Grant, Err: is.Err})
	}
	switch {
	case d.Verb == "R" && !refused && fresh && alone:
		return cartAnswer{err: errs.ErrMismatch}
	case !refused:
		maps.Copy(m, after)
		return a
	}
	a.back = 0
	for i := range a.lines {
		switch {
		case d.Verb == "C" && !undecided && a.lines[i].Grant.Outcome == stock.Cancelled: // of an id that was unknown, too
			m[a.lines[i].Stock] = after[a.lines[i].Stock]
		case wrote[i]:
			a.lines[i].Grant = stock.Grant{}
		}
	}
	return a
}

// call is one call that runs so many times: what one run was granted stays granted.
func (m group) call(times int, d stock.Deed, lines []stock.Line) (a cartAnswer) {
	for range times {
		b := m.do(d, lines)
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

// copies sends everything so many times, and hands out the last reply.
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

// walk is a random walk over some stocks.
type walk struct {
	*testing.T
	srv    *redistest.Server
	raw    rueidis.Client
	rnd    *rand.Rand
	wire   *copies
	group  *stock.Group
	stocks group
	epochs map[string]int64
	ledger map[string]bool
	began  time.Time
	now    time.Duration
	life   time.Duration // of reservations, at least
	trace  []string
	anys   map[int64]stock.Grant // by ordinal
}

// walks are what is asked in a walk: the names of its stocks, and a step. lossy: a third of the replies may be lost.
var walks = map[string]struct {
	stocks   []string
	remember time.Duration
	lossy    bool
	step     func(w *walk)
}{
	"requests":            {[]string{"a"}, 500 * time.Hour, true, (*walk).request},
	"acts that share":     {[]string{"a"}, 2 * time.Minute, false, (*walk).acts},
	"carts and their ids": {[]string{"a", "b", "c", "d"}, 500 * time.Hour, false, (*walk).cart},
}

// TestStocks_RandomCalls_AnswerAsTheModel asks everything in any order, again at any later time, each call run once or
// several times: all answers, numbers and records are the model's, whatever is lost, and no cart is done in part.
func TestStocks_RandomCalls_AnswerAsTheModel(t *testing.T) {
	t.Parallel()
	for name, x := range walks {
		for i, seed := range redistest.Seeds(t, redistest.Sized(1, 3, 60)) {
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				srv := redistest.Embedded(t)
				if i%4 == 1 {
					srv = redistest.Start(t) // its clock cannot be moved, so nothing expires
				}
				w := &walk{T: t, srv: srv, raw: srv.Client(t), rnd: rand.New(rand.NewPCG(seed, 1)), life: time.Hour,
					stocks: group{}, epochs: map[string]int64{}, ledger: map[string]bool{},
					began: time.Now().Truncate(time.Millisecond),
					anys:  map[int64]stock.Grant{}}
				w.wire = &copies{srv.Client(t), 1}
				if loses := rand.New(rand.NewPCG(seed, 2)); x.lossy && i%3 == 2 {
					w.wire.Client = newLossy(t, srv, func() bool { return loses.IntN(3) == 0 })
				} else if x.lossy && i%2 == 0 {
					w.wire.n = 2
				}
				if srv.Embedded != nil {
					w.life = time.Second
					srv.Embedded.SetTime(w.began)
				}
				w.group = on(t, w.wire, exact).Group("sale")
				for _, name := range x.stocks {
					limit, per := 2+w.rnd.Int64N(14), 1+w.rnd.Int64N(5)
					w.stocks[name], w.ledger[name] = newModel(limit, per), w.rnd.IntN(2) == 0
					var err error
					w.epochs[name], err = w.group.Stock(name).Open(ctx, stock.Spec{Limit: limit, PerUser: per,
						OpenFor: 1000 * time.Hour, Ledger: w.ledger[name], Remember: x.remember})
					require.NoError(t, err)
				}
				for range redistest.Sized(80, 150, 200) {
					w.pass(x.remember)
					x.step(w)
					w.check(x.stocks)
				}
				for _, name := range x.stocks {
					w.checkLedger(name)
				}
			})
		}
	}
	t.Run("a claimed unit counts", func(t *testing.T) { // many a walk does not come by this
		s := on(t, redistest.Embedded(t).Client(t), exact).Stock("s")
		_, err := s.Open(ctx, stock.Spec{Limit: 10, PerUser: 2, OpenFor: time.Hour})
		require.NoError(t, err)
		require.Equal(t, stock.Granted, claimed(t, s, "ann").Outcome)
		for i, want := range []stock.Outcome{stock.UserLimit, stock.Granted, stock.UserLimit} {
			g, err := s.Claim(ctx, "ann", stock.Request{ID: fmt.Sprint(i), N: 2 - int64(i)%2})
			require.NoError(t, err)
			require.Equal(t, want, g.Outcome)
		}
		g, err := s.Reserve(ctx, "ann", stock.Request{ID: "held", N: 1}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, stock.UserLimit, g.Outcome)
	})
}

// pass has some time pass, now and then.
func (w *walk) pass(remember time.Duration) {
	if w.srv.Embedded != nil && w.rnd.IntN(4) == 0 {
		w.now += time.Duration(w.rnd.IntN(12000)) * time.Millisecond
		w.srv.Embedded.SetTime(w.began.Add(w.now))
	}
	for _, m := range w.stocks {
		m.now = w.now
		m.expire()
		m.Forget(w.now.Milliseconds(), remember.Milliseconds())
	}
}

// check compares what the server has.
func (w *walk) check(names []string) {
	requireEnds(w, w.raw)
	reaped := w.rnd.IntN(3) == 0
	for _, name := range names {
		m, s := w.stocks[name], w.group.Stock(name)
		if reaped {
			_, err := s.Reap(ctx)
			require.NoError(w, err)
		}
		st, err := s.Inspect(ctx)
		require.NoError(w, err)
		if held := int64(m.Held); !reaped && st.Held > held { // it counts what is over until something ends it
			st.Held = held
		}
		w.same(name, m.numbers(), [4]int64{st.Limit, st.Sold, st.Held, st.Seq}, nil, nil)
		if number(w, w.raw, "EXISTS", "rc:{sale}{"+name+"}:o") == 1 {
			require.Zero(w, m.left(), "the flag stands while a unit is left: %s", w.story())
		}
	}
}

// checkLedger compares the entries of a ledger, if there is one, with what happened.
func (w *walk) checkLedger(name string) {
	var want, got []stock.Entry
	for _, e := range w.stocks[name].lines {
		if at, any := strings.CutPrefix(e.Request, "any "); any {
			e.Request = w.anys[first(at)].Request
		} else if strings.HasPrefix(e.Request, "by ") {
			e.Request = ""
		}
		want = append(want, e)
	}
	w.wire.n = 1
	if !w.ledger[name] {
		return
	}
	_, err := w.group.Stock(name).Ledger(ctx, 10_000, func(_ context.Context, entries []stock.Entry) error {
		for i, e := range entries {
			require.EqualValues(w, i+1, e.Serial)
			require.Equal(w, w.epochs[name], e.Epoch)
			e.Serial, e.Epoch, e.At = 0, 0, time.Time{}
			got = append(got, e)
		}
		return nil
	})
	require.NoError(w, err)
	require.Equal(w, want, got, w.story())
}

func (w *walk) story() string { return strings.Join(w.trace, "\n") }

func (w *walk) same(what string, want, got any, wantErr, gotErr error) {
	w.Helper()
	w.trace = append(w.trace[max(0, len(w.trace)-30):],
		fmt.Sprintf("%v x%d %s: %v %v", w.now, w.wire.n, what, got, gotErr))
	require.ErrorIs(w, gotErr, wantErr, w.story())
	require.Equal(w, want, got, w.story())
}

// deed is a random one about an id, mostly by the claimant that it has.
func (w *walk) deed(verbs, id string, m *model) stock.Deed {
	d := stock.Deed{Verb: string(verbs[w.rnd.IntN(len(verbs))]), ID: id,
		Claimant: []string{"ann", "bob;1", "c\nd\x01", "dan", "eve"}[w.rnd.IntN(5)], N: 1 + w.rnd.Int64N(3),
		TTL: time.Duration(1+w.rnd.IntN(20)) * w.life}
	if k := m.Kept[id]; k.Asked > 0 && w.rnd.IntN(3) > 0 {
		d.Claimant, d.N = k.Claimant, int64(k.Asked)
	}
	if (d.Verb == "B" || d.Verb == "C") && w.rnd.IntN(2) == 0 {
		d.N = 0
	}
	return d
}

// answered compares the answer to a deed.
func (w *walk) answered(name string, d stock.Deed, want, got stock.Answer) {
	w.Helper()
	if d.Verb == "E" && w.srv.Embedded == nil && want.Grant.Won() { // that server's clock goes on meanwhile
		want.Grant.Outcome = got.Grant.Outcome
	}
	if want.Grant.Outcome != "" {
		want.Grant.Epoch, want.Grant.Remaining, want.Grant.Until = w.epochs[name], w.stocks[name].left(), got.Grant.Until
	}
	wantErr, gotErr := want.Err, got.Err
	want.Err, got.Err = nil, nil
	w.same(fmt.Sprint(name, " ", d), want, got, wantErr, gotErr)
}

// alone does a deed by the verb that it is.
func alone(s *stock.Stock, d stock.Deed) (a stock.Answer, back int64) {
	r := stock.Request{ID: d.ID, N: d.N, UpTo: d.Verb == "V" || d.Verb == "U"}
	var paid []stock.Paid
	if d.N > 0 {
		paid = append(paid, stock.Paid(d.N))
	}
	switch d.Verb {
	case "R", "V":
		a.Grant, a.Err = s.Reserve(ctx, d.Claimant, r, d.TTL)
	case "O", "U":
		a.Grant, a.Err = s.Claim(ctx, d.Claimant, r)
	case "C":
		a.Grant, a.Err = s.Confirm(ctx, d.ID, paid...)
	case "E":
		a.Grant, a.Err = s.Extend(ctx, d.ID, d.TTL)
	case "X":
		a.Back, a.Err = s.Cancel(ctx, d.ID)
		return a, count01(a.Back)
	case "B":
		back, a.Err = s.Return(ctx, stock.Units{Request: d.ID, Keep: d.N})
		a.Back = back > 0
	}
	return a, back
}

// single does a random deed alone.
func (w *walk) single(name, verbs, id string) {
	m := w.stocks[name]
	d := w.deed(verbs, id, m)
	want, back := m.do(d)
	if d.Verb == "X" {
		back = min(back, 1)
	}
	got, came := alone(w.group.Stock(name), d)
	w.answered(name, d, want, got)
	require.Equal(w, back, came, w.story())
}

// request asks for one thing: by an id, for any units, or for a claimant's unit; or it changes the sale, or looks.
func (w *walk) request() {
	m, s, id := w.stocks["a"], w.group.Stock("a"), fmt.Sprint("id", w.rnd.IntN(12))
	claimant := []string{"ann", "bob;1"}[w.rnd.IntN(2)]
	claim := func(id, claimant string, n int64, part bool) (stock.Grant, error) {
		a, _ := m.do(stock.Deed{Verb: map[bool]string{true: "U", false: "O"}[part], ID: id, Claimant: claimant, N: n})
		a.Grant.Remaining, a.Grant.Epoch = m.left(), w.epochs["a"]
		return a.Grant, a.Err
	}
	switch op := w.rnd.IntN(100); {
	case op < 70:
		w.single("a", "RRRVVVOOOUUUCCCEXBB", id)
	case op < 76:
		n := 1 + w.rnd.Int64N(3)
		want, wantErr := claim(fmt.Sprint("any ", m.Seq+1), "", n, true)
		got, err := s.ClaimAny(ctx, n)
		if want.Request, want.Missing = got.Request, 0; want.Won() {
			w.anys[want.Ordinal] = got
		}
		w.same(fmt.Sprintf("any %d", n), want, got, wantErr, err)
	case op < 80:
		w.returnAny(m, s)
	case op < 83:
		want, wantErr := claim("by "+claimant, claimant, 1, false)
		want.Request = ""
		got, err := s.Claim(ctx, claimant)
		w.same("claim "+claimant, want, got, wantErr, err)
	case op < 86:
		by := "by " + claimant
		ordinal := max(1, int64(m.Kept[by].Ordinal)+w.rnd.Int64N(2))
		want := int64(0)
		if ordinal == int64(m.Kept[by].Ordinal) {
			_, want = m.do(stock.Deed{Verb: "B", ID: by})
			delete(m.Kept, by) // the claimant may claim again
		}
		got, err := s.Return(ctx, stock.Units{Claimant: claimant, Ordinal: ordinal})
		w.same(fmt.Sprintf("return %s %d", claimant, ordinal), want, got, nil, err)
	case op < 92:
		w.change(m, s)
	default:
		want := m.look(id)
		got, err := s.Lookup(ctx, stock.Units{Request: id})
		want.Epoch, want.Until = w.epochs["a"], got.Until
		w.same("look at "+id, want, got, nil, err)
		all, own := int64(0), int64(0)
		for h, err := range s.Holders(ctx) {
			require.NoError(w, err)
			all += h.N
		}
		has, err := unitsOf(s, claimant)
		require.NoError(w, err)
		for _, h := range has {
			require.Equal(w, claimant, h.Claimant)
			own += h.N
		}
		w.same("holders", [2]int64{int64(m.Sold + m.Held), int64(m.Has(claimant))}, [2]int64{all, own}, nil, nil)
	}
}

// returnAny returns some of the units that were claimed without a claimant, of which the first go back first.
func (w *walk) returnAny(m *model, s *stock.Stock) {
	if len(w.anys) == 0 {
		return
	}
	all := slices.Sorted(maps.Keys(w.anys))
	was := w.anys[all[w.rnd.IntN(len(all))]]
	id := fmt.Sprint("any ", was.Ordinal)
	gave, n := was.N, 1+w.rnd.Int64N(3)
	if k := m.Kept[id]; k.Is == stockmodel.Sold {
		gave -= int64(k.N)
	}
	from, want := was.Ordinal+gave-w.rnd.Int64N(2), int64(0) // the next part, or one that was returned, or is before it
	if from < 1 {
		return
	}
	if from == was.Ordinal+gave && gave+n <= was.N {
		_, want = m.do(stock.Deed{Verb: "B", ID: id, N: was.N - gave - n})
		m.lines[len(m.lines)-1].Ordinal = from
	}
	got, err := s.Return(ctx, stock.Units{Request: was.Request, Ordinal: from, N: n})
	w.same(fmt.Sprintf("return any %d+%d", from, n), want, got, nil, err)
}

// change changes the sale.
func (w *walk) change(m *model, s *stock.Stock) {
	var c stock.Change
	var wantErr error
	switch in := time.Duration(1+w.rnd.IntN(60)) * time.Second; w.rnd.IntN(4) {
	case 0:
		m.Paused, c.Pause = true, true
	case 1:
		m.Paused, c.Resume = false, true
	case 2:
		if c.EndIn = stock.In(1000 * time.Hour); w.srv.Embedded != nil {
			c.EndIn = stock.In(in) // the judge takes an end at 0 for none
		}
		m.End = (w.now + *c.EndIn).Milliseconds()
	default:
		if c.Limit = 1 + w.rnd.Int64N(12); c.Limit < int64(m.Sold+m.Held) {
			wantErr = errs.ErrOutOfRange
		} else {
			m.Limit = int32(c.Limit)
		}
	}
	w.same(fmt.Sprintf("change %+v", c), nil, nil, wantErr, s.Change(ctx, c))
}

// acts makes one call of several acts, which may run several times.
func (w *walk) acts() {
	var deeds []stock.Deed
	m := w.stocks["a"]
	for _, id := range w.rnd.Perm(20)[:1+w.rnd.IntN(12)] {
		deeds = append(deeds, w.deed("RRRRVOUCCCCCEEXBB", fmt.Sprint("id", id), m))
	}
	w.wire.n = 1 + w.rnd.IntN(3)
	want := m.call(w.wire.n, deeds)
	got, err := w.group.Stock("a").ActsAs(ctx, fmt.Sprintf("call%08d", w.rnd.Uint32()), deeds...)
	require.NoError(w, err)
	for i, d := range deeds {
		w.answered("a", d, want[i], got[i])
	}
}

// cart asks for something of a cart, or of a line of one as a reservation by itself.
func (w *walk) cart() {
	names := []string{"a", "b", "c", "d"}
	id := fmt.Sprint("id", w.rnd.IntN(16))
	d := w.deed("RRRCCCEXBL", id, w.stocks["a"])
	w.wire.n = 1
	var lines []stock.Line
	for i, name := range names {
		if k := w.stocks[name].Kept[id]; k.Asked > 0 && w.rnd.IntN(8) > 0 {
			d.Claimant = k.Claimant
			lines = append(lines, stock.Line{Stock: name, N: int64(k.Asked)})
		} else if w.rnd.IntN(3) == 0 || i == len(names)-1 && lines == nil {
			lines = append(lines, stock.Line{Stock: name, N: 1 + w.rnd.Int64N(3)})
		}
	}
	switch {
	case d.Verb == "L":
		w.lookUp(id, lines)
		return
	case w.rnd.IntN(6) == 0:
		w.single(lines[0].Stock, "RCX", id)
		return
	case d.Verb == "C" && w.rnd.IntN(2) == 0: // all that it holds
		for i := range lines {
			lines[i].N = 0
		}
	}
	w.wire.n = 1 + w.rnd.IntN(3)
	want, got := w.stocks.call(w.wire.n, d, lines), cartAnswer{}
	var c stock.Cart
	switch d.Verb {
	case "R":
		mixed := slices.Clone(lines)
		w.rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		c, got.err = w.group.Reserve(ctx, d.Claimant, stock.CartRequest{ID: id, Lines: mixed}, d.TTL)
	case "C":
		c, got.err = w.group.Confirm(ctx, id, lines...)
	case "E":
		c, got.err = w.group.Extend(ctx, id, d.TTL, namesOf(lines)...)
	case "X":
		var back bool
		back, got.err = w.group.Cancel(ctx, id, namesOf(lines)...)
		want.back, got.back = min(want.back, 1), count01(back)
	case "B":
		got.back, got.err = w.group.Return(ctx, id, namesOf(lines)...)
	}
	w.same(fmt.Sprint("cart ", d, lines), want.back, got.back, want.err, got.err)
	if d.Verb == "X" || d.Verb == "B" {
		return
	}
	require.Len(w, c.Lines, len(want.lines), w.story())
	for i, l := range c.Lines {
		x := want.lines[i]
		if x.Err == nil {
			if d.Verb == "E" && w.srv.Embedded == nil && x.Grant.Won() { // that server's clock goes on meanwhile
				if x.Grant.Outcome = l.Grant.Outcome; l.Grant.Outcome == "" { // it would be put off, but for another line
					x.Grant = stock.Grant{}
				}
			}
			x.Grant.Until, x.Grant.Epoch, x.Grant.Remaining = l.Grant.Until, w.epochs[x.Stock], w.stocks[x.Stock].left()
		}
		require.Equal(w, x.Stock, l.Stock, w.story())
		w.same("line "+l.Stock, x.Grant, l.Grant, x.Err, l.Err)
	}
}

// lookUp looks at the lines of a cart.
func (w *walk) lookUp(id string, lines []stock.Line) {
	got, err := w.group.Lookup(ctx, id, namesOf(lines)...)
	if _, other := w.stocks.isOther(id, lines); other {
		w.same("look at the cart "+id, stock.Holding{}, got["none"], errs.ErrMismatch, err)
		return
	}
	for _, l := range lines {
		want := w.stocks[l.Stock].look(id)
		want.Epoch, want.Until = w.epochs[l.Stock], got[l.Stock].Until
		w.same("look at the line "+id, want, got[l.Stock], nil, err)
	}
}

func namesOf(lines []stock.Line) (names []string) {
	for _, l := range lines {
		names = append(names, l.Stock)
	}
	return names
}
