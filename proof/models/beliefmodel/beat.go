package beliefmodel

import (
	"fmt"

	"github.com/redlatch/redlatch/proof/models/model"
)

// Ticks of the search.
const (
	trusted    = 3
	most       = trusted + lease // of what is counted
	beatBehind = 3               // the holder's wall clock
)

// ofWatcher reports whether it is a message from or to the process that waits.
func (m message) ofWatcher() bool {
	return m.kind == inspect || m.kind == look || m.kind == force || m.kind == inspectReply || m.kind == lookReply
}

// Watch is what who watches has seen of one hold and its process's heartbeats. Instants are ticks ago.
type Watch struct {
	First int32 // since it saw the hold first
	Since int32 // since it saw the heartbeat as it is
	Known bool  // it has seen the heartbeat, or that there is none
}

// Saw takes in the reply to a look that was sent so long ago, and reports whether the process is gone: it may be
// removed. changed: the heartbeat is not as it was when it was looked at last.
func (w *Watch) Saw(changed bool, asked, trust int32, without Rule) (gone bool) {
	if changed || !w.Known {
		if w.Since = 0; without == FromReply {
			w.Since = asked
		}
	}
	w.Known = true
	since := w.Since
	if without != SeenHeld {
		since = min(since, w.First)
	}
	if without == ToSend {
		asked = 0
	}
	return since-asked >= trust
}

// holder is the process that holds.
type holder struct {
	is     phase
	own    Owner
	trust  int32 // ticks left
	beats  int32 // 1 + ticks since the heartbeat under way was sent; 0: there is none
	asked  int32
	paused bool
}

type round uint8

const (
	rests round = iota
	inspects
	looks
	takes
)

// watcher is the process that waits.
type watcher struct {
	is     round
	own    Owner // that it has seen hold; 0: none
	watch  Watch
	asked  int32 // 1 + ticks since the question under way was sent
	paused bool
}

// beats is a state of a holder that sends heartbeats, and of a watcher.
type beats struct {
	holds Owner // owner, by the server
	there bool  // the heartbeat
	// The heartbeat has changed since what the watcher has seen, up to the look under way if that has run, and since
	// then.
	changed, newer bool
	ran            bool
	stamp          int32 // ticks since the time that the heartbeat names; only if that is looked at
	h              holder
	w              watcher
	wire
}

func (s *beats) believes() bool { return s.h.is == holding && s.h.trust > 0 }

func (s *beats) wrong() string {
	if s.believes() && s.holds != s.h.own {
		return Taken
	}
	return ""
}

// SearchBeats looks at every state of heartbeats that can be reached without one rule.
func SearchBeats(without Rule, f Faults) model.Result {
	return model.Search(model.Machine[beats, event]{
		Start:  beats{wire: wire{left: f}},
		Follow: func(s *beats, emit func(*beats, event)) { s.follow(without, emit) },
		Wrong:  (*beats).wrong,
		Show:   (*beats).String,
	})
}

