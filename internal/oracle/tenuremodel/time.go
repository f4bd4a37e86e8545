package tenuremodel

import "github.com/redlatch/redlatch/internal/oracle/model"

// pass has one tick pass.
func (s *state) pass() {
	switch {
	case s.holder == 0:
	case s.lease == 1:
		s.holder, s.lease, s.waited = 0, 0, 0
	default:
		s.lease--
		if s.contended(s.holder) {
			s.waited = min(s.waited+1, starved)
		}
	}
	if s.flushed > 0 {
		s.flushed = min(s.flushed+1, tenureTime+2)
	}
	for i := range s.net {
		if m := &s.net[i]; m.kind != noMessage && m.kind != grant {
			m.age, m.runs, m.must = min(m.age+1, trustTime), less(m.runs), less(m.must)
		}
	}
	for i := range s.proc {
		for j := range s.proc[i].tenures {
			t := &s.proc[i].tenures[j]
			if t.is == nothing {
				continue
			}
			if !s.proc[i].asleep {
				t.age = min(t.age+1, tenureTime+1)
			}
			t.trust, t.runs = less(t.trust), less(t.runs)
			t.idle, t.since = min(t.idle+1, 1), min(t.since+1, trustTime)
			if t.asked > 0 {
				t.asked = min(t.asked+1, callTime+2)
			}
		}
	}
}

// tidy forgets what cannot matter any more, and sorts what has no order, so that fewer states differ.
func (w *world) tidy(s *state) {
	for i := range s.net {
		m := &s.net[i]
		if m.kind == noMessage {
			continue
		}
		t := s.of(m.own)
		switch m.kind {
		case ask:
			if m.runs == 0 && m.notes&live == 0 && w.on(notAfter) {
				*m = message{}
			}
		case release:
			if m.next == 0 {
				m.runs, m.age = 0, 0
			}
		case askReply, grant:
			if t == nil {
				*m = message{}
			}
		case releaseReply:
			if m.notes&liveNext == 0 || s.of(m.next) == nil {
				m.next, m.outcome, m.ticket, m.age, m.notes = 0, 0, 0, 0, m.notes&^(liveNext|others)
				if t == nil || m.notes&live == 0 {
					*m = message{}
				}
			}
		}
		if m.kind == askReply || m.kind == releaseReply {
			m.runs, m.must = 0, 0
		}
	}
	for i := range s.proc {
		p := &s.proc[i]
		for j := range p.tenures {
			p.tenures[j].tidy()
		}
		for a := 1; a < slots; a++ {
			for b := a; b > 0 && p.tenures[b].own < p.tenures[b-1].own; b-- {
				p.tenures[b], p.tenures[b-1] = p.tenures[b-1], p.tenures[b]
			}
		}
	}
	for o, used := range s.owners() {
		if used {
			continue
		}
		if s.tickets[o] = 0; s.twice == owner(o) {
			s.twice = 0
		}
	}
	model.Sort(s.net[:], message.number)
}

// tidy forgets what a tenure of its condition does not need.
func (t *tenure) tidy() {
	switch t.is {
	case held, ended:
		t.ticket, t.grant, t.since, t.idle, t.asked = 0, 0, 0, 0, 0
	case releasing, pending:
		t.ticket, t.grant, t.since, t.idle, t.trust, t.age, t.turns, t.allowed = 0, 0, 0, 0, 0, 0, 0, 0
		t.marks &= again
	case asking:
		t.trust, t.age, t.turns, t.allowed = 0, 0, 0, 0
		if t.ticket == 0 {
			t.since = 0
		}
		if t.asked > 0 {
			t.idle = 0
		}
	case leaving:
		t.trust, t.age, t.turns, t.allowed, t.ticket, t.grant, t.since, t.idle, t.marks = 0, 0, 0, 0, 0, 0, 0, 0, 0
	}
}

// number is another one for each other message.
func (m message) number() uint64 {
	return uint64(m.own)<<46 | uint64(m.next)<<40 | uint64(m.notes)<<32 |
		model.Pack(uint8(m.kind), uint8(m.outcome), m.ticket, m.runs, m.age, m.must)
}
