package stock_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/salemodel"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// walk does what comes to its mind to one sale after the other, and compares all answers with the model.
type walk struct {
	*testing.T
	rnd     *rand.Rand
	raw     rueidis.Client
	wire    *wire
	client  *stock.Client
	forward func(time.Duration)

	m     *salemodel.Sale
	s     *stock.Sale
	book  *book // nil: the sale keeps no ledger
	spec  stock.Spec
	parts []string // ids of orders of Anyone
	plain bool     // mostly what a shop does
	step  int
	log   []string
	kinds map[string]int
}

// TestSale_RandomCalls_AnswerAsTheModel compares every answer with the model, and every ten steps all records, counts
// and numbers, and what a database makes of the ledger's entries alone. STEPS and SEEDS make it longer.
func TestSale_RandomCalls_AnswerAsTheModel(t *testing.T) {
	t.Parallel()
	number := func(name string, otherwise int) int {
		n, _ := strconv.Atoi(os.Getenv(name))
		return cmp.Or(n, otherwise)
	}
	for seed := range number("SEEDS", 4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Embedded(t)
			w := &walk{T: t, rnd: rand.New(rand.NewPCG(uint64(seed), 49)), raw: srv.Client(t), forward: srv.Clock(),
				kinds: map[string]int{}}
			w.wire = &wire{Client: w.raw, copies: 1}
			o := exact
			o.Books = func(string) stock.Book {
				if w.book == nil {
					return nil
				}
				return w.book
			}
			w.client = on(t, w.wire, o)
			for n := 0; n < number("STEPS", 2500); n += 250 {
				w.open(fmt.Sprint("sale", n))
				for range 250 {
					w.next()
				}
				w.look()
				require.NoError(t, w.s.Delete(ctx))
			}
			var kinds []string
			for _, k := range slices.Sorted(maps.Keys(w.kinds)) {
				kinds = append(kinds, fmt.Sprint(k, ": ", w.kinds[k]))
			}
			t.Log(len(kinds), "kinds of steps:", kinds)
		})
	}
}

func (w *walk) pick(texts ...string) string { return texts[w.rnd.IntN(len(texts))] }
func (w *walk) chance(n int) bool           { return w.rnd.IntN(n) == 0 }

func (w *walk) open(name string) {
	w.plain, w.book, w.parts, w.log = w.chance(2), nil, nil, nil
	w.m = &salemodel.Sale{Items: map[string]*salemodel.Item{}, Orders: map[string]*salemodel.Order{},
		Remember: int64(100000 + w.rnd.IntN(200000))}
	w.spec = stock.Spec{Items: map[string]stock.Item{}, OpenFor: 1000 * time.Hour, Retain: 1000 * time.Hour,
		Remember: time.Duration(w.m.Remember) * time.Millisecond, StartIn: time.Duration(w.rnd.IntN(2)) * 20 * time.Second}
	if !w.chance(4) {
		w.spec.Ledger, w.book = true, &book{}
	}
	for _, item := range []string{"", "a", "b"} {
		is := &salemodel.Item{Limit: int64(2 + w.rnd.IntN(7)), PerUser: int64(1 + w.rnd.IntN(4))}
		if w.plain {
			is.Limit, is.PerUser = is.Limit+60, is.PerUser+20
		}
		w.m.Items[item] = is
		w.spec.Items[item] = stock.Item{Limit: is.Limit, PerUser: is.PerUser}
	}
	w.s = w.client.Sale(name)
	w.now()
	w.m.Start = w.m.Now + w.spec.StartIn.Milliseconds()
	w.m.End = w.m.Start + w.spec.OpenFor.Milliseconds()
	w.wire.copies = 1
	require.NoError(w, w.s.Open(ctx, w.spec))
	require.NoError(w, w.s.Open(ctx, w.spec), "join")
}

func (w *walk) now() { w.m.Now = rig.ServerNow(w, w.raw) }

