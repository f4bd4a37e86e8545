package stockmodel

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/oracle/model"
)

// Sizes of the search.
const (
	ids      = 2
	limit    = 2 // units
	holding  = 2 // ticks
	remember = 3
	runs     = 2 // the not-after
	messages = 3
	entries  = 8
	batch    = 2
	movers   = 2
)

// request is one that is under way.
type request struct {
	there bool
	id    int8
	ask   Ask
	runs  int8
	copy  bool
	stale bool // the id was cancelled, or all of it returned, after this was sent
}

// line is an entry of the ledger of one opening.
type line struct {
	epoch, id int8
	Entry
}

// server is what a server has.
type server struct {
	Stock
	r      [ids]Record
	due    [ids]int8 // ticks until a hold ends, or a record that has ended is forgotten
	log    [entries]line
	serial int8 // how many entries there were
	moved  int8 // and how many were removed
	epoch  int8
}

type stage uint8

const (
	rests stage = iota
	has         // it has read
	wrote       // the database, or the server, has it
)

// mover brings the ledger into the database.
type mover struct {
	is    stage
	first int8
	n     int8
	got   [batch]line
}

// heard is what those who act on an id know.
type heard struct {
	sold    int32 // ordinal
	refunds bool  // its payment was answered in vain
	gone    bool  // it was cancelled, or returned
	keeps   int32 // 1 + the fewest units that a return has named
}

// Faults are how often each may happen.
type Faults struct {
	Acts, Doubled, Moves, Failovers, Losses uint8
}

// state is all there is.
type state struct {
	server
	image   server // what the replica has
	kept    bool   // there is an image
	set     bool   // the server was set back, or has lost the stock: answers are not final any more
	stopped bool   // a mover has said so
	heard   [ids]heard
	net     [messages]request
	m       [movers]mover
	db      [entries]Row
	rows    int8
	left    Faults
	full    bool
}

// event is one step.
type event struct {
	what string
	of   int
	ask  Ask
}

func (e event) String() string {
	switch {
	case e.of < 0:
		return e.what
	case e.ask == Ask{Verb: 255}:
		return fmt.Sprintf("%s %d", e.what, e.of)
	}
	verb := [...]string{"reserve", "claim", "confirm", "cancel", "return but", "extend"}[e.ask.Verb]
	return fmt.Sprintf("%s: %s %d of id %d", e.what, verb, e.ask.N, e.of)
}

var noAsk = Ask{Verb: 255}

// Search looks at every state that can be reached without one rule.
func Search(without Rule, f Faults) model.Result {
	start := state{left: f}
	start.Stock, start.epoch = Stock{Limit: limit}, 1
	return model.Search(model.Machine[state, event]{
		Start:  start,
		Follow: func(s *state, emit func(*state, event)) { s.follow(without, emit) },
		Wrong:  func(s *state) string { return s.wrong(without) },
		Show: func(s *state) string {
			return fmt.Sprintf("%d sold, %d held; %+v; ledger %d, %d moved, %d in the database", s.Sold, s.Held, s.r, s.serial,
				s.moved, s.rows)
		},
	})
}

// asks are the requests about each id: the first is reserved, the second claimed.
var asks = [ids][]Ask{
	{{Reserve, limit, false}, {Confirm, 0, false}, {Confirm, 1, false}, {Cancel, 0, false}, {Return, 1, false}},
	{{Claim, 1, false}, {Claim, limit, true}, {Return, 1, false}, {Return, 0, false}},
}

// follow calls emit with each state that can come next.
func (s *state) follow(without Rule, emit func(*state, event)) {
	do := func(what string, of int, ask Ask, f func(n *state)) {
		n := *s
		f(&n)
		if n.tidy(without); !n.full {
			emit(&n, event{what, of, ask})
		}
	}
	if s.left.Acts > 0 {
		for id := range asks {
			for _, ask := range asks[id] {
				do("is sent", id, ask, func(n *state) {
					n.left.Acts--
					n.send(request{there: true, id: int8(id), ask: ask, runs: runs})
				})
			}
		}
	}
	model.Network[state, request]{
		Of:   func(s *state) []request { return s.net[:] },
		Left: func(*state) (lost, late *uint8) { return new(uint8), nil },
		Arrive: func(_ *state, r request) (string, func(*state)) {
			return "runs", func(n *state) { n.run(r, without) }
		},
		Due: func(request) bool { return false },
		Double: func(s *state, r request) func(*state, int) {
			if s.left.Doubled == 0 || r.copy {
				return nil
			}
			return func(n *state, _ int) {
				n.left.Doubled--
				r.copy = true
				n.send(r)
			}
		},
	}.Play(s, func(what string, r request, f func(*state)) { do(what, int(r.id), r.ask, f) })
	for i := range s.m {
		s.ofMover(i, without, func(what string, f func(n *state)) { do(what, i, noAsk, f) })
	}
	if s.left.Failovers > 0 && !s.kept {
		do("the replica has this, and no more", -1, noAsk, func(n *state) { n.image, n.kept = n.server, true })
	}
	if s.kept {
		do("the replica takes the server's place", -1, noAsk, func(n *state) {
			n.left.Failovers--
			n.server, n.image, n.kept, n.set = n.image, server{}, false, true
		})
	}
	if s.left.Losses > 0 {
		do("the stock is lost, and opened again", -1, noAsk, func(n *state) {
			n.left.Losses--
			n.server, n.set = server{Stock: Stock{Limit: limit}, epoch: n.epoch + 1}, true
		})
	}
	do("a tick", -1, noAsk, func(n *state) { n.pass(without) })
}

