package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// stockroom is what the shop does with the stock: the only file that calls its verbs. Each method may be called again after any error,
// by any process, and the last call's answer is the right one.
type stockroom struct {
	sale *stock.Stock
	hold time.Duration // how long a unit is held for its payment
}

// reserve holds a unit for an order. An order that has gone further says how far.
func (r stockroom) reserve(ctx context.Context, order, user string) (orderAnswer, error) {
	g, err := r.sale.Reserve(ctx, order, user, 1, r.hold)
	if s := ended(g, err); s != "" {
		return orderAnswer{Order: order, State: s}, nil
	}
	return answered(order, g), err
}

// paid decides what a payment has bought, once for all: sold, or a state that says why not, and then the money has to go back.
//
// The decision is made in the stock, by one act on one id, before any money moves. Whoever is told of the same payment again, or at
// the same time in another process, meets that act's record and comes to the same decision.
func (r stockroom) paid(ctx context.Context, order, user string) (orderAnswer, error) {
	g, err := r.sale.Confirm(ctx, order)
	switch s := ended(g, err); {
	case s == expired:
		return r.late(ctx, order, user)
	case s == cancelled: // perhaps by giveBack, after a late sale
		if g, err := r.sale.Confirm(ctx, lateID(order)); ended(g, err) == returned {
			return orderAnswer{Order: order, State: returned, Late: true}, nil
		}
		return orderAnswer{Order: order, State: cancelled}, nil
	case s != "":
		return orderAnswer{Order: order, State: s}, nil
	}
	return answered(order, g), err
}

// late takes what is left for a payment that came when the order's time was over.
//
// "Nothing left" is not a decision yet: a unit may come back at any moment, and a second copy of the same payment would get it while
// this one returns the money. So the id is cancelled first. Either the other copy was quicker, and has sold a unit, or none
// ever will under this id.
func (r stockroom) late(ctx context.Context, order, user string) (orderAnswer, error) {
	id := lateID(order)
	g, err := r.sale.Reserve(ctx, id, user, 1, r.hold)
	if err == nil && !g.Won() && ended(g, err) == "" {
		_, err = r.sale.Cancel(ctx, id)
	}
	if err != nil {
		return orderAnswer{}, err
	}
	g, err = r.sale.Confirm(ctx, id)
	switch s := ended(g, err); {
	case s == returned:
		return orderAnswer{Order: order, State: returned, Late: true}, nil
	case s != "":
		return orderAnswer{Order: order, State: refunded, Late: true}, nil
	}
	a := answered(order, g)
	a.Late = true
	return a, err
}

// cancel gives the unit of an order back that was not paid yet. A paid one stays sold: see giveBack.
func (r stockroom) cancel(ctx context.Context, order string) (orderAnswer, error) {
	gone, err := r.sale.Cancel(ctx, order)
	if err != nil || gone {
		return orderAnswer{Order: order, State: cancelled}, err
	}
	// It was over before, in one way or the other. Asking again under the same id tells which.
	g, err := r.sale.Confirm(ctx, order)
	if s := ended(g, err); s != "" {
		return orderAnswer{Order: order, State: s}, nil
	}
	return answered(order, g), err
}

// giveBack takes the sale of an order back, and sees to it that none comes any more. The money goes back after it: the other way round,
// a crash in between would leave a unit with somebody who has been paid for it.
//
// What is held yet is cancelled first, so that a call of the bank that is on its way sells nothing when the money has gone back.
func (r stockroom) giveBack(ctx context.Context, order string) (orderAnswer, error) {
	for _, id := range []string{order, lateID(order)} {
		if _, err := r.sale.Cancel(ctx, id); err != nil {
			return orderAnswer{}, err
		}
		if _, err := r.sale.ReturnOnce(ctx, id); err != nil {
			return orderAnswer{}, err
		}
	}
	return orderAnswer{Order: order, State: returned}, nil
}

// ended is the state of a reservation that is over, as the stock tells it; "" for all others.
func ended(g stock.Grant, err error) state {
	switch {
	case g.Outcome == stock.Expired:
		return expired
	case g.Outcome == stock.Cancelled:
		return cancelled
	case g.Outcome == stock.Returned:
		return returned
	case errors.Is(err, stock.ErrNotFound):
		return unknown
	}
	return ""
}

// answered turns a grant into an answer.
func answered(order string, g stock.Grant) orderAnswer {
	a := orderAnswer{Order: order, Unit: g.Ordinal}
	switch {
	case g.Won() && g.Ordinal > 0:
		a.State = sold
	case g.Won():
		a.State, a.PayIn, a.Payment = held, max(0, time.Until(g.Until).Milliseconds()), paymentID(order)
	case g.Outcome == stock.UserLimit:
		a.State = tooMany
	default: // SoldOut; or Ended, NotOpen, Suspended: for a customer the same
		a.State = soldOut
	}
	return a
}
