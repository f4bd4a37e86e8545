package leasemodel

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/model"
)

// event is one step.
type event struct {
	what string
	of   int // the process; -1: none
	m    message
}

func (e event) String() string {
	switch {
	case e.m.kind != none:
		return fmt.Sprintf("%s: %v of %c%d", e.what, e.m.kind, 'a'+process(e.m.own), (e.m.own-1)%each)
	case e.of < 0:
		return e.what
	}
	return fmt.Sprintf("%c %s", 'A'+e.of, e.what)
}

// Search looks at every state that can be reached without one rule. covered: the server's lease is held against what is
// believed, too.
func Search(without Rule, f Faults, covered bool) model.Result {
	return model.Search(model.Machine[state, event]{
		Start:  state{left: f},
		Follow: func(s *state, emit func(*state, event)) { s.follow(without, emit) },
		Wrong:  func(s *state) string { return s.wrong(without, covered) },
		Show:   (*state).String,
	})
}

func (s *state) String() string {
	text := fmt.Sprintf("server: %d for %d", s.lock.Holder, s.lock.Left)
	for i, c := range s.c {
		text += fmt.Sprintf("; %c %s, believes for %d", 'A'+i, [...]string{"idle", "asks", "holds", "releases"}[c.is],
			c.trust)
	}
	return text
}

// follow calls emit with each state that can come next.
func (s *state) follow(without Rule, emit func(*state, event)) {
	do := func(e event, f func(n *state)) {
		n := *s
		f(&n)
		if n.tidy(); !n.full {
			emit(&n, e)
		}
	}
	for i := range s.c {
		s.ofProcess(i, without, do)
	}
	due := false // something has to happen before time goes on
	for i, m := range s.net {
		if m.kind == none || i > 0 && m == s.net[i-1] {
			continue
		}
		due = s.ofMessage(i, without, do) || due
	}
	if s.left.Forgets > 0 && s.lock.Holder != 0 {
		do(event{"DEL", -1, message{}}, func(n *state) {
			n.left.Forgets--
			c := &n.c[process(n.lock.Holder)]
			c.excused = c.excused || c.own == n.lock.Holder
			n.lock = Lock{}
		})
	}
	for i := range s.c {
		c := &s.c[i]
		due = due || !c.paused && c.is == holding && !c.believes(without)
	}
	if due {
		return
	}
	do(event{"a tick", -1, message{}}, func(n *state) { n.pass(-1) })
	for i := range s.c {
		if s.left.Slow > 0 && s.c[i].is != idle {
			do(event{"has a slow clock in a tick", i, message{}}, func(n *state) {
				n.left.Slow--
				n.pass(i)
			})
		}
	}
}

// ofProcess are the steps of one process.
func (s *state) ofProcess(i int, without Rule, do func(event, func(*state))) {
	c := &s.c[i]
	at := func(what string, f func(n *state, c *client)) {
		do(event{what, i, message{}}, func(n *state) { f(n, &n.c[i]) })
	}
	if c.paused {
		at("wakes", func(n *state, c *client) { n.wake(i, without) })
		return
	}
	switch c.is {
	case idle:
		if s.left.Acquires[i] > 0 {
			at("comes", func(n *state, c *client) {
				n.left.Acquires[i]--
				*c = client{is: asking, own: n.fresh(i)}
				n.ask(c, i, without)
			})
		}
	case asking:
		if c.asked == 0 {
			at("asks again", func(n *state, c *client) { n.ask(c, i, without) })
		}
		at("gives up", func(n *state, c *client) { n.leave(c) })
	case holding:
		if !c.believes(without) {
			at("is at its deadline", func(n *state, c *client) { n.leave(c) })
			return
		}
		if c.renews == 0 && (s.left.Renewals > 0 || c.short) {
			at("renews", func(n *state, c *client) {
				if !c.short {
					n.left.Renewals--
				}
				n.renew(c, lease, without)
			})
		}
		if c.renews == 0 && s.left.Extends > 0 {
			at("extends", func(n *state, c *client) {
				n.left.Extends--
				n.renew(c, longer, without)
			})
		}
		at("releases", func(n *state, c *client) { n.leave(c) })
	case releasing:
		if c.asked == 0 && c.runs == 0 {
			at("releases again", func(n *state, c *client) { n.leave(c) })
		}
	}
	if s.left.Pauses > 0 && c.is != idle {
		at("is paused", func(n *state, c *client) {
			n.left.Pauses--
			c.paused = true
		})
	}
	if s.left.Sleeps > 0 && c.is != idle {
		at("sleeps, and its clock stands still", func(n *state, c *client) {
			n.left.Sleeps--
			c.paused, c.asleep = true, true
		})
	}
}

