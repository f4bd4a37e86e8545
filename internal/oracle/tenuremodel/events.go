package tenuremodel

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/oracle/model"
)

// event is one step.
type event struct {
	what    string
	process int // -1: none
	m       message
}

func (e event) String() string {
	switch {
	case e.m.kind != noMessage:
		text := fmt.Sprintf("%s: %v of %v", e.what, e.m.kind, e.m.own)
		if e.m.next != 0 {
			text += fmt.Sprintf(", which names %v", e.m.next)
		}
		switch e.m.kind {
		case askReply, releaseReply:
			text += ": " + [...]string{"", "granted", "queued", "too late"}[e.m.outcome]
		}
		return text
	case e.process < 0:
		return e.what
	}
	return fmt.Sprintf("%c: %s", 'A'+e.process, e.what)
}

func (o owner) String() string {
	if o == 0 {
		return "no caller"
	}
	return fmt.Sprintf("%c%d", 'a'+o.process(), (int(o)-1)%perOwner+1)
}

// alarm is what a process has to do before time goes on.
type alarm string

const (
	quiet        alarm = ""
	noReply      alarm = "no reply, the request is given up"
	poll         alarm = "it polls"
	deadline     alarm = "the deadline"
	releaseAgain alarm = "the release is sent again"
)

// due is what a tenure of a process has to do before time goes on.
func (w *world) due(s *state, p *process, t *tenure) alarm {
	switch t.is {
	case asking, leaving:
		switch {
		case s.flying(ask, t.own) >= 2:
		case t.asked > callTime:
			return noReply
		case t.asked == 0 && t.idle > 0 && p.waiting > 0:
			return poll
		}
	case held:
		if t.trust == 0 {
			return deadline
		}
	case releasing, pending:
		switch {
		case s.flying(release, t.own) >= 2:
		case t.asked > callTime, t.is == pending && t.asked == 0 && (t.runs == 0 || t.runs == 1 && !w.on(wholeMillisecond)):
			return releaseAgain
		}
	}
	return quiet
}

// ring does what is due.
func (w *world) ring(s *state, pi int, t *tenure, a alarm) {
	switch a {
	case noReply:
		w.giveUp(s, t)
		if t.is == leaving {
			w.giveBack(s, t)
		} else {
			w.request(s, t)
		}
	case poll:
		w.request(s, t)
	case deadline:
		w.lose(s, pi, t)
	case releaseAgain:
		for i := range s.net {
			if m := &s.net[i]; m.own == t.own && (m.kind == release || m.kind == releaseReply) {
				m.notes &^= live
				m.must = 0
			}
		}
		w.sendRelease(s, t, 0, false)
	}
	w.startNext(s, pi)
}

// follow calls emit with each state that can follow s.
func (w *world) follow(s *state, emit func(n *state, e event)) {
	do := func(e event, f func(n *state)) {
		n := *s
		f(&n)
		w.tidy(&n)
		emit(&n, e)
	}
	for pi := range s.proc {
		w.ofProcess(s, pi, do)
	}
	w.network().Play(s, func(what string, m message, f func(*state)) { do(event{what, -1, m}, f) })
	if s.left.Flushes > 0 {
		do(event{"FLUSHALL", -1, message{}}, func(n *state) {
			n.left.Flushes--
			n.flushed = 1
			n.forget()
			n.queue = [places]owner{}
			n.pardon()
		})
	}
	w.ofTime(s, do)
}

// pardon has no release be held to what it finds.
func (s *state) pardon() {
	for i := range s.net {
		s.net[i].must = 0
	}
}

type doing = func(e event, f func(n *state))

// ofProcess are the events of one process.
func (w *world) ofProcess(s *state, pi int, do doing) {
	p := &s.proc[pi]
	at := func(what string) event { return event{what, pi, message{}} }
	switch {
	case p.paused:
		do(at("wakes"), func(n *state) {
			n.proc[pi].paused, n.proc[pi].asleep = false, false
			w.startNext(n, pi)
		})
		return
	case !p.busy():
	default:
		w.strike(s, pi, do)
	}
	if !s.room(2) {
		return
	}
	if p.arrivals > 0 {
		do(at("a caller comes"), func(n *state) { w.arrive(n, pi) })
	}
	if h := p.head(); p.waiting > 0 {
		asks := h != nil && h.is == asking && h.has(attended)
		if asks {
			do(at("the caller that asks gives up"), func(n *state) { w.leave(n, pi, true) })
		}
		if !asks || p.waiting > 1 {
			do(at("a caller gives up"), func(n *state) { w.leave(n, pi, false) })
		}
	}
	for ti := range p.tenures {
		w.ofTenure(s, pi, ti, do)
	}
}

