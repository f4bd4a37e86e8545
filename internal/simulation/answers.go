package simulation

import (
	"errors"
	"strings"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// about is what an answer says of its id.
type about string

const (
	unheard   about = ""          // it says nothing
	none      about = "none"      // there is no such id
	refused   about = "refused"   // it has nothing yet
	isHeld    about = "held"      //
	isSold    about = "sold"      //
	expired   about = "expired"   //
	cancelled about = "cancelled" // for good
	returned  about = "returned"  // for good
)

func (e *entry) says() about {
	switch {
	case e.done.IsZero():
		return unheard
	case errors.Is(e.err, stock.ErrNotFound):
		return none
	case e.err != nil:
		return unheard
	case e.what == cancel && e.back > 0:
		return cancelled
	case e.what == back && e.back > 0 && e.n == 0:
		return returned
	}
	switch e.grant.Outcome {
	case stock.Granted, stock.Replayed:
		if e.grant.Ordinal == 0 {
			return isHeld
		}
		return isSold
	case stock.Expired:
		return expired
	case stock.Cancelled:
		return cancelled
	case stock.Returned:
		return returned
	case "":
		if e.what == look {
			return none
		}
		return unheard
	}
	return refused
}

// pays reports whether e is a payment, whose answer is final.
func (e *entry) pays() bool { return e.what == confirm || e.what == part }

// auditAnswers: of two answers about one id, of which one was there before the other was asked for, the later one says
// what can have become of the earlier.
func (w *world) auditAnswers(o *object, list []*entry) {
	of := map[string][]*entry{}
	for _, e := range list {
		of[e.key] = append(of[e.key], e)
	}
	type unit struct {
		stock   string
		ordinal int64
	}
	owner := map[unit]string{}
	for _, key := range keysOf(list) {
		w.auditCounts(o, key, of[key])
		for i, b := range of[key] {
			for _, a := range of[key][:i] {
				if a.done.Before(b.began) {
					w.auditPair(o, of[key], a, b)
				}
			}
			if b.says() != isSold {
				continue
			}
			name, _, _ := strings.Cut(key, "/")
			if o.kind.name == "sale" {
				name = ""
			}
			for k := range b.grant.N {
				u := unit{name, b.grant.Ordinal + k}
				if was, ok := owner[u]; ok && was != key {
					w.violated("%s: step %d: ordinal %d is %s's and %s's", o.name, b.step, u.ordinal, was, key)
				}
				owner[u] = key
			}
		}
	}
}

// auditPair judges b, which was asked for after a was answered. all are the calls about their id.
func (w *world) auditPair(o *object, all []*entry, a, b *entry) {
	before, after := a.says(), b.says()
	if before == unheard || after == unheard {
		return
	}
	may := func(verb what) bool { // it may have been done between the two
		for _, e := range all {
			if e.what == verb && e.began.Before(b.done) && (e.done.IsZero() || e.err != nil || !e.done.Before(a.began)) {
				return true
			}
		}
		return false
	}
	right := true
	switch before {
	case isSold:
		right = after == isSold && b.grant.Ordinal == a.grant.Ordinal && b.grant.N <= a.grant.N &&
			(b.grant.N == a.grant.N || may(back)) ||
			after == returned && may(back)
	case isHeld:
		// a clock that steps ends it sooner
		inTime := after == expired && b.done.Before(a.grant.Until) && len(w.of(w.nodes[0])) == 0
		right = after != none && (after != refused || b.pays()) && !inTime && !(after == cancelled && !may(cancel)) &&
			b.grant.N <= a.grant.N
	case expired:
		right = after == expired ||
			!a.pays() && ((after == isSold || after == refused && b.pays()) && (may(confirm) || may(part)) ||
				after == returned && (may(confirm) || may(part)) && may(back))
	case cancelled, returned:
		right = after == before
	}
	if !right {
		w.violated("%s: %s was answered %v (%s, %d units from %d) at step %d, and %v (%s, %d units from %d) at step %d",
			o.name, b.key,
			before, a.what, a.grant.N, a.grant.Ordinal, a.step, after, b.what, b.grant.N, b.grant.Ordinal, b.step)
	}
}

// auditCounts: what is done once is answered once, and what an id has, and has not, is what it asked for.
func (w *world) auditCounts(o *object, key string, all []*entry) {
	var asked, had, gave, cancels, sells, holds int64
	for _, e := range all {
		if e.what == reserve || e.what == order {
			asked = e.n
		}
	}
	for _, e := range all {
		if e.err != nil || e.done.IsZero() {
			continue
		}
		switch says := e.says(); {
		case e.what == cancel:
			cancels += e.back
		case e.what == back && e.n == 0:
			if e.back > 0 { // of how many units, it does not say
				gave++
			}
		case e.what == back:
			gave += e.back
		case says == isSold || says == isHeld:
			had = max(had, e.grant.N)
			switch {
			case e.grant.Outcome != stock.Granted:
			case e.what == reserve: // its second run may find its reservation sold by another
				holds++
			case says == isSold:
				sells++
			}
			all := e.grant.N + e.grant.Missing // of a payment, of those that were held or paid for
			if e.what == part && all != max(e.n, e.grant.N) ||
				asked > 0 && (all > asked || all < asked && !e.pays() && e.what != extend) {
				w.violated("%s: step %d: %s of %s has %d units and misses %d of %d", o.name, e.step, e.what, key, e.grant.N,
					e.grant.Missing, asked)
			}
			if e.what == part && e.grant.Outcome == stock.Granted && e.grant.N > e.n {
				w.violated("%s: step %d: %d units of %s are confirmed, and %d sold", o.name, e.step, e.n, key, e.grant.N)
			}
		}
	}
	if cancels > 1 || sells > 1 || holds > 1 || had > 0 && gave > had {
		w.violated("%s: %s was answered %d times that it holds by that call, %d times that it is sold, %d times that it is "+
			"cancelled; %d of %d units came back",
			o.name, key, holds, sells, cancels, gave, had)
	}
}
