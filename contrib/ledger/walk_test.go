package redlatchledger_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/salemodel"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	stock "github.com/redlatch/redlatch/rcounter/stock/sale"
)

// answerOf is the answer for an order, by its entries alone.
func answerOf(entries []stock.Entry) (a stock.Answer) {
	for _, e := range entries {
		a.ID, a.User, a.Why = e.ID, e.User, ""
		switch e.Kind {
		case "reserved":
			a.State, a.Until = stock.Reserved, e.Until
			a.Lines = append(a.Lines, stock.Line{Item: e.Item, N: e.N})
		case "extended":
			a.Until = e.Until
		case "lapsed":
			a.State, a.Until = stock.Lapsed, time.Time{}
		case "cancelled":
			a = stock.Answer{ID: e.ID, User: e.User, State: stock.Closed, Why: stock.Cancelled}
		case "void":
			a = stock.Answer{ID: e.ID, User: e.User, State: stock.Closed, Why: e.Why}
		case "unpaid":
			lineOf(&a, e.Item).N -= e.N
		case "sold":
			a.State = stock.Sold
			a.Lines = append(a.Lines, stock.Line{Item: e.Item, N: e.N, Ordinal: e.Ordinal})
		case "late", "paid":
			if a.State == stock.Lapsed {
				for i := range a.Lines {
					a.Lines[i].N = 0
				}
			}
			a.State, a.Until = stock.Sold, time.Time{}
			l := lineOf(&a, e.Item)
			l.N, l.Ordinal = e.N, e.Ordinal
		case "returned":
			takeBack(&a, e)
		}
	}
	return a
}

func lineOf(a *stock.Answer, item string) *stock.Line {
	return &a.Lines[slices.IndexFunc(a.Lines, func(l stock.Line) bool { return l.Item == item })]
}

// takeBack takes the units of an entry out of the line that has them: what is left of it is one line, or two.
func takeBack(a *stock.Answer, e stock.Entry) {
	left := int64(0)
	for i, l := range a.Lines {
		if end := l.Ordinal + l.N; l.Item == e.Item && l.Ordinal <= e.Ordinal && e.Ordinal+e.N <= end {
			a.Lines[i].N = e.Ordinal - l.Ordinal
			if rest := end - e.Ordinal - e.N; rest > 0 {
				a.Lines = append(a.Lines, stock.Line{Item: l.Item, N: rest, Ordinal: e.Ordinal + e.N})
			}
		}
	}
	for _, l := range a.Lines {
		left += l.N
	}
	if left == 0 {
		*a = stock.Answer{ID: e.ID, User: e.User, State: stock.Closed, Why: stock.Returned}
	}
}

// modelled is the answer of the model.
func modelled(id string, o *salemodel.Order) stock.Answer {
	a := stock.Answer{ID: id, User: o.User, State: stock.Closed}
	switch o.State {
	case 'R':
		a.State, a.Until = stock.Reserved, time.UnixMilli(o.Deadline).UTC()
	case 'S':
		a.State = stock.Sold
	case 'L':
		a.State = stock.Lapsed
	default:
		a.Why = map[byte]string{'C': stock.Cancelled, 'E': stock.Expired, 'G': stock.Returned, 'F': stock.Forbidden}[o.State]
		return a
	}
	for _, l := range o.Lines {
		a.Lines = append(a.Lines, stock.Line{Item: l.Item, N: l.N, Ordinal: l.Ordinal})
	}
	return a
}

// walk does what comes to its mind to a sale, and to its model.
type walk struct {
	*shop
	*rand.Rand
	m     *salemodel.Sale
	parts []string // ids of orders of Anyone
}

var walkItems = map[string]stock.Item{"": {Limit: 40, PerUser: 15}, "red": {Limit: 20, PerUser: 9}}

func newWalk(s *shop, seed uint64) *walk {
	w := &walk{shop: s, Rand: rand.New(rand.NewPCG(seed, 49)), m: &salemodel.Sale{End: 1 << 60, Remember: 1 << 60,
		Items: map[string]*salemodel.Item{}, Orders: map[string]*salemodel.Order{}}}
	for name, item := range walkItems {
		w.m.Items[name] = &salemodel.Item{Limit: item.Limit, PerUser: item.PerUser}
	}
	return w
}

// tick has the model know the server's time.
func (w *walk) tick() {
	w.forward(time.Duration(w.IntN(40)*w.IntN(40)) * time.Millisecond)
	w.m.Now = rig.ServerNow(w.t, w.raw)
	w.m.Tick()
}

func (w *walk) act(ctx context.Context) {
	w.tick()
	if w.IntN(8) == 0 {
		w.anyone(ctx)
		return
	}
	verbs := []string{"buy", "reserve", "reserve", "reserve", "pay", "pay", "pay", "extend", "cancel", "return"}
	a := salemodel.Act{Verb: verbs[w.IntN(len(verbs))], ID: fmt.Sprint("order ", w.IntN(60)), MS: int64(1 + w.IntN(4000)),
		User: fmt.Sprint("user ", w.IntN(5)), UpTo: w.IntN(3) == 0}
	for _, item := range []string{"", "red"} {
		if w.IntN(2) == 0 {
			a.Lines = append(a.Lines, salemodel.Line{Item: item, Asked: 1 + w.Int64N(3)})
		}
	}
	if w.m.Orders[a.ID] == nil && w.IntN(6) > 0 {
		a.Verb = verbs[w.IntN(4)]
	}
	if (a.Verb == "buy" || a.Verb == "reserve") && a.Lines == nil {
		a.Lines = []salemodel.Line{{Asked: 1}}
	}
	var lines []stock.Line
	for _, l := range a.Lines {
		lines = append(lines, stock.Line{Item: l.Item, N: l.Asked})
	}
	o, ttl := stock.Order{ID: a.ID, User: a.User, Lines: lines, UpTo: a.UpTo}, time.Duration(a.MS)*time.Millisecond
	var err error
	switch a.Verb {
	case "buy":
		_, err = w.sale.Buy(ctx, o)
	case "reserve":
		_, err = w.sale.Reserve(ctx, o, ttl)
	case "pay":
		_, err = w.sale.Pay(ctx, a.ID, lines...)
	case "extend":
		_, err = w.sale.Extend(ctx, a.ID, ttl)
	case "cancel":
		_, err = w.sale.Cancel(ctx, a.ID)
	case "return":
		_, err = w.sale.Return(ctx, a.ID, lines...)
	}
	if w.m.Do(a) != salemodel.Mismatch {
		require.NoError(w.t, err, a)
	}
}

