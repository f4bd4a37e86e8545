package tenuremodel

import "fmt"

// happening is what an event is.
type happening uint8

const (
	arrives happening = iota
	asksNoMore
	givesUp
	turnBegins
	turnDeclined
	unlocks
	drops
	tells
	renews
	forces
	oldContext
	timer
	pauses
	sleeps
	wakes
	closes
	crashes
	runs
	reaches
	loses
	doubles
	flushes
	tick
	happenings
)

func (h happening) String() string {
	return [happenings]string{
		"a caller comes", "the caller that asks gives up", "a caller gives up", "a turn begins",
		"a caller leaves that was given its turn", "Unlock",
		"a handle is dropped", "the owner is passed on", "a renewal is sent", "ForceUnlock",
		"a context of an earlier turn enters", "a timer:",
		"is paused", "sleeps, and its clock stands still", "wakes", "is closed", "crashes", "the server runs", "arrives",
		"is lost", "is doubled", "FLUSHALL", "a tick",
	}[h]
}

// event is one step.
type event struct {
	what    happening
	process int
	own     owner
	alarm   alarm
	m       message
}

func (e event) String() string {
	switch {
	case e.m.kind != noMessage:
		text := fmt.Sprintf("%v: %v of %v", e.what, e.m.kind, e.m.own)
		if e.m.next != 0 {
			text += fmt.Sprintf(", which names %v", e.m.next)
		}
		switch e.m.kind {
		case askReply, releaseReply:
			text += ": " + [...]string{"", "granted", "queued", "too late"}[e.m.outcome]
		}
		return text
	case e.what == timer:
		return fmt.Sprintf("%c: %v", 'A'+e.process, e.alarm)
	case e.what == flushes, e.what == tick:
		return e.what.String()
	}
	return fmt.Sprintf("%c: %v", 'A'+e.process, e.what)
}

func (o owner) String() string {
	if o == 0 {
		return "no caller"
	}
	return fmt.Sprintf("%c%d", 'a'+o.process(), (int(o)-1)%perOwner+1)
}

// alarm is what a process has to do before time goes on.
type alarm uint8

const (
	quiet alarm = iota
	noReply
	poll
	deadline
	releaseAgain
	forgotten
	alarms
)

