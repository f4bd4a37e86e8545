package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

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
