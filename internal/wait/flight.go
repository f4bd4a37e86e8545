package wait

import "time"

// Flight is one result for all waiters of this client that wait for the same event: a latch that opens, or the end of a
// barrier's generation. One of them asks the server, as the loop has it, or hears a message that tells all, and
// publishes what it learned; the others load that. So an event costs a client at most one request however many wait,
// and what follows the event cannot hide it from those that have not asked yet:
//
//	first waiter                    second waiter                another process
//	asks: closed
//	                                stands behind the first
//	                                                             opens the latch, sets it again at once
//	asks: it has been opened since
//	the first's last request
//	publishes that, leaves
//	                                loads it; had it asked, it
//	                                would read "closed"
//
// An answer is for every waiter that came before the request was sent, and for no other: a later one may wait for the
// next event (TestFlight_Result_IsForEarlierCallersOnly).
type Flight struct {
	q       *Waiters
	key     string
	members int
	result  dated
	note    dated
}

// dated is what was learned from a request that was sent at that time; zero: nothing was.
type dated struct {
	sent  time.Time
	value any
}

// JoinFlight adds the caller to those that share the result of a key, until it calls Leave. first: there is no other
// now.
func (q *Waiters) JoinFlight(key string) (s *Flight, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s = q.flights[key]
	if s == nil {
		s = &Flight{q: q, key: key}
		q.flights[key] = s
	}
	s.members++
	return s, s.members == 1
}

// Leave ends the caller's part. What the last one leaves behind is forgotten.
func (s *Flight) Leave() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.members--; s.members == 0 {
		delete(s.q.flights, s.key)
	}
}

// Publish tells the others that the event has come, as the server replied to a request sent at sent. If it is only
// known to have come after an earlier request, and so may be another event than the newest waiters wait for, sent is
// that request's time.
func (s *Flight) Publish(sent time.Time, result any) { s.set(&s.result, sent, result) }

// Load returns what was published of a request that was sent no earlier than since, when the caller came.
func (s *Flight) Load(since time.Time) (result any, ok bool) {
	result, sent := s.get(&s.result, since)
	return result, !sent.IsZero()
}

// Note keeps what the server replied to a request sent at sent while the event was yet to come: the next request can
// carry it, and learn of the event by the difference.
func (s *Flight) Note(sent time.Time, note any) { s.set(&s.note, sent, note) }

// LastNote returns the note of a request that was sent no earlier than since, and when that was; zero if there is none.
func (s *Flight) LastNote(since time.Time) (note any, sent time.Time) { return s.get(&s.note, since) }

func (s *Flight) set(d *dated, sent time.Time, value any) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	*d = dated{sent, value}
}

func (s *Flight) get(d *dated, since time.Time) (value any, sent time.Time) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if d.sent.IsZero() || d.sent.Before(since) {
		return nil, time.Time{}
	}
	return d.value, d.sent
}