func (s *state) send(r request) { s.full = !model.Put(s.net[:], r) || s.full }

// number is another one for each other request.
func (r request) number() uint64 {
	return model.Pack(uint64(r.id), uint64(r.ask.Verb), uint64(r.ask.N), uint64(r.runs))<<3 |
		model.Flags(r.copy, r.ask.Part, r.stale)
}

// enter writes entries of the ledger.
func (s *server) enter(id int8, lines []Entry) (full bool) {
	for _, e := range lines {
		if s.serial == entries {
			return true
		}
		s.log[s.serial] = line{s.epoch, id, e}
		s.serial++
	}
	return false
}

// run has the server run a request, and the client hear the answer.
func (s *state) run(r request, without Rule) {
	if r.runs == 0 && without != NotAfter {
		return
	}
	rec, t := &s.r[r.id], &s.heard[r.id]
	was, gone := rec.Is, t.gone
	a, lines := s.Act(rec, r.ask, without)
	if was == None && rec.Is != None && !r.stale { // an id that was forgotten is a new one
		*t = heard{}
	}
	s.full = s.enter(r.id, lines) || s.full
	if rec.Is != was {
		s.due[r.id] = remember
		if rec.Is == Held {
			s.due[r.id] = holding
		}
	}
	switch v := r.ask.Verb; {
	case a.Outcome == Granted && a.Ordinal > 0:
		t.sold = a.Ordinal
	case v == Confirm && a.Outcome == NoUnits:
		t.refunds = true
	case v == Cancel && (rec.Is != was || was == None): // not by one that comes just before its record is forgotten
		t.gone = true
	case v == Return && (rec.Is == Sold || rec.Is == Returned) && a.Outcome == 0:
		if keeps := r.ask.N + 1; t.keeps == 0 || keeps < t.keeps {
			t.keeps = keeps
		}
		t.gone = t.gone || rec.Is == Returned && was == Sold
	}
	for i := range s.net {
		x := &s.net[i]
		x.stale = x.stale || t.gone && !gone && x.there && x.id == r.id
	}
}

// ofMover are the steps of one mover.
func (s *state) ofMover(i int, without Rule, do func(string, func(*state))) {
	m := s.m[i]
	write := func(n *state) {
		if n.m[i].is++; !n.write(m, without) {
			n.m[i], n.stopped = mover{}, true
		}
	}
	remove := func(n *state) {
		n.m[i].is++
		n.remove(m, without)
	}
	first, second, firstly, secondly := write, remove, "writes: mover", "removes: mover"
	if without == CommitFirst {
		first, second, firstly, secondly = remove, write, secondly, firstly
	}
	switch m.is {
	case rests:
		if s.left.Moves == 0 || s.moved == s.serial || s.stopped {
			return
		}
		do("reads: mover", func(n *state) {
			n.left.Moves--
			m := &n.m[i]
			m.is, m.first, m.n = has, n.moved, min(batch, n.serial-n.moved)
			copy(m.got[:], n.log[n.moved:n.moved+m.n])
		})
		return
	case has:
		do(firstly, first)
	case wrote:
		do(secondly, func(n *state) {
			if second(n); n.m[i].is > wrote {
				n.m[i] = mover{}
			}
		})
	}
	do("crashes: mover", func(n *state) { n.m[i] = mover{} })
}

