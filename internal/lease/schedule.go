package lease

import "time"

// schedule is the plan of a lease's requests. The renewals are on an absolute schedule. A lease that the server has for
// less than its length is raised before. A look asks whether the lease is still held. One request is under way at a
// time. Guarded by Engine.mu from Add on.
type schedule struct {
	start       instant       // renewals are due at start + n*length/3
	length      time.Duration // of the renewals
	shortLength time.Duration // the shorter lease that the server has, until the renewal that raises it; 0: none
	renewAt     instant
	checkAt     instant // when to look whether the lease is still held; zero: not needed
	autoHandles int32   // the number of handles that want renewals
	raisesSoon  bool    // see Lease.RaiseSoon
	retrying    bool    // the last request failed; renewAt or checkAt is the end of a pause, not a point of the schedule
	inFlight    bool    // a request is under way; none is due before its reply
}

// raiseInterval is the time between the raises of leases that are raised soon. Each is raised between one and two
// intervals after its grant, so that leases of about the same time are raised in one call. A hold that is shorter than
// an interval costs no call; of holds that last for twice as long, some do.
const raiseInterval = 5 * time.Millisecond

// raiseAt returns when a lease that is raised soon, and begins at now, is raised.
func raiseAt(now instant) instant { return (now/instant(raiseInterval) + 2) * instant(raiseInterval) }

// beginShort records that the server has a lease of written, by a request that was sent at sent.
func (s *schedule) beginShort(sent instant, written time.Duration) {
	s.shortLength, s.renewAt = written, sent.Add(written/3)
	if s.raisesSoon {
		s.renewAt = min(s.renewAt, raiseAt(s.start))
	}
}

// begin plans the first renewal. If auto is set, a handle wants renewals.
func (s *schedule) begin(now instant, length time.Duration, auto bool) {
	s.length = length
	if auto {
		s.autoHandles = 1
	}
	if s.shortLength == 0 {
		s.planRenewal(now)
	}
}

// retake begins the schedule of another caller. The server has the lease that it has now, until the deadline; the next
// renewal raises it to length.
func (s *schedule) retake(now, deadline instant, length time.Duration, auto bool) {
	s.shortLength = s.serverLength() // also if it is as long: it began earlier
	s.start, s.length, s.autoHandles = now, length, 0
	s.raisesSoon, s.retrying = !auto, false
	if auto {
		s.autoHandles = 1
		s.renewAt = max(now, deadline.Add(-2*s.shortLength/3))
	} else {
		s.renewAt = raiseAt(now)
	}
}

// addHandle counts a handle that wants renewals, of at least length.
//
// While the renewal after a hand-over is due, length is the length to which the lease is raised, and renewAt the time
// of the raise. A re-entry neither delays the raise nor changes the length, unless its own lease is longer
// (TestReentry_BeforeTheRaise_KeepsTheHoldsLease).
func (s *schedule) addHandle(now instant, length time.Duration) {
	if length > s.length || s.autoHandles == 0 && s.shortLength == 0 {
		s.length = length
	}
	s.autoHandles++
	if s.shortLength == 0 {
		s.renewAt = 0
		s.planRenewal(now)
	}
}

// isRenewed reports whether the lease is renewed, and not only raised.
func (s *schedule) isRenewed() bool { return s.autoHandles > 0 }

// serverLength returns the length of the lease on the server: the time for further attempts.
func (s *schedule) serverLength() time.Duration {
	if s.shortLength > 0 {
		return s.shortLength
	}
	return s.length
}

// nextRequest returns when a request is due.
func (s *schedule) nextRequest() instant {
	next := forever
	if s.inFlight {
		return next
	}
	if s.isRenewed() || s.shortLength > 0 {
		next = s.renewAt
	}
	if !s.checkAt.IsZero() {
		next = min(next, s.checkAt)
	}
	return next
}

// readOnly is the length in a request that only looks. The reply is how long the lease has left. A look writes nothing,
// and so causes no invalidation of its own.
const readOnly = -time.Millisecond

// dueRequest reports whether a request is due at now, and returns its length: readOnly for a look.
func (s *schedule) dueRequest(now instant) (length time.Duration, ok bool) {
	if s.inFlight {
		return 0, false
	}
	// A request that is due soon is sent with the others: otherwise every lease would be a batch of its own. A retry is
	// not sent early, because its pause may be shorter than that: it would be due at once, and a server that refuses
	// quickly would be asked in a busy loop.
	renewBy, checkBy := now, now
	if !s.retrying && !(s.raisesSoon && s.shortLength > 0) { // all raises of an interval are due at the same instant
		renewBy, checkBy = now.Add(min(s.length/100, maxEarly)), now.Add(maxEarly/10)
	}
	switch {
	case s.isRenewed() && !renewBy.Before(s.renewAt):
		return s.length, true
	case s.shortLength > 0 && !renewBy.Before(s.renewAt):
		return s.raisedLength(now), true
	case !s.checkAt.IsZero() && !checkBy.Before(s.checkAt):
		return readOnly, true
	}
	return 0, false
}

// raisedLength returns the rest of the full length, to which a lease that is not renewed is raised at now.
func (s *schedule) raisedLength(now instant) time.Duration { return s.start.Add(s.length).Sub(now) }

// recordHeld records that a request of that length was answered: the server has the lease.
func (s *schedule) recordHeld(now instant, length time.Duration) {
	s.retrying = false
	if length > 0 {
		s.shortLength = 0
		s.planRenewal(now)
	}
}

// retry makes the same request due again at that instant.
func (s *schedule) retry(at instant, length time.Duration) {
	s.retrying = true
	if length > 0 {
		s.renewAt = at
	} else {
		s.checkAt = at
	}
}

// planRenewal sets the next renewal to the first point of the absolute schedule after now, and after the planned
// renewal, which may just have been sent a little early. A late renewal does not delay the later ones: delays of a few
// milliseconds each would add up until a short lease runs out (TestRenewals_Slow_KeepToTheirSchedule).
func (s *schedule) planRenewal(now instant) {
	after := max(now, s.renewAt)
	period := s.length / 3
	s.renewAt = s.start.Add((after.Sub(s.start)/period + 1) * period)
}
