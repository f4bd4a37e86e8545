package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// What clients do with a sale. Several of them use the same orders at the same time.
const (
	buy      what = "buy"
	reserve  what = "reserve" // and then wait, and pay, cancel, or forget about it
	extend   what = "extend"
	pay      what = "pay"        // a payment comes, which may be for a part, or the second
	webhook  what = "call-again" // the bank calls again for a payment that came
	cancel   what = "cancel"
	giveBack what = "return"
	status   what = "status"
	anyone   what = "buy-for-anyone"
	halt     what = "pause-sale"
	endIn    what = "set-end"
	join     what = "open"
	move     what = "move-ledger"
	mend     what = "restore"
)

// saleItems are what a sale sells. Orders of one line of the item "" take other ways through the scripts.
var saleItems = map[string]stock.Item{"": {Limit: 8, PerUser: 4}, "shirt": {Limit: 8, PerUser: 4}}

// afterwards is what becomes of a reservation once its client has waited, by the step's N.
var afterwards = []what{pay, pay, pay, extend, cancel, status}

func sales() []*kind {
	return []*kind{
		{
			name: "sale", crowds: true, open: openSale, act: actOnSale, verdict: auditSale,
			make: func(_ *world, o *object) { o.shop = newShop(&salebook.Book{}) },
			plan: func(r *rand.Rand, s *Step) {
				s.What = []what{
					reserve, reserve, reserve, reserve, reserve, reserve, buy, buy, pay, pay, pay, webhook, extend, cancel, giveBack,
					giveBack, status, anyone, anyone, halt, endIn, join, move, move, move, mend,
				}[r.IntN(26)]
				s.ID, s.N = r.IntN(8), r.IntN(40)
				s.Lease, s.For = upTo(r, 200*time.Millisecond, 2500*time.Millisecond), upTo(r, 0, 2500*time.Millisecond)
			},
		},
		{ // without reservations, other ids and a ledger, Buy has the shortest way
			name: "stock", crowds: true, open: openSale, act: actOnSale, verdict: auditSale,
			make: func(_ *world, o *object) { o.shop = newShop(nil) },
			plan: func(r *rand.Rand, s *Step) {
				s.What, s.ID, s.N = []what{buy, buy, buy, anyone, giveBack}[r.IntN(5)], 8+r.IntN(15), 4*r.IntN(10)
			},
		},
	}
}

// shop is the knowledge of a program that sells: all payments of customers, and all refunds of the bank.
type shop struct {
	base       *salebook.Book // nil: the sale keeps no ledger
	mu         sync.Mutex
	orders     []stock.Order               // that were asked for
	paid, back map[string]map[string]int64 // by order and item
	isMended   atomic.Bool                 // there was a Restore
}

func newShop(b *salebook.Book) *shop {
	return &shop{base: b, paid: map[string]map[string]int64{}, back: map[string]map[string]int64{}}
}

// receives notes a payment, if it is one, and returns all lines that were paid for.
func (s *shop) receives(id string, payment ...stock.Line) (all []stock.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range payment {
		if s.paid[id] == nil {
			s.paid[id] = map[string]int64{}
		}
		s.paid[id][l.Item] += l.N
	}
	for item, n := range s.paid[id] {
		all = append(all, stock.Line{Item: item, N: n})
	}
	return all
}

// refundUpTo brings what was paid back for an order, in all, to a total.
func (s *shop) refundUpTo(id string, total []stock.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.back[id] == nil {
		s.back[id] = map[string]int64{}
	}
	for _, l := range total {
		s.back[id][l.Item] = max(s.back[id][l.Item], l.N)
	}
}

func (s *shop) asksFor(o stock.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, o)
}

// askedFor is an order that was asked for before, or nil.
func (s *shop) askedFor(n int) *stock.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orders) == 0 || n%8 == 0 {
		return nil
	}
	return &s.orders[len(s.orders)-1-n%len(s.orders)]
}

func (s *shop) spec() stock.Spec {
	return stock.Spec{Items: saleItems, OpenFor: time.Hour, Retain: time.Hour, Ledger: s.base != nil}
}

func openSale(w *world, o *object) {
	if err := w.clients[0].red.Sales().Sale(o.name).Open(context.Background(), o.shop.spec()); err != nil {
		w.violated("%s: open: %v", o.name, err)
	}
}