// tell notes a step for the story of a failure.
func (w *walk) tell(what string, a ...any) {
	w.log = append(w.log, fmt.Sprintf("%d at %d: ", w.step, w.m.Now)+fmt.Sprintf(what, a...))
}

func (w *walk) story() string {
	return w.Name() + "\n" + strings.Join(w.log[max(0, len(w.log)-25):], "\n")
}

func (w *walk) next() {
	w.step++
	w.forward(time.Duration(w.rnd.IntN(40)*w.rnd.IntN(40)*w.rnd.IntN(20)) * time.Millisecond)
	w.now()
	w.wire.copies = 1 + w.rnd.IntN(3)/2
	switch x := w.rnd.IntN(200); {
	case x < 7:
		w.change()
	case x < 10 && w.book != nil:
		w.restore()
		w.look()
	case x < 22:
		w.anyone()
	case x < 50:
		w.several()
	default:
		w.one()
	}
	if w.step%10 == 0 {
		w.look()
	}
}

func (w *walk) change() {
	var c stock.Change
	var want error
	what := w.rnd.IntN(4)
	if what == 3 && (w.plain || !w.chance(20)) {
		return
	}
	w.m.Tick()
	switch what {
	case 0:
		paused := w.chance(3)
		if c.Paused = &paused; w.m.Phase != salemodel.Over {
			w.m.Phase = map[bool]int{true: salemodel.Paused, false: salemodel.Open}[paused]
		}
	case 1:
		in := time.Duration(w.rnd.IntN(50)) * time.Second
		if !w.chance(5) {
			in = 1000 * time.Hour
		}
		c.EndIn, w.m.End = &in, w.m.Now+in.Milliseconds()
	case 2:
		item := w.pick("", "a", "b")
		is := w.m.Items[item]
		n := max(1, is.Sold+is.Reserved-1+int64(w.rnd.IntN(5)))
		if w.plain {
			n += 40
		}
		c.Items = map[string]stock.Item{item: {Limit: n}}
		if n < is.Sold+is.Reserved {
			want = errs.ErrOutOfRange
		} else {
			is.Limit = n
		}
	default:
		w.tell("end")
		require.NoError(w, w.s.EndSale(ctx), w.story())
		w.m.Phase = salemodel.Over
		return
	}
	w.tell("change %+v", c)
	require.ErrorIs(w, w.s.Change(ctx, c), want, w.story())
}

// act is a random act.
func (w *walk) act() salemodel.Act {
	a := salemodel.Act{Verb: w.pick("buy", "buy", "reserve", "reserve", "reserve", "reserve", "pay", "pay", "pay",
		"extend", "cancel", "return", "status"), MS: int64(1 + w.rnd.IntN(300)*w.rnd.IntN(300))}
	a.ID = w.pick("ann", "bob", "cy", fmt.Sprint("o", w.rnd.IntN(10)), fmt.Sprint("o", w.rnd.IntN(300)))
	a.User = w.pick("ann", "bob", "cy", "")
	if w.plain && !w.chance(20) {
		a.ID = fmt.Sprint("o", w.rnd.IntN(2000))
		if w.chance(3) {
			a.ID = fmt.Sprint("u", w.rnd.IntN(300))
		}
	}
	if a.Verb != "buy" && a.Verb != "reserve" || w.chance(5) {
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(w.m.Orders)), func(id string) bool { return id[0] == '~' })
		if len(known) > 0 && !w.chance(8) {
			a.ID = known[w.rnd.IntN(len(known))]
		}
	}
	if a.ID[0] == 'u' || (a.ID == "ann" || a.ID == "bob" || a.ID == "cy") && !w.chance(4) {
		a.User = a.ID
	}
	o := w.m.Orders[a.ID]
	switch {
	case o != nil && len(o.Lines) > 0 && !w.chance(5): // the same again
		a.User = o.User
		for _, l := range o.Lines {
			if l.Asked > 0 {
				a.Lines = append(a.Lines, salemodel.Line{Item: l.Item, Asked: l.Asked})
			}
		}
	case w.plain && !w.chance(8) || a.ID[0] == 'u':
		a.Lines = []salemodel.Line{{Asked: 1 + int64(w.rnd.IntN(2)*w.rnd.IntN(3))}}
	default:
		for i, item := range []string{"", "a", "b"} {
			if w.chance(2) || i == 2 && a.Lines == nil {
				a.Lines = append(a.Lines, salemodel.Line{Item: item, Asked: int64(1 + w.rnd.IntN(3)*w.rnd.IntN(2))})
			}
		}
		if w.chance(40) {
			a.Lines = append(a.Lines, salemodel.Line{Item: "no such", Asked: 1})
		}
	}
	switch a.Verb {
	case "buy", "reserve":
		a.UpTo = w.chance(5)
	default:
		if a.Verb != "pay" && a.Verb != "return" || w.chance(2) {
			a.Lines = nil
		}
	}
	return a
}

