package tenuremodel

// What a process does: rlock/tenancy.go, turn.go and waiter.go, and the releases of internal/session.

// begin makes a tenure that asks; nil if the model has no more room.
func (w *world) begin(s *state, pi int) *tenure {
	used := s.owners()
	p := &s.proc[pi]
	for i := range p.tenures {
		t := &p.tenures[i]
		if t.is != nothing {
			continue
		}
		for o := owner(pi*perOwner + 1); o <= owner((pi+1)*perOwner); o++ {
			if !used[o] {
				t.own = o
				t.become(asking)
				return t
			}
		}
	}
	w.overflows++
	return nil
}

// request sends a request for a tenure.
func (w *world) request(s *state, t *tenure) {
	t.asked, t.idle = 1, 0
	w.send(s, message{kind: ask, own: t.own, runs: callTime + 1, notes: live})
}

// startNext is tenancies.next: where callers wait, and the process neither asks nor holds, another tenure is asked for.
func (w *world) startNext(s *state, pi int) {
	p := &s.proc[pi]
	if p.waiting == 0 || p.paused || p.deaf || p.head() != nil {
		return
	}
	if t := w.begin(s, pi); t != nil {
		w.request(s, t)
	}
}

// arrive is a caller that comes: tenancies.acquire.
func (w *world) arrive(s *state, pi int) {
	p := &s.proc[pi]
	p.arrivals--
	p.waiting++
	if p.head() != nil || p.deaf {
		return
	}
	if t := w.begin(s, pi); t != nil {
		t.mark(attended, true)
		w.request(s, t)
	}
}

// giveUp gives a request up that is under way, but not on the server: it may still run.
func (w *world) giveUp(s *state, t *tenure) {
	if t.asked == 0 {
		return
	}
	named := false
	for i := range s.net {
		switch m := &s.net[i]; m.kind {
		case ask, askReply:
			if m.own == t.own {
				m.notes &^= live
			}
		case release, releaseReply:
			if m.next == t.own {
				m.notes &^= liveNext
				named = true
			}
		}
	}
	if t.asked < callTime+2 && (!named || w.on(namingCounts)) {
		t.runs = max(t.runs, callTime+2-t.asked)
	}
	t.asked = 0
}

// leave is a caller that gives up while it waits: askHere and await. asker: the one on whose goroutine the request is.
func (w *world) leave(s *state, pi int, asker bool) {
	p := &s.proc[pi]
	p.waiting--
	t := p.head()
	switch {
	case t == nil:
	case t.is == asking && asker:
		w.giveUp(s, t)
		t.mark(attended, false)
		if p.waiting > 0 {
			w.request(s, t)
		} else {
			w.withdraw(s, t)
		}
	case t.is == asking:
		if p.waiting == 0 && w.on(withdrawal) {
			w.withdraw(s, t)
		}
	case p.waiting == 0:
		w.dropLine(t)
	}
}

// withdraw ends a request for which no caller waits.
func (w *world) withdraw(s *state, t *tenure) {
	if t.asked > 0 {
		t.become(leaving)
		return
	}
	w.giveBack(s, t)
}

// dropLine is tenancies.drop: no caller waits behind a tenure any more.
func (w *world) dropLine(t *tenure) {
	if t.turns != anyTurns && w.on(barBehindOthers) {
		t.mark(barred, true)
	}
	t.turns = anyTurns
}

// give gives the first in the line its turn.
func (w *world) give(s *state, pi int, t *tenure, follows bool) {
	p := &s.proc[pi]
	p.waiting--
	t.caller = given
	t.mark(passed, follows)
	if p.waiting == 0 {
		w.dropLine(t)
	}
}

// obtain is what comes of a grant, of which so much is trusted: finish.
func (w *world) obtain(s *state, pi int, t *tenure, trust uint8, others bool) {
	p := &s.proc[pi]
	t.asked, t.grant = 0, 0
	switch {
	case t.is == leaving, t.is == asking && trust == 0: // withdrawn; or a reply slower than its lease
		if t.is == leaving && !w.on(releaseAtOnce) {
			t.become(pending)
			t.become(nothing)
			return
		}
		w.giveBack(s, t)
	case t.is == asking:
		t.become(held)
		t.trust, t.age, t.turns = trust, 0, anyTurns
		t.mark(attended, false)
		if others && p.waiting > 0 && w.on(countTurns) {
			t.turns = p.waiting - 1
		}
		if t.allowed = anyTurns; t.has(crowded) && p.waiting > 0 {
			t.allowed = p.waiting - 1
		}
		if p.waiting > 0 {
			w.give(s, pi, t, false)
		}
	}
}

// refuse is what comes of an answer that another owner has the lock.
func (w *world) refuse(s *state, t *tenure, ticket, age uint8) {
	t.asked, t.idle = 0, 0
	switch t.is {
	case leaving:
		w.giveBack(s, t)
	case asking:
		if ticket >= t.ticket {
			t.ticket, t.since = ticket, age
		}
		if t.grant != 0 {
			w.look(s, t)
		}
	}
}

