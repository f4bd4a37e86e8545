package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// The verbs of stocks besides those in records.go. Reservations and requests have ids that several clients use at the
// same time.
const (
	buy    what = "buy" // reserves, waits, and then pays, gives up, or forgets about it
	order  what = "claim-up-to"
	part   what = "confirm-part"
	extend what = "extend"
	back   what = "return-part"
	look   what = "look-up"
	halt   what = "pause-sale"
	resume what = "resume-sale"
	endIn  what = "set-end"
	move   what = "move-ledger"
)

// stockLimit is how many units a sale has, and a line of a cart.
const stockLimit = 12

// saleClaimant is how many units a claimant of the sale may have: more than it asks for.
const saleClaimant = 20

// afterwards is what becomes of a reservation once its client has waited, by the step's N.
var afterwards = []what{confirm, confirm, part, extend, cancel, confirm, confirm, look}

func sales() []*kind {
	return []*kind{
		{
			name: "sale", crowds: true, make: func(_ *world, o *object) {
				o.bases = map[string]*base{o.name: {}}
			}, open: openSale, act: actOnSale, verdict: auditSale,
			plan: func(r *rand.Rand, s *Step) {
				s.What = []what{
					buy, buy, buy, buy, buy, order, order, confirm, confirm, part, extend, cancel, back, back, look, look, halt,
					endIn, move, move, claims,
				}[r.IntN(21)]
				s.ID, s.N = r.IntN(6), r.IntN(40)
				s.Lease, s.For = upTo(r, 200*time.Millisecond, 2500*time.Millisecond), often(r, 100*time.Millisecond, 3*time.Second)
			},
		},
		{ // without a ledger and ids, a claim has a shorter way
			name: "stock", crowds: true, make: func(_ *world, o *object) {
				o.bases = map[string]*base{o.name: nil}
			}, open: openSale, act: actOnSale, verdict: auditSale,
			plan: func(r *rand.Rand, s *Step) {
				s.What, s.ID = []what{claims, claims, claims, giving}[r.IntN(4)], r.IntN(15)
			},
		},
		carts(),
	}
}

func openSale(w *world, o *object) {
	w.openStock(o, w.clients[0].red.Stocks().Stock(o.name), o.name)
}

// openStock opens a stock, which keeps a ledger if there is a database for it.
func (w *world) openStock(o *object, x *stock.Stock, name string) {
	_, err := x.Open(context.Background(),
		stock.Spec{Limit: stockLimit, PerUser: saleClaimant, OpenFor: time.Hour, Retain: time.Hour,
			Ledger: o.bases[name] != nil})
	if err != nil {
		w.violated("%s: open: %v", name, err)
	}
}

// ask makes one call of a stock, and notes its answer in the calls of o. back is how many units came back by it.
func (w *world) ask(o *object, c *client, s Step, verb what, key string, n int64,
	call func(ctx context.Context) (g stock.Grant, back int64, err error)) *entry {
	ctx, stop := w.during(s, 8*calls)
	defer stop()
	e := o.calls.begin(s, verb, key, n)
	g, units, err := call(ctx)
	e.grant, e.back = g, units
	w.answered(o, c, s, e, err, w.fine()...)
	return e
}

// fine are the errors that a call of a stock may end with.
func (w *world) fine() []error {
	fine := []error{stock.ErrNotFound}
	if w.forgot() {
		fine = append(fine, errs.ErrCorrupt, stock.ErrNotOpen, errs.ErrMismatch, errNotOurs)
	}
	return fine
}

// units are how many an id asks for.
func unitsOf(id int) int64 { return 1 + int64(id%4) }

func actOnSale(w *world, o *object, c *client, s Step) {
	x := c.red.Stocks().Stock(o.name)
	// of half the time the ids are others: those before have come to their end
	id := fmt.Sprintf("r%d.%d", s.At/(length/2), s.ID)
	n := unitsOf(s.ID)
	switch s.What {
	case buy:
		e := w.ask(o, c, s, reserve, id, n, func(ctx context.Context) (stock.Grant, int64, error) {
			if s.ID%2 == 0 {
				g, err := x.Reserve(ctx, "payer"+id, stock.Request{ID: id, N: n, UpTo: true}, s.Lease)
				return g, 0, err
			}
			g, err := x.Reserve(ctx, "payer"+id, stock.Request{ID: id, N: n}, s.Lease)
			return g, 0, err
		})
		if e.err == nil && e.grant.Won() && w.sleep(c, s.For) {
			actOnID(w, o, c, s, x, afterwards[s.N%len(afterwards)], id, n)
		}
	case order:
		id = "o" + id
		w.ask(o, c, s, order, id, n, func(ctx context.Context) (stock.Grant, int64, error) {
			if s.ID%2 == 0 {
				g, err := x.Claim(ctx, "buyer"+id, stock.Request{ID: id, N: n})
				return g, 0, err
			}
			g, err := x.Claim(ctx, "buyer"+id, stock.Request{ID: id, N: n, UpTo: true})
			return g, 0, err
		})
	case claims, giving:
		claimOrGiveBack(w, o, c, s, x)
	case halt:
		w.ask(o, c, s, halt, "sale", 0, func(ctx context.Context) (stock.Grant, int64, error) {
			return stock.Grant{}, 0, x.Change(ctx, stock.Change{Pause: true})
		})
		w.sleep(c, min(s.For, time.Second))
		w.ask(o, c, s, resume, "sale", 0, func(ctx context.Context) (stock.Grant, int64, error) {
			return stock.Grant{}, 0, x.Change(ctx, stock.Change{Resume: true})
		})
	case endIn:
		w.setEnd(o, c, s, x, 0)
		w.sleep(c, min(s.For, time.Second))
		w.setEnd(o, c, s, x, time.Hour)
	case move:
		w.moveLedger(o, c, s, x, o.name)
	default:
		if s.What == back && s.N%4 == 0 {
			id = "o" + id
		}
		actOnID(w, o, c, s, x, s.What, id, n)
	}
}