func lines(from []salemodel.Line) (to []stock.Line) {
	for _, l := range from {
		to = append(to, stock.Line{Item: l.Item, N: l.Asked})
	}
	return to
}

// one does an act by its verb.
func (w *walk) one() {
	a := w.act()
	w.m.Tick()
	before := w.text(a.ID)
	w.tell("%+v of %q, %d copies", a, before, w.wire.copies)
	var got stock.Answer
	var err error
	o := stock.Order{ID: a.ID, User: a.User, Lines: lines(a.Lines), UpTo: a.UpTo}
	ttl := time.Duration(a.MS) * time.Millisecond
	switch a.Verb {
	case "buy":
		got, err = w.s.Buy(ctx, o)
	case "reserve":
		got, err = w.s.Reserve(ctx, o, ttl)
	case "extend":
		got, err = w.s.Extend(ctx, a.ID, ttl)
	case "pay":
		got, err = w.s.Pay(ctx, a.ID, lines(a.Lines)...)
	case "cancel":
		got, err = w.s.Cancel(ctx, a.ID)
	case "return":
		got, err = w.s.Return(ctx, a.ID, lines(a.Lines)...)
	case "status":
		got, err = w.s.Status(ctx, a.ID)
	}
	w.compare(a, before, got, err)
}

// several does some acts in one call.
func (w *walk) several() {
	var acts []salemodel.Act
	for range 2 + w.rnd.IntN(4) {
		if a := w.act(); !slices.ContainsFunc(acts, func(b salemodel.Act) bool { return a.ID == b.ID }) {
			acts = append(acts, a)
		}
	}
	w.m.Tick()
	letters := map[string]string{"buy": "B", "reserve": "R", "extend": "E", "pay": "P", "cancel": "C", "return": "G",
		"status": "S"}
	var deeds []stock.Deed
	for _, a := range acts {
		w.tell("together, %+v of %q, %d copies", a, w.text(a.ID), w.wire.copies)
		deeds = append(deeds, stock.Deed{Verb: letters[a.Verb], ID: a.ID, User: a.User, Lines: lines(a.Lines), UpTo: a.UpTo,
			TTL: time.Duration(a.MS) * time.Millisecond})
	}
	if w.refusesOne(acts) {
		w.wire.copies = 1 // the second run would grant what the first refused, if a later act has given units back
	}
	got, errsOf, err := w.s.Deeds(ctx, deeds...)
	require.NoError(w, err, w.story())
	for i, a := range acts {
		if w.wire.copies > 1 && got[i].State == stock.Refused { // the second run tells what later acts have left
			want := w.m.Do(a)
			require.Equal(w, string(want), got[i].Why, w.story())
			continue
		}
		w.compare(a, w.text(a.ID), got[i], errsOf[i])
	}
}

// refusesOne reports whether one of the acts may be refused, and another may give units back.
func (w *walk) refusesOne(acts []salemodel.Act) bool {
	creates, gives := false, false
	for _, a := range acts {
		creates = creates || a.Verb == "buy" || a.Verb == "reserve" || a.Verb == "pay"
		gives = gives || a.Verb == "cancel" || a.Verb == "return" || a.Verb == "pay"
	}
	return creates && gives
}

