package main

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// shelf is a stock of n units, with a clock that the test moves on.
func shelf(t *testing.T, n int64) (r stockroom, forward func(time.Duration)) {
	t.Helper()
	s := redistest.Embedded(t)
	forward = s.Clock()
	at := station{Redis: s.Addr(), Embedded: true, Stock: "sale", Hold: time.Minute}
	red, err := at.open()
	require.NoError(t, err)
	t.Cleanup(func() { closeNow(red) })
	r = at.stockroom(red)
	_, err = r.sale.Open(t.Context(), stock.Spec{Limit: n, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	return r, forward
}

// At the end the sale is settled and its ledger read. A server that does not answer for a while must not end the run.
func TestASaleIsSettledByAServerThatWasSilent(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Embedded(t))
	at := station{Redis: proxy.Addr(), Embedded: true, Stock: "sale", Hold: time.Minute}
	red, err := at.open()
	require.NoError(t, err)
	t.Cleanup(func() { closeNow(red) })
	sale := at.stockroom(red).sale
	_, err = sale.Open(t.Context(), stock.Spec{Limit: 1, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	_, err = sale.Claim(t.Context(), "ann")
	require.NoError(t, err)
	proxy.BlackHole(redistest.Down)
	time.AfterFunc(2200*time.Millisecond, proxy.Heal) // longer than one request may take
	n, err := sale.Ledger(t.Context(), 10, func(context.Context, []stock.Entry) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// is fails unless an answer is of the given state.
func is(t *testing.T, want state) func(orderAnswer, error) orderAnswer {
	return func(a orderAnswer, err error) orderAnswer {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, a.State)
		return a
	}
}

func TestAnOrderIsReservedPaidAndGivenBack(t *testing.T) {
	r, _ := shelf(t, 2)
	for range 2 { // everything may come twice
		a := is(t, held)(r.reserve(t.Context(), "a", "ann"))
		require.Equal(t, paymentID("a"), a.Payment)
		require.Positive(t, a.PayIn)
	}
	is(t, held)(r.look(t.Context(), "a"))
	is(t, held)(r.reserve(t.Context(), "z", "zoe"))
	is(t, soldOut)(r.reserve(t.Context(), "b", "bob"))
	for range 2 {
		require.EqualValues(t, 1, is(t, sold)(r.paid(t.Context(), "a")).Unit)
	}
	is(t, sold)(r.reserve(t.Context(), "a", "ann"))
	is(t, sold)(r.cancel(t.Context(), "a"))
	is(t, cancelled)(r.cancel(t.Context(), "z"))
	is(t, tooMany)(r.reserve(t.Context(), "again", "ann"))
	for range 2 {
		is(t, returned)(r.giveBack(t.Context(), "a"))
	}
	is(t, returned)(r.paid(t.Context(), "a"))
	is(t, returned)(r.look(t.Context(), "a"))
	is(t, held)(r.reserve(t.Context(), "b", "bob"))
}

func TestAnOrderThatWasCancelledIsNotSold(t *testing.T) {
	r, _ := shelf(t, 1)
	is(t, held)(r.reserve(t.Context(), "a", "ann"))
	for range 2 {
		is(t, cancelled)(r.cancel(t.Context(), "a"))
	}
	is(t, cancelled)(r.paid(t.Context(), "a"))
	is(t, cancelled)(r.reserve(t.Context(), "a", "ann"))
	is(t, held)(r.reserve(t.Context(), "b", "bob"))
}

func TestALatePaymentGetsAUnitThatIsLeft(t *testing.T) {
	r, forward := shelf(t, 1)
	is(t, held)(r.reserve(t.Context(), "a", "ann"))
	forward(2 * time.Minute)
	is(t, expired)(r.reserve(t.Context(), "a", "ann"))
	for range 2 {
		is(t, sold)(r.paid(t.Context(), "a"))
	}
	is(t, returned)(r.giveBack(t.Context(), "a"))
	is(t, returned)(r.paid(t.Context(), "a"))
	is(t, held)(r.reserve(t.Context(), "b", "bob"))
}

// The bank calls twice. The first call finds nothing left, and its worker is about to return the money. Then a unit
// comes back, and the second call must not sell it.
func TestALatePaymentThatFoundNothingBuysNothingLater(t *testing.T) {
	r, forward := shelf(t, 1)
	is(t, held)(r.reserve(t.Context(), "a", "ann"))
	forward(2 * time.Minute)
	is(t, held)(r.reserve(t.Context(), "b", "bob"))
	is(t, sold)(r.paid(t.Context(), "b"))
	is(t, expired)(r.paid(t.Context(), "a"))
	is(t, returned)(r.giveBack(t.Context(), "b"))
	is(t, expired)(r.paid(t.Context(), "a"))
	is(t, held)(r.reserve(t.Context(), "c", "cid"))
}

// Money that goes back must not meet a payment that is on its way.
func TestAnOrderThatWasGivenBackIsNotSoldByALaterCallOfTheBank(t *testing.T) {
	r, forward := shelf(t, 2)
	is(t, held)(r.reserve(t.Context(), "a", "ann"))
	is(t, cancelled)(r.giveBack(t.Context(), "a"))
	is(t, cancelled)(r.paid(t.Context(), "a"))
	is(t, held)(r.reserve(t.Context(), "b", "bob"))
	forward(2 * time.Minute)
	is(t, expired)(r.giveBack(t.Context(), "b"))
	is(t, expired)(r.paid(t.Context(), "b"))
}

func TestAPaymentForNoOrderBuysNothing(t *testing.T) {
	r, _ := shelf(t, 1)
	is(t, unknown)(r.look(t.Context(), "a"))
	is(t, cancelled)(r.paid(t.Context(), "a"))
}
