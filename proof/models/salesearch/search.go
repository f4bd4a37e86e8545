// Package salesearch searches a sale, its ledger, movers of the ledger, and Restore: every order of events. The server
// answers as salemodel.Sale, and ledgers are folded by salemodel.Fold. proof/models/README.md has the sizes.
package salesearch

import (
	"fmt"

	"github.com/redlatch/redlatch/proof/models/model"
)

// Rule is one thing that the library does.
type Rule string

func (r Rule) String() string { return string(r) }

// The rules.
const (
	Whole       Rule = "" // nothing is left out
	RecordFirst Rule = "looks for a record first"
	Final       Rule = "decides a late payment once"
	Forbids     Rule = "closes what it does not know"
	AsksBook    Rule = "asks the book about what it does not know"
	SeqGrows    Rule = "gives an ordinal once"
	NotAfter    Rule = "refuses what is late"
	Enters      Rule = "enters the end of a reservation"
	Once        Rule = "writes a serial once"
	CommitFirst Rule = "writes, and then removes"
	ReadOnly    Rule = "removes what it has read"
	Unchanged   Rule = "removes what has not changed"
	Compares    Rule = "compares what the book has"
	Openings    Rule = "tells openings apart"
	Suspends    Rule = "suspends the sale for Restore"
	Drains      Rule = "drains the ledger first"
	Rounds      Rule = "refuses the steps of a round before"
	Before      Rule = "suspends from a named round"
	FromOpening Rule = "continues from a named opening"
)

// What a search finds.
const (
	Unlike   = "the records and numbers are not the fold of the ledger"
	Undone   = "an answer was not final"
	Again    = "a copy has made an order again that had ended"
	Refunded = "an order of which the book has units is answered Closed"
	Lost     = "an entry that was removed is not in the book"
	Twice    = "the book has a serial twice"
	Apart    = "the book has other entries than the sale, or takes others"
	Stopped  = "a copy of suspend has stopped the sale"
)

const movers = 2

// request is an act about an order.
type request struct {
	id, act    int8
	isUnderWay bool
	isTooLate  bool // the record of its order was forgotten meanwhile
}

// Faults are how often each may happen.
type Faults struct{ Acts, Doubled, Moves, Restores, Failovers uint8 }

type state struct {
	server
	image     server // what the replica has
	setBack   bool   // by a failover, and no Restore has run since
	copied    request
	book      book
	processes [movers + 2]process
	rounds    int8
	left      Faults
	full      bool
	found     string // by a step
}

type event string

func (e event) String() string { return string(e) }

// Search looks at every state that can be reached without one rule.
func Search(without Rule, f Faults) model.Result {
	start := state{server: server{item: opened, epoch: 1}, book: book{takes: 1}, left: f}
	return model.Search(model.Machine[state, event]{
		Start:  start,
		Follow: func(s *state, emit func(*state, event)) { s.follow(without, emit) },
		Wrong:  (*state).wrong,
		Show: func(s *state) string {
			return fmt.Sprintf("%v; ledger %d, %d moved, %d in the book", s.orders, s.serial, s.moved, s.book.n)
		},
	})
}

func (s *state) follow(without Rule, emit func(*state, event)) {
	step := func(what string, f func(n *state)) {
		n := *s
		if f(&n); !n.full {
			emit(&n, event(what))
		}
	}
	for i := range ids {
		s.ofOrder(int8(i), without, step)
	}
	for i := range s.processes {
		s.ofProcess(i, without, step)
	}
	if s.copied.isUnderWay && (!s.copied.isTooLate || without == NotAfter) {
		step("a copy of "+s.copied.String(), func(n *state) {
			n.copied = request{}
			n.run(s.copied, without)
		})
	}
	switch {
	case s.left.Failovers == 0:
	case s.image.epoch == 0:
		step("the replica has this, and no more", func(n *state) { n.image = n.server })
	default:
		step("a failover to the replica", func(n *state) {
			n.left.Failovers--
			n.server, n.image, n.setBack = n.image, server{}, true
		})
	}
}

func (r request) String() string { return acts[r.id][r.act].Verb + " " + ids[r.id] }

// ofOrder are the requests about an order, and the ends of its reservation and of its record.
func (s *state) ofOrder(id int8, without Rule, step func(string, func(*state))) {
	for i := range acts[id] {
		r := request{id: id, act: int8(i)}
		act := func(n *state) {
			n.left.Acts--
			n.run(r, without)
		}
		if s.left.Acts > 0 {
			step(r.String(), act)
		}
		if s.left.Acts > 0 && s.left.Doubled > 0 {
			step(r.String()+", and a copy is under way", func(n *state) {
				n.left.Doubled--
				n.copied = request{id: id, act: int8(i), isUnderWay: true}
				act(n)
			})
		}
	}
	if is := s.orders[id].is; s.suspended || is == 0 || is == 'S' {
		return
	}
	step("time is over for "+ids[id], func(n *state) {
		m := n.sale()
		o := m.Orders[ids[id]]
		o.Deadline, o.EndedAt = -1, -1-remember
		m.Tick()
		n.full = n.change(m, id, without) || n.full
		if n.orders[id].is == 0 && n.copied.isUnderWay && n.copied.id == id {
			n.copied.isTooLate = true
		}
	})
}

// run has the server do what was asked for, and the caller hear the answer.
func (s *state) run(r request, without Rule) {
	a, was := acts[r.id][r.act], s.orders[r.id]
	a.ID, a.MS = ids[r.id], 1
	closes := was.is == 0 && r.act > 0 && (a.Verb != "return" || a.Lines == nil)
	bookHas := closes && s.book.hasUnits(r.id)
	if s.suspended && without != Suspends || bookHas && without != AsksBook {
		return
	}
	sale := s.sale()
	do(sale, a, without)
	s.full = s.change(sale, r.id, without) || s.full
	switch is := s.orders[r.id]; {
	case bookHas:
		s.found = Refunded
	case r.isTooLate && is != was:
		s.found = Again
	case closes && is.is != 'F', was.isClosed() && is != was, was.is == 'S' && is.is != 'S' && is.is != 'G':
		s.found = Undone
	}
}

// wrong says what does not hold.
func (s *state) wrong() string {
	if s.found != "" {
		return s.found
	}
	if !s.setBack && !s.suspended && s.book.takes != s.epoch {
		return Apart
	}
	for i, e := range s.book.rows[:s.book.n] {
		if int(e.serial) != i+1 {
			return Twice
		}
		if !s.setBack && !s.suspended && (int8(i) >= s.serial || s.log[i] != e) {
			return Apart
		}
	}
	for i, e := range s.log[:s.moved] {
		if s.book.rows[i] != e {
			return Lost
		}
	}
	if !s.isFold() {
		return Unlike
	}
	return ""
}
