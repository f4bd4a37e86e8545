package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// state is what an order is, as the shop answers it.
type state string

const (
	held      state = "held"      // until the payment comes, or the time is over
	sold      state = "sold"      // paid; it has its unit
	returned  state = "returned"  // was sold; the unit and the money went back
	cancelled state = "cancelled" // by the customer, before the payment came
	expired   state = "expired"   // the time is over; a payment that comes now may still get what is left
	refunded  state = "refunded"  // paid, and nothing was left: the money went back
	soldOut   state = "sold out"
	closed    state = "closed"   // the sale is over, or stands still
	tooMany   state = "one each" // the customer has a unit
	unknown   state = "unknown"  // there is no such order
)

// ended has the states of an order that has no unit.
var ended = map[stock.Outcome]state{
	"": unknown, stock.Expired: expired, stock.Cancelled: cancelled, stock.Returned: returned, stock.UserLimit: tooMany,
	stock.SoldOut: soldOut, stock.Ended: closed, stock.NotStarted: closed, stock.Paused: closed,
}

// answered turns what the stock says of an order into the shop's answer. That the stock is gone, or not restored yet,
// says nothing of the order, which may be sold. It is an error, after which the caller asks again.
func answered(order string, g stock.Grant, err error) (answer, error) {
	a := answer{Order: order, Unit: g.Ordinal}
	switch {
	case err != nil:
		return answer{}, err
	case g.Outcome == stock.NotOpen || g.Outcome == stock.Suspended:
		return answer{}, fmt.Errorf("the sale is %v", g.Outcome)
	case g.Won() && g.Ordinal > 0:
		a.State = sold
	case g.Won():
		a.State, a.PayIn = held, max(0, time.Until(g.Until).Milliseconds())
	default:
		a.State = ended[g.Outcome]
	}
	return a, nil
}

// reserve holds a unit for an order. An order that has gone further says how far.
func (s *shop) reserve(ctx context.Context, f form) (answer, error) {
	g, err := s.sale.Reserve(ctx, f.User, stock.Request{ID: f.Order, N: 1}, s.hold)
	return answered(f.Order, g, err)
}

// cancel gives back the unit of an order that was not paid yet. A paid one stays sold: see refund.
func (s *shop) cancel(ctx context.Context, f form) (answer, error) {
	if _, err := s.sale.Cancel(ctx, f.Order); err != nil {
		return answer{}, err
	}
	return s.look(ctx, f)
}

// pay is called by the bank, at least once for each payment, until the answer is 200. That means that the shop has
// decided, and has sent the money back if it has no unit.
//
// The stock decides, by one act on the order's id, before any money moves. Another call for the same payment, later or
// at the same time in another process, finds the record of that act, and comes to the same decision. A payment that
// comes late gets a unit if one is left. If none is, Confirm closes the order. Otherwise a second call of the bank
// could find a unit that has come back meanwhile, and the customer would have unit and money. While the sale is paused,
// or Redis has lost it, nothing is decided, and the bank calls again.
func (s *shop) pay(ctx context.Context, f form) (answer, error) {
	g, err := s.sale.Confirm(ctx, f.Order)
	if err == nil && !g.Outcome.Final() {
		return answer{}, fmt.Errorf("the sale is %v", g.Outcome)
	}
	a, err := answered(f.Order, g, err)
	if err != nil || a.State == sold {
		return a, err
	}
	if err := s.payBack(ctx, f.Order); err != nil { // or a crash before it: the bank calls again, and the decision stands
		return answer{}, err
	}
	return s.look(ctx, f)
}

// refund takes the sale of an order back: the unit first, then the money. The other way round, a crash in between would
// leave a unit with a customer who has the money back. What is held yet, or could be sold late, is cancelled before: a
// call of the bank that is on its way sells nothing any more.
func (s *shop) refund(ctx context.Context, f form) (answer, error) {
	if _, err := s.sale.Cancel(ctx, f.Order); err != nil {
		return answer{}, err
	}
	if _, err := s.sale.Return(ctx, stock.Units{Request: f.Order}); err != nil {
		return answer{}, err
	}
	if err := s.payBack(ctx, f.Order); err != nil { // or a crash before it: the customer asks again
		return answer{}, err
	}
	return s.look(ctx, f)
}

// look answers from the stock, and from the bank where that knows more: a stock that was restored knows only what is
// sold.
func (s *shop) look(ctx context.Context, f form) (answer, error) {
	h, err := s.sale.Lookup(ctx, stock.Units{Request: f.Order})
	a, err := answered(f.Order, stock.Grant{Outcome: h.Outcome, Ordinal: h.Ordinal, Until: h.Until}, err)
	if err != nil || a.State != cancelled && a.State != expired && a.State != unknown {
		return a, err
	}
	atBank, err := post(ctx, s.http, s.bank+"/look", f)
	if err == nil && atBank.State == refunded {
		a.State = refunded
	}
	return a, err
}

// payBack has the bank return the money of an order, once however often it is called.
func (s *shop) payBack(ctx context.Context, order string) error {
	_, err := post(ctx, s.http, s.bank+"/refund", form{Order: order})
	return err
}

// bank stands for the payment provider. It takes the money of an order once, and gives it back once.
type bank struct {
	http.ServeMux
	mu       sync.Mutex
	payments map[string]state // by order: paid or refunded
}

const paid state = "paid"

func newBank() *bank {
	b := &bank{payments: map[string]state{}}
	serve := func(path string, from, to state) {
		b.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var f form
			if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
				http.Error(w, "want an order", http.StatusBadRequest)
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if to != "" && b.payments[f.Order] == from {
				b.payments[f.Order] = to
			}
			_ = json.NewEncoder(w).Encode(answer{Order: f.Order, State: b.payments[f.Order]})
		})
	}
	serve("POST /charge", "", paid)
	serve("POST /refund", paid, refunded)
	serve("POST /look", "", "")
	return b
}

// kept returns the orders whose money the bank has.
func (b *bank) kept() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := map[string]bool{}
	for order, s := range b.payments {
		if s == paid {
			kept[order] = true
		}
	}
	return kept
}
