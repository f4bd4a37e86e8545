package tenuremodel

// The server: what acquire.lua, release.lua and lib/handover.lua of package rlock do.

func (s *state) unqueue(o owner) {
	n, rest := 0, [places]owner{}
	for _, other := range s.queue {
		if other != 0 && other != o {
			rest[n] = other
			n++
		}
	}
	s.queue = rest
}

// enqueue is enter of handover.lua.
func (w *world) enqueue(s *state, o owner) (ticket uint8) {
	for i, other := range s.queue {
		if other == o {
			return s.tickets[o]
		}
		if other == 0 {
			s.queue[i] = o
			s.tickets[o] = min(s.tickets[o]+1, 3)
			return s.tickets[o]
		}
	}
	w.overflows++
	return 0
}

// take makes an owner the holder.
func (s *state) take(o owner) {
	s.unqueue(o)
	s.holder, s.lease, s.waited = o, leaseTime, 0
	if t := s.of(o); t != nil {
		t.mark(forgiven, false)
		t.mark(crowded, s.contended(o))
	}
}

// contended reports whether another process than the owner's is in the queue, and a caller waits there.
func (s *state) contended(o owner) bool {
	for _, other := range s.queue {
		if other != 0 && other.process() != o.process() && s.proc[other.process()].waiting > 0 {
			return true
		}
	}
	return false
}

// handOver is hand_over of handover.lua: it makes the first in the queue the holder. It reports
// false if no caller is in line, or the first is me.
func (w *world) handOver(s *state, me owner) bool {
	o := s.queue[0]
	if o == 0 || o == me {
		return false
	}
	s.unqueue(o)
	s.take(o)
	w.send(s, message{kind: grant, own: o, ticket: s.tickets[o]})
	return true
}

// run runs a request, and sends the reply.
func (w *world) run(s *state, m message) {
	r := w.reply(s, m)
	if m.notes&copied == 0 {
		w.send(s, r)
	} else if m.kind == ask && r.outcome != late {
		s.twice = m.own
	}
}

func (w *world) reply(s *state, m message) (r message) {
	r = message{own: m.own, next: m.next, age: m.age, notes: m.notes}
	switch m.kind {
	case ask:
		r.kind = askReply
		w.runAsk(s, m, &r)
	case release:
		r.kind = releaseReply
		w.runRelease(s, m, &r)
	case transfer:
		w.runTransfer(s, m, &r)
	}
	return r
}

// runTransfer is take_over of lib/acquire.lua: own holds the lock in place of next. The queue stays as it is.
func (w *world) runTransfer(s *state, m message, r *message) {
	switch {
	case m.runs == 0 && w.on(notAfter):
		r.outcome = late
	case s.holder == m.own, s.holder == m.next && m.next != 0:
		r.outcome, s.holder, s.lease = granted, m.own, leaseTime
	}
}

// forget takes the lock from its holder, who does not know.
func (s *state) forget() {
	if t := s.of(s.holder); t != nil {
		t.mark(forgiven, true)
	}
	s.holder, s.lease, s.waited = 0, 0, 0
}

func (w *world) runAsk(s *state, m message, r *message) {
	switch {
	case m.runs == 0 && w.on(notAfter):
		r.outcome = late
	case s.holder == m.own:
		r.outcome, s.lease = granted, leaseTime
		r.notes |= others
		s.unqueue(m.own)
	case s.holder == 0 && s.queue[0] == 0:
		r.outcome = granted
		s.take(m.own)
	case s.holder == 0 && !w.handOver(s, m.own):
		r.outcome = granted
		r.notes |= others
		s.take(m.own)
	default:
		r.outcome, r.ticket = queued, w.enqueue(s, m.own)
	}
}

func (w *world) runRelease(s *state, m message, r *message) {
	found := s.holder == m.own
	s.unqueue(m.own)
	if found {
		s.holder, s.lease, s.waited = 0, 0, 0
	} else if m.must > 0 {
		s.found = UnlockToldLost
	}
	naming := m.next != 0 && (m.runs > 0 || !w.on(notAfter)) && (found || !w.on(nameOnce) && s.holder == 0)
	waited := s.queue[0] != 0
	switch {
	case s.holder != 0:
		return
	case !naming:
		w.handOver(s, 0)
		return
	case waited:
		r.outcome, r.ticket = queued, w.enqueue(s, m.next)
		if w.handOver(s, m.next) {
			return
		}
		r.notes |= others
	}
	r.outcome = granted
	s.take(m.next)
}

// Server is the model's server alone, to be compared with the scripts. An owner is its process and its number there,
// from 1 to 6.
type Server struct {
	w world
	s state
}

// Owner is one of a Server's owners.
type Owner struct{ Process, Number int }

func (o Owner) number() owner {
	if o.Number == 0 {
		return 0
	}
	return owner(o.Process*perOwner + o.Number)
}

func (o owner) exported() Owner {
	if o == 0 {
		return Owner{}
	}
	return Owner{o.process(), (int(o)-1)%perOwner + 1}
}

// Reply is that to a request: of an Ask, what has become of its owner, and of a Release, what has become of the next,
// and whether it found its own.
type Reply struct{ Found, Granted, Queued, TooLate, Others bool }

func (x *Server) run(m message, tooLate bool) Reply {
	if !tooLate {
		m.runs = 1
	}
	found := x.s.holder == m.own
	r := x.w.reply(&x.s, m)
	return Reply{m.kind == release && found, r.outcome == granted, r.outcome == queued, r.outcome == late,
		r.outcome == granted && r.notes&others != 0}
}

// Ask is acquire.lua.
func (x *Server) Ask(o Owner, tooLate bool) Reply {
	return x.run(message{kind: ask, own: o.number()}, tooLate)
}

// Release is release.lua; next may be the zero Owner.
func (x *Server) Release(o, next Owner, tooLate bool) Reply {
	return x.run(message{kind: release, own: o.number(), next: next.number()}, tooLate)
}

// Transfer is acquire.lua with the owner that o replaces.
func (x *Server) Transfer(o, from Owner, tooLate bool) Reply {
	return x.run(message{kind: transfer, own: o.number(), next: from.number()}, tooLate)
}

// Expire ends the lease.
func (x *Server) Expire() { x.s.holder = 0 }

// Look returns the holder, the queue, and to whom grants were sent since the last look.
func (x *Server) Look() (holder Owner, queue, grants []Owner) {
	for _, o := range x.s.queue {
		if o != 0 {
			queue = append(queue, o.exported())
		}
	}
	for _, m := range x.s.net {
		if m.kind == grant {
			grants = append(grants, m.own.exported())
		}
	}
	x.s.net = [messages]message{}
	return x.s.holder.exported(), queue, grants
}