// strike are the things that happen to a process which has something.
func (w *world) strike(s *state, pi int, do doing) {
	if s.left.Pauses > 0 {
		do(event{"is paused", pi, message{}}, func(n *state) {
			n.left.Pauses--
			n.proc[pi].paused = true
		})
	}
	if s.left.Sleeps > 0 {
		do(event{"sleeps, and its clock stands still", pi, message{}}, func(n *state) {
			n.left.Sleeps--
			n.proc[pi].paused, n.proc[pi].asleep = true, true
		})
	}
}

// busy reports whether a process has anything.
func (p *process) busy() bool {
	for i := range p.tenures {
		if p.tenures[i].is != nothing {
			return true
		}
	}
	return false
}

// ofTenure are the events of one tenure: its caller's, and those of its timers.
func (w *world) ofTenure(s *state, pi, ti int, do doing) {
	p := &s.proc[pi]
	t := &p.tenures[ti]
	at := func(what string, f func(n *state, t *tenure)) {
		do(event{what, pi, message{}}, func(n *state) { f(n, &n.proc[pi].tenures[ti]) })
	}
	switch {
	case t.is == held && t.caller == given:
		at("a turn begins", func(n *state, t *tenure) { w.takeTurn(n, pi, t) })
		at("a caller leaves that was given its turn", func(n *state, t *tenure) { w.leaveTurn(n, pi, t) })
	case t.caller == inside, t.caller == stopped:
		at("Unlock", func(n *state, t *tenure) { w.unlock(n, pi, t) })
	}
	if t.is == held && t.caller == inside && s.left.PassedOn > 0 && !t.has(known) {
		at("the owner is passed on", func(n *state, t *tenure) {
			n.left.PassedOn--
			t.mark(known|barred, true)
		})
	}
	if t.has(memory) && t.is == held {
		at("a context of an earlier turn enters", func(n *state, _ *tenure) { n.found = EndedContextEnters })
	}
	if a := w.due(s, p, t); a != quiet {
		at("a timer: "+string(a), func(n *state, t *tenure) { w.ring(n, pi, t, a) })
	}
}

// network plays what is under way.
func (w *world) network() model.Network[state, message] {
	return model.Network[state, message]{
		Of:   func(s *state) []message { return s.net[:] },
		Left: func(s *state) (lost, late *uint8) { return &s.left.Lost, nil },
		Arrive: func(s *state, m message) (string, func(*state)) {
			switch {
			case m.kind.request() && s.room(2):
				return "the server runs", func(n *state) { w.run(n, m) }
			case !m.kind.request() && !s.proc[m.own.process()].paused && s.room(1):
				return "arrives", func(n *state) { w.hear(n, m.own.process(), m) }
			}
			return "", nil
		},
		Due: func(message) bool { return false }, // see ofTime
		Double: func(s *state, m message) func(*state, int) {
			if s.left.Doubled == 0 || !m.kind.request() || m.notes&copied != 0 || !s.room(1) {
				return nil
			}
			return func(n *state, i int) {
				n.left.Doubled--
				n.net[i].must, m.must = 0, 0
				m.notes = m.notes&^live | copied
				w.send(n, m)
			}
		},
	}
}

func (k kind) request() bool { return k == ask || k == release }

// ofTime is the next tick, before which everything is done that is due, and what is under way arrives unless it may be
// late.
func (w *world) ofTime(s *state, do doing) {
	late := false
	for _, m := range s.net {
		late = late || m.kind != noMessage && (m.kind.request() || !s.proc[m.own.process()].paused)
	}
	for pi := range s.proc { // a caller that is slow to run
		h := s.proc[pi].head()
		late = late || h != nil && h.caller == given && !s.proc[pi].paused
	}
	if late && s.left.Late == 0 {
		return
	}
	for pi := range s.proc {
		p := &s.proc[pi]
		for ti := range p.tenures {
			if !p.paused && w.due(s, p, &p.tenures[ti]) != quiet {
				return
			}
		}
	}
	do(event{"a tick", -1, message{}}, func(n *state) {
		if late {
			n.left.Late--
		}
		n.pass()
	})
}
