package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// cartStocks are those of a cart of all lines, in the order in which the last one decides.
var cartStocks = []string{"a", "b", "c"}

// shop is carts of some stocks, in a Group or each on a server of its own.
type shop struct {
	stock   func(red *redlatch.Client, line string) *stock.Stock
	id      func(cart, line string) string // of the reservation in a stock
	reserve func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error)
	confirm func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error)
	cancel  func(ctx context.Context, red *redlatch.Client, id string, lines []string) (bool, error)
}

func linesOf(names []string) (list []stock.Line) {
	for _, n := range names {
		list = append(list, stock.Line{Stock: n, N: 1})
	}
	return list
}

// apart is the name of a stock of a cart without a Group.
func apart(line string) string { return "cartall-" + line }

func allApart(lines []string) (list []string) {
	for _, l := range lines {
		list = append(list, apart(l))
	}
	return list
}

var shops = map[string]shop{
	"cart": {
		stock: func(red *redlatch.Client, line string) *stock.Stock { return red.Stocks().Group("cart").Stock(line) },
		id:    func(cart, _ string) string { return cart },
		reserve: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error) {
			return red.Stocks().Group("cart").Reserve(ctx, id, id, linesOf(lines), lease)
		},
		confirm: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error) {
			return red.Stocks().Group("cart").Confirm(ctx, id, lines...)
		},
		cancel: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (bool, error) {
			return red.Stocks().Group("cart").Cancel(ctx, id, lines...)
		},
	},
	"cartall": {
		stock: func(red *redlatch.Client, line string) *stock.Stock { return red.Stocks().Stock(apart(line)) },
		id:    func(cart, line string) string { return cart + "/" + apart(line) },
		reserve: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error) {
			return red.Stocks().ReserveAll(ctx, id, id, linesOf(allApart(lines)), lease)
		},
		confirm: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (stock.Cart, error) {
			return red.Stocks().ConfirmAll(ctx, id, allApart(lines)...)
		},
		cancel: func(ctx context.Context, red *redlatch.Client, id string, lines []string) (bool, error) {
			return red.Stocks().CancelAll(ctx, id, allApart(lines)...)
		},
	},
}

// lineEnds is how the id of a line of a cart ends in events.
func lineEnds(line string) string { return "/" + line }

func carts(name string) primitive {
	x := shops[name]
	return primitive{
		name: name, pace: 40, works: answered("reserve"),
		setUp: func(ctx context.Context, red *redlatch.Client) error {
			for _, line := range cartStocks {
				if _, err := x.stock(red, line).Open(ctx, stock.Spec{Limit: reserved, OpenFor: 24 * time.Hour, Retain: time.Hour, Remember: time.Minute}); err != nil {
					return err
				}
			}
			return nil
		},
		turn: func(ctx context.Context, c *client, rnd *rand.Rand) { c.shop(ctx, name, x, rnd) },
		final: func(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error) {
			all := map[string]int64{}
			for _, line := range cartStocks {
				s := x.stock(red, line)
				st, err := s.Inspect(ctx)
				if err := gone(err, st.State == stock.StateAbsent); err != nil {
					return nil, err
				}
				all["sold"+lineEnds(line)], all["limit"+lineEnds(line)] = st.Sold, st.Limit
				for h, err := range s.Holders(ctx) {
					if err != nil {
						return nil, gone(err, false)
					}
					if h.Ordinal > 0 {
						id, _, _ := strings.Cut(h.Request, "/")
						say(event{Of: name, Do: "sold", ID: id + lineEnds(line), V: h.Ordinal})
					}
				}
			}
			return all, nil
		},
		judge: func(h record, v *verdict) { whole(h, v, name == "cart") },
	}
}

