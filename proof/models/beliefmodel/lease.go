package beliefmodel

import (
	"fmt"

	"github.com/redlatch/redlatch/proof/models/model"
)

const (
	clients = 2
	tickets = 4
)

// Owner is one acquisition's, never used again; 0: none. In the search a number that nothing refers to any more stands
// for a new owner.
type Owner uint16

// Lock is what the server has.
type Lock struct {
	Holder Owner
	Left   int32 // of its lease
}

// Pass has time pass. In its last tick a lease is still there.
func (l *Lock) Pass(d int32) {
	if l.Left -= d; l.Left <= 0 {
		*l = Lock{}
	}
}

// Acquire takes a lock that is free, or one that the owner has, and reports whether the owner has it now.
func (l *Lock) Acquire(o Owner, lease int32, without Rule) bool {
	switch {
	case l.Holder == 0, l.Holder == o && without == AsksAgain:
		*l = Lock{o, lease}
	case l.Holder == o:
		l.Left = max(l.Left, lease)
	}
	return l.Holder == o
}

// Renew makes a lease longer, and reports whether the owner holds the lock.
func (l *Lock) Renew(o Owner, lease int32, without Rule) bool {
	switch {
	case l.Holder == 0 && without == RenewsHeld:
		*l = Lock{o, lease}
	case l.Holder == 0 || l.Holder != o && without != RenewsOwn:
		return false
	case without == Raises:
		l.Left = lease
	default:
		l.Left = max(l.Left, lease)
	}
	return true
}

// Release ends a hold, and reports whether there was one.
func (l *Lock) Release(o Owner, without Rule) bool {
	if l.Holder == 0 || l.Holder != o && without != ReleasesOwn {
		return false
	}
	*l = Lock{}
	return true
}

// client is a process.
type client struct {
	is      phase
	own     Owner
	trust   int32 // ticks left
	asked   int32 // 1 + ticks since the question or release was sent that awaits its reply; 0: there is none
	renews  int32 // the same of a renewal
	last    int32 // ticks since the last question was sent
	runs    int32 // for so many ticks a question may run
	since   int32 // ticks since the question was sent that was refused last
	ticket  uint8 // and what it got; 0: there is none
	slept   int32
	short   bool // it was handed the first lease, which is to be raised
	excused bool // the server has forgotten the lock
	paused  bool
	asleep  bool // its clock stands still
}

// place is one in the queue.
type place struct {
	own    Owner
	ticket uint8
}

// leases is a state of two processes that have leases.
type leases struct {
	lock  Lock
	queue [clients]place
	next  [clients]uint8 // the last ticket of each process
	c     [clients]client
	wire
}

func process(o Owner) int { return int(o-1) / each }

// believes reports whether a process acts, and believes that it alone does.
func (c *client) believes(without Rule) bool {
	return c.is == holding && !c.asleep && (c.trust > 0 || without == AtDeadline && c.renews > 0)
}

// wrong says what does not hold.
func (s *leases) wrong(without Rule, covered bool) string {
	n := 0
	for i := range s.c {
		c := &s.c[i]
		if !c.believes(without) || c.excused {
			continue
		}
		if n++; covered && (s.lock.Holder != c.own || s.lock.Left < c.trust) {
			return Uncovered
		}
	}
	if n > 1 {
		return Two
	}
	if o := s.lock.Holder; o != 0 && s.c[process(o)].own != o {
		return Orphan
	}
	return ""
}

// SearchLeases looks at every state of leases that can be reached without one rule. covered: the server's lease is held
// against what is believed, too.
func SearchLeases(without Rule, f Faults, covered bool) model.Result {
	return model.Search(model.Machine[leases, event]{
		Start:  leases{wire: wire{left: f}},
		Follow: func(s *leases, emit func(*leases, event)) { s.follow(without, emit) },
		Wrong:  func(s *leases) string { return s.wrong(without, covered) },
		Show:   (*leases).String,
	})
}

func (s *leases) String() string {
	text := fmt.Sprintf("server: %d for %d", s.lock.Holder, s.lock.Left)
	for i, c := range s.c {
		text += fmt.Sprintf("; %c %s, believes for %d", 'A'+i, [...]string{"idle", "asks", "holds", "releases"}[c.is],
			c.trust)
	}
	return text
}

