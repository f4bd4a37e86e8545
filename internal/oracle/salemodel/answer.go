package salemodel

import "github.com/redlatch/redlatch/rcounter/stock"

var states = map[byte]stock.Answer{'R': {State: stock.Reserved}, 'S': {State: stock.Sold}, 'L': {State: stock.Lapsed},
	'C': {State: stock.Closed, Why: stock.Cancelled}, 'E': {State: stock.Closed, Why: stock.Expired},
	'G': {State: stock.Closed, Why: stock.Returned}, 'F': {State: stock.Closed, Why: stock.Forbidden}}

// Answer is the order id as the library answers it, but for times.
func (m *Sale) Answer(id string) stock.Answer {
	o := m.Orders[id]
	if o == nil {
		return stock.Answer{ID: id}
	}
	a := states[o.State]
	a.ID, a.User = id, o.User
	for _, l := range o.Lines {
		if a.State != stock.Closed {
			a.Lines = append(a.Lines, stock.Line{Item: l.Item, N: l.N, Ordinal: l.Ordinal})
		}
	}
	return a
}
