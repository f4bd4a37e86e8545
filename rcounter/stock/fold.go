package stock

import (
	"strings"
	"time"
)

// fold is what a ledger's entries make of a sale.
type fold struct {
	orders map[string]*foldedOrder
	items  map[string]*itemStand // Sold, Reserved and Seq
}

// foldedOrder is an order as the server has it: see parse in sale.lua. ended is when it lapsed or was closed, server
// ms; 0: it is not.
type foldedOrder struct {
	state    byte
	deadline int64
	lines    []foldedLine
	user     string
	ended    int64
}

type foldedLine struct {
	Line
	asked int64
}

func newFold() *fold { return &fold{orders: map[string]*foldedOrder{}, items: map[string]*itemStand{}} }

// serverMS is an instant of the server's clock, as the server has it.
func serverMS(t time.Time) int64 { return t.Sub(time.Unix(0, 0)).Milliseconds() }

// closedAs are the letters of records by Entry.Why.
var closedAs = map[string]byte{Cancelled: 'C', Expired: 'E', Returned: 'G', Forbidden: 'F'}

// add adds the next entry.
func (f *fold) add(e Entry) {
	o, at := f.orders[e.ID], serverMS(e.At)
	isNew := e.Kind == "reserved" || e.Kind == "sold" || e.Kind == "void" && e.Why == Forbidden
	if o == nil || isNew && o.ended > 0 { // an id that was forgotten is a new one
		o = &foldedOrder{state: 'S', user: e.User}
		f.orders[e.ID] = o
	}
	switch e.Kind {
	case "extended":
		o.deadline = serverMS(e.Until)
		return
	case "void":
		o.state, o.deadline, o.ended = closedAs[e.Why], 0, at
		return
	}
	item := f.item(e.Item)
	l := o.line(e)
	switch e.Kind {
	case "reserved":
		o.state, o.deadline, l.N = 'R', serverMS(e.Until), e.N
		item.Reserved += e.N
	case "lapsed", "cancelled":
		o.state, o.deadline, o.ended = strings.ToUpper(e.Kind)[0], 0, at // L, C
		item.Reserved -= e.N
	case "unpaid":
		l.N -= e.N
		item.Reserved -= e.N
	case "paid":
		item.Reserved -= e.N
		o.sell(l, item, e)
	case "late":
		if o.state == 'L' {
			for i := range o.lines {
				o.lines[i].N = 0
			}
		}
		o.sell(l, item, e)
	case "sold":
		o.sell(l, item, e)
	case "returned":
		item.Sold -= e.N
		o.takeBack(e)
		if o.isEmpty() {
			o.state, o.ended = 'G', at
		}
	}
}

func (f *fold) item(name string) *itemStand {
	item := f.items[name]
	if item == nil {
		item = &itemStand{}
		f.items[name] = item
	}
	return item
}

// line is the line of an entry, made if it is the first of its item.
func (o *foldedOrder) line(e Entry) *foldedLine {
	for i := range o.lines {
		if o.lines[i].Item == e.Item {
			return &o.lines[i]
		}
	}
	o.lines = append(o.lines, foldedLine{Line{Item: e.Item}, e.Asked})
	return &o.lines[len(o.lines)-1]
}

func (o *foldedOrder) sell(l *foldedLine, item *itemStand, e Entry) {
	o.state, o.deadline, o.ended = 'S', 0, 0
	l.N, l.Ordinal = e.N, e.Ordinal
	item.Sold, item.Seq = item.Sold+e.N, max(item.Seq, e.Ordinal+e.N-1)
}

// takeBack takes the units of an entry out of the line that has them.
func (o *foldedOrder) takeBack(e Entry) {
	for i := range o.lines {
		l := &o.lines[i]
		if l.Item != e.Item || e.Ordinal < l.Ordinal || e.Ordinal+e.N > l.Ordinal+l.N {
			continue
		}
		rest := l.Ordinal + l.N - e.Ordinal - e.N
		l.N = e.Ordinal - l.Ordinal
		if rest > 0 {
			o.lines = append(o.lines, foldedLine{Line{e.Item, rest, e.Ordinal + e.N}, 0})
		}
		return
	}
}

func (o *foldedOrder) isEmpty() bool {
	for _, l := range o.lines {
		if l.N > 0 {
			return false
		}
	}
	return true
}

// text is the record as the scripts write it: see written in sale.lua.
func (o *foldedOrder) text(id string) string {
	if o.state == 'S' && id == o.user && len(o.lines) == 1 {
		if l := o.lines[0]; l.Item == "" && l.asked == 1 && l.N == 1 {
			return decimal(l.Ordinal)
		}
	}
	text := []byte{o.state}
	if o.state == 'R' {
		text = append(text, decimal(o.deadline)...)
	}
	text = append(text, ';')
	for i, l := range o.lines {
		if i > 0 {
			text = append(text, '|')
		}
		for j, field := range []string{l.Item, decimal(l.asked), decimal(l.N), decimal(l.Ordinal)} {
			if j > 0 {
				text = append(text, ',')
			}
			text = append(text, field...)
		}
	}
	return string(append(append(text, ';'), o.user...))
}
