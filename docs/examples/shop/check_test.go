package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// honest is a sale of 3 units: two sold, one returned, one paid too late, one cancelled.
func honest() evidence {
	paid := func(order string, back bool) charge {
		return charge{paymentForm: paymentForm{Payment: paymentID(order), Order: order, Cents: 500}, Refunded: back}
	}
	return evidence{
		limit: 3, cents: 500, most: 3, peak: 3,
		stock: level{Left: 1, Sold: 2},
		receipts: []receipt{
			{User: "ann", Order: "a", State: sold, Unit: 1, Paid: true},
			{User: "bob", Order: "b", State: sold, Unit: 3, Paid: true, Late: true, Greed: refusedGreed},
			{User: "cid", Order: "c", State: returned},
			{User: "dan", Order: "d", State: refunded},
			{User: "eve", Order: "e", State: cancelled},
			{User: "fay", Order: "f", State: soldOut},
		},
		orders: []orderRow{
			{"a", "ann", sold, 1, false}, {"b", "bob", sold, 3, true}, {"c", "cid", returned, 2, false},
			{"d", "dan", expired, 0, false},
			{"e", "eve", cancelled, 0, false}, {"a-again", "ann", expired, 0, false},
		},
		charges: []charge{paid("a", false), paid("b", false), paid("c", true), paid("d", true)},
	}
}

func TestAnHonestSaleAddsUp(t *testing.T) {
	require.True(t, sound(reconcile(honest())), "%v", reconcile(honest()))
}

func TestWhatDoesNotAddUpIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(e *evidence)
		found []string // names of the findings
		says  string
	}{
		"a row is missing": {func(e *evidence) {
			e.orders = e.orders[1:]
		}, []string{"sold = database"}, `a was answered "sold", and is "not" in the database`},
		"a row too many": {func(e *evidence) {
			e.orders[4].State = sold
		}, []string{"sold = database"}, `e was answered "cancelled", and is "sold" in the database`},
		"a row of no customer": {func(e *evidence) {
			e.orders[5].State = returned
		}, []string{"sold = database"}, `a-again is "returned" in the database, and no customer has a receipt for it`},
		"another unit": {func(e *evidence) {
			e.orders[0].Unit = 2
		}, []string{"sold = database"}, "a has a receipt for unit 1 of ann, the database says 2 of ann"},
		"another user": {func(e *evidence) {
			e.orders[0].User = "gus"
		}, []string{"sold = database"}, "a has a receipt for unit 1 of ann, the database says 1 of gus"},
		"a receipt too many": {func(e *evidence) {
			e.receipts[4].State = sold
		}, []string{"receipts = sold", "sold = database", "money = units"},
			"3 customers have a receipt for a unit, and the stock has sold 2"},
		"the stock sold one more": {func(e *evidence) {
			e.stock = level{Sold: 3}
		}, []string{"receipts = sold", "sold = database", "money = units"},
			"2 units in the database, and the stock has sold 3"},
		"more than the limit": {func(e *evidence) {
			e.most = 4
		}, []string{"never above the limit"}, "4 units were out at one time, and there are 3"},
		"more than that, in between": {func(e *evidence) {
			e.peak = 4
		}, []string{"never above the limit"}, "4 units were out at one time, and there are 3"},
		"a unit is nowhere": {func(e *evidence) {
			e.stock.Left = 0
		}, []string{"never above the limit"}, "0 left, 0 held and 2 sold are not 3"},
		"a customer twice": {func(e *evidence) {
			e.orders[1].User = "ann"
			e.receipts[1].User = "ann"
		}, []string{"no customer twice"}, "ann has the units 1 and 3"},
		"a unit twice": {func(e *evidence) {
			e.orders[1].Unit = 1
			e.receipts[1].Unit = 1
		}, []string{"no customer twice"}, "unit 1 is of ann and of bob"},
		"a second unit": {func(e *evidence) {
			e.receipts[0].Greed = "has two"
		}, []string{"no customer twice"}, "ann has two"},
		"money is kept": {func(e *evidence) {
			e.charges[3].Refunded = false
		}, []string{"money = units"}, `d was answered "refunded", and its money was kept`},
		"money is lost": {func(e *evidence) {
			e.charges[0].Refunded = true
		}, []string{"money = units"}, "a has unit 1, and its money was not kept"},
		"half the price": {func(e *evidence) {
			e.charges[0].Cents = 250
		}, []string{"money = units"}, "7.50 were kept for 2 units of 5.00"},
		"no answer": {func(e *evidence) {
			e.receipts[5].Err = "gone"
		}, []string{"every customer answered"}, "f has no answer: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			e := honest()
			c.plant(&e)
			var names, faults []string
			for _, f := range reconcile(e) {
				if len(f.Faults) > 0 {
					names = append(names, f.Name)
				}
				faults = slices.Concat(faults, f.Faults)
			}
			require.Equal(t, c.found, names, "%v", faults)
			require.Contains(t, faults, c.says)
		})
	}
}