func (s *beats) String() string {
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
func (s *beats) follow(without Rule, emit func(*beats, event)) {
	do := func(what string, m message, f func(n *beats)) {
		n := *s
		f(&n)
		if n.tidy(without); !n.full {
			emit(&n, event{what, m})
		}
	}
	s.ofHolder(without, func(what string, f func(n *beats)) { do(what, message{}, f) })
	s.ofWatcher(func(what string, f func(n *beats)) { do(what, message{}, f) })
	due := network(func(s *beats) *wire { return &s.wire },
		func(s *beats, m message) bool { return m.ofWatcher() && s.w.paused || !m.ofWatcher() && s.h.paused },
		func(s *beats, m message) { s.run(m, without) },
		func(s *beats, m message) { s.hear(m, without) }).Play(s, do)
	due = due || s.h.is == holding && s.h.trust == 0 && !s.h.paused
	if s.left.Forgets > 0 && s.there {
		do("the heartbeat is deleted", message{}, func(n *beats) {
			n.left.Forgets--
			n.there = false
		})
	}
	if due {
		return
	}
	do("a tick", message{}, func(n *beats) { n.pass(false) })
	if s.left.Slow > 0 && s.h.is != idle {
		do("a tick in which the holder's clock is slow", message{}, func(n *beats) {
			n.left.Slow--
			n.pass(true)
		})
	}
}

// ofHolder are the steps of the process that holds.
func (s *beats) ofHolder(without Rule, do func(string, func(*beats))) {
	h := &s.h
	if h.paused {
		do("the holder wakes", func(n *beats) { n.h.paused = false })
		return
	}
	switch {
	case h.is == idle && s.left.Acquires[0] > 0:
		do("the holder comes", func(n *beats) {
			n.left.Acquires[0]--
			n.h = holder{is: asking, own: n.fresh(without), asked: 1, beats: h.beats}
			n.send(message{kind: ask, own: n.h.own})
		})
	case h.is == holding && h.trust == 0:
		do("the holder is at its deadline", func(n *beats) { n.end() })
	case h.is == holding:
		if h.beats == 0 {
			do("the holder sends a heartbeat", func(n *beats) {
				n.h.beats = 1
				if without == Confirmed {
					n.h.trust = max(n.h.trust, Trust(trusted, margin, 0))
				}
				n.send(message{kind: beat})
			})
		}
		do("the holder releases", func(n *beats) { n.end() })
	}
	if s.left.Pauses > 0 && h.is != idle {
		do("the holder is paused", func(n *beats) {
			n.left.Pauses--
			n.h.paused = true
		})
	}
}

// end has the holder release what it has.
func (s *beats) end() {
	s.send(message{kind: release, own: s.h.own})
	s.h = holder{beats: s.h.beats}
}

// ofWatcher are the steps of the process that waits.
func (s *beats) ofWatcher(do func(string, func(*beats))) {
	w := &s.w
	if w.paused {
		do("the watcher wakes", func(n *beats) { n.w.paused = false })
		return
	}
	switch w.is {
	case rests:
		do("the watcher looks", func(n *beats) {
			n.w.is, n.w.asked = inspects, 1
			n.send(message{kind: inspect})
		})
	case takes:
		do("the watcher takes over", func(n *beats) {
			n.send(message{kind: force, own: n.w.own})
			n.w.is = rests
		})
	}
	if s.left.Pauses > 0 {
		do("the watcher is paused", func(n *beats) {
			n.left.Pauses--
			n.w.paused = true
		})
	}
}

// fresh is an owner that nothing refers to.
func (s *beats) fresh(without Rule) Owner {
	if without == NewOwner {
		return 1
	}
next:
	for o := Owner(1); o <= each; o++ {
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

// run has the server run a request.
func (s *beats) run(m message, without Rule) {
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
		s.send(message{kind: lookReply, ok: s.changed, there: s.there, age: m.age, old: s.stamp+beatBehind >= trusted})
	case force:
		if s.holds == m.own || without == ByOwner {
			s.holds = 0
		}
	}
}

// hear has a process read a reply.
func (s *beats) hear(m message, without Rule) {
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
			h.is, h.trust = holding, Trust(trusted, less, age)
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
			h.trust = max(h.trust, Trust(trusted, less, age))
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
		gone := w.watch.Saw(m.ok, m.age, trusted, without)
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
func (s *beats) pass(slow bool) {
	for i := range s.net {
		m := &s.net[i]
		if m.kind == none {
			continue
		}
		if m.rest = max(m.rest-1, 0); !slow || m.ofWatcher() {
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
func (s *beats) tidy(without Rule) {
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
	model.Sort(s.net[:], message.number)
}

// lost reports whether no question of an owner, and no reply to one, is under way.
func (s *beats) lost(own Owner) bool {
	for _, m := range s.net {
		if m.own == own && (m.kind == ask || m.kind == askReply) {
			return false
		}
	}
	return true
}
