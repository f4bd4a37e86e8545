package tenuremodel

// What a process does with what reaches it.

func (w *world) hear(s *state, pi int, m message) {
	t := s.of(m.own)
	switch m.kind {
	case askReply:
		if t != nil && m.notes&live != 0 && (t.is == asking || t.is == leaving) {
			w.answered(s, pi, t, m)
		} else if t != nil && (m.outcome == granted || m.outcome == queued) {
			w.tooLate(s, t)
		}
	case releaseReply:
		w.released(s, pi, t, m)
	case grant:
		if t != nil {
			w.granted(s, t, m.ticket)
		}
	}
	w.startNext(s, pi)
}

// answered is the answer to a request for which a caller waits.
func (w *world) answered(s *state, pi int, t *tenure, m message) {
	switch m.outcome {
	case granted:
		w.obtain(s, pi, t, trusted(m.age), m.notes&others != 0)
	case queued:
		w.refuse(s, t, m.ticket, m.age)
	default: // too late, or a release that could not name it: it asks, or is not waited for any more
		t.asked = 0
		if t.is == leaving {
			w.giveBack(s, t)
		} else {
			w.request(s, t)
		}
	}
}

func trusted(age uint8) uint8 {
	if age >= trustTime {
		return 0
	}
	return trustTime - age
}

// released is the answer to a release, of its own and of the request for the next tenure.
func (w *world) released(s *state, pi int, t *tenure, m message) {
	if n := s.of(m.next); n != nil && m.notes&liveNext != 0 && (n.is == asking || n.is == leaving) {
		w.answered(s, pi, n, m)
		t = s.of(m.own)
	}
	if t == nil || m.notes&live == 0 || t.is != releasing && t.is != pending {
		return
	}
	t.asked = 0
	switch {
	case t.has(again):
		t.mark(again, false)
		if t.is == releasing {
			t.become(pending)
		}
		w.sendRelease(s, t, 0, false)
	case m.notes&final != 0:
		t.is = pending
		t.become(nothing)
	case t.is == releasing:
		t.become(pending)
	}
}

// tooLate is the reply to a request that was given up, which was granted or queued all the same: Holding.Late.
func (w *world) tooLate(s *state, t *tenure) {
	switch t.is {
	case asking:
		if t.asked == 0 {
			w.request(s, t)
		}
	case releasing:
		if w.on(notBeside) {
			t.mark(again, true)
		} else if s.flying(release, t.own) < 2 {
			w.send(s, message{kind: release, own: t.own})
		}
	case pending:
		w.kick(s, t)
	}
}

// granted is deliver of internal/wait: a grant that a hand-over has published.
func (w *world) granted(s *state, t *tenure, ticket uint8) {
	switch {
	case t.is == asking && t.asked > 0:
		t.grant = max(t.grant, ticket)
	case t.is == asking:
		t.grant = max(t.grant, ticket)
		w.look(s, t)
	case t.is == pending:
		w.kick(s, t)
	}
}
