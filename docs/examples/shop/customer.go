package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// manner is what a customer has in mind.
type manner string

const (
	pays     manner = "pays"
	leaves   manner = "leaves"   // never pays: the unit goes back by itself
	cancels  manner = "cancels"  // before paying
	regrets  manner = "regrets"  // pays, and wants the money back later
	overtime manner = "overtime" // pays when the time is over
)

// customer is one of the crowd, as the seed made him.
type customer struct {
	user, order string
	arrives     time.Duration // after the doors open
	manner      manner
	doubles     bool // sends everything twice at the same time, as a double click does
	greedy      bool // wants a second unit
	rnd         *rand.Rand
}

// crowd makes n customers, most of whom come early.
func crowd(seed uint64, n int, within time.Duration) []*customer {
	all := make([]*customer, n)
	for i := range all {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		c := &customer{user: fmt.Sprintf("user-%04d", i), order: fmt.Sprintf("order-%04d", i), rnd: rnd, manner: pays}
		c.arrives = time.Duration(float64(within) * math.Pow(rnd.Float64(), 1.6))
		switch p := rnd.IntN(100); {
		case p < 12:
			c.manner = leaves
		case p < 20:
			c.manner = cancels
		case p < 32:
			c.manner = regrets
		case p < 40:
			c.manner = overtime
		}
		c.doubles, c.greedy = rnd.IntN(4) == 0, rnd.IntN(10) == 0
		all[i] = c
	}
	return all
}

// refusedGreed: he had a unit, wanted a second one, and did not get it.
const refusedGreed = "refused"

// receipt is the last answer that a customer got.
type receipt struct {
	User  string `json:"user"`
	Order string `json:"order"`
	State state  `json:"state"`
	Unit  int64  `json:"unit"`
	Late  bool   `json:"-"` // he got the unit when the time was over, by the ledger
	Paid  bool   `json:"-"` // and not paid back, by that answer
	Greed string `json:"-"` // what came of wanting a second unit
	Err   string `json:"-"` // why he has no answer
}

// market is where customers shop.
type market struct {
	shop, bank *caller
	hold       time.Duration
	heard      func(r receipt) // called for each new answer
}

// visit is a customer's whole time in the shop. It ends with his last answer, or with ctx.
func (m *market) visit(ctx context.Context, c *customer) receipt {
	a, err := m.queue(ctx, c)
	r := receipt{User: c.user, Order: c.order}
	fail := func(err error) receipt { r.Err = err.Error(); return r }
	if err != nil {
		return fail(err)
	}
	m.hear(&r, a)
	if a.State != held {
		return r
	}
	m.think(ctx, c, 50, 400)
	switch c.manner {
	case leaves:
		return r
	case cancels:
		if a, err = m.post(ctx, c, "cancel", c.order); err != nil {
			return fail(err)
		}
		m.hear(&r, a)
		return r
	case overtime:
		pause(ctx, m.hold)
	}
	charge := paymentForm{Payment: a.Payment, Order: c.order, Cents: a.Cents}
	if err := m.bank.do(ctx, "charge", http.MethodPost, "/charge", charge, &charge); err != nil {
		return fail(err)
	}
	r.Paid = true
	if a, err = m.await(ctx, c); err != nil {
		return fail(err)
	}
	r.Paid = a.State == sold
	m.hear(&r, a)
	if a.State != sold {
		return r
	}
	if c.greedy {
		if a, err = m.post(ctx, c, "reserve", c.order+"-again"); err != nil {
			return fail(err)
		}
		if r.Greed = refusedGreed; a.State == held || a.State == sold {
			r.Greed = fmt.Sprintf("has unit %d and was given another: %s", r.Unit, a.State)
		}
	}
	if c.manner == regrets {
		m.think(ctx, c, 200, 1500)
		if a, err = m.post(ctx, c, "refund", c.order); err != nil {
			return fail(err)
		}
		r.Paid = false
		m.hear(&r, a)
	}
	return r
}

// queue asks for a unit, and asks again some times while there is none: one may come back. If the answers were lost for
// so long that the unit has gone back before the customer heard of it, he makes a new order: an id that has ended stays
// so.
func (m *market) queue(ctx context.Context, c *customer) (a orderAnswer, err error) {
	for try := range 4 {
		a, err = m.post(ctx, c, "reserve", c.order)
		switch {
		case err == nil && a.State == soldOut:
			m.think(ctx, c, 300, 900)
		case err == nil && a.State == expired && try < 3:
			c.order += "-new"
		default:
			return a, err
		}
	}
	return a, err
}

// await asks for the order until the payment has been decided on.
func (m *market) await(ctx context.Context, c *customer) (a orderAnswer, err error) {
	for wait := 30 * time.Millisecond; ; wait = min(2*wait, 300*time.Millisecond) {
		err = m.shop.do(ctx, "look", http.MethodGet, "/order/"+c.order, nil, &a)
		if err != nil || a.State == sold || a.State == refunded {
			return a, err
		}
		if !pause(ctx, wait) {
			return a, ctx.Err()
		}
	}
}

// post sends a request on an order; twice at the same time if that is the customer's manner, and then either answer
// will do.
func (m *market) post(ctx context.Context, c *customer, verb, order string) (a orderAnswer, err error) {
	form := orderForm{Order: order, User: c.user}
	var second sync.WaitGroup
	if c.doubles {
		second.Go(func() {
			var other orderAnswer
			_ = m.shop.do(ctx, verb, http.MethodPost, "/"+verb, form, &other)
		})
	}
	err = m.shop.do(ctx, verb, http.MethodPost, "/"+verb, form, &a)
	second.Wait()
	return a, err
}

func (m *market) think(ctx context.Context, c *customer, least, most int) {
	pause(ctx, time.Duration(least+c.rnd.IntN(most-least))*time.Millisecond)
}

// hear enters an answer.
func (m *market) hear(r *receipt, a orderAnswer) {
	r.State, r.Unit = a.State, a.Unit
	m.heard(*r)
}