// claimOrGiveBack claims a unit without an id, or returns the last that its claimant was answered.
func claimOrGiveBack(w *world, o *object, c *client, s Step, x *stock.Stock) {
	user, mine := fmt.Sprint("user", s.ID), int64(0)
	for _, e := range o.calls.all() {
		if e.key == user && e.what == claims && e.err == nil && e.grant.Won() {
			mine = e.grant.Ordinal
		}
	}
	if s.What == giving && mine == 0 {
		return
	}
	w.ask(o, c, s, s.What, user, mine, func(ctx context.Context) (g stock.Grant, units int64, err error) {
		if s.What == claims {
			g, err = x.Claim(ctx, user)
			return g, 0, err
		}
		units, err = x.Return(ctx, stock.Units{Claimant: user, Ordinal: mine})
		return g, units, err
	})
}

func (w *world) setEnd(o *object, c *client, s Step, x *stock.Stock, in time.Duration) {
	w.ask(o, c, s, endIn, "sale", int64(in), func(ctx context.Context) (stock.Grant, int64, error) {
		return stock.Grant{}, 0, x.Change(ctx, stock.Change{EndIn: &in})
	})
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

// actOnID does one verb that takes an id.
func actOnID(w *world, o *object, c *client, s Step, x *stock.Stock, verb what, id string, n int64) {
	keep := 1 + int64(s.N)%n
	if verb == back && s.N%3 == 0 {
		keep = 0
	}
	w.ask(o, c, s, verb, id, map[what]int64{part: keep, back: keep}[verb],
		func(ctx context.Context) (g stock.Grant, units int64, err error) {
			switch verb {
			case confirm:
				g, err = x.Confirm(ctx, id)
			case part:
				g, err = x.Confirm(ctx, id, stock.Paid(keep))
			case extend:
				g, err = x.Extend(ctx, id, s.Lease)
			case cancel:
				units, err = one(x.Cancel(ctx, id))
			case look:
				g, _, err = known(x.Lookup(ctx, stock.Units{Request: id}))
			case back:
				if keep > 0 {
					units, err = x.Return(ctx, stock.Units{Request: id, Keep: keep})
				} else {
					units, err = x.Return(ctx, stock.Units{Request: id})
					units = min(units, 1)
				}
			}
			return g, units, err
		})
}

func one(did bool, err error) (int64, error) {
	if did {
		return 1, err
	}
	return 0, err
}

// auditSale: after a setback nothing is granted of a stock that is gone. Otherwise the model of stocks judges the sale.
func auditSale(w *world, o *object) {
	if w.auditGone(o) {
		return
	}
	w.settle()
	x := w.clients[0].red.Stocks().Stock(o.name)
	for _, key := range keysOf(o.calls.all()) {
		if key != "sale" && !strings.HasPrefix(key, "user") {
			w.find(o, x, key, key)
		}
	}
	w.drainLedger(o, x, o.name)
	w.auditStocks(o)
}

func keysOf(list []*entry) (keys []string) {
	for _, e := range list {
		if !slices.Contains(keys, e.key) {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// auditGone judges what was granted after a stock's server was emptied, and the owners of units that replicas have
// confirmed. It reports whether the server has lost anything.
func (w *world) auditGone(o *object) bool {
	for _, s := range w.of(w.nodes[0]) {
		if s.what != empty && s.what != flushAll || w.copiedBack() {
			continue
		}
		for _, e := range o.calls.all() {
			if e.err == nil && e.grant.Won() && e.began.After(s.at) {
				w.violated("%s: step %d: %s of %s won %v of a stock that was gone", o.name, e.step, e.what, e.key, e.grant)
			}
		}
	}
	owner := map[int64]string{}
	for _, e := range o.calls.all() {
		if w.lost() || e.what != claims || e.err != nil || !e.grant.Won() {
			continue
		}
		if was, ok := owner[e.grant.Ordinal]; ok && was != e.key {
			w.violated("%s: step %d: ordinal %d is %s's and %s's", o.name, e.step, e.grant.Ordinal, was, e.key)
		}
		owner[e.grant.Ordinal] = e.key
	}
	return w.forgot()
}

// lost reports whether the server has lost what replicas may have confirmed.
func (w *world) lost() bool {
	return slices.ContainsFunc(w.of(w.nodes[0]), func(s setback) bool { return s.what != clock && s.what != confirmed })
}

// settle waits until every reservation's time is over.
func (w *world) settle() {
	w.mu.Lock()
	stuck := w.stuck
	w.mu.Unlock()
	time.Sleep(longestLease + max(0, time.Until(stuck)))
}

// find asks, when all is over, what an id has come to.
func (w *world) find(o *object, x *stock.Stock, key, id string) *entry {
	return w.ask(o, w.clients[0], Step{Number: -1, What: look, Wait: 8 * calls}, look, key, 0,
		func(ctx context.Context) (stock.Grant, int64, error) {
			return known(x.Lookup(ctx, stock.Units{Request: id}))
		})
}

// known is a Holding as an answer.
func known(h stock.Holding, err error) (stock.Grant, int64, error) {
	return stock.Grant{Outcome: h.Outcome, Ordinal: h.Ordinal, N: h.N, Until: h.Until, Missing: h.Asked - h.N}, 0, err
}

// errNotOurs ends the move of a ledger that does not follow what the database has.
var errNotOurs = errors.New("simulated: the ledger and the database do not agree")
