package salesearch

import "fmt"

// book is a database that has the ledger.
type book struct {
	rows  [entries + 1]entry
	n     int8
	takes int8 // the opening whose entries it takes
}

// move writes entries, or refuses them.
func (b *book) move(list []entry, without Rule) bool {
	next := *b
	for _, e := range list {
		switch follows := e.serial == next.n+1; {
		case e.serial > next.n+1, follows && e.epoch != next.takes && without != Openings:
			return false
		case follows || without == Once:
			next.rows[next.n] = e
			next.n++
		case next.rows[e.serial-1] != e && without != Compares:
			return false
		}
	}
	*b = next
	return true
}

// hasUnits reports whether the book has units of an order.
func (b *book) hasUnits(id int8) bool {
	m := fold(b.rows[:b.n])
	return m != nil && record(m, id).is == 'S'
}

// process is a mover of the ledger, or a Restore. A mover takes at most 2 entries at once.
type process struct {
	step                int8
	n                   int8
	read                [2]entry
	round, before       int8
	from, last, drained int8
}

// job are the steps of a process. A step that returns false is the last.
type job []struct {
	name string
	do   func(s *state, p *process, without Rule) bool
}

var (
	moves   = job{{"a mover reads", read}, {"a mover writes", write}, {"a mover removes", remove}}
	removes = job{moves[0], moves[2], moves[1]}
	restore = job{{"begins", begin}, {"suspends", suspend}, {"drains", drain}, {"has the book continue", proceed},
		{"puts", put}, {"resumes", resume}}
)

func (s *state) ofProcess(i int, without Rule, step func(string, func(*state))) {
	p, does, name := s.processes[i], moves, ""
	switch {
	case i >= movers:
		does, name = restore, fmt.Sprintf("Restore %d ", i-movers+1)
	case without == CommitFirst:
		does = removes
	}
	step(name+does[p.step].name, func(n *state) {
		p := &n.processes[i]
		if p.step++; !does[p.step-1].do(n, p, without) || int(p.step) == len(does) {
			*p = process{}
		}
	})
	if p.step > 0 {
		step(name+"crashes", func(n *state) { n.processes[i] = process{} })
	}
	if p.round > 0 && p.step > 1 && s.left.Doubled > 0 {
		step(name+"suspends, a copy", func(n *state) {
			n.left.Doubled--
			if suspend(n, &p, without) && !s.suspended && !s.setBack {
				n.found = Stopped
			}
		})
	}
}

func read(s *state, p *process, _ Rule) bool {
	if s.left.Moves == 0 || s.moved == s.serial || s.suspended {
		return false
	}
	s.left.Moves--
	p.n = int8(copy(p.read[:], s.log[s.moved:s.serial]))
	return true
}

func write(s *state, p *process, without Rule) bool { return s.book.move(p.read[:p.n], without) }

func remove(s *state, p *process, without Rule) bool {
	last := p.read[p.n-1]
	switch isThere := last.serial > s.moved && last.serial <= s.serial; {
	case without == ReadOnly:
		s.moved = s.serial
	case isThere && (without == Unchanged || s.log[last.serial-1] == last):
		s.moved = last.serial
	}
	return true
}

func begin(s *state, p *process, _ Rule) bool {
	if s.left.Restores == 0 {
		return false
	}
	s.left.Restores--
	s.rounds++
	p.round, p.before, p.from = s.rounds, s.round, s.book.takes
	return true
}

func suspend(s *state, p *process, without Rule) bool {
	if s.round == p.round || s.round != p.before && without != Before {
		return false
	}
	s.suspended, s.round, s.put = true, p.round, 0
	return true
}

// drain hands the stream to the book. What the book refuses is reported as lost.
func drain(s *state, p *process, without Rule) bool {
	if without != Drains {
		s.book.move(s.log[s.moved:s.serial], without)
		p.drained = s.serial
	}
	return true
}

// proceed is Continue of the book.
func proceed(s *state, p *process, without Rule) bool {
	if s.book.takes != p.from && without != FromOpening {
		return false
	}
	s.setBack = s.setBack || p.round > s.round // a failover has forgotten its suspend
	s.book.takes, p.last = p.round+1, s.book.n
	return true
}

func put(s *state, p *process, without Rule) bool {
	if s.round != p.round && without != Rounds {
		return false
	}
	s.put = p.last + 1
	return true
}

func resume(s *state, p *process, without Rule) bool {
	if s.round != p.round && without != Rounds || s.put != p.last+1 {
		return false
	}
	for at := p.drained; at < s.serial; at++ {
		if s.book.rows[at] != s.log[at] {
			s.found = Lost
		}
	}
	m := fold(s.book.rows[:p.last])
	s.server = server{item: *m.Items[""], serial: p.last, moved: p.last, epoch: p.round + 1, round: s.round}
	copy(s.log[:], s.book.rows[:p.last])
	s.setBack = s.setBack && s.book.takes != s.epoch
	for i := range s.orders {
		s.orders[i] = record(m, int8(i))
	}
	return true
}
