// Package salemodel is what a sale does, as a table and nothing else: the reference for the scripts of package
// rcounter/stock.
package salemodel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Line is a line of an order: so many units of an item were asked for, and so many it has. Orders of Anyone have a line
// for each range that is still sold.
type Line struct {
	Item              string
	Asked, N, Ordinal int64
}

// Order is an order that the sale knows. State is a letter: R reserved, L lapsed, S sold; C cancelled, E expired, G
// returned, F forbidden. EndedAt is when it lapsed or was closed, in ms.
type Order struct {
	State    byte
	Deadline int64
	User     string
	Lines    []Line
	EndedAt  int64
}

// Item is one item.
type Item struct{ Limit, PerUser, Sold, Reserved, Seq int64 }

// The phases of a sale but for its times.
const (
	Open = iota
	Over
	Paused
)

// Sale is a sale. All times are ms of the server.
type Sale struct {
	Now, Start, End, Remember int64
	Phase                     int
	Items                     map[string]*Item
	Orders                    map[string]*Order
}

// Outcome is what an act is answered; Answered: the order as it is.
type Outcome string

// Outcomes.
const (
	Answered   Outcome = "answered"
	SoldOut    Outcome = "sold out"
	UserLimit  Outcome = "user limit"
	Ended      Outcome = "ended"
	NotStarted Outcome = "not started"
	IsPaused   Outcome = "paused"
	Mismatch   Outcome = "mismatch"
	NoItem     Outcome = "no such item"
)

// Act is one act on an order. Lines are those wanted, paid or kept; nil for all that were reserved, or none.
type Act struct {
	Verb     string // buy, reserve, extend, pay, cancel, return, part, status
	ID, User string
	Lines    []Line
	UpTo     bool
	MS       int64
	First, N int64 // of a part
}

// Text is the order as the server keeps it.
func (o *Order) Text(id string) string {
	if o.State == 'S' && id == o.User && len(o.Lines) == 1 && o.Lines[0].Item == "" && o.Lines[0].Asked == 1 &&
		o.Lines[0].N == 1 {
		return strconv.FormatInt(o.Lines[0].Ordinal, 10)
	}
	var lines []string
	for _, l := range o.Lines {
		lines = append(lines, fmt.Sprintf("%s,%d,%d,%d", l.Item, l.Asked, l.N, l.Ordinal))
	}
	deadline := ""
	if o.State == 'R' {
		deadline = strconv.FormatInt(o.Deadline, 10)
	}
	return string(o.State) + deadline + ";" + strings.Join(lines, "|") + ";" + o.User
}

func (m *Sale) close(o *Order, state byte) { o.State, o.Deadline, o.EndedAt = state, 0, m.Now }

func (m *Sale) unreserve(o *Order) {
	for _, l := range o.Lines {
		m.Items[l.Item].Reserved -= l.N
	}
}

// Tick ends what is over by now, and forgets what was kept long enough.
func (m *Sale) Tick() {
	for id, o := range m.Orders {
		if strings.IndexByte("LCEGF", o.State) >= 0 && m.Now > o.EndedAt+m.Remember {
			delete(m.Orders, id)
		}
	}
	for _, o := range m.Orders {
		if o.State == 'R' && m.Now > o.Deadline {
			m.unreserve(o)
			m.close(o, 'L')
		}
	}
}

// Has is how many units of an item a user has by orders; but: by those of other ids than its name.
func (m *Sale) Has(user, item string, but bool) (n int64) {
	for id, o := range m.Orders {
		if o.User != user || o.State != 'R' && o.State != 'S' || but && id == user {
			continue
		}
		for _, l := range o.Lines {
			if l.Item == item {
				n += l.N
			}
		}
	}
	return n
}

func (m *Sale) refusal() Outcome {
	switch {
	case m.Phase == Over || m.Now >= m.End:
		return Ended
	case m.Phase == Paused:
		return IsPaused
	case m.Now < m.Start:
		return NotStarted
	}
	return ""
}

// unitsFor is how many units of each line there are.
func (m *Sale) unitsFor(user string, wants []Line, part bool) (units []int64, why Outcome) {
	sum, why, refused := int64(0), SoldOut, false
	for _, w := range wants {
		item := m.Items[w.Item]
		if item == nil {
			return nil, NoItem
		}
		left, allowed := item.Limit-item.Sold-item.Reserved, int64(1<<53)
		if user != "" {
			allowed = max(0, item.PerUser-m.Has(user, w.Item, false))
		}
		n := min(w.Asked, left, allowed)
		if n < w.Asked && !refused {
			why = UserLimit
			if left < w.Asked && left <= allowed {
				why = SoldOut
			}
			refused = !part
		}
		units, sum = append(units, n), sum+n
	}
	if refused || sum == 0 {
		return nil, why
	}
	return units, ""
}

func (m *Sale) sell(l *Line, n int64) {
	item := m.Items[l.Item]
	l.N, l.Ordinal = n, 0
	if n > 0 {
		l.Ordinal = item.Seq + 1
	}
	item.Sold, item.Seq = item.Sold+n, item.Seq+n
}

