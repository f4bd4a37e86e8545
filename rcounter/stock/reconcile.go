package stock

import (
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
)

// totals is what a stock has once its records are reconciled.
type totals struct {
	sold, held, top int64
	// free is how many units the server still counts as sold though no claimant has them any more.
	free      int64
	deadlines []string         // of what is held: id, deadline …
	counts    map[string]int64 // 'u:' and a claimant -> units by requests and reservations
}

// reconcile takes every unit from a holder that, by the winners, does not have it, and adds up the rest.
func (r *restorer) reconcile() (totals, error) {
	bad := func(name string) error {
		return fmt.Errorf("%w: %q has a record of %.64q that is none", errs.ErrCorrupt, r.s.keys[0], name)
	}
	t := totals{counts: map[string]int64{}}
	if len(r.owned) > 0 {
		t.top = r.owned[len(r.owned)-1].last
	}
	for claimant, text := range r.users.is {
		if !r.reconcileUser(&t, claimant, text) {
			return totals{}, bad(claimant)
		}
	}
	for field, text := range r.records.is {
		ok := false
		switch {
		case strings.HasPrefix(field, "u:"):
			t.counts[field] += 0
			ok = true
		case strings.HasPrefix(field, "r:"):
			ok = r.reconcileRequest(&t, field, text)
		case strings.HasPrefix(field, "a:"):
			ok = r.reconcileAny(&t, field, text)
		}
		if !ok || t.sold > maxLimit || t.held > maxLimit {
			return totals{}, bad(field)
		}
	}
	for field, n := range t.counts {
		if text := decimal(n); r.records.is[field] != text {
			r.records.put(field, text)
		}
	}
	return t, nil
}

// reconcileUser reconciles a unit of Claim. Like the two below it reports whether the text is a record.
func (r *restorer) reconcileUser(t *totals, claimant, text string) bool {
	head, _, ok := strings.Cut(text, ";")
	ordinal := number(head)
	if !ok || ordinal < 0 {
		return false
	}
	if ordinal == 0 {
		t.free += r.freedAs("u"+claimant, text)
		return true
	}
	taken, unowned := false, int64(0)
	for o := range r.others("u"+claimant, span{ordinal, ordinal}) {
		taken = true
		unowned += o.unowned(ordinal, ordinal)
	}
	if taken {
		r.displace(Entry{Ordinal: ordinal, N: 1, Claimant: claimant})
		past := ordinal
		if w, has := r.wins["u"+claimant]; has { // it was returned here, and the record goes on saying so: see leave
			past = w.spans[0].first
		}
		text := fmt.Sprintf("0;%s;%d;%s", byRestore, past, byRestore)
		r.users.put(claimant, text)
		t.free += r.frees("u"+claimant, text, unowned)
		return true
	}
	t.sold++
	t.top = max(t.top, ordinal)
	return true
}

// reconcileRequest reconciles units of a request or of a reservation.
func (r *restorer) reconcileRequest(t *totals, field, text string) bool {
	q, ok := parseRecord(text)
	if !ok {
		return false
	}
	units := q.units()
	unowned, keeps := int64(0), units.n() // how many units from the front no one else has
	if q.state == "G" {
		for o := range r.others(field, units) {
			keeps = max(0, min(keeps, o.first-units.first))
			if o.holder != "" {
				keeps = 0
			}
			unowned += o.unowned(units.first, units.last)
		}
	}
	switch {
	case keeps == units.n():
		t.free += r.freedAs(field, text)
	case keeps > 0 && keeps+unowned == units.n(): // a failover forgot a Return of a part
		r.displace(Entry{Ordinal: q.ordinal + keeps, N: unowned, Claimant: q.claimant, Request: field[2:]})
		q.n, q.by = keeps, fmt.Sprintf("%s.%d.%d", byRestore, unowned, units.n())
		r.records.put(field, q.text())
		t.free += r.frees(field, q.text(), unowned)
	default:
		r.displace(Entry{Ordinal: q.ordinal, N: q.n, Claimant: q.claimant, Request: field[2:]})
		q.state, q.by = "R", byRestore
		r.records.put(field, q.text())
		t.free += r.frees(field, q.text(), unowned)
	}
	units = q.units()
	switch q.state {
	case "G":
		t.sold += q.n
		t.top = max(t.top, units.last)
		t.counts["u:"+q.claimant] += q.n
	case "H":
		t.held += q.n
		t.counts["u:"+q.claimant] += q.n
		t.deadlines = append(t.deadlines, field[2:], decimal(q.deadline))
	}
	return true
}

// reconcileAny reconciles units of ClaimAny.
func (r *restorer) reconcileAny(t *totals, field, text string) bool {
	a, ok := parseAny(text)
	if !ok || a.n == 0 {
		return ok
	}
	left := a.units().minus(a.returned)
	var lost []span
	unowned := int64(0)
	for _, s := range left {
		for o := range r.others(field, s) {
			unowned += o.unowned(s.first, s.last)
			o := span{max(o.first, s.first), min(o.last, s.last)}
			r.displace(Entry{Ordinal: o.first, N: o.n(), Request: field[2:]})
			text += fmt.Sprintf(";%d.%d.%s", o.first, o.n(), byRestore)
			lost = append(lost, o)
		}
	}
	if lost != nil {
		r.records.put(field, text)
		t.free += r.frees(field, text, unowned)
	} else {
		t.free += r.freedAs(field, text)
	}
	for _, s := range left {
		for _, s := range s.minus(lost) {
			t.sold += s.n()
		}
	}
	t.top = max(t.top, a.units().last)
	return true
}

// unowned is how many of the units first to last are in o, if o was returned.
func (o owned) unowned(first, last int64) int64 {
	if o.holder != "" {
		return 0
	}
	return min(o.last, last) - max(o.first, first) + 1
}

// frees notes that the record text takes n units from holder and frees them. It returns n.
func (r *restorer) frees(holder, text string, n int64) int64 {
	r.freed[holder] = freed{text, n}
	return n
}

// freedAs is how many units an earlier round has taken from holder, if text is that round's record. If it is not, a
// return has come since, and the server does not count the units any more.
func (r *restorer) freedAs(holder, text string) int64 {
	if f := r.freed[holder]; f.text == text {
		return f.n
	}
	return 0
}

func (r *restorer) displace(e Entry) {
	r.displaced[fmt.Sprintf("%d;%s;%s", e.Ordinal, e.Claimant, e.Request)] = e
}
