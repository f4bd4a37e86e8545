package salemodel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// closedAs are the letters of orders that are closed, by Entry.Why.
var closedAs = map[string]byte{stock.Cancelled: 'C', stock.Expired: 'E', stock.Returned: 'G', stock.Forbidden: 'F'}

// Fold is what the entries of a ledger, all of them, make of a sale of these items. An entry that the sale cannot have
// after the others is an error: a gap in the serials, an ordinal given twice, more units than there are.
func Fold(entries []stock.Entry, items map[string]*Item) (*Sale, error) {
	m := &Sale{Items: items, Orders: map[string]*Order{}}
	for i, e := range entries {
		if e.Serial != int64(i)+1 {
			return nil, fmt.Errorf("entry %d comes after entry %d", e.Serial, i)
		}
		if err := m.enter(e); err != nil {
			return nil, fmt.Errorf("%w: entry %+v", err, e)
		}
	}
	return m, nil
}

func (m *Sale) enter(e stock.Entry) error {
	m.Now = e.At.UnixMilli()
	o, isNew := m.Orders[e.ID], e.Kind == "reserved" || e.Kind == "sold" || e.Kind == "void" && e.Why == stock.Forbidden
	switch {
	case isNew && (o == nil || o.EndedAt > 0):
		o = &Order{User: e.User}
		m.Orders[e.ID] = o
	case o == nil:
		return fmt.Errorf("no order %q", e.ID)
	}
	if e.Kind == "void" {
		m.close(o, closedAs[e.Why])
		return nil
	}
	if e.Kind == "extended" {
		o.Deadline = e.Until.UnixMilli()
		return nil
	}
	item := m.Items[e.Item]
	if item == nil {
		return fmt.Errorf("no item %q", e.Item)
	}
	if isNew {
		o.Lines = append(o.Lines, Line{Item: e.Item, Asked: e.Asked})
	}
	if e.Kind == "returned" && !o.has(e) {
		return errors.New("it has no such units")
	}
	m.enterUnits(o, item, e)
	if item.Sold < 0 || item.Reserved < 0 || item.Sold+item.Reserved > item.Limit {
		return fmt.Errorf("%d sold, %d reserved of %d", item.Sold, item.Reserved, item.Limit)
	}
	if ordinal := item.Seq - e.N + 1; e.N > 0 && strings.Contains("sold paid late", e.Kind) && e.Ordinal != ordinal {
		return fmt.Errorf("%d is the next ordinal", ordinal)
	}
	return nil
}

// has reports whether units of an entry are sold.
func (o *Order) has(e stock.Entry) bool {
	return slices.ContainsFunc(o.Lines, func(l Line) bool {
		return o.State == 'S' && l.Item == e.Item && e.Ordinal >= l.Ordinal && e.Ordinal+e.N <= l.Ordinal+l.N
	})
}

// enterUnits does what an entry tells of the units of one line.
func (m *Sale) enterUnits(o *Order, item *Item, e stock.Entry) {
	at := 0
	for at < len(o.Lines)-1 && (o.Lines[at].Item != e.Item || e.Kind == "returned" &&
		(e.Ordinal < o.Lines[at].Ordinal || e.Ordinal >= o.Lines[at].Ordinal+o.Lines[at].N)) {
		at++
	}
	l := &o.Lines[at]
	switch e.Kind {
	case "reserved":
		o.State, o.Deadline, l.N = 'R', e.Until.UnixMilli(), e.N
		item.Reserved += e.N
	case "lapsed", "cancelled":
		item.Reserved -= e.N
		m.close(o, strings.ToUpper(e.Kind)[0])
	case "unpaid":
		item.Reserved, l.N = item.Reserved-e.N, l.N-e.N
	case "paid", "late", "sold":
		if e.Kind == "paid" {
			item.Reserved -= e.N
		}
		for i := range o.Lines {
			if o.State == 'L' {
				o.Lines[i].N = 0
			}
		}
		m.sell(l, e.N)
		o.State, o.Deadline, o.EndedAt = 'S', 0, 0
	case "returned":
		m.takeBack(o, at, e.Ordinal, e.N)
	}
}

// Clone is a sale that goes on by itself.
func (m *Sale) Clone() *Sale {
	other := *m
	other.Items, other.Orders = map[string]*Item{}, map[string]*Order{}
	for name, item := range m.Items {
		i := *item
		other.Items[name] = &i
	}
	for id, o := range m.Orders {
		copied := *o
		copied.Lines = append([]Line(nil), o.Lines...)
		other.Orders[id] = &copied
	}
	return &other
}

// Record is the order id as the server keeps it; "": the sale knows none.
func (m *Sale) Record(id string) string {
	if o := m.Orders[id]; o != nil {
		return o.Text(id)
	}
	return ""
}
