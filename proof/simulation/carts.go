package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// carts is the kind whose objects are carts of three stocks of a Group.
func carts() *kind {
	open := func(o *object, c *client) *stock.Group { return c.red.Stocks().Group(o.name) }
	return &kind{
		name: "cart",
		make: func(_ *world, o *object) {
			o.bases = map[string]*base{}
			for _, part := range "abc" {
				o.bases[fmt.Sprintf("%s-%c", o.name, part)] = &base{}
			}
		},
		open: func(w *world, o *object) {
			for _, l := range linesOf(o, 3) {
				w.openStock(o, open(o, w.clients[0]).Stock(l.Stock), l.Stock)
			}
		},
		plan: func(r *rand.Rand, s *Step) {
			s.What = []what{buy, buy, buy, buy, buy, confirm, confirm, cancel, cancel, move}[r.IntN(10)]
			s.ID, s.N = r.IntN(6), r.IntN(40)
			s.Lease, s.For = upTo(r, 200*time.Millisecond, 2500*time.Millisecond), often(r, 100*time.Millisecond, 3*time.Second)
		},
		act:     func(w *world, o *object, c *client, s Step) { actOnCart(w, o, c, s, open(o, c)) },
		verdict: func(w *world, o *object) { auditCarts(w, o, open(o, w.clients[0])) },
	}
}

// linesOf are the lines of the cart with that id: all three stocks, or two of them.
func linesOf(o *object, id int) (lines []stock.Line) {
	for i, part := range "abc" {
		if id%4 != i {
			lines = append(lines, stock.Line{Stock: fmt.Sprintf("%s-%c", o.name, part), N: 1 + int64(id+i)%3})
		}
	}
	return lines
}

func namesOf(lines []stock.Line) (names []string) {
	for _, l := range lines {
		names = append(names, l.Stock)
	}
	return names
}

func actOnCart(w *world, o *object, c *client, s Step, x *stock.Group) {
	id := fmt.Sprintf("c%d.%d", s.At/(length/3), s.ID)
	lines := linesOf(o, s.ID)
	if s.What == move {
		name := lines[s.N%len(lines)].Stock
		w.moveLedger(o, c, s, x.Stock(name), name)
		return
	}
	verb := s.What
	if verb == buy {
		g := w.askCart(o, c, s, x, reserve, id, lines)
		verb = []what{confirm, confirm, confirm, cancel, look}[s.N%5]
		if !g.Won() || verb == look || !w.sleep(c, s.For) {
			return
		}
	}
	w.askCart(o, c, s, x, verb, id, lines)
}

// askCart makes one call about a cart, and notes its answer for each line as that of the line's stock.
func (w *world) askCart(o *object, c *client, s Step, x *stock.Group, verb what, id string,
	lines []stock.Line) (g stock.Cart) {
	ctx, stop := context.WithTimeout(context.Background(), 8*calls)
	defer stop()
	var entries []*entry
	for _, l := range lines {
		entries = append(entries, o.calls.begin(s, verb, l.Stock+"/"+id, l.N))
	}
	var err error
	switch verb {
	case reserve:
		g, err = x.Reserve(ctx, "payer"+id, stock.CartRequest{ID: id, Lines: lines}, s.Lease)
	case confirm:
		g, err = x.Confirm(ctx, id, lines...)
	case cancel:
		_, err = x.Cancel(ctx, id, namesOf(lines)...) // which of its lines were cancelled by that, it does not say
	}
	won := 0
	for i, e := range entries {
		if err == nil && i < len(g.Lines) {
			e.grant = g.Lines[i].Grant
		}
		if e.grant.Won() {
			won++
		}
		if i > 0 {
			o.calls.end(e, err)
		}
	}
	w.answered(o, c, s, entries[0], err, w.fine()...)
	if err == nil && g.Won() != (won == len(lines)) && verb != cancel {
		w.violated("%s: step %d: %s of %s is answered %v, and %d of %d lines have units", o.name, s.Number, verb, id,
			g.Outcome, won, len(lines))
	}
	return g
}

// auditCarts has the model of stocks judge the carts and their lines.
func auditCarts(w *world, o *object, x *stock.Group) {
	if w.auditGone(o) {
		return
	}
	w.settle()
	for _, key := range keysOf(o.calls.all()) {
		if name, id, ok := strings.Cut(key, "/"); ok {
			w.find(o, x.Stock(name), key, id)
		}
	}
	for _, l := range linesOf(o, 3) {
		w.drainLedger(o, x.Stock(l.Stock), l.Stock)
	}
	w.auditStocks(o)
}
