package rsemaphore_test

import (
	"maps"
	"slices"
)

// simHold is what the server has of one acquisition: one record whatever its weight, as of a WeightedSemaphore. A Semaphore has n
// records with the same end, which are written and removed together.
type simHold struct {
	n   int64
	end float64
}

// simEntry is a waiter in the server's queue.
type simEntry struct {
	base, proc int
	n          int64
	ticket     float64
	passed     int64 // that went past it while it was first
}

// simState is what is in the keys. A replica has a copy of an earlier one.
type simState struct {
	capacity, avail int64
	out             map[int]simHold // leased: the permits out. Counting: given, and not claimed yet
	marks           map[int]float64 // counting: acquisitions that were claimed, by base, and releases, by -base
	queue           []simEntry
	stamp           map[int]float64
	ticket          float64
	javaTill        float64
	javaN           int64
}

func (s *simState) clone() simState {
	c := *s
	c.out, c.marks, c.stamp, c.queue = maps.Clone(s.out), maps.Clone(s.marks), maps.Clone(s.stamp), slices.Clone(s.queue)
	return c
}

func (s *simState) outside() (sum int64) {
	for _, h := range s.out {
		sum += h.n
	}
	return sum
}

// total is the capacity as the server knows it. That of a CountingSemaphore it does not know.
func (s *simState) total(counting bool) int64 {
	if counting {
		return 1 << 60
	}
	return s.avail + s.outside()
}

func (s *simState) dequeue(base int) {
	s.queue = slices.DeleteFunc(s.queue, func(e simEntry) bool { return e.base == base })
}

// simServer is the primary: its state, and the writes that its replica has not seen yet.
type simServer struct {
	simState
	w       *simWorld
	behind  float64 // its clock, after a failover
	caller  int     // the process whose call runs, -1: none
	journal []simWrite
	seen    float64 // when the replica will have the last write
	lag     float64 // beside what is usual
	// migration: until when no script of ours runs, and until when none that needs the queue
	split, queueless float64
}

// simWrite is the state after a write, and when the replica has it.
type simWrite struct {
	at    float64
	state simState
}

func (s *simServer) now() float64 { return s.w.now - s.behind }

// wrote hands the state to the replica, which has it a little later, in order.
func (s *simServer) wrote() {
	if !s.w.failover {
		return
	}
	s.seen = max(s.seen, s.w.now+s.lag+2*s.w.r.Float64())
	old := 0
	for old+1 < len(s.journal) && s.journal[old+1].at <= s.w.now {
		old++
	}
	s.journal = append(s.journal[old:], simWrite{s.seen, s.clone()})
}

// failOver makes the replica the primary. What it has not seen is forgotten. Its clock is behind by as much.
func (s *simServer) failOver(behind float64) {
	w := s.w
	for len(s.journal) > 0 && s.journal[0].at <= w.now {
		s.simState, s.journal = s.journal[0].state, s.journal[1:]
	}
	s.journal, s.seen, s.lag, s.behind = nil, 0, 0, s.behind+behind
	s.simState = s.clone()
	w.line = slices.Clone(s.queue)
	w.epoch++
	w.failedOver = w.now
	for _, p := range w.procs {
		w.at(p, w.delay(), func() { // it sees that its connection broke
			p.epoch = w.epoch
			p.poll(0)
		})
	}
}

// eligible: the entry's process listens and asks, or is the caller, even if it has died since it sent the call.
func (s *simServer) eligible(e simEntry) bool {
	return e.proc == s.caller || s.w.procs[e.proc].connected && s.now()-max(s.stamp[e.proc], e.ticket/1000) <= simStale
}

// prune gives back what is over. ZREM and INCRBY are one script, so a lease that is over is given back once.
func (s *simServer) prune() {
	for _, b := range slices.Sorted(maps.Keys(s.out)) {
		if h := s.out[b]; s.now() >= h.end && (s.w.mutant != "unreturned") {
			delete(s.out, b)
			if s.w.mutant != "prune" || !s.w.foreign[b] {
				s.avail += h.n
			}
		}
	}
	for b, end := range s.marks {
		if s.now() >= end {
			delete(s.marks, b)
		}
	}
}

func (s *simServer) reserved() int64 {
	if s.javaTill > s.now() {
		return s.javaN
	}
	return 0
}

func (s *simServer) allowed(n int64) int64 {
	if s.w.mutant == "budget" {
		return 8 * n
	}
	return 4 * n
}

// simAnswer is what a batch is told of one of its requests.
type simAnswer struct {
	status int
	ticket float64 // simQueued
	lease  float64 // simGranted
}

const (
	simGranted = iota
	simQueued
	simRefused // more than there is
	simFree    // not enough, and no queue to stand in: the slot is being migrated
)

