package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// stockroom is what the shop does with the stock: the only file that calls its verbs. Each method may be called again
// after any error, by any process, and the last call's answer is the right one.
type stockroom struct {
	sale *stock.Stock
	hold time.Duration // how long a unit is held for its payment
}

// reserve holds a unit for an order. An order that has gone further says how far.
func (r stockroom) reserve(ctx context.Context, order, user string) (orderAnswer, error) {
	g, err := r.sale.Reserve(ctx, user, stock.Request{ID: order, N: 1}, r.hold)
	return answered(order, g, err)
}

// paid decides what a payment has bought, once for all: sold, or a state that says why not, and then the money has to
// go back.
//
// The decision is made in the stock, by one act on the order's id, before any money moves. Another call for the same
// payment, later or at the same time in another process, finds that act's record and comes to the same decision.
//
// A payment that comes late gets a unit if one is left. If none is, none ever will be for this order, though units come
// back. While the sale is paused nothing is decided, and the bank calls again.
func (r stockroom) paid(ctx context.Context, order string) (orderAnswer, error) {
	g, err := r.sale.Confirm(ctx, order)
	if err == nil && !g.Outcome.Final() {
		return orderAnswer{}, fmt.Errorf("the sale is %v", g.Outcome)
	}
	return answered(order, g, err)
}

// cancel gives the unit of an order back that was not paid yet. A paid one stays sold: see giveBack.
func (r stockroom) cancel(ctx context.Context, order string) (orderAnswer, error) {
	if _, err := r.sale.Cancel(ctx, order); err != nil {
		return orderAnswer{}, err
	}
	return r.look(ctx, order)
}

// giveBack takes the sale of an order back, and sees to it that none comes any more. The money goes back after it: the
// other way round, a crash in between would leave a unit with a customer who has its money back.
//
// What is held yet, or could be sold late, is cancelled first: a call of the bank that is on its way sells nothing any
// more.
func (r stockroom) giveBack(ctx context.Context, order string) (orderAnswer, error) {
	if _, err := r.sale.Cancel(ctx, order); err != nil {
		return orderAnswer{}, err
	}
	if _, err := r.sale.Return(ctx, stock.Units{Request: order}); err != nil {
		return orderAnswer{}, err
	}
	return r.look(ctx, order)
}

// look is an order as it is now. It changes nothing, and nothing comes of asking for an order that is not there.
func (r stockroom) look(ctx context.Context, order string) (orderAnswer, error) {
	h, err := r.sale.Lookup(ctx, stock.Units{Request: order})
	return answered(order, stock.Grant{Outcome: h.Outcome, Ordinal: h.Ordinal, Until: h.Until}, err)
}

// answered turns what the stock says of an order into the shop's answer. What is over is a state, and no error.
func answered(order string, g stock.Grant, err error) (orderAnswer, error) {
	a := orderAnswer{Order: order, Unit: g.Ordinal}
	switch {
	case errors.Is(err, stock.ErrNotFound):
		a.State = unknown
		return a, nil
	case err != nil:
		return orderAnswer{}, err
	case g.Won() && g.Ordinal > 0:
		a.State = sold
	case g.Won():
		a.State, a.PayIn, a.Payment = held, max(0, time.Until(g.Until).Milliseconds()), paymentID(order)
	default:
		a.State = ended[g.Outcome]
	}
	return a, nil
}

// ended are the states of an order that has no unit.
var ended = map[stock.Outcome]state{
	"": unknown, stock.Expired: expired, stock.Cancelled: cancelled, stock.Returned: returned, stock.UserLimit: tooMany,
	stock.SoldOut: soldOut, stock.Ended: closed, stock.NotOpen: closed, stock.NotStarted: closed, stock.Suspended: closed,
	stock.Paused: closed,
}