func (w *walk) text(id string) string {
	if o := w.m.Orders[id]; o != nil {
		return o.Text(id)
	}
	return ""
}

// compare has the model do an act, and compares the answer. before is the order as it was.
func (w *walk) compare(a salemodel.Act, before string, got stock.Answer, err error) {
	outcome := w.m.Do(a)
	w.kinds[fmt.Sprintf("%.1s %s %s", before, a.Verb, outcome)]++
	want := stock.Answer{ID: a.ID, Epoch: got.Epoch, Until: got.Until}
	switch outcome {
	case salemodel.Mismatch:
		require.ErrorIs(w, err, errs.ErrMismatch, w.story())
		return
	case salemodel.NoItem:
		require.ErrorIs(w, err, errs.ErrInvalidName, w.story())
		return
	case salemodel.IsPaused, salemodel.NotStarted:
		require.ErrorIs(w, err, stock.ErrLater, w.story())
		require.Equal(w, string(outcome), got.Why, w.story())
		require.Empty(w, got.State)
		require.Nil(w, got.Refund(stock.Line{N: 1}))
		return
	case salemodel.Answered:
		want = w.m.Answer(a.ID)
		want.Epoch, want.Until = got.Epoch, got.Until
		if want.State != "" {
			want.Again = got.Again
			if w.wire.copies == 1 {
				want.Again = before == w.m.Record(a.ID)
			}
		}
	default:
		want.State, want.Why = stock.Refused, string(outcome)
		for _, l := range a.Lines {
			left := stock.Line{Item: l.Item}
			if is := w.m.Items[l.Item]; outcome != salemodel.Ended {
				left.N = is.Limit - is.Sold - is.Reserved
			}
			want.Lines = append(want.Lines, left)
		}
	}
	require.NoError(w, err, w.story())
	require.Equal(w, want, got, w.story())
	if o := w.m.Orders[a.ID]; o != nil && o.State == 'R' {
		left := time.Until(got.Until).Milliseconds() // by a clock that goes on, while the server's stands
		require.InDelta(w, o.Deadline-w.m.Now, left, 5000, w.story())
		require.LessOrEqual(w, left, o.Deadline-w.m.Now, w.story())
	}
}

// anyone buys for Anyone, or asks of what was bought so.
func (w *walk) anyone() {
	w.wire.copies = 1
	w.m.Tick()
	if len(w.parts) == 0 || w.chance(3) {
		a := salemodel.Act{Verb: "buy", UpTo: true,
			Lines: []salemodel.Line{{Item: w.pick("", "a", "b"), Asked: int64(1 + w.rnd.IntN(3))}}}
		w.tell("anyone %+v", a)
		got, err := w.s.Buy(ctx, stock.Order{Anyone: true, UpTo: true, Lines: lines(a.Lines)})
		a.ID, _, _ = cutPart(got.ID)
		if got.Won() {
			w.parts = append(w.parts, got.ID)
		}
		outcome := w.m.Do(a)
		w.kinds["anyone "+string(outcome)]++
		switch outcome {
		case salemodel.IsPaused, salemodel.NotStarted:
			require.ErrorIs(w, err, stock.ErrLater, w.story())
		case salemodel.Answered:
			require.NoError(w, err, w.story())
			l := w.m.Orders[a.ID].Lines[0]
			require.Equal(w, []stock.Line{{Item: l.Item, N: l.N, Ordinal: l.Ordinal}}, got.Lines, w.story())
		default:
			require.NoError(w, err, w.story())
			require.Equal(w, string(outcome), got.Why, w.story())
		}
		return
	}
	id := w.parts[w.rnd.IntN(len(w.parts))]
	order, first, n := cutPart(id)
	keep := int64(w.rnd.IntN(int(n) + 1))
	var got stock.Answer
	var err error
	o := w.m.Orders[order]
	item := ""
	if o != nil && o.Lines != nil {
		item = o.Lines[0].Item
	}
	w.tell("return of %s but %d, of %q", id, keep, w.text(order))
	if keep == 0 {
		got, err = w.s.Return(ctx, id)
	} else {
		got, err = w.s.Return(ctx, id, stock.Line{Item: item, N: keep})
	}
	require.NoError(w, err, w.story())
	if keep < n {
		w.m.Do(salemodel.Act{Verb: "part", ID: order, First: first + keep, N: n - keep})
	}
	has := int64(0)
	if o := w.m.Orders[order]; o != nil && o.State == 'S' {
		for _, l := range o.Lines {
			has += max(0, min(first+n, l.Ordinal+l.N)-max(first, l.Ordinal))
		}
	}
	sum := int64(0)
	for _, l := range got.Lines {
		sum += l.N
	}
	require.Equal(w, has, sum, w.story())
	require.Equal(w, has > 0, got.State == stock.Sold, w.story())
	w.kinds[fmt.Sprintf("part returned, has %v", has > 0)]++
}