// shop reserves a cart and buys it, cancels it, or leaves it. Each line of it has an event of its own.
func (c *client) shop(ctx context.Context, name string, x shop, rnd *rand.Rand) {
	id, lines := c.next(), slices.Clone(cartStocks)
	if rnd.IntN(2) == 0 {
		i := rnd.IntN(len(lines))
		lines = slices.Delete(lines, i, i+1)
	}
	each := func(e event, of func(line string) event) {
		for _, l := range lines {
			y := of(l)
			e.ID, e.V, e.To = id+lineEnds(l), y.V, y.To
			if y.Out != "" {
				e.Out = y.Out
			}
			c.say(e)
		}
	}
	same := func(string) event { return event{} }
	e := event{Of: name, Do: "reserve", N: 1, Call: now()}
	cart, err := x.reserve(ctx, c.red[0], id, lines)
	e.Return, e.Out = now(), reason(err)
	to := int64(0)
	if err == nil {
		if e.Out = cart.Outcome.String(); cart.Won() {
			e.Out, to = "ok", until(cart.Until)
		}
	}
	each(e, func(string) event { return event{To: to} })
	if e.Out != "ok" {
		return
	}
	rest(ctx, time.Duration(rnd.IntN(150))*time.Millisecond)
	switch rnd.IntN(4) {
	case 0:
		e.Do, e.Call = "cancel", now()
		_, err := x.cancel(ctx, c.red[0], id, lines)
		e.Return, e.Out = now(), reason(err)
		each(e, same)
	case 1: // left to its end
	default:
		each(event{Of: name, Do: "try", Call: now()}, same)
		e.Do, e.Call = "claim", now()
		cart, err := x.confirm(ctx, c.red[0], id, lines)
		if c.Break == "part" { // sells one line by itself
			x.stock(c.red[0], lines[0]).ReturnOnce(ctx, x.id(id, lines[0]))
		}
		e.Return, e.Out = now(), reason(err)
		each(e, func(line string) event { return answerOf(cart, err, line) })
	}
}

// answerOf is what a line of a cart was answered.
func answerOf(cart stock.Cart, err error, line string) event {
	for _, l := range cart.Lines {
		if l.Stock != line && l.Stock != apart(line) {
			continue
		}
		switch {
		case l.Err != nil:
			return event{Out: reason(l.Err)}
		case l.Grant.Won():
			return event{Out: "ok", V: l.Grant.Ordinal}
		case err == nil && l.Grant.Outcome != 0:
			return event{Out: l.Grant.Outcome.String()}
		}
	}
	if err == nil {
		return event{Out: cart.Outcome.String()}
	}
	return event{Out: reason(err)}
}

// whole: each line keeps to what holds for a reservation. Of a cart of a Group all lines are sold or none; of another one none without
// the last, which decides.
func whole(h record, v *verdict, group bool) {
	lines, sold := map[string][]string{}, map[string]map[string]bool{}
	for _, line := range cartStocks {
		part := record{ended: h.ended, lease: h.lease}
		if h.final != nil {
			part.final = map[string]int64{"sold": h.final["sold"+lineEnds(line)], "limit": h.final["limit"+lineEnds(line)]}
		}
		for _, e := range h.events {
			id, ok := strings.CutSuffix(e.ID, lineEnds(line))
			if !ok {
				continue
			}
			part.events = append(part.events, e)
			switch {
			case e.Do == "try":
				lines[id] = append(lines[id], line)
			case e.Do == "sold", e.Do == "claim" && e.Out == "ok":
				if sold[id] == nil {
					sold[id] = map[string]bool{}
				}
				sold[id][line] = true
			}
		}
		reservations(part, v)
	}
	for _, id := range slices.Sorted(maps.Keys(sold)) {
		all := lines[id]
		switch {
		case len(all) == 0:
			v.wrong("cart %s was sold, and nobody bought it", id)
		case group && len(sold[id]) != len(all) && h.final != nil:
			v.wrong("of cart %s, with %v, only %v are sold", id, all, slices.Sorted(maps.Keys(sold[id])))
		case !sold[id][all[len(all)-1]] && h.final != nil:
			v.wrong("of cart %s, with %v, %v are sold and not the last", id, all, slices.Sorted(maps.Keys(sold[id])))
		}
	}
}

