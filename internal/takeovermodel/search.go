package takeovermodel

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/model"
)

// event is one step.
type event struct {
	what string
	m    message
}

func (e event) String() string {
	switch {
	case e.m.kind == none:
		return e.what
	case e.m.own == 0:
		return fmt.Sprintf("%s: %v", e.what, e.m.kind)
	}
	return fmt.Sprintf("%s: %v of %d", e.what, e.m.kind, e.m.own)
}

// Search looks at every state that can be reached without one rule.
func Search(without Rule, f Faults) model.Result {
	return model.Search(model.Machine[state, event]{
		Start:  state{left: f},
		Follow: func(s *state, emit func(*state, event)) { s.follow(without, emit) },
		Wrong:  (*state).wrong,
		Show:   (*state).String,
	})
}

func (s *state) String() string {
	text := fmt.Sprintf("server: %d; holder %s", s.holds, [...]string{"idle", "asks", "holds"}[s.h.is])
	if s.h.is == holding {
		text += fmt.Sprintf(" %d, believes for %d", s.h.own, s.h.trust)
	}
	if s.w.own != 0 {
		text += fmt.Sprintf("; watcher sees %d for %d, heartbeat for %d", s.w.own, s.w.watch.First, s.w.watch.Since)
	}
	return text
}

// follow calls emit with each state that can come next.
func (s *state) follow(without Rule, emit func(*state, event)) {
	do := func(what string, m message, f func(n *state)) {
		n := *s
		f(&n)
		if n.tidy(without); !n.full {
			emit(&n, event{what, m})
		}
	}
	s.ofHolder(without, func(what string, f func(n *state)) { do(what, message{}, f) })
	s.ofWatcher(func(what string, f func(n *state)) { do(what, message{}, f) })
	due := s.h.is == holding && s.h.trust == 0 && !s.h.paused
	for i, m := range s.net {
		if m.kind == none || i > 0 && m == s.net[i-1] {
			continue
		}
		take := func(what string, f func(n *state)) {
			do(what, m, func(n *state) {
				n.net[i] = message{}
				f(n)
			})
		}
		asleep := s.h.paused
		if m.kind.ofWatcher() {
			asleep = s.w.paused
		}
		switch {
		case m.kind <= force:
			take("the server runs", func(n *state) { n.run(m, without) })
		case !asleep:
			take("arrives", func(n *state) { n.hear(m, without) })
		}
		if s.left.Lost > 0 {
			take("is lost", func(n *state) { n.left.Lost-- })
		}
		if s.left.Late > 0 {
			do("is late", m, func(n *state) {
				n.left.Late--
				n.net[i].rest += late
			})
		}
		due = due || m.rest == 0 && (m.kind <= force || !asleep)
	}
	if s.left.Deletes > 0 && s.there {
		do("the heartbeat is deleted", message{}, func(n *state) {
			n.left.Deletes--
			n.there = false
		})
	}
	if due {
		return
	}
	do("a tick", message{}, func(n *state) { n.pass(false) })
	if s.left.Slow > 0 && s.h.is != idle {
		do("a tick in which the holder's clock is slow", message{}, func(n *state) {
			n.left.Slow--
			n.pass(true)
		})
	}
}

// ofHolder are the steps of the process that holds.
func (s *state) ofHolder(without Rule, do func(string, func(*state))) {
	h := &s.h
	if h.paused {
		do("the holder wakes", func(n *state) { n.h.paused = false })
		return
	}
	switch {
	case h.is == idle && s.left.Acquires > 0:
		do("the holder comes", func(n *state) {
			n.left.Acquires--
			n.h = holder{is: asking, own: n.fresh(without), asked: 1, beats: h.beats}
			n.send(message{kind: ask, own: n.h.own})
		})
	case h.is == holding && h.trust == 0:
		do("the holder is at its deadline", func(n *state) { n.end() })
	case h.is == holding:
		if h.beats == 0 {
			do("the holder sends a heartbeat", func(n *state) {
				n.h.beats = 1
				if without == Confirmed {
					n.h.trust = max(n.h.trust, Trust(trust, margin, 0))
				}
				n.send(message{kind: beat})
			})
		}
		do("the holder releases", func(n *state) { n.end() })
	}
	if s.left.Pauses > 0 && h.is != idle {
		do("the holder is paused", func(n *state) {
			n.left.Pauses--
			n.h.paused = true
		})
	}
}

// end has the holder release what it has.
func (s *state) end() {
	s.send(message{kind: release, own: s.h.own})
	s.h = holder{beats: s.h.beats}
}

// ofWatcher are the steps of the process that waits.
func (s *state) ofWatcher(do func(string, func(*state))) {
	w := &s.w
	if w.paused {
		do("the watcher wakes", func(n *state) { n.w.paused = false })
		return
	}
	switch w.is {
	case rests:
		do("the watcher looks", func(n *state) {
			n.w.is, n.w.asked = inspects, 1
			n.send(message{kind: inspect})
		})
	case takes:
		do("the watcher takes over", func(n *state) {
			n.send(message{kind: force, own: n.w.own})
			n.w.is = rests
		})
	}
	if s.left.Pauses > 0 {
		do("the watcher is paused", func(n *state) {
			n.left.Pauses--
			n.w.paused = true
		})
	}
}

// fresh is an owner that nothing refers to.
func (s *state) fresh(without Rule) uint8 {
	if without == NewOwner {
		return 1
	}
next:
	for o := uint8(1); o <= owners; o++ {
		for _, m := range s.net {
			if m.own == o {
				continue next
			}
		}
		if s.holds != o && s.w.own != o {
			return o
		}
	}
	s.full = true
	return 0
}

