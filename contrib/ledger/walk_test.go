package redlatchledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// items are the items of a sale that has sold nothing.
func items(spec stock.Spec) map[string]*salemodel.Item {
	all := map[string]*salemodel.Item{}
	for name, item := range spec.Items {
		all[name] = &salemodel.Item{Limit: item.Limit, PerUser: item.PerUser}
	}
	return all
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
	told := redistest.NoError(salemodel.Fold(w.rows(), items(w.spec)))(w.t)
	orders, want := map[string]string{}, map[string]string{}
	for id, o := range told.Orders {
		orders[id] = o.Text(id)
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
				Items: items(s.spec), Orders: map[string]*salemodel.Order{}}}
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
