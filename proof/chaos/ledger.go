package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/oracle/salemodel"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// sellOrders makes an order in a sale with a ledger, and pays, cancels or returns it, or leaves it; or moves entries of
// the ledger out of the process: an entry that was said has been moved, even if its client is killed then.
func sellOrders(ctx context.Context, c *client, rnd *rand.Rand) {
	s, id := c.red[0].Sales().Sale("ledger"), c.next()
	if rnd.IntN(4) == 0 {
		e := event{Of: "ledger", Do: "move", Call: now()}
		_, err := s.Ledger(ctx, 20, mover(c.say))
		e.Return, e.Out = now(), reason(err)
		c.say(e)
		return
	}
	c.try(event{Of: "ledger", ID: id})
	act := func(do string, verb func() (stock.Answer, error)) bool {
		e := event{Of: "ledger", Do: do, ID: id, Call: now()}
		a, err := verb()
		e.Return, e.Out = now(), answerOf(a, err)
		if a.State == stock.Sold {
			e.V = a.Lines[0].Ordinal
		}
		c.say(e)
		return a.Won()
	}
	bought := rnd.IntN(3) == 0
	if !act("order", func() (stock.Answer, error) {
		if bought {
			return s.Buy(ctx, stock.Order{ID: id})
		}
		return s.Reserve(ctx, stock.Order{ID: id}, lease)
	}) {
		return
	}
	rest(ctx, time.Duration(rnd.IntN(150))*time.Millisecond)
	if rnd.IntN(8) == 0 {
		rest(ctx, lease) // it lapses, and is paid late
	}
	switch x := rnd.IntN(4); {
	case x == 0: // left to its end
	case x == 1:
		act("cancel", func() (stock.Answer, error) { return s.Cancel(ctx, id) })
	case bought || act("pay", func() (stock.Answer, error) { return s.Pay(ctx, id) }) && rnd.IntN(3) == 0:
		act("return", func() (stock.Answer, error) { return s.Return(ctx, id) })
	}
	if c.Soak { // so that it is not sold out for the rest of the time
		act("return", func() (stock.Answer, error) { return s.Return(ctx, id) })
	}
}

// answerOf is what an order was answered: its state, why it was refused, or the reason of an error.
func answerOf(a stock.Answer, err error) string {
	switch {
	case err != nil:
		return reason(err)
	case a.State == stock.Refused:
		return a.Why
	}
	return string(a.State)
}

// mover says entries.
func mover(say func(event)) func(ctx context.Context, entries []stock.Entry) error {
	return func(_ context.Context, entries []stock.Entry) error {
		for _, e := range entries {
			say(event{Of: "ledger", Do: "entry", ID: e.ID, Entry: &e})
		}
		return nil
	}
}

// moveAll moves what is left.
func moveAll(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error) {
	for {
		n, err := red.Sales().Sale("ledger").Ledger(ctx, 1000, mover(say))
		if err != nil {
			return nil, goneSale(err)
		}
		if n == 0 {
			return sold(ctx, red, "ledger")
		}
	}
}

// ledgers: each number is that of one entry. In the model of a sale the entries have no hole, no unit twice and none
// too many, and come to what the server has sold, and to each decision that a client was answered.
func ledgers(h record, v *verdict) {
	tried, seen := map[string]bool{}, map[int64]stock.Entry{}
	for _, e := range h.all("try") {
		tried[e.ID] = true
	}
	var entries []stock.Entry
	for _, e := range h.all("entry") {
		if other, ok := seen[e.Entry.Serial]; ok && other != *e.Entry {
			v.wrong("entry %d is %+v and %+v", e.Entry.Serial, other, *e.Entry)
		} else if !ok {
			entries = append(entries, *e.Entry)
		}
		seen[e.Entry.Serial] = *e.Entry
		if !tried[e.ID] {
			v.wrong("entry %+v is of an order that nobody made", *e.Entry)
		}
	}
	if h.final == nil {
		return
	}
	slices.SortFunc(entries, func(a, b stock.Entry) int { return int(a.Serial - b.Serial) })
	m, err := salemodel.Fold(entries, map[string]*salemodel.Item{"": {Limit: h.final["limit"]}})
	if err != nil {
		v.wrong("the ledger: %v", err)
		return
	}
	if n := m.Items[""].Sold; n != h.final["sold"] {
		v.wrong("by the ledger %d are sold, by the server %d", n, h.final["sold"])
	}
	for _, e := range h.events {
		is := m.Orders[e.ID]
		if e.Out == string(stock.Sold) && (is == nil || len(is.Lines) == 0 || is.Lines[0].Ordinal != e.V) ||
			e.Out == string(stock.Closed) && m.Answer(e.ID).State != stock.Closed {
			v.wrong("%s was answered %s, unit %d, and by the ledger is %q", e.ID, e.Out, e.V, m.Record(e.ID))
		}
	}
}