func cutPart(id string) (order string, first, n int64) {
	f := [3]string{}
	copy(f[:], strings.Split(id, "."))
	first, _ = strconv.ParseInt(f[1], 10, 64)
	n, _ = strconv.ParseInt(f[2], 10, 64)
	return f[0], first, n
}

// drain moves the ledger into the book.
func (w *walk) drain() {
	for n := 1; n > 0; {
		var err error
		n, err = w.s.Ledger(ctx, 100, w.book.Move)
		require.NoError(w, err, w.story())
	}
}

// look compares all that the server has, and what its ledger tells, with the model.
func (w *walk) look() {
	w.wire.copies = 1
	w.m.Tick()
	w.tell("look")
	rig.RequireEnds(w, w.raw) // before Inspect, which mends them
	st, err := w.s.Inspect(ctx)
	require.NoError(w, err, w.story())
	want := w.m.Table()
	require.Equal(w, want, rig.Hash(w, w.raw, w.s.Keys()[1]), w.story())
	items := map[string]stock.ItemStand{}
	for name, is := range w.m.Items {
		require.LessOrEqual(w, is.Sold+is.Reserved, is.Limit, w.story())
		items[name] = stock.ItemStand{Limit: is.Limit, PerUser: is.PerUser, Sold: is.Sold, Reserved: is.Reserved, Seq: is.Seq}
	}
	require.Equal(w, items, st.Items, w.story())
	for item := range rig.Hash(w, w.raw, w.s.Keys()[3]) {
		is := w.m.Items[item]
		require.Equal(w, is.Limit, is.Sold+is.Reserved, "the flag of %q: %s", item, w.story())
	}
	if w.book == nil {
		return
	}
	w.drain()
	now := time.UnixMilli(w.m.Now)
	orders, folded := stock.Fold(w.book.All, now, now.Add(-w.spec.Remember))
	require.Equal(w, want, orders, w.story())
	for name, is := range items {
		is.Limit, is.PerUser = 0, 0
		require.Equal(w, is, folded[name], w.story())
	}
}

