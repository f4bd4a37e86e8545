package redlatchledger_test

import (
	"context"
	"fmt"
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
	"github.com/redlatch/redlatch/rcounter/stock"
)

// folded is an order by its entries alone.
func folded(entries []stock.Entry) *salemodel.Order {
	o := &salemodel.Order{}
	for _, e := range entries {
		o.User = e.User
		i := slices.IndexFunc(o.Lines, func(l salemodel.Line) bool {
			return l.Item == e.Item && (e.Kind != "returned" || l.Ordinal <= e.Ordinal && e.Ordinal < l.Ordinal+l.N)
		})
		switch e.Kind {
		case "reserved", "sold":
			o.State, o.Deadline = strings.ToUpper(e.Kind)[0], max(0, e.Until.UnixMilli())
			o.Lines = append(o.Lines, salemodel.Line{Item: e.Item, Asked: e.Asked, N: e.N, Ordinal: e.Ordinal})
		case "extended":
			o.Deadline = e.Until.UnixMilli()
		case "lapsed", "cancelled":
			o.State = strings.ToUpper(e.Kind)[0]
		case "void":
			o.State = map[string]byte{stock.Cancelled: 'C', stock.Expired: 'E', stock.Forbidden: 'F'}[e.Why]
		case "unpaid":
			o.Lines[i].N -= e.N
		case "late", "paid":
			for i := range o.Lines {
				if o.State == 'L' {
					o.Lines[i].N = 0
				}
			}
			o.State, o.Lines[i].N, o.Lines[i].Ordinal = 'S', e.N, e.Ordinal
		case "returned":
			l := &o.Lines[i]
			end, past := l.Ordinal+l.N, e.Ordinal+e.N
			if l.N = e.Ordinal - l.Ordinal; end > past { // the rest is a line of its own
				o.Lines = append(o.Lines, salemodel.Line{Item: e.Item, N: end - past, Ordinal: past})
			}
			if !slices.ContainsFunc(o.Lines, func(l salemodel.Line) bool { return l.N > 0 }) {
				o.State = 'G'
			}
		}
	}
	return o
}

// walk does what comes to its mind to a sale, and to its model.
type walk struct {
	*shop
	*rand.Rand
	m     *salemodel.Sale
	parts []string // ids of orders of Anyone
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
		a := redistest.NoError(w.sale.Buy(ctx, stock.Order{Anyone: true, UpTo: true, Lines: []stock.Line{{N: n}}}))(w.t)
		order, _, _ := strings.Cut(a.ID, ".")
		w.m.Do(salemodel.Act{Verb: "buy", ID: order, UpTo: true, Lines: []salemodel.Line{{Asked: n}}})
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
	redistest.NoError(w.sale.Return(ctx, id, kept...))(w.t)
	w.m.Do(salemodel.Act{Verb: "part", ID: f[0], First: first + keep, N: n - keep})
}

// look compares what the tables alone say of every order with the model.
func (w *walk) look() {
	w.tick()
	require.NoError(w.t, w.drain())
	byID := map[string][]stock.Entry{}
	for _, e := range w.rows() {
		byID[e.ID] = append(byID[e.ID], e)
	}
	orders, want := map[string]string{}, map[string]string{}
	for id, entries := range byID {
		orders[id] = folded(entries).Text(id)
	}
	units := map[string]int64{}
	for id, o := range w.m.Orders {
		want[id] = o.Text(id)
		for _, l := range o.Lines {
			if o.State == 'S' && l.N > 0 {
				units[o.User+","+id+","+l.Item] += l.N
			}
		}
	}
	require.Equal(w.t, want, orders)
	view := redistest.NoError(w.DB.Query(`SELECT user_id, order_id, item, n FROM sale_units`))(w.t)
	defer view.Close()
	for view.Next() {
		var user, order, item string
		var n int64
		require.NoError(w.t, view.Scan(&user, &order, &item, &n))
		require.Equal(w.t, units[user+","+order+","+item], n)
		delete(units, user+","+order+","+item)
	}
	require.NoError(w.t, view.Err())
	require.Empty(w.t, units)
}

// The tables alone answer for every order as the model of a sale does, "nothing" included, however often it is paid.
// So does the sale after the server has lost it and Restore has read the tables.
func TestBook_RandomCalls_AnswersAsTheModel(t *testing.T) {
	t.Parallel()
	each(t, stock.Spec{Items: map[string]stock.Item{"": {Limit: 40, PerUser: 15}, "red": {Limit: 20, PerUser: 9}}},
		func(t *testing.T, s *shop) {
			w := &walk{shop: s, Rand: rand.New(rand.NewPCG(1, 49)), m: &salemodel.Sale{End: 1 << 60, Remember: 1 << 60,
				Items: map[string]*salemodel.Item{}, Orders: map[string]*salemodel.Order{}}}
			for name, item := range s.spec.Items {
				w.m.Items[name] = &salemodel.Item{Limit: item.Limit, PerUser: item.PerUser}
			}
			for range redistest.Sized(3, 3, 50) {
				for range 70 {
					w.act(t.Context())
				}
				w.look()
				s.lose()
				redistest.NoError(s.sale.Restore(t.Context(), s.spec))(t)
				w.tick()
				_, err := s.sale.Inspect(t.Context()) // ends what is over
				require.NoError(t, err)
				require.Equal(t, w.m.Table(), rig.Hash(t, s.raw, "rc:{phones}:orders"))
			}
		})
}