func (a alarm) String() string {
	return [alarms]string{"nothing", "no reply, the request is given up", "it polls", "the deadline",
		"the release is sent again", "nothing is left of what was dropped"}[a]
}

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
	case dropped:
		switch {
		case t.caller == astray && t.trust == 0:
			return deadline
		case t.trust == 0 && t.runs == 0 && s.holder != t.own:
			return forgotten
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
	case forgotten:
		t.become(nothing)
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
	w.ofNetwork(s, do)
	if s.left.Flushes > 0 {
		do(event{what: flushes}, func(n *state) {
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
	at := func(h happening) event { return event{what: h, process: pi} }
	switch {
	case p.crashed:
		return
	case p.paused:
		do(at(wakes), func(n *state) {
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
		do(at(arrives), func(n *state) { w.arrive(n, pi) })
	}
	if s.left.Forced > 0 && s.holder != 0 && s.holder.process() == pi {
		do(at(forces), func(n *state) {
			n.left.Forced--
			w.send(n, message{kind: force, own: owner(pi*perOwner + 1)})
		})
	}
	if h := p.head(); p.waiting > 0 {
		asks := h != nil && h.is == asking && h.has(attended)
		if asks {
			do(at(asksNoMore), func(n *state) { w.leave(n, pi, true) })
		}
		if !asks || p.waiting > 1 {
			do(at(givesUp), func(n *state) { w.leave(n, pi, false) })
		}
	}
	for ti := range p.tenures {
		w.ofTenure(s, pi, ti, do)
	}
}

// strike are the things that happen to a process which has something.
func (w *world) strike(s *state, pi int, do doing) {
	is := func(h happening, left func(*Faults) *uint8, f func(n *state, p *process)) {
		if *left(&s.left) == 0 {
			return
		}
		do(event{what: h, process: pi}, func(n *state) {
			*left(&n.left)--
			f(n, &n.proc[pi])
		})
	}
	is(pauses, func(b *Faults) *uint8 { return &b.Pauses }, func(_ *state, p *process) { p.paused = true })
	is(sleeps, func(b *Faults) *uint8 { return &b.Sleeps }, func(_ *state, p *process) { p.paused, p.asleep = true, true })
	is(crashes, func(b *Faults) *uint8 { return &b.Crashes }, func(_ *state, p *process) { *p = process{crashed: true} })
	if !s.proc[pi].closed && s.room(3) {
		is(closes, func(b *Faults) *uint8 { return &b.Closes }, func(n *state, _ *process) { w.shut(n, pi) })
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
	at := func(h happening, f func(n *state, t *tenure)) {
		do(event{what: h, process: pi, own: t.own}, func(n *state) { f(n, &n.proc[pi].tenures[ti]) })
	}
	switch {
	case t.is == held && t.caller == given:
		at(turnBegins, func(n *state, t *tenure) { w.takeTurn(n, pi, t) })
		at(turnDeclined, func(n *state, t *tenure) { w.leaveTurn(n, pi, t) })
	case t.caller == inside, t.caller == stopped:
		at(unlocks, func(n *state, t *tenure) { w.unlock(n, pi, t) })
	}
	if t.is == held && t.caller == inside {
		if s.left.Drops > 0 {
			at(drops, func(n *state, t *tenure) {
				n.left.Drops--
				w.forsake(n, pi, t)
			})
		}
		if s.left.PassedOn > 0 && !t.has(known) {
			at(tells, func(n *state, t *tenure) {
				n.left.PassedOn--
				t.mark(known|barred, true)
			})
		}
		if s.left.Renewals > 0 && t.trust > 0 && t.trust < trustTime && s.flying(renew, t.own) == 0 {
			at(renews, func(n *state, t *tenure) {
				n.left.Renewals--
				w.send(n, message{kind: renew, own: t.own, notes: live})
				if !w.on(confirmedRenewal) {
					t.trust = trustTime
				}
			})
		}
	}
	if t.has(memory) && t.is == held {
		at(oldContext, func(n *state, _ *tenure) { n.found = EndedContextEnters })
	}
	if a := w.due(s, p, t); a != quiet {
		do(event{what: timer, process: pi, own: t.own, alarm: a}, func(n *state) {
			w.ring(n, pi, &n.proc[pi].tenures[ti], a)
		})
	}
}

// ofNetwork are the events of what is under way.
func (w *world) ofNetwork(s *state, do doing) {
	for i, m := range s.net {
		if m.kind == noMessage || i > 0 && m == s.net[i-1] {
			continue
		}
		at := func(h happening, f func(n *state)) {
			do(event{what: h, m: m}, func(n *state) {
				n.net[i] = message{}
				f(n)
			})
		}
		switch {
		case m.kind.request():
			if s.room(2) {
				at(runs, func(n *state) {
					w.run(n, m)
					if m.kind == force {
						n.pardon()
					}
				})
			}
			if s.left.Doubled > 0 && (m.kind == ask || m.kind == release) && m.notes&copied == 0 && s.room(1) {
				at(doubles, func(n *state) {
					n.left.Doubled--
					m := m
					m.must = 0
					n.net[i] = m
					m.notes = m.notes&^live | copied
					w.send(n, m)
				})
			}
		case !s.proc[m.own.process()].paused && s.room(1):
			at(reaches, func(n *state) { w.hear(n, m.own.process(), m) })
		}
		if s.left.Lost > 0 {
			at(loses, func(n *state) { n.left.Lost-- })
		}
	}
}

func (k kind) request() bool { return k == ask || k == release || k == renew || k == force }

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
	do(event{what: tick}, func(n *state) {
		if late {
			n.left.Late--
		}
		n.pass()
	})
}