// simWord tells a process of a grant, or with ticket 0 that it is to ask.
type simWord struct {
	base   int
	ticket float64
}

type simReply struct {
	again bool // refused, not run: TRYAGAIN, or too late
	due   float64
	res   []simAnswer
	own   []simWord
	seen  float64 // when the replica has it
}

// take takes permits out for an acquisition. claimed: its waiter knows, or will ask; of a CountingSemaphore they are its for good.
func (s *simServer) take(base int, n int64, lease float64, claimed bool) {
	s.avail -= n
	switch {
	case s.w.counting && claimed:
		s.mark(base)
		s.w.taken[base] += n
	default:
		s.out[base] = simHold{n, s.now() + lease}
	}
}

func (s *simServer) mark(base int) {
	if s.w.mutant != "unmarked" || base < 0 {
		s.marks[base] = s.now() + simMarked
	}
}

// serve hands over to the first in line for as long as that can be served, then to those behind it within its budget.
// me is the calling process, which is told in the reply.
func (s *simServer) serve(me int) (own []simWord) {
	if s.w.now < s.queueless || s.w.mutant == "noserve" {
		return nil
	}
	others := map[int][]simWord{}
	s.caller = me
	defer func() { s.caller = -1 }()
	give := func(e simEntry) {
		s.dequeue(e.base)
		s.take(e.base, e.n, simHandOver, false)
		s.w.granted(e.base, e.n)
		if e.proc == me {
			own = append(own, simWord{e.base, e.ticket})
		} else {
			others[e.proc] = append(others[e.proc], simWord{e.base, e.ticket})
		}
	}
	for len(s.queue) > 0 {
		e := s.queue[0]
		_, out := s.out[e.base]
		_, marked := s.marks[e.base]
		switch {
		case (out || marked) && s.w.mutant != "doubled":
			// Granted while the queue could not be reached, so that the entry stayed.
			s.drop(e)
			continue
		case !s.eligible(e):
			s.drop(e)
			continue
		case e.n > s.total(s.w.counting):
			s.drop(e)
			others[e.proc] = append(others[e.proc], simWord{e.base, 0})
			continue
		case e.n <= s.avail-s.reserved():
			give(e)
			continue
		}
		i := slices.IndexFunc(s.queue[1:min(len(s.queue), 17)], func(x simEntry) bool {
			_, out := s.out[x.base]
			return !out && x.n <= s.avail-s.reserved() && e.passed+x.n <= s.allowed(e.n) && s.eligible(x)
		})
		if i < 0 {
			break
		}
		x := s.queue[1+i]
		s.queue[0].passed += x.n
		give(x)
	}
	s.tell(others)
	return own
}

func (s *simServer) drop(e simEntry) {
	s.dequeue(e.base)
	s.w.unline(e.base)
}

// tell publishes. A message that is under way when its receiver sees its connection break is not delivered.
func (s *simServer) tell(others map[int][]simWord) {
	epoch := s.w.epoch
	for _, id := range slices.Sorted(maps.Keys(others)) {
		p, words := s.w.procs[id], others[id]
		if d := s.w.messageDelay(); !s.w.lost() {
			s.w.at(p, d, func() {
				if p.epoch <= epoch {
					p.hear(words)
				}
			})
		}
	}
}

// due is when enough leases are over for the head. It is told to the head's process: in the reply, or in a message of its own.
func (s *simServer) due(me int) float64 {
	if len(s.queue) == 0 || s.w.now < s.queueless {
		return -1
	}
	e, free := s.queue[0], s.avail
	d := -1.0
	if free >= e.n {
		d = 1
	} else {
		holds := slices.SortedFunc(maps.Values(s.out), func(a, b simHold) int { return int(a.end - b.end) })
		for _, h := range holds {
			if free += h.n; free >= e.n {
				d = max(1, h.end-s.now())
				break
			}
		}
	}
	if s.reserved() > 0 {
		d = min(max(d, 0), s.javaTill-s.now()+1)
	}
	if e.proc == me {
		return d
	}
	if p := s.w.procs[e.proc]; d >= 0 && d < simPoll && !s.w.lost() {
		s.w.at(p, s.w.messageDelay(), func() { p.poll(d) })
	}
	return -1
}

// acquire runs a batch of requests, in order. Of a CountingSemaphore it is the claim, too.
func (s *simServer) acquire(p *simProc, reqs []simRequest, notAfter float64) (rp simReply) {
	if s.w.now > notAfter || s.w.now < s.split {
		return simReply{again: true}
	}
	s.prune()
	s.stamp[p.id] = s.now()
	queueless := s.w.now < s.queueless
	for _, q := range reqs {
		rp.res = append(rp.res, s.answer(p, q, queueless))
	}
	rp.own = s.serve(p.id)
	for i, q := range reqs {
		if _, out := s.out[q.base]; out && rp.res[i].status == simQueued && !s.w.counting {
			rp.res[i] = simAnswer{simGranted, 0, simHandOver}
		}
	}
	rp.due = s.due(p.id)
	s.wrote()
	rp.seen = s.seen
	return rp
}