// desk is one client at work for a shop, in one step.
type desk struct {
	*world
	*object
	*stock.Sale
	c *client
	s Step
}

func (w *world) desk(o *object, c *client, s Step) *desk {
	return &desk{w, o, c.red.Sales().Sale(o.name), c, s}
}

// order is what the step wants, or, of most verbs, an order that was asked for before. Of half the time the ids are
// others: those before have come to their end.
func (d *desk) order() (o stock.Order) {
	n := 1 + int64(d.s.ID%3)
	o.Lines = [][]stock.Line{{{N: n}}, {{N: n}, {Item: "shirt", N: 4 - n}}, {{Item: "shirt", N: n}}}[d.s.ID/2%3]
	switch {
	case d.s.What == anyone:
		return stock.Order{Anyone: true, UpTo: d.s.ID%4 < 2, Lines: []stock.Line{{Item: o.Lines[0].Item, N: 1 + n%2}}}
	case d.s.ID >= 8:
		o = stock.Order{User: fmt.Sprint("user", d.s.ID)}
	case d.s.ID == 7: // of the name of a user who has others
		o = stock.Order{ID: "ann", User: "ann"}
	default:
		o.ID, o.User = fmt.Sprintf("o%d.%d", d.s.At/(length/2), d.s.ID), []string{"ann", "bob", ""}[d.s.ID%3]
		o.UpTo, o.New = d.s.ID%4 == 0, d.s.ID%4 == 1
	}
	if d.s.What == buy || d.s.What == reserve {
		d.shop.asksFor(o)
	} else if before := d.shop.askedFor(d.s.N); before != nil {
		o = *before
	}
	return o
}

// ask makes one call, and notes its answer.
func (d *desk) ask(verb what, id string, call func(ctx context.Context) (stock.Answer, error)) *entry {
	ctx, stop := d.during(d.s, 8*calls)
	defer stop()
	e := d.calls.begin(d.s, verb, id, 0)
	a, err := call(ctx)
	e.answer = a
	fine := []error{stock.ErrLater}
	if verb == pay { // for an item of which the order has nothing
		fine = append(fine, errs.ErrMismatch)
	}
	if verb == move && d.shop.isMended.Load() { // the opening that the mover has read is over
		fine = append(fine, errs.ErrMismatch)
	}
	if d.forgot() {
		fine = append(fine, stock.ErrNoStock, errs.ErrMismatch)
	}
	d.answered(d.object, d.c, d.s, e, err, fine...)
	if err != nil && d.s.N%2 == 0 && d.shop.base != nil && verb != mend && !d.plan.Crowd && !d.c.dead() &&
		(errors.Is(err, stock.ErrNoStock) || verb == move && errors.Is(err, errs.ErrMismatch)) {
		_ = d.restore() // the judge hears of it
	}
	return e
}

// do makes a call whose result is an error alone.
func (d *desk) do(verb what, call func(ctx context.Context) error) error {
	return d.ask(verb, "", func(ctx context.Context) (stock.Answer, error) { return stock.Answer{}, call(ctx) }).err
}

func (d *desk) restore() error {
	d.shop.isMended.Store(true)
	return d.do(mend, func(ctx context.Context) error { _, err := d.Restore(ctx, d.shop.spec()); return err })
}

// change changes the sale, and after some time again.
func (d *desk) change(verb what, changes ...stock.Change) (err error) {
	for i, c := range changes {
		if i > 0 {
			d.sleep(d.c, min(d.s.For, time.Second))
		}
		err = d.do(verb, func(ctx context.Context) error { return d.Change(ctx, c) })
	}
	return err
}

func actOnSale(w *world, o *object, c *client, s Step) {
	d := w.desk(o, c, s)
	if w.plan.Crowd && slices.Contains([]what{halt, endIn, join, mend}, s.What) {
		d.s.What = status
	}
	yes, no, now, hour := true, false, time.Duration(0), time.Hour
	switch d.s.What {
	case halt:
		_ = d.change(halt, stock.Change{Paused: &yes}, stock.Change{Paused: &no})
	case endIn:
		_ = d.change(endIn, stock.Change{EndIn: &now}, stock.Change{EndIn: &hour})
	case join:
		_ = d.do(join, func(ctx context.Context) error { return d.Open(ctx, o.shop.spec()) })
	case mend:
		_ = d.restore()
	case move:
		_, _ = d.moveLedger(1+s.N, s.ID == 5)
	default:
		d.actOn(d.s.What, d.order())
	}
}