// send puts a message on its way.
func (s *state) send(m message) {
	m.rest = call
	for i := range s.net {
		if s.net[i].kind == none {
			s.net[i] = m
			return
		}
	}
	s.full = true
}

// run has the server run a request.
func (s *state) run(m message, without Rule) {
	switch m.kind {
	case ask:
		if s.holds == 0 {
			s.holds = m.own
		}
		s.send(message{kind: askReply, own: m.own, ok: s.holds == m.own, age: m.age})
	case beat:
		s.there, s.stamp = true, m.age
		if s.newer = s.ran; !s.ran {
			s.changed = true
		}
		s.send(message{kind: beatReply, age: m.age})
	case release:
		if s.holds == m.own {
			s.holds = 0
		}
	case inspect:
		s.send(message{kind: inspectReply, own: s.holds, age: m.age})
	case look:
		s.ran = true
		s.send(message{kind: lookReply, ok: s.changed, there: s.there, age: m.age, old: s.stamp+behind >= trust})
	case force:
		if s.holds == m.own || without == ByOwner {
			s.holds = 0
		}
	}
}

// hear has a process read a reply.
func (s *state) hear(m message, without Rule) {
	h, w, less := &s.h, &s.w, int32(margin)
	if without == Margin {
		less = 0
	}
	switch m.kind {
	case askReply:
		if h.is != asking || h.own != m.own {
			return
		}
		age := m.age
		if without == FromAsk {
			age = 0
		}
		if h.asked = 0; m.ok {
			h.is, h.trust = holding, Trust(trust, less, age)
		} else {
			s.end()
		}
	case beatReply:
		age := m.age
		if without == FromSend {
			age = 0
		}
		h.beats = 0
		if h.is == holding && (h.trust > 0 || without == Gap) {
			h.trust = max(h.trust, Trust(trust, less, age))
		}
	case inspectReply:
		if w.is != inspects {
			return
		}
		if w.is, w.asked = rests, 0; m.own != w.own {
			w.own, w.watch.First = m.own, 0
		}
		if w.own != 0 {
			w.is, w.asked = looks, 1
			s.send(message{kind: look})
		}
	case lookReply:
		if w.is != looks {
			return
		}
		gone := w.watch.Saw(m.ok, m.age, trust, without)
		if without == OwnClock {
			gone = m.old
		}
		if without == Change {
			gone = gone || !m.there
		}
		s.changed, s.newer, s.ran = s.newer, false, false
		if w.is, w.asked = rests, 0; gone {
			w.is = takes
		}
	}
}

// pass has a tick pass, and not by the holder's clock if that is slow.
func (s *state) pass(slow bool) {
	for i := range s.net {
		m := &s.net[i]
		if m.kind == none {
			continue
		}
		if m.rest = max(m.rest-1, 0); !slow || m.kind.ofWatcher() {
			m.age = min(m.age+1, most)
		}
	}
	s.stamp = min(s.stamp+1, most)
	h, w := &s.h, &s.w
	if h.beats > 0 { // given up after a call, and not before the next but one
		h.beats = (h.beats + 1) % (call + 3)
	}
	if !slow {
		h.trust = max(h.trust-1, 0)
	}
	w.watch.First, w.watch.Since = min(w.watch.First+1, most), min(w.watch.Since+1, most)
	if w.asked == 0 {
		return
	}
	if w.asked++; w.asked > call+2 { // no reply
		w.is, w.asked = rests, 0
	}
}

// tidy forgets what does not matter any more, and sorts what has no order.
func (s *state) tidy(without Rule) {
	h, w := &s.h, &s.w
	flying := false
	for i := range s.net {
		m := &s.net[i]
		switch m.kind {
		case askReply:
			if h.is != asking || h.own != m.own {
				*m = message{}
			}
		case inspectReply:
			if w.is != inspects {
				*m = message{}
			}
		case lookReply, look:
			if w.is != looks && m.kind == lookReply {
				*m = message{}
			}
			flying = flying || w.is == looks && m.kind == lookReply
		case release, force:
			m.age = 0
		}
	}
	if !flying && s.ran { // the reply is lost, or is heard no more
		s.changed, s.newer, s.ran = s.changed || s.newer, false, false
	}
	if w.own == 0 {
		w.watch.First = 0
	}
	if !w.watch.Known {
		w.watch.Since = 0
	}
	if h.is == asking && s.lost(h.own) {
		s.end()
	}
	if without != OwnClock {
		s.stamp = 0
	}
	for a := 1; a < messages; a++ {
		for b := a; b > 0 && s.net[b].before(&s.net[b-1]); b-- {
			s.net[b], s.net[b-1] = s.net[b-1], s.net[b]
		}
	}
}

// lost reports whether no question of an owner, and no reply to one, is under way.
func (s *state) lost(own uint8) bool {
	for _, m := range s.net {
		if m.own == own && (m.kind == ask || m.kind == askReply) {
			return false
		}
	}
	return true
}

// before is any order, with what is none at the end.
func (m *message) before(o *message) bool {
	number := func(m *message) int64 {
		n := -int64(m.kind)
		for _, x := range []int32{int32(m.own), m.age, m.rest} {
			n = n*16 + int64(x)
		}
		for _, b := range []bool{m.ok, m.there, m.old} {
			n *= 2
			if b {
				n++
			}
		}
		return n
	}
	return number(m) < number(o)
}