func amount(lines []Line, item string) (n int64) {
	for _, l := range lines {
		if l.Item == item {
			n += l.Asked
		}
	}
	return n
}

// Do does an act.
func (m *Sale) Do(a Act) Outcome {
	o := m.Orders[a.ID]
	switch a.Verb {
	case "buy", "reserve":
		return m.create(o, a)
	case "extend":
		if o != nil && o.State == 'R' {
			o.Deadline = max(o.Deadline, m.Now+a.MS)
		}
	case "pay":
		return m.pay(o, a)
	case "return":
		m.giveBack(o, a)
	case "part":
		m.givePartBack(o, a)
	case "cancel":
		m.cancel(o, a)
	}
	return Answered
}

func (m *Sale) create(o *Order, a Act) Outcome {
	if o != nil {
		if o.State == 'F' {
			return Answered
		}
		if o.User != a.User || !slices.EqualFunc(o.Lines, a.Lines, func(a, b Line) bool {
			return a.Item == b.Item && a.Asked == b.Asked
		}) {
			return Mismatch
		}
		return Answered
	}
	if why := m.refusal(); why != "" {
		return why
	}
	n, why := m.unitsFor(a.User, a.Lines, a.UpTo)
	if n == nil {
		return why
	}
	o = &Order{State: 'S', User: a.User, Lines: slices.Clone(a.Lines)}
	for i := range o.Lines {
		if a.Verb == "buy" {
			m.sell(&o.Lines[i], n[i])
			continue
		}
		o.State, o.Deadline, o.Lines[i].N = 'R', m.Now+a.MS, n[i]
		m.Items[o.Lines[i].Item].Reserved += n[i]
	}
	m.Orders[a.ID] = o
	return Answered
}

func (m *Sale) forbid(id string) { m.Orders[id] = &Order{State: 'F', EndedAt: m.Now} }

func (m *Sale) pay(o *Order, a Act) Outcome {
	if o == nil {
		m.forbid(a.ID)
		return Answered
	}
	if o.State != 'R' && o.State != 'L' {
		return Answered
	}
	why := m.refusal()
	if o.State == 'L' && why != "" && why != Ended {
		return why
	}
	paid, sum := slices.Clone(o.Lines), int64(0)
	for i, l := range o.Lines {
		paid[i].Asked = l.N
		if a.Lines != nil {
			paid[i].Asked = min(l.N, amount(a.Lines, l.Item))
		}
		sum += paid[i].Asked
	}
	if sum == 0 {
		return Mismatch
	}
	if o.State == 'R' {
		m.unreserve(o)
		for i := range o.Lines {
			m.sell(&o.Lines[i], paid[i].Asked)
		}
		o.State, o.Deadline = 'S', 0
		return Answered
	}
	var n []int64
	if why == "" {
		n, _ = m.unitsFor(o.User, paid, true)
	}
	if n == nil {
		m.close(o, 'E')
		return Answered
	}
	for i := range o.Lines {
		m.sell(&o.Lines[i], n[i])
	}
	o.State = 'S'
	return Answered
}

func (m *Sale) cancel(o *Order, a Act) {
	switch {
	case o == nil:
		m.forbid(a.ID)
	case o.State == 'R':
		m.unreserve(o)
		m.close(o, 'C')
	case o.State == 'L':
		m.close(o, 'C')
	}
}

// takeBack takes units of a line back, from an ordinal on.
func (m *Sale) takeBack(o *Order, i int, first, n int64) {
	l := &o.Lines[i]
	rest := l.Ordinal + l.N - first - n
	m.Items[l.Item].Sold -= n
	l.N = first - l.Ordinal
	if rest > 0 {
		o.Lines = append(o.Lines, Line{Item: l.Item, N: rest, Ordinal: first + n})
	}
	for _, l := range o.Lines {
		if l.N > 0 {
			return
		}
	}
	m.close(o, 'G')
}

func (m *Sale) giveBack(o *Order, a Act) {
	if o == nil || o.State != 'S' {
		if a.Lines == nil {
			m.cancel(o, a)
		}
		return
	}
	for i := range o.Lines {
		l := o.Lines[i]
		if keep := min(l.N, amount(a.Lines, l.Item)); keep < l.N {
			m.takeBack(o, i, l.Ordinal+keep, l.N-keep)
		}
	}
}

func (m *Sale) givePartBack(o *Order, a Act) {
	if o == nil {
		m.forbid(a.ID)
		return
	}
	for i := range slices.Clone(o.Lines) {
		l := o.Lines[i]
		first, end := max(a.First, l.Ordinal), min(a.First+a.N, l.Ordinal+l.N)
		if o.State == 'S' && first < end {
			m.takeBack(o, i, first, end-first)
		}
	}
}

// Table is what the server has of the orders: their records, and the counts of users by orders of other ids.
func (m *Sale) Table() map[string]string {
	table := map[string]string{}
	for id, o := range m.Orders {
		table[id] = o.Text(id)
		if o.User == "" {
			continue
		}
		for name := range m.Items {
			if n := m.Has(o.User, name, true); n > 0 {
				table["\x00"+name+","+o.User] = strconv.FormatInt(n, 10)
			}
		}
	}
	return table
}
