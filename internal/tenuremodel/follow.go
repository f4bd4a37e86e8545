package tenuremodel

import (
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/model"
)

// Passage is where a Step was seen.
type Passage uint8

const (
	// Ran is that the server ran a request of the process.
	Ran Passage = iota
	// Reached is that the reply to one reached it.
	Reached
	// Heard is that a grant reached it.
	Heard
)

// Step is what was seen of a process on the wire: an ask or a release and its reply, or a grant.
type Step struct {
	At      time.Time
	Passage Passage
	Ask     bool   // otherwise it is a release
	Owner   string // as the server knows it
	Next    string // that a release names; "": none
	Reply   Reply
	Ticket  int64 // of a reply or a grant; 0: none
}

// branch is one way in which a process of the model can have come so far.
type branch struct {
	s      state
	bound  [perOwner + 1]uint16 // which owner of the wire each of the model's is; 0: it was not seen yet
	unseen uint8                // tenures that are being released in the background, and of which nothing was seen
}

// follower has all branches that agree with what was seen.
type follower struct {
	world
	callers  uint8
	branches model.Ways[branch]
	names    map[string]uint16 // of the owners that were seen
	tickets  map[string][]int64
	most     int
	soon     map[uint16][2]int // releases and asks of each owner that are run soon
	fresh    int               // owners that are first seen soon
}

// Follow reports whether the model's process can do what was seen of one on the wire, whose requests, replies and
// grants are steps, in their order. What its callers do is not seen: they come, leave, work and unlock whenever the
// model lets them; callers is how many there are. What is sent is run within that time. It begins with steps[from]; of
// the owners before that it is known only that they were there. Turns may end at any time, and no other timer ends. The
// steps begin when the process has nothing, hears grants, and knows the server's time. What is released in the
// background may be released at any time, and how often is not looked at. It returns in how many ways at most the model
// can have come to a step.
func Follow(callers int, within time.Duration, steps []Step, from int) (ways int, err error) {
	f := &follower{callers: uint8(callers), branches: model.From(branch{}), names: map[string]uint16{},
		tickets: map[string][]int64{}}
	for i, step := range steps {
		if i < from {
			f.name(step)
			f.ticket(step.Owner, step.Ticket)
			continue
		}
		f.expect(steps[i:], within)
		if !f.branches.Unfold(mostWays, f.unseen) {
			return f.most, fmt.Errorf("more than %d ways to step %d of %d", mostWays, i, len(steps))
		}
		f.most = max(f.most, len(f.branches))
		before := f.branches
		f.branches = before.See(func(b branch, emit func(branch)) { f.see(b, step, emit) })
		f.name(step)
		if len(f.branches) == 0 {
			return f.most, fmt.Errorf("the model cannot do step %d of %d: %+v; in all %d ways to the step before, such as %v",
				i, len(steps), step, len(before), f.any(before))
		}
	}
	return f.most, nil
}

func (f *follower) any(branches model.Ways[branch]) string {
	for b := range branches {
		return b.s.String()
	}
	return "none"
}

// name notes the owners of a step: from now on each is known, or was released.
func (f *follower) name(step Step) {
	for _, n := range []string{step.Owner, step.Next} {
		if n != "" && f.names[n] == 0 {
			f.names[n] = uint16(len(f.names) + 1)
		}
	}
}

// ticket is a ticket as the model counts them.
func (f *follower) ticket(owner string, ticket int64) uint8 {
	if ticket == 0 {
		return 0
	}
	i := slices.Index(f.tickets[owner], ticket)
	if i < 0 {
		i = len(f.tickets[owner])
		f.tickets[owner] = append(f.tickets[owner], ticket)
	}
	return uint8(min(i+1, 3))
}

