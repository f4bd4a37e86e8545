// Command shop is a flash sale with payment, as a shop would run it. Customers reserve over HTTP, pay at a bank,
// cancel, pay too late, twice or in part, and want their money back. Every sale is written into an order database.
//
//	go -C docs/examples run ./shop                      embedded Redis and SQLite, nothing else needed
//	go -C docs/examples run ./shop -redis 127.0.0.1:6379
//
// It has four files:
//
//   - handlers.go: the HTTP handlers. A process of the shop has no state of its own, and may be killed between any two
//     lines. Its caller then sends the same request to another one.
//   - mover.go: the order database, which follows the sale's ledger, and from which a lost sale is restored. It is
//     SQLite; for PostgreSQL change the driver and the dialect, and no statement.
//   - payment.go: what the shop needs of a bank, and a bank in memory.
//   - main.go: a sale to four customers.
//
// The customer's browser makes the id of an order before its first request. So every request may be repeated, at any
// time, at any process: the sale and the bank know the id, and give the answer that they gave.
//
//	killed                                  leaves                        mended by
//	before the answer to /reserve           units, perhaps reserved       the customer, who asks again; or the time ends
//	after Pay or Return, before the refund  money that is not paid back   the bank or the customer, who calls again
//	a mover, before or after its commit     entries in the ledger         the next mover: an entry counts once
//	Redis, with its data                    orders that it does not know  the operator, by Restore, which may be killed
//	                                                                      too; until then no request is answered
//
// shop_test.go kills the shop at each of these steps.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// shop is a process of the shop.
type shop struct {
	sale *stock.Sale
	bank bank
	ttl  time.Duration // how long units are reserved for a payment
}

// request is the body of every request. The answer to it is the order.
type request struct {
	Order, User string
	Lines       []stock.Line // to be reserved; or to be kept, of /refund
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	for path, serve := range map[string]func(context.Context, request) (stock.Answer, error){
		"POST /reserve": s.reserve, "POST /cancel": s.cancel, "POST /paid": s.paid, "POST /refund": s.refund,
		"POST /status": s.status,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var asked request
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Order == "" {
				http.Error(w, "want an order", http.StatusBadRequest)
				return
			}
			a, err := serve(r.Context(), asked)
			if err != nil {
				http.Error(w, err.Error(), code(err))
				return
			}
			_ = json.NewEncoder(w).Encode(a) // it fails if the caller is gone, who asks again
		})
	}
	return mux
}

func code(err error) int {
	for _, refused := range []error{redlatch.ErrMismatch, redlatch.ErrInvalidName, redlatch.ErrInvalidOption} {
		if errors.Is(err, refused) {
			return http.StatusBadRequest // the order has other lines, or there are no such
		}
	}
	return http.StatusServiceUnavailable // nothing is decided, or it is not known: send the same request again
}

// reserve keeps the units of an order until they are paid. An order that has gone further says how far.
func (s *shop) reserve(ctx context.Context, r request) (stock.Answer, error) {
	return s.sale.Reserve(ctx, stock.Order{ID: r.Order, User: r.User, Lines: r.Lines}, s.ttl)
}

// cancel is for what was not paid yet. A payment that is under way goes back by paid, when it comes. An id that nobody
// has used is not remembered, because anybody may name one here.
func (s *shop) cancel(ctx context.Context, r request) (stock.Answer, error) {
	a, err := s.status(ctx, r)
	if err != nil || a.State == "" {
		return a, err
	}
	return s.sale.Cancel(ctx, r.Order)
}

// paid is called by the bank: in time, late, twice, for a part; or by a job that reads the bank's payments. It asks the
// bank, because anybody may call. After an error, which is HTTP 503, nothing is decided, and the bank calls again.
func (s *shop) paid(ctx context.Context, r request) (stock.Answer, error) {
	lines, err := s.bank.Paid(ctx, r.Order)
	if err != nil || len(lines) == 0 {
		return stock.Answer{}, err
	}
	a, err := s.sale.Pay(ctx, r.Order, lines...)
	if err != nil {
		return a, err
	}
	return a, s.bank.RefundUpTo(ctx, r.Order, a.Refund(lines...))
}

// refund takes back what was paid, but for the lines that the customer keeps. The units come first: the other way round
// a crash in between would leave a unit with a customer who has the money back.
func (s *shop) refund(ctx context.Context, r request) (stock.Answer, error) {
	lines, err := s.bank.Paid(ctx, r.Order)
	if err != nil || len(lines) == 0 {
		return stock.Answer{}, err
	}
	a, err := s.sale.Return(ctx, r.Order, r.Lines...)
	if err != nil {
		return a, err
	}
	return a, s.bank.RefundUpTo(ctx, r.Order, a.Refund(lines...))
}

func (s *shop) status(ctx context.Context, r request) (stock.Answer, error) {
	return s.sale.Status(ctx, r.Order)
}
