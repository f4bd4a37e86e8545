package tenuremodel

// The properties that a state can violate.
const (
	TwoInside               = "two callers work at once, and both trust their lease"
	EndedContextEnters      = "a context of an ended turn enters"
	KnownOwnerPassed        = "an owner that is known elsewhere is another caller's"
	TurnLongAfterALoss      = "a turn begins later after a loss than the bound allows"
	UnlockToldLost          = "an Unlock in time, without a fault, finds nothing"
	PassedWhileOthersStarve = "a turn is passed on while another process has queued for longer than a tenure lasts"
	PassedTooOften          = "more turns follow than callers waited, and another process waits"
	Orphan                  = "the server has a holder that no caller will release"
	NoProgress              = "nothing goes wrong any more, and a caller waits forever, or the lock stays taken"
)

// check returns what does not hold in s.
func (w *world) check(s *state) string {
	if s.found != "" {
		return s.found
	}
	n := 0
	for pi := range s.proc {
		for ti := range s.proc[pi].tenures {
			n += s.proc[pi].tenures[ti].acting()
		}
	}
	if n > 1 {
		return TwoInside
	}
	o := s.holder
	if o == 0 || o == s.twice && !w.strict {
		return ""
	}
	if t := s.of(o); t == nil || t.is == held && t.caller == noCaller {
		return Orphan
	}
	return ""
}

// acting counts the callers that work by a tenure, and may believe that they alone do.
func (t *tenure) acting() int {
	if t.is == nothing || t.has(forgiven) {
		return 0
	}
	if t.caller == inside && (t.trust > 0 || t.has(overdue)) {
		return 1
	}
	return 0
}

// calm has everything go well from s on: no caller comes or gives up, nothing is lost or late, and the caller that
// works unlocks. It reports whether all have been served and the lock is free in the end.
func (w *world) calm(s state) bool {
	s.left = Faults{}
	for pi := range s.proc {
		p := &s.proc[pi]
		p.arrivals, p.paused, p.asleep = 0, false, false
		w.startNext(&s, pi)
	}
	out := w.overflows
	for range calmTime {
		for n := 0; w.calmly(&s); n++ {
			if n > 200 {
				return false
			}
		}
		s.pass()
		w.tidy(&s)
	}
	if w.overflows > out { // the model's end, not the protocol's
		return true
	}
	for pi := range s.proc {
		if s.proc[pi].waiting > 0 {
			return false
		}
	}
	return s.holder == 0
}

// calmly does one thing; false: there is nothing to do in this tick.
func (w *world) calmly(s *state) bool {
	defer w.tidy(s)
	if w.deliver(s) {
		return true
	}
	for pi := range s.proc {
		p := &s.proc[pi]
		for ti := range p.tenures {
			t := &p.tenures[ti]
			switch a := w.due(s, p, t); {
			case t.is == held && t.caller == given:
				w.takeTurn(s, pi, t)
			case t.caller == inside, t.caller == stopped:
				w.unlock(s, pi, t)
			case a != quiet:
				w.ring(s, pi, t, a)
			default:
				continue
			}
			return true
		}
	}
	return false
}

// deliver has the first message arrive; false: there is none.
func (w *world) deliver(s *state) bool {
	for i, m := range s.net {
		if m.kind == noMessage {
			continue
		}
		s.net[i] = message{}
		if m.kind.request() {
			w.run(s, m)
		} else {
			w.hear(s, m.own.process(), m)
		}
		return true
	}
	return false
}
