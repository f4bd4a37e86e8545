package main

import (
	"cmp"
	"fmt"
	"slices"
)

// evidence is all that is known at the end, from five sides that do not ask each other.
type evidence struct {
	limit, cents int64
	receipts     []receipt  // the customers' last answers
	stock        level      // what the stock counts
	orders       []orderRow // the order database
	charges      []charge   // the bank's books
	most         int64      // the most units that were sold and held at one time, as seen during the sale
	peak         int64      // the same, by the ledger
}

// finding is one comparison.
type finding struct {
	Name   string   `json:"name"`
	Proof  string   `json:"proof"`  // what was compared
	Faults []string `json:"faults"` // none: it holds
}

// reconcile compares the sides with each other. All is well if no finding has faults.
func reconcile(e evidence) []finding {
	return []finding{checkLimit(e), checkAnswers(e), checkSold(e), checkDatabase(e), checkUsers(e), checkMoney(e)}
}

// fault adds one.
func (f *finding) fault(format string, args ...any) {
	f.Faults = append(f.Faults, fmt.Sprintf(format, args...))
}

func checkLimit(e evidence) finding {
	f := finding{Name: "never above the limit",
		Proof: fmt.Sprintf("at most %d of %d sold and held, after every entry of the ledger", max(e.most, e.peak), e.limit)}
	if most := max(e.most, e.peak); most > e.limit {
		f.fault("%d units were out at one time, and there are %d", most, e.limit)
	}
	if sum := e.stock.Left + e.stock.Held + e.stock.Sold; sum != e.limit {
		f.fault("%d left, %d held and %d sold are not %d", e.stock.Left, e.stock.Held, e.stock.Sold, e.limit)
	}
	return f
}

func checkAnswers(e evidence) finding {
	f := finding{Name: "every customer answered", Proof: fmt.Sprintf("%d receipts", len(e.receipts))}
	for _, r := range e.receipts {
		if r.Err != "" {
			f.fault("%s has no answer: %s", r.Order, r.Err)
		}
	}
	return f
}

func checkSold(e evidence) finding {
	f := finding{Name: "receipts = sold"}
	n := int64(0)
	for _, r := range e.receipts {
		if r.State == sold {
			n++
		}
	}
	f.Proof = fmt.Sprintf("%d customers with a unit, %d sold by the stock", n, e.stock.Sold)
	if n != e.stock.Sold {
		f.fault("%d customers have a receipt for a unit, and the stock has sold %d", n, e.stock.Sold)
	}
	return f
}

// recorded are the states that the database may have of an order, by the customer's last answer. The stock closes
// an order that found nothing left without an event, and so it stays expired there.
var recorded = map[state][]state{
	sold: {sold}, returned: {returned}, cancelled: {cancelled, expired}, refunded: {cancelled, expired}, held: {expired},
	expired: {expired},
	// a copy of the request came late, and held a unit for a time
	soldOut: {"", expired}, closed: {"", expired}, tooMany: {""},
}

func checkDatabase(e evidence) finding {
	f := finding{Name: "sold = database"}
	rows, units := map[string]orderRow{}, int64(0)
	for _, o := range e.orders {
		rows[o.Order] = o
		if o.State == sold {
			units++
		}
	}
	f.Proof = fmt.Sprintf("%d orders in the database, each as its customer says; %d are sold", len(e.orders), units)
	for _, r := range e.receipts {
		o, ok := rows[r.Order]
		delete(rows, r.Order)
		switch {
		case r.Err != "":
		case !slices.Contains(recorded[r.State], o.State):
			f.fault("%s was answered %q, and is %q in the database", r.Order, r.State, cmp.Or(o.State, "not"))
		case r.State == sold && o.Unit != r.Unit, ok && o.User != r.User:
			f.fault("%s has a receipt for unit %d of %s, the database says %d of %s", r.Order, r.Unit, r.User, o.Unit, o.User)
		}
	}
	for _, o := range rows {
		if o.State != expired {
			f.fault("%s is %q in the database, and no customer has a receipt for it", o.Order, o.State)
		}
	}
	if units != e.stock.Sold {
		f.fault("%d units in the database, and the stock has sold %d", units, e.stock.Sold)
	}
	slices.Sort(f.Faults)
	return f
}

func checkUsers(e evidence) finding {
	f := finding{Name: "no customer twice"}
	has, owner, greedy := map[string]int64{}, map[int64]string{}, 0
	for _, u := range e.orders {
		if u.State != sold {
			continue
		}
		if other, ok := has[u.User]; ok {
			f.fault("%s has the units %d and %d", u.User, other, u.Unit)
		}
		if other, ok := owner[u.Unit]; ok {
			f.fault("unit %d is of %s and of %s", u.Unit, other, u.User)
		}
		has[u.User], owner[u.Unit] = u.Unit, u.User
	}
	for _, r := range e.receipts {
		switch r.Greed {
		case "":
		case refusedGreed:
			greedy++
		default:
			f.fault("%s %s", r.User, r.Greed)
		}
	}
	f.Proof = fmt.Sprintf("%d users, %d units, %d tried to get a second one", len(has), len(owner), greedy)
	return f
}

func checkMoney(e evidence) finding {
	f := finding{Name: "money = units"}
	paid, back, kept := int64(0), int64(0), map[string]bool{}
	for _, c := range e.charges {
		paid += c.Cents
		if c.Refunded {
			back += c.Cents
			continue
		}
		kept[c.Order] = true
	}
	f.Proof = fmt.Sprintf("%s paid - %s paid back = %s = %d × %s", money(paid), money(back), money(paid-back),
		e.stock.Sold, money(e.cents))
	if paid-back != e.stock.Sold*e.cents {
		f.fault("%s were kept for %d units of %s", money(paid-back), e.stock.Sold, money(e.cents))
	}
	for _, r := range e.receipts {
		switch has := kept[r.Order]; {
		case has && r.State != sold:
			f.fault("%s was answered %q, and its money was kept", r.Order, cmp.Or(r.State, "nothing"))
		case !has && r.State == sold:
			f.fault("%s has unit %d, and its money was not kept", r.Order, r.Unit)
		case has != r.Paid && r.Err == "":
			f.fault("%s: bank and receipt differ on whether it is paid", r.Order)
		}
	}
	return f
}

// sound reports whether nothing was found.
func sound(all []finding) bool {
	return !slices.ContainsFunc(all, func(f finding) bool { return len(f.Faults) > 0 })
}

// money writes cents as an amount.
func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