// restore has the server lose all or a part, and restores the sale, broken off at random steps. Copies of requests
// arrive at random moments.
func (w *walk) restore() {
	w.wire.copies = 1
	w.m.Tick()
	w.drain()
	keys, lost := w.s.Keys(), [][]int{{0, 1, 2, 3, 4, 5}, {1}, {2, 3}, {4}, {}, {0}}[w.rnd.IntN(6)]
	whole := true
	for _, i := range lost {
		if n := rig.Number(w, w.raw, "DEL", keys[i]); n > 0 && i < 3 { // the ledger was moved, and is empty
			whole = false
		}
	}
	w.tell("lost %v", lost)
	if !whole {
		w.refuses(stock.ErrNoStock)
	}
	w.wire.late = func(args []string) bool {
		return len(args) > 13 && (args[12] == "suspend" || args[12] == "put" || args[12] == "resume")
	}
	for try := 0; ; try++ {
		off := 1 << 30
		if try < 3 && w.chance(2) {
			off = w.rnd.IntN(12)
		}
		w.wire.off = func([]string) bool {
			if off--; w.chance(6) && len(w.wire.kept) > 0 {
				w.wire.deliver(w.wire.kept[w.rnd.IntN(len(w.wire.kept))])
			}
			return off < 0
		}
		isBroken := errors.New("broken off")
		w.book.Fail = func() error {
			if off--; off < 0 {
				return isBroken
			}
			return nil
		}
		w.wire.copies = 1 + w.rnd.IntN(2)
		_, err := w.s.Restore(ctx, w.spec)
		w.wire.off, w.book.Fail, w.wire.copies = nil, nil, 1
		if err == nil {
			break
		}
		require.ErrorContains(w, err, "broken off", w.story())
		w.kinds["restore broken off"]++
		if rig.Text(w, w.raw, "HGET", keys[0], "state") == "3" {
			w.refuses(stock.ErrLater)
		}
	}
	for _, args := range w.wire.kept {
		w.wire.deliver(args)
	}
	w.wire.late = nil
	w.wire.kept = w.wire.kept[:min(len(w.wire.kept), 3)]
	w.kinds["restored"]++
	w.afterRestore(lost)
}

// afterRestore has the model know what a sale that lost its hash does not: what Change changed.
func (w *walk) afterRestore(lost []int) {
	if !slices.Contains(lost, 0) {
		return
	}
	w.m.Phase, w.m.Start = salemodel.Open, w.number("start")
	w.m.End = w.number("end")
	for name, is := range w.m.Items {
		is.Limit = max(w.spec.Items[name].Limit, is.Sold+is.Reserved)
	}
}

func (w *walk) number(field string) int64 {
	return rig.Number(w, w.raw, "HGET", w.s.Keys()[0], field)
}

// refuses requires that every verb refuses, and decides nothing.
func (w *walk) refuses(want error) {
	o := stock.Order{ID: "ann", User: "ann"}
	before := w.records()
	for name, verb := range map[string]func() (stock.Answer, error){
		"buy":     func() (stock.Answer, error) { return w.s.Buy(ctx, o) },
		"anyone":  func() (stock.Answer, error) { return w.s.Buy(ctx, stock.Order{Anyone: true}) },
		"reserve": func() (stock.Answer, error) { return w.s.Reserve(ctx, stock.Order{ID: "x"}, time.Hour) },
		"extend":  func() (stock.Answer, error) { return w.s.Extend(ctx, "ann", time.Hour) },
		"pay":     func() (stock.Answer, error) { return w.s.Pay(ctx, "ann") },
		"cancel":  func() (stock.Answer, error) { return w.s.Cancel(ctx, "ann") },
		"return":  func() (stock.Answer, error) { return w.s.Return(ctx, "ann") },
		"status":  func() (stock.Answer, error) { return w.s.Status(ctx, "ann") },
		"end":     func() (stock.Answer, error) { return stock.Answer{}, w.s.EndSale(ctx) },
		"ledger": func() (stock.Answer, error) {
			_, err := w.s.Ledger(ctx, 1, w.book.Move)
			return stock.Answer{}, err
		},
		"holders": func() (a stock.Answer, last error) {
			for _, err := range w.s.Holders(ctx) {
				last = err
			}
			return a, last
		},
	} {
		got, err := verb()
		require.ErrorIs(w, err, want, "%s: %s", name, w.story())
		require.Empty(w, got.State, name)
		require.Nil(w, got.Refund(stock.Line{N: 1}), name)
	}
	require.Equal(w, before, w.records(), w.story())
	w.kinds[fmt.Sprint("refused by ", want)]++
}

func (w *walk) records() map[string]string { return rig.Hash(w, w.raw, w.s.Keys()[1]) }