// write brings what was read into the database, in one transaction. false: it refuses it.
func (s *state) write(m mover, without Rule) bool {
	var some [batch]Row
	for i, l := range m.got[:m.n] {
		some[i] = Row{int64(l.epoch), int64(m.first) + int64(i), int64(l.id), l.Entry}
	}
	fresh, ok := Write(s.db[:s.rows], some[:m.n], 1, without)
	for _, r := range fresh {
		if s.rows == entries {
			s.full = true
			break
		}
		s.db[s.rows] = r
		s.rows++
	}
	return ok
}

// remove takes what was read from the server.
func (s *state) remove(m mover, without Rule) {
	last := m.first + m.n
	switch {
	case without == ReadOnly:
		s.moved = s.serial
	case without == Unchanged:
		s.moved = max(s.moved, min(last, s.serial))
	case last <= s.serial && last > s.moved && s.log[last-1] == m.got[m.n-1]:
		s.moved = last
	}
}

// pass has a tick pass.
func (s *state) pass(without Rule) {
	for i := range s.net {
		s.net[i].runs = max(s.net[i].runs-1, 0)
	}
	for id := range s.r {
		switch r := &s.r[id]; {
		case r.Is == None || r.Is == Sold:
			continue
		case s.due[id] > 0:
			s.due[id]--
		case r.Is == Held:
			s.full = s.enter(int8(id), s.Expire(r, without)) || s.full
			s.due[id] = remember
		default:
			*r = Record{}
		}
	}
}

// tidy forgets what does not matter any more, and sorts what has no order.
func (s *state) tidy(without Rule) {
	for i := range s.net {
		if r := &s.net[i]; !r.there || r.runs == 0 && without != NotAfter {
			*r = request{}
		}
	}
	model.Sort(s.net[:], request.number)
	if s.m[1].is > s.m[0].is || s.m[1].is == s.m[0].is && s.m[1].first < s.m[0].first {
		s.m[0], s.m[1] = s.m[1], s.m[0]
	}
	for id := range s.r {
		if is := s.r[id].Is; is == None || is == Sold {
			s.due[id] = 0
		}
	}
}

// What a search finds.
const (
	Numbers = "the numbers of the stock are not those of its records"
	TwoHave = "a unit has two owners"
	Answers = "an answer was not final"
	Lives   = "what was given up has units"
	TooFew  = "fewer units are left than a return has named"
	Ledger  = "the ledger does not say what the records say"
	Lost    = "an entry that was removed is not in the database"
	Twice   = "the database has a number twice"
)

// wrong says what does not hold.
func (s *state) wrong(Rule) string {
	held, sold := int32(0), int32(0)
	var logged [ids]struct {
		held, sold int32
		nothing    bool
	}
	for _, l := range s.log[:s.serial] {
		x := &logged[l.id]
		switch l.Kind {
		case KindHeld:
			x.held += l.N
		case KindExpired, KindCancelled:
			x.held -= l.N
		case KindGrant:
			x.held, x.sold = 0, x.sold+l.N
		case KindLate:
			x.sold += l.N
		case KindReturn:
			x.sold -= l.N
		case KindNothing:
			x.nothing = true
		}
	}
	for id, r := range s.r {
		has := logged[id]
		if r.Is == Held {
			held += r.N
			has.held -= r.N
		}
		if r.Is == Sold {
			sold += r.N
			has.sold -= r.N
		} else if has.sold != 0 && r.Is == None && !s.set {
			return Ledger // only what is sold is never forgotten
		}
		if has.held != 0 || has.sold != 0 || (r.Is == Void || r.Is == Forbidden) && !has.nothing {
			return Ledger
		}
	}
	if held != s.Held || sold != s.Sold || s.Held < 0 || s.Sold < 0 || s.Held+s.Sold > s.Limit {
		return Numbers
	}
	for i, r := range s.db[:s.rows] {
		for _, o := range s.db[:i] {
			if o.Serial == r.Serial && o.Epoch == r.Epoch {
				return Twice
			}
		}
	}
	for i, l := range s.log[:s.moved] {
		found := false
		for _, r := range s.db[:s.rows] {
			found = found || r == Row{int64(l.epoch), int64(i), int64(l.id), l.Entry}
		}
		if !found {
			return Lost
		}
	}
	if s.set {
		return ""
	}
	a, b := s.heard[0].sold, s.heard[1].sold
	if a > 0 && a == b {
		return TwoHave
	}
	for id, r := range s.r {
		t := s.heard[id]
		switch {
		case t.refunds && r.Is == Sold:
			return Answers
		case t.gone && (r.Is == Held || r.Is == Sold):
			return Lives
		case t.keeps > 1 && (r.Is == Returned || r.Is == Sold && r.N < t.keeps-1):
			return TooFew
		}
	}
	return ""
}
