package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// work is a shop worker: an HTTP server without any state of its own. It may be killed between any two lines; its
// caller then asks another worker, under the same ids.
func work(ctx context.Context, s station) error {
	red, err := s.open()
	if err != nil {
		return err
	}
	defer closeNow(red)
	w := &worker{station: s, room: s.stockroom(red), bank: newCaller(nil, s.Bank)}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.handler(), ReadHeaderTimeout: oneTry}
	context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ending)
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type worker struct {
	station
	room stockroom
	bank *caller
}

// errBank: the bank has not answered.
var errBank = errors.New("the bank does not answer")

func (w *worker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reserve", w.onOrder(func(ctx context.Context, o orderForm) (orderAnswer, error) {
		return w.room.reserve(ctx, o.Order, o.User)
	}))
	mux.HandleFunc("POST /cancel", w.onOrder(func(ctx context.Context, o orderForm) (orderAnswer, error) {
		return w.room.cancel(ctx, o.Order)
	}))
	mux.HandleFunc("POST /refund", w.onOrder(w.refund))
	mux.HandleFunc("POST /pay", w.pay)
	mux.HandleFunc("GET /order/{id}", func(rw http.ResponseWriter, r *http.Request) {
		w.answer(rw, r, func(ctx context.Context) (orderAnswer, error) { return w.look(ctx, r.PathValue("id")) })
	})
	return mux
}

// onOrder is the handler of a POST whose body names an order.
func (w *worker) onOrder(serve func(context.Context, orderForm) (orderAnswer, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var o orderForm
		if err := readJSON(r, &o); err != nil || o.Order == "" || o.User == "" {
			failure(rw, &badRequest{"want an order and a user"})
			return
		}
		w.answer(rw, r, func(ctx context.Context) (orderAnswer, error) { return serve(ctx, o) })
	}
}

// answer serves a request within a bound that is shorter than the time its caller waits.
func (w *worker) answer(rw http.ResponseWriter, r *http.Request, serve func(context.Context) (orderAnswer, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), oneTry-time.Second)
	defer cancel()
	a, err := serve(ctx)
	if err != nil {
		failure(rw, err)
		return
	}
	a.Worker = w.Number
	if a.State == held {
		a.Cents = w.Cents
	}
	writeJSON(rw, http.StatusOK, a)
}

// pay is called by the bank, at least once for each payment. Its 200 means that the shop has decided and, where there
// is not an unit, has sent the money back.
func (w *worker) pay(rw http.ResponseWriter, r *http.Request) {
	var p paymentForm
	if err := readJSON(r, &p); err != nil || p.Order == "" || p.Payment != paymentID(p.Order) {
		failure(rw, &badRequest{"want a payment and its order"})
		return
	}
	w.answer(rw, r, func(ctx context.Context) (orderAnswer, error) {
		a, err := w.room.paid(ctx, p.Order)
		if err != nil || a.State == sold {
			return a, err
		}
		return a, w.payBack(ctx, p.Order) // a crash before this line: the bank asks again, and the decision stands
	})
}

// refund takes a sale back: the unit first, then the money.
func (w *worker) refund(ctx context.Context, o orderForm) (orderAnswer, error) {
	a, err := w.room.giveBack(ctx, o.Order)
	if err != nil {
		return a, err
	}
	return a, w.payBack(ctx, o.Order) // a crash before this line: the customer asks again
}

// payBack has the bank return the money, once however often it is called.
func (w *worker) payBack(ctx context.Context, order string) error {
	var p paymentForm
	err := w.bank.do(ctx, "", http.MethodPost, "/refund", paymentForm{Payment: paymentID(order)}, &p)
	var refused *refusedError
	if err != nil && !errors.As(err, &refused) { // refused: nothing was paid
		return fmt.Errorf("%w: %w", errBank, err)
	}
	return nil
}

// look answers from the stock, and from the bank where that knows more.
func (w *worker) look(ctx context.Context, order string) (orderAnswer, error) {
	a, err := w.room.look(ctx, order)
	if err != nil || a.State != cancelled && a.State != expired {
		return a, err
	}
	var c charge
	err = w.bank.do(ctx, "", http.MethodGet, "/payment/"+paymentID(order), nil, &c)
	var refused *refusedError
	switch {
	case err != nil && !errors.As(err, &refused): // refused: nothing was paid
		return a, fmt.Errorf("%w: %w", errBank, err)
	case c.Refunded:
		a.State = refunded
	}
	return a, nil
}