// follow calls emit with each state that can come next.
func (s *leases) follow(without Rule, emit func(*leases, event)) {
	do := func(what string, m message, f func(n *leases)) {
		n := *s
		f(&n)
		if n.tidy(); !n.full {
			emit(&n, event{what, m})
		}
	}
	for i := range s.c {
		s.ofProcess(i, without, do)
	}
	due := network(func(s *leases) *wire { return &s.wire },
		func(s *leases, m message) bool { return s.c[process(m.own)].paused },
		func(s *leases, m message) { s.run(m, without) },
		func(s *leases, m message) { s.hear(m, without) }).Play(s, do)
	if s.left.Forgets > 0 && s.lock.Holder != 0 {
		do("DEL", message{}, func(n *leases) {
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
	do("a tick", message{}, func(n *leases) { n.pass(-1) })
	for i := range s.c {
		if s.left.Slow > 0 && s.c[i].is != idle {
			do(fmt.Sprintf("%c has a slow clock in a tick", 'A'+i), message{}, func(n *leases) {
				n.left.Slow--
				n.pass(i)
			})
		}
	}
}

// ofProcess are the steps of one process.
func (s *leases) ofProcess(i int, without Rule, do func(string, message, func(*leases))) {
	c := &s.c[i]
	at := func(what string, f func(n *leases, c *client)) {
		do(fmt.Sprintf("%c %s", 'A'+i, what), message{}, func(n *leases) { f(n, &n.c[i]) })
	}
	if c.paused {
		at("wakes", func(n *leases, _ *client) { n.wake(i, without) })
		return
	}
	switch c.is {
	case idle:
		if s.left.Acquires[i] > 0 {
			at("comes", func(n *leases, c *client) {
				n.left.Acquires[i]--
				*c = client{is: asking, own: n.fresh(i)}
				n.ask(c, i, without)
			})
		}
	case asking:
		if c.asked == 0 {
			at("asks again", func(n *leases, c *client) { n.ask(c, i, without) })
		}
		at("gives up", func(n *leases, c *client) { n.leave(c) })
	case holding:
		if !c.believes(without) {
			at("is at its deadline", func(n *leases, c *client) { n.leave(c) })
			return
		}
		if c.renews == 0 && (s.left.Renewals > 0 || c.short) {
			at("renews", func(n *leases, c *client) {
				if !c.short {
					n.left.Renewals--
				}
				n.renew(c, lease, without)
			})
		}
		if c.renews == 0 && s.left.Extends > 0 {
			at("extends", func(n *leases, c *client) {
				n.left.Extends--
				n.renew(c, longer, without)
			})
		}
		at("releases", func(n *leases, c *client) { n.leave(c) })
	case releasing:
		if c.asked == 0 && c.runs == 0 {
			at("releases again", func(n *leases, c *client) { n.leave(c) })
		}
	}
	if s.left.Pauses > 0 && c.is != idle {
		at("is paused", func(n *leases, c *client) {
			n.left.Pauses--
			c.paused = true
		})
	}
	if s.left.Sleeps > 0 && c.is != idle {
		at("sleeps, and its clock stands still", func(n *leases, c *client) {
			n.left.Sleeps--
			c.paused, c.asleep = true, true
		})
	}
}

// wake has a process go on. The wall clock shows for how long its clock has stood still.
func (s *leases) wake(i int, without Rule) {
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
func (s *leases) fresh(i int) Owner {
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

func (s *leases) ask(c *client, i int, without Rule) {
	m := message{kind: ask, own: c.own, lease: lease, runs: call + 1}
	if without == Durations && i == 0 {
		m.lease -= behind
	}
	c.asked, c.last, c.runs = 1, 0, call+1
	s.send(m)
}

func (s *leases) renew(c *client, length int32, without Rule) {
	c.renews = 1
	if without == Confirmed {
		c.trust = max(c.trust, Trust(length, margin, 0))
	}
	s.send(message{kind: renew, own: c.own, lease: length})
}

// leave has a process release what it has, or may come to have.
func (s *leases) leave(c *client) {
	*c = client{is: releasing, own: c.own, runs: c.runs, asked: 1, last: c.last}
	s.send(message{kind: release, own: c.own, last: c.runs == 0})
}

// run has the server run a request.
func (s *leases) run(m message, without Rule) {
	o, reply := m.own, message{kind: m.kind + askReply - ask, own: m.own, lease: m.lease, age: m.age, last: m.last}
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
func (s *leases) enter(o Owner) uint8 {
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

func (s *leases) dequeue(o Owner) {
	for i := range s.queue {
		if s.queue[i].own == o {
			copy(s.queue[i:], s.queue[i+1:])
			s.queue[len(s.queue)-1] = place{}
		}
	}
}

// handOver gives a free lock to the first in the queue.
func (s *leases) handOver() {
	p := s.queue[0]
	if p.own == 0 {
		return
	}
	s.dequeue(p.own)
	s.lock.Acquire(p.own, first, Whole)
	s.send(message{kind: grant, own: p.own, ticket: p.ticket})
}

// hear has a process read a reply or a grant.
func (s *leases) hear(m message, without Rule) {
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
func (s *leases) pass(slow int) {
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
func (s *leases) tidy() {
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
	model.Sort(s.net[:], message.number)
}