// wake has a process go on. The wall clock shows for how long its clock has stood still.
func (s *state) wake(i int, without Rule) {
	c := &s.c[i]
	if without != Jump {
		c.trust = max(c.trust-c.slept, 0)
	}
	if without != BeforeJump {
		c.since, c.last = min(c.since+c.slept, longer), min(c.last+c.slept, longer)
		for j := range s.net {
			if m := &s.net[j]; m.kind != none && process(m.own) == i {
				m.age = min(m.age+c.slept, longer)
			}
		}
	}
	c.paused, c.asleep, c.slept = false, false, 0
}

// fresh is an owner that nothing refers to.
func (s *state) fresh(i int) Owner {
next:
	for o := Owner(i*each + 1); ; o++ {
		if o > Owner(i*each+each) {
			s.full = true
			return o - 1
		}
		for _, m := range s.net {
			if m.kind != none && m.own == o {
				continue next
			}
		}
		if s.lock.Holder != o && s.queue[0].own != o && s.queue[1].own != o && s.c[i].own != o {
			return o
		}
	}
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

func (s *state) ask(c *client, i int, without Rule) {
	m := message{kind: ask, own: c.own, lease: lease, runs: call + 1}
	if without == Durations && i == 0 {
		m.lease -= behind
	}
	c.asked, c.last, c.runs = 1, 0, call+1
	s.send(m)
}

func (s *state) renew(c *client, length int32, without Rule) {
	c.renews = 1
	if without == Confirmed {
		c.trust = max(c.trust, Trust(length, margin, 0))
	}
	s.send(message{kind: renew, own: c.own, lease: length})
}

// leave has a process release what it has, or may come to have.
func (s *state) leave(c *client) {
	*c = client{is: releasing, own: c.own, runs: c.runs, asked: 1, last: c.last}
	s.send(message{kind: release, own: c.own, last: c.runs == 0})
}

// ofMessage are the steps of one message. It reports whether one has to be before time goes on.
func (s *state) ofMessage(i int, without Rule, do func(event, func(*state))) (due bool) {
	m := s.net[i]
	take := func(what string, f func(n *state)) {
		do(event{what, -1, m}, func(n *state) {
			n.net[i] = message{}
			f(n)
		})
	}
	request := m.kind <= release
	switch {
	case request:
		take("the server runs", func(n *state) { n.run(m, without) })
	case !s.c[process(m.own)].paused:
		take("arrives", func(n *state) { n.hear(m, without) })
	}
	if s.left.Lost > 0 {
		take("is lost", func(n *state) { n.left.Lost-- })
	}
	if s.left.Late > 0 {
		do(event{"is late", -1, m}, func(n *state) {
			n.left.Late--
			n.net[i].rest += lease
		})
	}
	if request && !m.copy && s.left.Doubled > 0 {
		do(event{"is doubled", -1, m}, func(n *state) {
			n.left.Doubled--
			n.send(m)
			for j := range n.net {
				if n.net[j] == m && j != i || n.net[j].kind == m.kind && n.net[j].rest == call && j != i && n.net[j].own == m.own {
					n.net[j].copy, n.net[j].rest = true, lease
					break
				}
			}
		})
	}
	return m.rest <= 0 && (request || !s.c[process(m.own)].paused)
}

// run has the server run a request.
func (s *state) run(m message, without Rule) {
	o, reply := m.own, message{kind: m.kind + 3, own: m.own, lease: m.lease, age: m.age, last: m.last}
	reply.knows = s.c[process(o)].excused
	switch m.kind {
	case ask:
		switch {
		case m.runs == 0 && without != NotAfter:
		case s.lock.Holder == 0 && s.queue[0].own != 0 && s.queue[0].own != o:
			s.handOver()
			reply.ticket = s.enter(o)
		default:
			if reply.ok = s.lock.Acquire(o, m.lease, without); reply.ok {
				s.dequeue(o)
			} else {
				reply.ticket = s.enter(o)
			}
		}
		if without == Durations {
			reply.lease = lease
		}
	case renew:
		reply.ok = s.lock.Renew(o, m.lease, without)
	case release:
		s.dequeue(o)
		if s.lock.Release(o, without) {
			s.handOver()
		}
	}
	if !m.copy {
		s.send(reply)
	}
}

// enter has an owner wait in the queue.
func (s *state) enter(o Owner) uint8 {
	for i := range s.queue {
		if s.queue[i].own == o {
			return s.queue[i].ticket
		}
	}
	for i := range s.queue {
		if s.queue[i].own == 0 {
			p := process(o)
			s.next[p] = s.next[p]%tickets + 1
			s.queue[i] = place{o, s.next[p]}
			return s.next[p]
		}
	}
	s.full = true
	return 0
}

func (s *state) dequeue(o Owner) {
	for i := range s.queue {
		if s.queue[i].own == o {
			copy(s.queue[i:], s.queue[i+1:])
			s.queue[len(s.queue)-1] = place{}
		}
	}
}

// handOver gives a free lock to the first in the queue.
func (s *state) handOver() {
	p := s.queue[0]
	if p.own == 0 {
		return
	}
	s.dequeue(p.own)
	s.lock.Acquire(p.own, first, Whole)
	s.send(message{kind: grant, own: p.own, ticket: p.ticket})
}

// hear has a process read a reply or a grant.
func (s *state) hear(m message, without Rule) {
	c := &s.c[process(m.own)]
	if c.own != m.own {
		return
	}
	age, less := m.age, int32(margin)
	if without == FromSend {
		age = 0
	}
	if without == Margin {
		less = 0
	}
	trust := Trust(m.lease, less, age)
	switch m.kind {
	case askReply:
		if without == OwnSend {
			trust = Trust(m.lease, less, c.last)
		}
		switch {
		case m.ok && (c.is == asking || c.is == holding):
			c.is, c.asked, c.trust, c.ticket, c.since, c.short = holding, 0, max(c.trust, trust), 0, 0, false
		case c.is == asking:
			if c.asked = 0; m.ticket != 0 {
				c.ticket, c.since = m.ticket, m.age
			}
		}
	case renewReply:
		switch {
		case c.is != holding:
		case m.ok:
			c.trust, c.renews, c.short = max(c.trust, trust), 0, false
			c.excused = c.excused && !m.knows
		default:
			s.leave(c)
		}
	case releaseReply:
		if c.is == releasing && (m.last || without == LastRelease) {
			*c = client{}
		} else if c.is == releasing {
			c.asked = 0
		}
	case grant:
		if c.is != asking || c.ticket == 0 || c.ticket != m.ticket && without != LastTicket {
			return
		}
		length, since := int32(first), c.since
		if without == FromRefusal {
			since = 0
		}
		if without == FirstLease {
			length = lease
		}
		c.is, c.asked, c.trust, c.short = holding, 0, Trust(length, less, since), true
		c.ticket, c.since = 0, 0
	}
}

// pass has a tick pass, and not by the clock of slow.
func (s *state) pass(slow int) {
	if s.lock.Holder != 0 {
		s.lock.Pass(1)
	}
	for i := range s.net {
		m := &s.net[i]
		if m.kind == none {
			continue
		}
		m.rest, m.runs = max(m.rest-1, 0), max(m.runs-1, 0)
		if p := process(m.own); p != slow && !s.c[p].asleep {
			m.age = min(m.age+1, longer)
		}
	}
	for i := range s.c {
		c := &s.c[i]
		c.runs = max(c.runs-1, 0)
		if c.asleep {
			c.slept = min(c.slept+1, longer)
			continue
		}
		if c.asked > 0 {
			c.asked = (c.asked + 1) % (call + 3)
		}
		if c.renews > 0 {
			c.renews = (c.renews + 1) % (call + 3)
		}
		if i == slow {
			continue
		}
		c.trust, c.last, c.since = max(c.trust-1, 0), min(c.last+1, longer), min(c.since+1, longer)
	}
}

// tidy forgets what does not matter any more, and sorts what has no order.
func (s *state) tidy() {
	for i := range s.net {
		m := &s.net[i]
		switch m.kind {
		case askReply, renewReply, releaseReply, grant:
			if c := &s.c[process(m.own)]; c.own != m.own || c.is == releasing && m.kind != releaseReply {
				*m = message{}
			}
		case release:
			m.age = 0
		}
		if m.kind == grant {
			m.age = 0
		}
	}
	for i := range s.c {
		c := &s.c[i]
		switch {
		case c.is == idle:
			*c = client{}
		case c.is != asking:
			c.ticket, c.since = 0, 0
		case c.ticket == 0:
			c.since = 0
		}
		if c.is == releasing {
			c.last = 0
		}
		used := s.c[i].ticket != 0
		for _, p := range s.queue {
			used = used || p.own != 0 && process(p.own) == i
		}
		for _, m := range s.net {
			used = used || m.ticket != 0 && process(m.own) == i
		}
		if !used {
			s.next[i] = 0
		}
	}
	for a := 1; a < messages; a++ {
		for b := a; b > 0 && s.net[b].before(&s.net[b-1]); b-- {
			s.net[b], s.net[b-1] = s.net[b-1], s.net[b]
		}
	}
}

// before is any order, with what is none at the end.
func (m *message) before(o *message) bool {
	flag := func(b bool) int32 {
		if b {
			return 1
		}
		return 0
	}
	numbers := func(m *message) [11]int32 {
		return [...]int32{-int32(m.kind), int32(m.own), m.lease, m.age, m.rest, m.runs, int32(m.ticket), flag(m.ok),
			flag(m.copy), flag(m.last), flag(m.knows)}
	}
	x, y := numbers(m), numbers(o)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}
