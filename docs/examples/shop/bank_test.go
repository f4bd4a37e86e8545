package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBankTakesAPaymentOnceAndCallsUntilItIsAnswered(t *testing.T) {
	var calls atomic.Int64
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) < 4 {
			http.Error(w, "killed", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, http.StatusOK, orderAnswer{State: sold})
	}))
	defer busy.Close()
	b := newBank(1, 0, newCaller(newWaits(), busy.URL))
	at := httptest.NewServer(b.handler(t.Context()))
	defer at.Close()
	customer := newCaller(nil, at.URL)
	p := paymentForm{Payment: paymentID("a"), Order: "a", Cents: 500}
	for range 2 {
		require.NoError(t, customer.do(t.Context(), "", http.MethodPost, "/charge", p, &p))
	}
	b.calls.Wait()
	require.GreaterOrEqual(t, calls.Load(), int64(4))
	require.Len(t, b.statement(), 1)

	var refused *refusedError
	more := p
	more.Cents = 600
	require.ErrorAs(t, customer.do(t.Context(), "", http.MethodPost, "/charge", more, &more), &refused)
	require.Equal(t, http.StatusConflict, refused.status)
	for range 2 {
		require.NoError(t, customer.do(t.Context(), "", http.MethodPost, "/refund", paymentForm{Payment: p.Payment}, &more))
	}
	require.ErrorAs(t, customer.do(t.Context(), "", http.MethodPost, "/refund", paymentForm{Payment: "other"}, &more),
		&refused)
	var c charge
	require.NoError(t, customer.do(t.Context(), "", http.MethodGet, "/payment/"+p.Payment, nil, &c))
	require.Equal(t, charge{p, true}, c)
}

// A worker that does not answer is passed over, and the request goes to the next as it was.
func TestARequestGoesToTheNextWorkerWordForWord(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	var bodies []orderForm
	alive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o orderForm
		readJSON(r, &o)
		bodies = append(bodies, o)
		if len(bodies) == 1 {
			panic(http.ErrAbortHandler) // served, and the answer is lost
		}
		writeJSON(w, http.StatusOK, orderAnswer{Order: o.Order, State: held})
	}))
	defer alive.Close()
	w := newWaits()
	c := newCaller(w, gone.URL, alive.URL)
	var a orderAnswer
	require.NoError(t, c.do(t.Context(), "reserve", http.MethodPost, "/reserve", orderForm{"a", "ann"}, &a))
	require.Equal(t, held, a.State)
	require.Equal(t, []orderForm{{"a", "ann"}, {"a", "ann"}}, bodies)
	require.Equal(t, 1, w.rows("reserve")[0].Again)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, newCaller(nil, gone.URL).do(ctx, "", http.MethodGet, "/", nil, &a), context.Canceled)
}