// expect notes what will be run soon.
func (f *follower) expect(steps []Step, within time.Duration) {
	f.soon = map[uint16][2]int{}
	fresh := map[string]bool{}
	for _, s := range steps {
		if s.At.Sub(steps[0].At) > within {
			break
		}
		if s.Passage != Ran {
			continue
		}
		for _, n := range []string{s.Owner, s.Next} {
			if n != "" && f.names[n] == 0 {
				fresh[n] = true
			}
		}
		n := f.soon[f.names[s.Owner]]
		n[b2i(s.Ask)]++
		f.soon[f.names[s.Owner]] = n
	}
	f.fresh = len(fresh)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// expected reports whether what is under way in a branch will be run soon. The callers of the model do much that those
// of the process did not, and what they do so is seen here.
func (f *follower) expected(b *branch) bool {
	var asks, releases [perOwner + 1]int
	fresh := int(b.unseen)
	for _, m := range b.s.net {
		switch m.kind {
		case ask:
			asks[m.own]++
		case release:
			releases[m.own]++
			if m.next != 0 && b.bound[m.next] == 0 {
				fresh++
			}
		}
	}
	for o := range asks {
		switch n := b.bound[o]; {
		case n != 0:
			if asks[o] > f.soon[n][1] || releases[o] > f.soon[n][0] {
				return false
			}
		case asks[o] > 0 || releases[o] > 0:
			fresh++
		}
	}
	return fresh <= f.fresh
}

// mostWays bounds what is kept of all that the process may have come to.
const mostWays = 300_000

// unseen calls emit with what can come of a branch by one act of a caller, or because a tenure has lasted.
func (f *follower) unseen(b branch, emit func(branch)) {
	do := func(act func(s *state, p *process)) {
		n := b
		act(&n.s, &n.s.proc[0])
		if f.sweep(&n); f.expected(&n) {
			emit(n)
		}
	}
	p := &b.s.proc[0]
	h := p.head()
	if p.waiting < f.callers {
		do(func(s *state, _ *process) { f.arrive(s, 0) })
	}
	if p.waiting > 0 {
		do(func(s *state, _ *process) { f.leave(s, 0, false) })
		if h != nil && h.is == asking && h.has(attended) {
			do(func(s *state, _ *process) { f.leave(s, 0, true) })
		}
	}
	switch {
	case h == nil:
	case h.is == asking && h.asked == 0 && f.flyingOf(&b.s, h.own) == 0:
		do(func(s *state, p *process) { f.request(s, p.head()) })
	case h.is == held:
		if h.age < tenureTime {
			do(func(_ *state, p *process) { p.head().age = tenureTime })
		}
		switch h.caller {
		case given:
			do(func(s *state, p *process) { f.takeTurn(s, 0, p.head()) })
			do(func(s *state, p *process) { f.leaveTurn(s, 0, p.head()) })
		case inside:
			do(func(s *state, p *process) { f.unlock(s, 0, p.head()) })
		}
	}
}

func (f *follower) flyingOf(s *state, o owner) int { return s.flying(ask, o) + s.flying(askReply, o) }

// sweep forgets the tenures that are released in the background, and what only the search needs.
func (f *follower) sweep(b *branch) {
	p := &b.s.proc[0]
	p.arrivals, b.s.found = 0, None
	for i := range p.tenures {
		t := &p.tenures[i]
		t.allowed = 0
		t.marks &^= crowded
		if t.is != pending {
			continue
		}
		for j := range b.s.net {
			if m := &b.s.net[j]; m.own == t.own && m.next == 0 {
				*m = message{}
			}
		}
		if b.bound[t.own] == 0 {
			b.unseen++
		}
		t.become(nothing)
	}
	f.tidy(&b.s)
	for o, used := range b.s.owners() {
		if o <= perOwner && !used {
			b.bound[o] = 0
		}
	}
}

// see calls emit with what comes of a branch by a step.
func (f *follower) see(b branch, step Step, emit func(branch)) {
	name := f.names[step.Owner]
	own := owner(0)
	for o, n := range b.bound {
		if n != 0 && n == name {
			own = owner(o)
		}
	}
	switch {
	case own != 0:
		f.follow(b, own, step, emit)
		return
	case name != 0: // it is being released in the background, or was
		if step.Next == "" {
			emit(b)
		}
		return
	case step.Passage != Ran:
		return
	}
	if b.unseen > 0 && step.Next == "" {
		n := b
		n.unseen--
		emit(n)
	}
	for o := owner(1); o <= perOwner; o++ {
		if b.bound[o] == 0 {
			n := b
			n.bound[o] = uint16(len(f.names) + 1)
			f.follow(n, o, step, emit)
		}
	}
}

// follow has what was seen of an owner happen.
func (f *follower) follow(b branch, own owner, step Step, emit func(branch)) {
	if step.Passage == Heard {
		if t := b.s.of(own); t != nil {
			f.granted(&b.s, t, f.ticket(step.Owner, step.Ticket))
		}
		f.sweep(&b)
		emit(b)
		return
	}
	wanted := map[bool]kind{true: ask, false: release}[step.Ask]
	if step.Passage == Reached {
		wanted++ // the reply
	}
	for i, m := range b.s.net {
		if m.kind != wanted || m.own != own || (m.next != 0) != (step.Next != "") || i > 0 && m == b.s.net[i-1] {
			continue
		}
		n := b
		n.s.net[i] = message{}
		if m.next != 0 && !f.bind(&n, m.next, step) {
			continue
		}
		if step.Passage == Reached {
			f.hear(&n.s, 0, m)
		} else {
			f.world.send(&n.s, f.replied(m, step))
		}
		f.sweep(&n)
		emit(n)
	}
}

// bind binds the next owner to the one that was named, or reports that it is another.
func (f *follower) bind(b *branch, next owner, step Step) bool {
	name := f.names[step.Next]
	if name == 0 {
		name = uint16(len(f.names) + 1)
		if f.names[step.Owner] == 0 {
			name++
		}
	}
	if b.bound[next] == 0 {
		b.bound[next] = name
	}
	return b.bound[next] == name
}

// replied is the reply that was seen to a message.
func (f *follower) replied(m message, step Step) message {
	m.kind++
	whose := step.Owner
	if !step.Ask {
		whose = step.Next
	}
	switch r := step.Reply; {
	case r.Granted:
		m.outcome = granted
	case r.Queued:
		m.outcome, m.ticket = queued, f.ticket(whose, step.Ticket)
	case r.TooLate:
		m.outcome = late
	}
	if step.Reply.Others {
		m.notes |= others
	}
	m.runs, m.must = 0, 0
	return m
}