// look looks at a grant, while no request is under way: taken of internal/wait, and Taken. If it is not used the server
// is asked.
func (w *world) look(s *state, t *tenure) {
	since := t.since
	if !w.on(lastWait) {
		since = 0
	}
	matches := t.grant == t.ticket || !w.on(ticketOfTheRefusal)
	if t.grant <= t.ticket || matches {
		t.grant = 0
	}
	if matches && leaseTime-since >= leaseTime/2 && since < trustTime {
		w.obtain(s, t.own.process(), t, trustTime-since, true)
		return
	}
	if s.flying(ask, t.own) < 2 {
		w.request(s, t)
	}
}

// mayPass reports whether another caller may follow: Holding.pass and owner.Next.
func (w *world) mayPass(p *process, t *tenure) bool {
	return p.waiting > 0 && t.turns > 0 && (!t.has(barred) || !w.on(knownIsBarred)) &&
		(t.age < tenureTime || !w.on(giverTime)) && t.trust > 0
}

// unlock is Handle.release.
func (w *world) unlock(s *state, pi int, t *tenure) {
	p := &s.proc[pi]
	if !w.on(oneCallersTurn) {
		t.mark(memory, true)
	}
	intime := t.caller == inside && t.trust > 0 && !t.has(forgiven|overdue) ||
		t.is == ended && t.trust > 0 && !t.has(forgiven)
	t.caller = noCaller
	if t.is == ended && t.trust == 0 {
		w.giveBack(s, t)
		return
	}
	if t.is == held && w.mayPass(p, t) {
		if t.turns != anyTurns {
			t.turns--
		}
		switch {
		case s.waited >= starved && t.age >= starved && s.holder == t.own: // a grant that is late itself bounds nothing
			s.found = PassedWhileOthersStarve
		case t.allowed == 0 && s.holder == t.own && s.contended(t.own):
			s.found = PassedTooOften
		case t.allowed != anyTurns:
			t.allowed--
		}
		w.give(s, pi, t, true)
		return
	}
	follows := t.is == held && p.waiting > 0
	must := t.trust
	if !intime {
		must = 0
	}
	t.become(releasing)
	w.sendRelease(s, t, must, follows)
}

// sendRelease sends a release once. follows: it names the next tenure, if there is room for one.
func (w *world) sendRelease(s *state, t *tenure, must uint8, follows bool) {
	m := message{kind: release, own: t.own, must: must, notes: live}
	if t.runs == 0 || !w.on(repeat) || t.runs == 1 && !w.on(wholeMillisecond) {
		m.notes |= final
	}
	t.asked = 1
	if follows {
		if n := w.begin(s, t.own.process()); n != nil {
			m.next, m.runs = n.own, callTime+1
			m.notes |= liveNext
			n.asked = 1
		}
	}
	w.send(s, m)
}

// giveBack has a tenure released in the background: Abandon, Retreat, and the Unlock of what is over by the local
// clock.
func (w *world) giveBack(s *state, t *tenure) {
	t.become(pending)
	t.caller = noCaller
	w.sendRelease(s, t, 0, false)
}

// kick has a pending release sent now.
func (w *world) kick(s *state, t *tenure) {
	if t.asked > 0 {
		t.mark(again, true)
		return
	}
	w.sendRelease(s, t, 0, false)
}

// takeTurn is take: the caller that was given its turn runs.
func (w *world) takeTurn(s *state, pi int, t *tenure) {
	if t.has(passed) {
		if t.age >= tenureTime && w.on(takerTime) || t.trust == 0 && w.on(takerTrust) {
			s.proc[pi].waiting++
			w.giveBack(s, t) // Decline
			w.startNext(s, pi)
			return
		}
		t.mark(overdue, t.trust == 0)
		if t.has(known) {
			s.found = KnownOwnerPassed
		}
		if t.has(forgiven) && s.flushed > tenureTime+1 && t.age > tenureTime {
			s.found = TurnLongAfterALoss
		}
	}
	t.caller = inside
}

// leaveTurn is a caller whose context ends between its turn's gift and its own look.
func (w *world) leaveTurn(s *state, pi int, t *tenure) {
	if !w.on(declining) {
		t.caller = noCaller
		return
	}
	w.giveBack(s, t)
	w.startNext(s, pi)
}

// lose ends a tenure that is over by the deadline or by the server's word: Holding.lost. The caller that works learns
// of it.
func (w *world) lose(s *state, pi int, t *tenure) {
	p := &s.proc[pi]
	t.trust = 0
	switch {
	case t.caller == given: // it finds out when it takes its turn, and waits on
		p.waiting++
		w.giveBack(s, t)
	case w.on(lossEndsTheTurn):
		t.become(ended)
		t.caller = stopped
	default:
		t.become(ended)
		t.mark(overdue, true)
	}
	if !w.on(successorAfterALoss) {
		p.deaf = true
	}
	w.startNext(s, pi)
}