// anyone buys for Anyone, or gives a part of that back.
func (w *walk) anyone(ctx context.Context) {
	if len(w.parts) == 0 || w.IntN(3) == 0 {
		n := 1 + w.Int64N(3)
		a, err := w.sale.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: n}}})
		require.NoError(w.t, err)
		order, _, _ := strings.Cut(a.ID, ".")
		w.m.Do(salemodel.Act{Verb: "buy", ID: order, Lines: []salemodel.Line{{Asked: n}}})
		if a.Won() {
			w.parts = append(w.parts, a.ID)
		}
		return
	}
	id := w.parts[w.IntN(len(w.parts))]
	f := strings.Split(id, ".")
	first, _ := strconv.ParseInt(f[1], 10, 64)
	n, _ := strconv.ParseInt(f[2], 10, 64)
	keep := w.Int64N(n)
	kept := []stock.Line{{N: keep}}
	if keep == 0 {
		kept = nil
	}
	_, err := w.sale.Return(ctx, id, kept...)
	require.NoError(w.t, err)
	w.m.Do(salemodel.Act{Verb: "part", ID: f[0], First: first + keep, N: n - keep})
}

// look compares what the tables alone say of every order with the model.
func (w *walk) look(ctx context.Context) {
	w.tick()
	require.NoError(w.t, w.drain())
	byID := map[string][]stock.Entry{}
	for _, e := range w.rows() {
		byID[e.ID] = append(byID[e.ID], e)
	}
	require.ElementsMatch(w.t, slices.Collect(maps.Keys(w.m.Orders)), slices.Collect(maps.Keys(byID)))
	units := map[string]int64{}
	for id, o := range w.m.Orders {
		require.Equal(w.t, modelled(id, o), answerOf(byID[id]), byID[id])
		for _, l := range o.Lines {
			if o.State == 'S' && l.N > 0 {
				units[fmt.Sprintf("%s,%s,%s", o.User, id, l.Item)] += l.N
			}
		}
	}
	view := map[string]int64{}
	for _, line := range strings.Split(strings.TrimSuffix(text(w.t, w.DB,
		`SELECT user_id, ',', order_id, ',', item, ',', n FROM sale_units WHERE sale = '`+w.Sale+`'`), "\n"), "\n") {
		f := strings.Split(line, " , ")
		n, err := strconv.ParseInt(strings.TrimSpace(f[3]), 10, 64)
		require.NoError(w.t, err)
		view[strings.Join(f[:3], ",")] = n
	}
	require.Equal(w.t, units, view)
	for user := range 5 {
		has, err := w.UnitsOf(ctx, fmt.Sprint("user ", user))
		require.NoError(w.t, err)
		for _, e := range has {
			l := w.m.Orders[e.ID].Lines[slices.IndexFunc(w.m.Orders[e.ID].Lines, func(l salemodel.Line) bool {
				return l.Item == e.Item
			})]
			require.Equal(w.t, []int64{l.N, l.Ordinal}, []int64{e.N, e.Ordinal})
		}
	}
}

// The tables alone answer for every order as the model of a sale does, "nothing" included, however often it is paid.
// So does the sale after the server has lost it and Restore has read the tables.
func TestBook_RandomCalls_AnswersAsTheModel(t *testing.T) {
	t.Parallel()
	each(t, 1, func(t *testing.T, s *shop) {
		ctx := t.Context()
		for seed := range redistest.Sized(1, 1, 20) {
			s.Sale = fmt.Sprint("sale ", seed)
			s.sale = s.client(func(string) stock.Book { return s.Book }).Sale(s.Sale)
			s.spec = stock.Spec{Items: walkItems, OpenFor: 1000 * time.Hour, Remember: 1000 * time.Hour, Ledger: true}
			require.NoError(t, s.sale.Open(ctx, s.spec))
			w := newWalk(s, uint64(seed))
			for range 3 {
				for range 70 {
					w.act(ctx)
				}
				w.look(ctx)
				s.lose()
				_, err := s.sale.Restore(ctx, s.spec)
				require.NoError(t, err)
				w.tick()
				for id, o := range w.m.Orders {
					if id[0] == '~' {
						continue
					}
					a, err := s.sale.Status(ctx, id)
					require.NoError(t, err)
					want := modelled(id, o)
					want.Again, want.Epoch, want.Until = a.Again, a.Epoch, a.Until
					require.Equal(t, want, a)
				}
			}
			states := map[string]int{}
			for _, o := range w.m.Orders {
				states[string(o.State)]++
			}
			t.Log(states)
		}
	})
}
