package cells

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

// cartStocks are those of a cart of all lines.
var cartStocks = []string{"a", "b", "c"}

func linesOf(names []string) (list []stock.Line) {
	for _, n := range names {
		list = append(list, stock.Line{Stock: n, N: 1})
	}
	return list
}

// shopping is the Group of the carts.
func shopping(red *redlatch.Client) *stock.Group { return red.Stocks().Group("cart") }

// lineEnds is how the id of a line of a cart ends in events.
func lineEnds(line string) string { return "/" + line }

func carts() primitive {
	return primitive{
		name: "cart", pace: 40, works: answered("reserve"),
		setUp: openCarts,
		turn:  func(ctx context.Context, c *client, rnd *rand.Rand) { c.shop(ctx, rnd) },
		final: soldCarts,
		judge: whole,
	}
}

func openCarts(ctx context.Context, red *redlatch.Client) error {
	for _, line := range cartStocks {
		if _, err := shopping(red).Stock(line).Open(ctx,
			stock.Spec{Limit: reserved, OpenFor: 24 * time.Hour, Retain: time.Hour, Remember: time.Minute}); err != nil {
			return err
		}
	}
	return nil
}

func soldCarts(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error) {
	all := map[string]int64{}
	for _, line := range cartStocks {
		s := shopping(red).Stock(line)
		st, err := s.Inspect(ctx)
		if err := gone(err, st.Phase == stock.PhaseAbsent); err != nil {
			return nil, err
		}
		all["sold"+lineEnds(line)], all["limit"+lineEnds(line)] = st.Sold, st.Limit
		for h, err := range s.Holders(ctx) {
			if err != nil {
				return nil, gone(err, false)
			}
			if h.Ordinal > 0 {
				say(event{Of: "cart", Do: "sold", ID: h.Request + lineEnds(line), V: h.Ordinal})
			}
		}
	}
	return all, nil
}

// shop reserves a cart and buys it, cancels it, or leaves it. Each line of it has an event of its own.
func (c *client) shop(ctx context.Context, rnd *rand.Rand) {
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
	e := event{Of: "cart", Do: "reserve", N: 1, Call: now()}
	cart, err := shopping(c.red[0]).Reserve(ctx, id, stock.CartRequest{ID: id, Lines: linesOf(lines)}, lease)
	e.Return, e.Out = now(), reason(err)
	to := int64(0)
	if err == nil {
		if e.Out = string(cart.Outcome); cart.Won() {
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
		_, err := shopping(c.red[0]).Cancel(ctx, id, lines...)
		e.Return, e.Out = now(), reason(err)
		each(e, same)
	case 1: // left to its end
	default:
		each(event{Of: "cart", Do: "try", Call: now()}, same)
		e.Do, e.Call = "claim", now()
		cart, err := shopping(c.red[0]).Confirm(ctx, id, linesOf(lines)...)
		if c.Break == "part" { // sells one line by itself
			_, _ = shopping(c.red[0]).Stock(lines[0]).Return(ctx, stock.Units{Request: id})
		}
		e.Return, e.Out = now(), reason(err)
		each(e, func(line string) event { return answerOf(cart, err, line) })
	}
}

// answerOf is what a line of a cart was answered.
func answerOf(cart stock.Cart, err error, line string) event {
	for _, l := range cart.Lines {
		if l.Stock != line {
			continue
		}
		switch {
		case l.Err != nil:
			return event{Out: reason(l.Err)}
		case l.Grant.Won():
			return event{Out: "ok", V: l.Grant.Ordinal}
		case err == nil && l.Grant.Outcome != "":
			return event{Out: string(l.Grant.Outcome)}
		}
	}
	if err == nil {
		return event{Out: string(cart.Outcome)}
	}
	return event{Out: reason(err)}
}

// whole: each line keeps to what holds for a reservation, and of a cart all lines are sold or none, unless it was paid
// late.
func whole(h record, v *verdict) {
	a := cartAudit{map[string][]string{}, map[string]map[string]bool{}, map[string]int64{}, map[string]bool{}}
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
			a.add(id, line, e)
		}
		reservations(part, v)
	}
	for _, id := range slices.Sorted(maps.Keys(a.sold)) {
		all := a.lines[id]
		switch {
		case len(all) == 0:
			v.wrong("cart %s was sold, and no client bought it", id)
		case len(a.sold[id]) != len(all) && h.final != nil && !a.late[id]:
			v.wrong("of cart %s, with %v, only %v are sold", id, all, slices.Sorted(maps.Keys(a.sold[id])))
		}
	}
}