// actOn does one verb to an order.
func (d *desk) actOn(verb what, o stock.Order) {
	id, part := cmp.Or(o.ID, o.User), slices.Clone(o.Lines)
	if part == nil {
		part = []stock.Line{{N: 1}}
	}
	if d.s.N%4 == 1 { // all lines but one unit of the last
		part[len(part)-1].N--
	} else if verb == giveBack {
		part = nil
	}
	if strings.HasPrefix(id, "~") && verb != giveBack {
		verb = status
	}
	switch verb {
	case pay:
		d.shop.receives(id, part...)
		_ = d.callBack(id)
		return
	case webhook:
		if d.shop.receives(id) != nil {
			_ = d.callBack(id)
		}
		return
	}
	e := d.ask(verb, id, func(ctx context.Context) (stock.Answer, error) {
		switch verb {
		case buy, anyone:
			return d.Buy(ctx, o)
		case reserve:
			return d.Reserve(ctx, o, d.s.Lease)
		case extend:
			return d.Extend(ctx, id, d.s.Lease)
		case cancel:
			return d.Cancel(ctx, id)
		case giveBack:
			return d.Return(ctx, id, part...)
		}
		return d.Status(ctx, id)
	})
	switch {
	case verb == giveBack:
		d.refund(id, e)
	case verb == anyone && e.answer.Won():
		d.shop.asksFor(stock.Order{ID: e.answer.ID})
	case verb == reserve && e.answer.Won() && d.sleep(d.c, d.s.For):
		d.actOn(afterwards[d.s.N%len(afterwards)], o)
	}
}

// callBack is the call of the bank: in time, late, twice. An order that has nothing of what was paid for is cancelled.
func (d *desk) callBack(id string) error {
	paid := d.shop.receives(id)
	e := d.ask(pay, id, func(ctx context.Context) (stock.Answer, error) { return d.Pay(ctx, id, paid...) })
	if errors.Is(e.err, errs.ErrMismatch) {
		e = d.ask(cancel, id, func(ctx context.Context) (stock.Answer, error) { return d.Cancel(ctx, id) })
	}
	d.refund(id, e)
	return e.err
}

// refund pays back what an answer says, unless the client is gone.
func (d *desk) refund(id string, e *entry) {
	if e.err == nil && !d.c.dead() {
		d.shop.refundUpTo(id, e.answer.Refund(d.shop.receives(id)...))
	}
}

// sleep waits, and reports whether c is still there.
func (w *world) sleep(c *client, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !c.dead()
	case <-c.gone:
		return false
	}
}

// auditSale has a sale that lost anything restored, each payment decided and each order looked at. Then its judge
// follows it from the beginning.
func auditSale(w *world, o *object) {
	d := w.desk(o, w.clients[0], Step{Number: -1, What: status, N: 1, Wait: 8 * calls, Ends: byWait})
	w.mu.Lock()
	stuck := w.stuck
	w.mu.Unlock()
	time.Sleep(longestLease + max(0, time.Until(stuck))) // until every reservation's time is over
	no, hour := false, time.Hour
	if o.shop.base != nil {
		if w.forgot() {
			d.succeeds(d.restore)
		}
		d.succeeds(func() error {
			err := d.change(halt, stock.Change{Paused: &no, EndIn: &hour})
			if errors.Is(err, stock.ErrLater) { // a Restore was broken off
				_ = d.restore()
			}
			return err
		})
	}
	for _, id := range o.calls.keys() {
		if o.shop.receives(id) != nil {
			d.succeeds(func() error { return d.callBack(id) })
		}
		if (o.shop.base != nil || !w.forgot()) && !strings.HasPrefix(id, "~") {
			d.succeeds(func() error {
				return d.ask(status, id, func(ctx context.Context) (stock.Answer, error) { return d.Status(ctx, id) }).err
			})
		}
	}
	if o.shop.base != nil {
		d.succeeds(d.drain)
	}
	w.judgeSale(o)
}

// succeeds repeats a call that should succeed, since nothing is done to anybody any more. A connection that was cut is
// noticed by a call.
func (d *desk) succeeds(call func() error) {
	var err error
	for range 20 {
		if err = call(); err == nil {
			return
		}
	}
	d.violated("%s: when all is well: %v", d.name, err)
}
