package pages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

// shopProcess is a process of a shop. Its bank hears nothing of a process that was killed.
type shopProcess struct {
	*redistest.Mortal
	*pageBank
	sale *stock.Sale
}

func (p shopProcess) RefundUpTo(ctx context.Context, order string, total []stock.Line) error {
	return p.Step(func() error { return p.pageBank.RefundUpTo(ctx, order, total) })
}

// cart is what the order is for. Others want the cap, too, of which there is one.
var cart = []stock.Line{{Item: "cap", N: 1}, {Item: "shirt", N: 1}}

// A process is killed before or after any step of the page's functions, or another does the same before that step. The
// time to pay ends, somebody else takes the cap, and gives it back while the bank calls again. In the end the customer
// has each unit or its money.
func TestSale_KilledAtAnyStep_IsPaidAndSoldOrNeither(t *testing.T) {
	for _, events := range []struct{ late, rival, back, returned bool }{{}, {late: true}, {late: true, rival: true},
		{late: true, rival: true, back: true}, {returned: true}} {
		t.Run(fmt.Sprintf("%+v", events), func(t *testing.T) {
			t.Parallel()
			eachStep(t, func(t *testing.T, srv *redlatchtest.Server, fate *redistest.Mortal) {
				bank := &pageBank{}
				run := func(m *redistest.Mortal, act func(p shopProcess) error) {
					red, err := redlatch.Open(t.Context(), m.Option(srv.Option()), redlatch.Options{CallTimeout: 5 * time.Second})
					require.NoError(t, err)
					defer red.Close(context.WithoutCancel(t.Context()))
					if err := act(shopProcess{m, bank, red.Sales().Sale("sale")}); !m.Killed() {
						require.NoError(t, err)
					}
				}
				do := func(act func(p shopProcess) error) { run(redistest.Lives(), act) }
				rival := func(act func(sale *stock.Sale) (stock.Answer, error)) {
					do(func(p shopProcess) error { _, err := act(p.sale); return err })
				}
				do(func(p shopProcess) error {
					err := p.sale.Open(t.Context(), stock.Spec{OpenFor: 24 * time.Hour,
						Items: map[string]stock.Item{"cap": {Limit: 1}, "shirt": {Limit: 5}}})
					_, reserved := Checkout(t.Context(), p.sale, "1", "ann", cart...)
					return errors.Join(err, reserved)
				})
				if events.late {
					time.Sleep(11 * time.Minute)
				}
				if events.rival {
					rival(func(sale *stock.Sale) (stock.Answer, error) {
						return sale.Buy(t.Context(), stock.Order{User: "bob", Lines: cart[:1]})
					})
				}
				act := func(p shopProcess) error { return OnPayment(t.Context(), p.sale, p, "1", cart...) }
				if events.returned {
					do(act)
					act = func(p shopProcess) error { return TakeBack(t.Context(), p.sale, p, "1", cart, cart[1]) }
				}
				fate.Other = func() { do(act) }
				run(fate, act)
				if events.back {
					rival(func(sale *stock.Sale) (stock.Answer, error) { return sale.Return(t.Context(), "bob") })
				}
				do(act)
				do(act)
				do(func(p shopProcess) error {
					a, err := p.sale.Status(t.Context(), "1")
					require.Equal(t, stock.Sold, a.State)
					for i, l := range a.Lines {
						require.Equal(t, cart[i].N, l.N+bank.refunded[l.Item], l.Item)
					}
					return err
				})
			})
		})
	}
}

// eachStep runs a story for each step at which a process can be killed, or meet another.
func eachStep(t *testing.T, story func(t *testing.T, srv *redlatchtest.Server, fate *redistest.Mortal)) {
	for _, way := range []string{"killed before", "killed after", "meets another before"} {
		steps := 0
		for more := true; more && !t.Failed(); steps++ {
			fate := redistest.Lives()
			if fate.After = way == "killed after"; way == "meets another before" {
				fate.MeetsAt = steps
			} else {
				fate.DiesAt = steps
			}
			synctest.Test(t, func(t *testing.T) {
				t.Log(way, "step", steps)
				story(t, redlatchtest.New(t), fate)
				more = fate.Reached()
			})
		}
		require.Greater(t, steps, 2, way)
	}
}