// cartAudit is what became of each cart.
type cartAudit struct {
	lines map[string][]string        // that it has
	sold  map[string]map[string]bool // which of them
	until map[string]int64           // until when it is reserved
	late  map[string]bool            // it was, or may have been, paid after that
}

// add takes in an event of a line of a cart.
func (a cartAudit) add(id, line string, e event) {
	if to, ok := a.until[id]; ok && e.Do == "claim" && (e.Return == 0 || e.Return > to) {
		a.late[id] = true
	}
	switch {
	case e.Do == "reserve":
		a.until[id] = e.To
	case e.Do == "try":
		a.lines[id] = append(a.lines[id], line)
	case e.Do == "sold", e.Do == "claim" && e.Out == "ok":
		if a.sold[id] == nil {
			a.sold[id] = map[string]bool{}
		}
		a.sold[id][line] = true
	}
}

// booked claims a unit of a stock with a ledger, returns it or keeps it; or moves entries of the ledger out of the
// process: an entry that was said has been moved, even if its client is killed then.
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
	back, err := s.Return(ctx, stock.Units{Claimant: e.ID, Ordinal: g.Ordinal})
	e.Return, e.Out = now(), reason(err)
	if err == nil && back == 0 {
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

// ledgers: each number is that of one entry, and none is missing; an ordinal is granted once, and returned at most once
// by who has it; what clients were answered is in the ledger, and what is in it is what the server has sold.
func ledgers(h record, v *verdict) {
	entries := map[int64]event{}
	a := ledgerAudit{v: v, whole: h.final != nil, tried: map[string]bool{}, granted: map[int64]string{},
		returned: map[int64]bool{}}
	for _, e := range h.all("try") {
		a.tried[e.ID] = true
	}
	for _, e := range h.all("entry") {
		e.Client = 0
		if other, ok := entries[e.N]; ok && other != e {
			v.wrong("entry %d is %s of %d by %s, and %s of %d by %s", e.N, other.Out, other.V, other.ID, e.Out, e.V, e.ID)
			continue
		}
		entries[e.N] = e
	}
	for i, n := range slices.Sorted(maps.Keys(entries)) {
		if n != int64(i+1) && h.final != nil {
			v.wrong("entry %d is missing", i+1)
			return
		}
		a.add(n, entries[n])
		if h.final != nil && a.has > h.final["limit"] {
			v.wrong("%d units are sold after entry %d, of %d", a.has, n, h.final["limit"])
		}
	}
	if h.final == nil {
		return
	}
	if a.has != h.final["sold"] {
		v.wrong("by the ledger %d are sold, by the server %d", a.has, h.final["sold"])
	}
	for _, e := range h.events {
		switch {
		case e.Do == "claim" && e.Out == "ok" && a.granted[e.V] != e.ID:
			v.wrong("%s was granted unit %d, which by the ledger is %q's", e.ID, e.V, a.granted[e.V])
		case e.Do == "return" && e.Out == "ok" && !a.returned[e.V]:
			v.Forgotten++
		}
	}
}

// ledgerAudit is what the entries of a ledger say, one after the other.
type ledgerAudit struct {
	v        *verdict
	whole    bool // no entry can be missing
	tried    map[string]bool
	granted  map[int64]string
	returned map[int64]bool
	has      int64 // units that are sold
}

// add takes in entry n.
func (a *ledgerAudit) add(n int64, e event) {
	owner, known := a.granted[e.V]
	switch e.Out {
	case string(stock.KindGrant):
		if known {
			a.v.wrong("unit %d was granted to %s and, by entry %d, to %s", e.V, owner, n, e.ID)
		}
		if !a.tried[e.ID] {
			a.v.wrong("unit %d was granted to %s, who did not ask", e.V, e.ID)
		}
		a.granted[e.V] = e.ID
		a.has++
	case string(stock.KindReturn):
		if a.whole && owner != e.ID || a.returned[e.V] {
			a.v.wrong("unit %d, of %q, was returned by %s in entry %d", e.V, owner, e.ID, n)
		}
		a.returned[e.V] = true
		a.has--
	default:
		a.v.wrong("entry %d is of kind %q", n, e.Out)
	}
}