// booked claims a unit of a stock with a ledger, returns it or keeps it; or moves entries of the ledger out of the process: an entry
// that was said has been moved, whoever is killed then.
func booked(ctx context.Context, c *client, rnd *rand.Rand) {
	s := c.red[0].Stocks().Stock("ledger")
	if rnd.IntN(4) == 0 {
		e := event{Of: "ledger", Do: "move", Call: now()}
		_, err := s.Ledger(ctx, 20, mover(c.say))
		e.Return, e.Out = now(), reason(err)
		c.say(e)
		return
	}
	e := event{Of: "ledger", ID: fmt.Sprint("u", rnd.IntN(customers))}
	c.try(e)
	e.Do, e.Call = "claim", now()
	g, err := s.Claim(ctx, e.ID)
	e = c.sold(e, g, err)
	if e.Out != "ok" || rnd.IntN(3) > 0 {
		return
	}
	e.Do, e.Call = "return", now()
	back, err := s.Return(ctx, e.ID, g.Ordinal)
	e.Return, e.Out = now(), reason(err)
	if err == nil && !back {
		e.Out = "not_found"
	}
	c.say(e)
}

// mover says entries: V is the ordinal, N the serial, To the epoch.
func mover(say func(event)) func(ctx context.Context, entries []stock.Entry) error {
	return func(_ context.Context, entries []stock.Entry) error {
		for _, e := range entries {
			say(event{Of: "ledger", Do: "entry", ID: e.Claimant, V: e.Ordinal, N: e.Serial, To: e.Epoch, Out: string(e.Kind)})
		}
		return nil
	}
}

// moveAll moves what is left.
func moveAll(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error) {
	for {
		n, err := red.Stocks().Stock("ledger").Ledger(ctx, 1000, mover(say))
		if err != nil {
			return nil, gone(err, false)
		}
		if n == 0 {
			return sold(ctx, red, "ledger")
		}
	}
}

// ledgers: each number is that of one entry, and none is missing; an ordinal is granted once, and returned at most once by who has it; what
// clients were told is in the ledger, and what is in it is what the server has sold.
func ledgers(h record, v *verdict) {
	entries, tried := map[int64]event{}, map[string]bool{}
	for _, e := range h.all("try") {
		tried[e.ID] = true
	}
	for _, e := range h.all("entry") {
		e.Client = 0
		if other, ok := entries[e.N]; ok && other != e {
			v.wrong("entry %d is %s of %d by %s, and %s of %d by %s", e.N, other.Out, other.V, other.ID, e.Out, e.V, e.ID)
			continue
		}
		entries[e.N] = e
	}
	granted, returned, has := map[int64]string{}, map[int64]bool{}, int64(0)
	for i, n := range slices.Sorted(maps.Keys(entries)) {
		e := entries[n]
		if n != int64(i+1) && h.final != nil {
			v.wrong("entry %d is missing", i+1)
			return
		}
		owner, known := granted[e.V]
		switch e.Out {
		case string(stock.KindGrant):
			if known {
				v.wrong("unit %d was granted to %s and, by entry %d, to %s", e.V, owner, n, e.ID)
			}
			if !tried[e.ID] {
				v.wrong("unit %d was granted to %s, who did not ask", e.V, e.ID)
			}
			granted[e.V] = e.ID
			has++
		case string(stock.KindReturn):
			if h.final != nil && owner != e.ID || returned[e.V] {
				v.wrong("unit %d, of %q, was returned by %s in entry %d", e.V, owner, e.ID, n)
			}
			returned[e.V] = true
			has--
		default:
			v.wrong("entry %d is of kind %q", n, e.Out)
		}
		if h.final != nil && has > h.final["limit"] {
			v.wrong("%d units are sold after entry %d, of %d", has, n, h.final["limit"])
		}
	}
	if h.final == nil {
		return
	}
	if has != h.final["sold"] {
		v.wrong("by the ledger %d are sold, by the server %d", has, h.final["sold"])
	}
	for _, e := range h.events {
		switch {
		case e.Do == "claim" && e.Out == "ok" && granted[e.V] != e.ID:
			v.wrong("%s was told that it has unit %d, which by the ledger is %q's", e.ID, e.V, granted[e.V])
		case e.Do == "return" && e.Out == "ok" && !returned[e.V]:
			v.Forgotten++
		}
	}
}