func (s *simServer) answer(p *simProc, q simRequest, queueless bool) simAnswer {
	h, out := s.out[q.base]
	_, claimed := s.marks[q.base]
	switch {
	case claimed:
		return simAnswer{simGranted, 0, simLease}
	case out && s.w.counting:
		delete(s.out, q.base)
		s.mark(q.base)
		s.w.taken[q.base] += h.n
		return simAnswer{simGranted, 0, simLease}
	case out:
		h.end = max(h.end, s.now()+simLease)
		s.out[q.base] = h
		return simAnswer{simGranted, 0, simLease}
	case q.n > s.total(s.w.counting):
		if !queueless {
			s.dequeue(q.base)
		}
		s.w.unline(q.base)
		return simAnswer{status: simRefused}
	case (len(s.queue) == 0 || queueless || s.w.mutant == "barge") && q.n <= s.avail-s.reserved():
		s.take(q.base, q.n, simLease, true)
		if !queueless {
			s.dequeue(q.base)
			s.w.granted(q.base, q.n)
		} else {
			s.w.unline(q.base)
			s.w.tally.grants++
		}
		s.w.tally.direct++
		return simAnswer{simGranted, 0, simLease}
	case queueless:
		return simAnswer{status: simFree}
	}
	if i := slices.IndexFunc(s.queue, func(e simEntry) bool { return e.base == q.base }); i >= 0 {
		return simAnswer{status: simQueued, ticket: s.queue[i].ticket}
	}
	s.ticket = max(s.ticket+1, s.now()*1000)
	e := simEntry{base: q.base, proc: p.id, n: q.n, ticket: s.ticket}
	s.queue = append(s.queue, e)
	s.w.line = append(s.w.line, e)
	return simAnswer{status: simQueued, ticket: s.ticket}
}

// release gives back what an acquisition has, and takes it out of the queue. rest is what it keeps: 0 of all that ends. A second
// run finds less to give back. Of a CountingSemaphore permits have no names, so it is the call that is known by its mark.
func (s *simServer) release(p *simProc, base int, held, rest int64) (rp simReply) {
	if s.w.now < s.split {
		return simReply{again: true, due: -1}
	}
	if s.w.now >= s.queueless && rest == 0 {
		s.dequeue(base)
		s.w.unline(base)
	}
	back := int64(0)
	if h, out := s.out[base]; out {
		switch {
		case rest == 0:
			delete(s.out, base)
			back = h.n
		case s.w.mutant == "delta":
			back = min(held-rest, h.n-1)
			s.out[base] = simHold{h.n - back, h.end}
		case h.n > rest:
			back = h.n - rest
			s.out[base] = simHold{rest, h.end}
		}
	} else if s.w.counting {
		_, mine := s.marks[base]  // a cancelled one: was it claimed meanwhile?
		_, done := s.marks[-base] // this release ran before
		if held > 0 || mine {
			if !done || s.w.mutant == "twice" {
				if back = held; back == 0 {
					back = s.w.taken[base]
				}
				s.w.taken[base] -= back
				s.mark(-base)
			}
		}
	}
	s.avail += back
	s.w.check()
	if back > 0 && s.w.java && len(s.queue) > 0 && s.w.r.IntN(8) == 0 && s.w.now >= s.queueless {
		s.javaN = s.reserved() + back
		s.javaTill = s.now() + simOpen
		s.w.after(s.w.delay(), s.w.javaTry)
	}
	s.prune()
	if len(s.queue) > 0 {
		s.stamp[p.id] = s.now()
		rp.own = s.serve(p.id)
	}
	rp.due = s.due(p.id)
	s.wrote()
	return rp
}

// renew raises a lease. It is a script of one key, which a slot that is being migrated does not refuse.
func (s *simServer) renew(base int, n int64) (held bool, seen float64) {
	h, out := s.out[base]
	if s.w.mutant == "revive" && !out {
		s.out[base] = simHold{n, s.now() + simLease}
		return true, s.seen
	}
	if !out || h.end <= s.now() {
		return false, s.seen
	}
	h.end = max(h.end, s.now()+simLease)
	s.out[base] = h
	s.wrote()
	return true, s.seen
}

// resize changes the capacity by as much, and serves.
func (s *simServer) resize(by int64) {
	s.prune()
	s.avail += by
	s.capacity += by
	s.serve(-1)
	s.wrote()
	s.w.capacityIs(s.capacity)
}
