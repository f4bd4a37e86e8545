package rsemaphore_test

import (
	"maps"
	"slices"
)

// simProc is a process: its waiters, and the one batch call of theirs that is under way.
type simProc struct {
	w                *simWorld
	id               int
	alive, connected bool
	pausedTo         float64
	epoch            int // of the primary to which it is connected
	waiting          map[int]*simWaiter
	contended        int // of them were told to wait
	pending          []*simWaiter
	flying           bool
	pollAt           float64
	pollRun          int
}

// simWaiter is one acquisition, then its work, then its release.
type simWaiter struct {
	w            *simWorld
	p            *simProc
	base         int
	n            int64
	ticket, held float64 // the place named last, and the send of the call that named it
	early        float64 // the ticket of a grant that came before the answer that named it
	lastSent     float64
	counted      bool
	over         bool // acquired, or given up
	until        float64
	left         int // acquisitions to go
}

type simRequest struct {
	base int
	n    int64
}

func (t *simWaiter) begin() {
	w := t.w
	w.bases++
	t.base, t.n = w.bases, w.amount()
	w.procOf[t.base] = t.p
	t.ticket, t.held, t.early = -1, -1, -2
	p := t.p
	p.waiting[t.base] = t
	if p.contended == 0 {
		p.send([]*simWaiter{t}, false)
	} else {
		t.count()
		p.pending = append(p.pending, t)
		p.kick()
	}
	if !w.calm && w.r.Float64() < 0.05 {
		w.at(p, 3000*w.r.Float64(), t.cancel)
	}
}

func (t *simWaiter) count() {
	if !t.counted && !t.over {
		t.counted = true
		t.p.contended++
	}
}

func (t *simWaiter) finish() {
	t.over = true
	delete(t.p.waiting, t.base)
	if t.counted {
		t.counted = false
		t.p.contended--
	}
}

// cancel gives up. What its calls may have taken is given back, also after the last instant at which one of them can run.
func (t *simWaiter) cancel() {
	if t.over {
		return
	}
	t.finish()
	t.p.release(t.base, 0, 0, simTries)
	if d := t.lastSent + simNotAfter - t.w.now; d > 0 {
		t.w.at(t.p, d+1, func() { t.p.release(t.base, 0, 0, simTries) })
	}
	t.again()
}

func (t *simWaiter) again() {
	if t.left > 1 {
		n := &simWaiter{w: t.w, p: t.p, left: t.left - 1}
		t.w.at(t.p, 3*t.w.r.Float64(), n.begin)
	}
}

// enter begins the work, which trusts the lease until that instant. It reports whether it did.
func (t *simWaiter) enter(until float64) bool {
	w := t.w
	if w.counting {
		until = simNever
	}
	if t.over || w.now >= until {
		return false
	}
	t.finish()
	t.until = until
	w.entered(t)
	work := 5 * w.r.Float64()
	if w.r.Float64() < 0.03 || w.long && w.r.IntN(4) == 0 {
		work = 6000 * w.r.Float64()
	}
	if !w.counting {
		w.at(t.p, (until-w.now)/3, t.renew)
	}
	if w.weighted && t.n > 1 && w.r.IntN(3) == 0 {
		w.at(t.p, work*w.r.Float64(), t.part)
	}
	w.at(t.p, work, t.leave)
	return true
}

func (t *simWaiter) holds() bool { return t.w.active[t.base] == t }

func (t *simWaiter) leave() {
	delete(t.w.active, t.base)
	t.p.release(t.base, t.n, 0, simTries)
	t.again()
}

// part gives a part back and keeps the rest: it acts with less before it sends.
func (t *simWaiter) part() {
	if t.holds() {
		was := t.n
		t.n = 1 + t.w.r.Int64N(was-1)
		t.w.tally.parts++
		t.p.release(t.base, was, t.n, 2)
	}
}

// renew raises the lease at a third of what is left, and goes on.
func (t *simWaiter) renew() {
	w := t.w
	if !t.holds() {
		return
	}
	sent := w.now
	if w.mutant == "unconfirmed renewal" {
		t.until = sent + simLease - simMargin
	}
	late := 0.0
	if w.long && !w.calm && !w.failover {
		switch w.r.IntN(8) {
		case 0, 1:
			w.at(t.p, simLease/3, t.renew) // lost
			return
		case 2:
			late = simLate * w.r.Float64()
		}
	}
	if !w.lost() {
		w.after(w.delay(), func() {
			held, seen := w.server.renew(t.base, t.n)
			w.answer(t.p, seen, func(confirmed bool) {
				w.at(t.p, late, func() { t.renewed(sent, held, confirmed) })
			})
		})
	}
	w.at(t.p, simLease/3, t.renew)
}

func (t *simWaiter) renewed(sent float64, held, confirmed bool) {
	w := t.w
	switch {
	case !t.holds():
	case !held:
		delete(w.active, t.base) // it learns of its loss
	case confirmed || w.mutant == "unreplicated":
		w.tally.renewed++
		if w.mutant == "late renewal" {
			sent = w.now
		}
		t.until = max(t.until, sent+simLease-simMargin)
	}
}

// release is sent again until it is answered.
func (p *simProc) release(base int, held, rest int64, tries int) {
	w, sent, answered := p.w, p.w.now, false
	if !w.lost() {
		w.after(w.delay(), func() {
			rp := w.server.release(p, base, held, rest)
			if rp.again {
				w.at(p, w.delay(), func() { w.at(p, 100, func() { p.release(base, held, rest, tries) }) })
				answered = true
				return
			}
			if !w.lost() {
				w.at(p, w.delay(), func() {
					answered = true
					p.own(rp.own, sent)
					if rp.due >= 0 {
						p.poll(rp.due + 1)
					}
				})
			}
		})
	}
	if tries > 0 {
		w.at(p, 300, func() {
			if !answered {
				p.release(base, held, rest, tries-1)
			}
		})
	}
}

// kick sends the batch of those who wait to ask, if none is under way.
func (p *simProc) kick() {
	if p.flying || len(p.pending) == 0 {
		return
	}
	ws := slices.DeleteFunc(p.pending, func(t *simWaiter) bool { return t.over })
	p.pending = nil
	if len(ws) > 0 {
		p.flying = true
		p.send(ws, true)
	}
}

func (p *simProc) send(ws []*simWaiter, batch bool) {
	w, sent, answered := p.w, p.w.now, false
	reqs := make([]simRequest, len(ws))
	for i, t := range ws {
		reqs[i] = simRequest{t.base, t.n}
		t.lastSent = sent
	}
	end := func() {
		answered = true
		if batch {
			p.flying = false
			w.at(p, 0, p.kick)
		}
	}
	if !w.lost() {
		epoch := w.epoch
		w.after(w.delay(), func() {
			if epoch != w.epoch && w.failover {
				return // the connection broke
			}
			rp := w.server.acquire(p, reqs, sent+simNotAfter)
			w.answer(p, rp.seen, func(confirmed bool) {
				if !answered {
					end()
				}
				p.answered(ws, reqs, rp, sent, confirmed)
			})
		})
	}
	w.at(p, simNotAfter+100, func() {
		if !answered {
			end()
			p.ask(ws)
		}
	})
}

// answered reads the reply to a batch.
func (p *simProc) answered(ws []*simWaiter, reqs []simRequest, rp simReply, sent float64, confirmed bool) {
	w := p.w
	if rp.again {
		w.at(p, 50, func() { p.ask(ws) })
		return
	}
	for i, t := range ws {
		switch a := rp.res[i]; {
		case t.over: // its cancellation has a release pending
		case a.status == simGranted && !confirmed && w.mutant != "unreplicated":
			t.finish() // ErrNotReplicated: it is given back, and its id is spent
			p.release(t.base, reqs[i].n, 0, simTries)
			t.again()
		case a.status == simGranted:
			if !t.enter(sent + a.lease - simMargin) {
				p.ask([]*simWaiter{t})
			}
		case a.status == simRefused:
			t.finish()
			t.again()
		case a.status == simFree:
			w.at(p, 50, func() { p.ask([]*simWaiter{t}) })
		default:
			t.count()
			if a.ticket >= t.ticket && sent > t.held {
				t.ticket, t.held = a.ticket, sent
			}
			if t.early == t.ticket {
				t.trust(t.held)
			}
		}
	}
	p.own(rp.own, sent)
	p.poll(simPoll * (0.9 + 0.1*w.r.Float64()))
	if rp.due >= 0 {
		p.poll(rp.due + 1)
	}
}

// ask has them in the next batch.
func (p *simProc) ask(ws []*simWaiter) {
	for _, t := range ws {
		if !t.over && !slices.Contains(p.pending, t) {
			t.count()
			p.pending = append(p.pending, t)
		}
	}
	p.kick()
}

// poll has all that wait ask in d at the latest.
func (p *simProc) poll(d float64) {
	w := p.w
	if at := w.now + d; p.contended == 0 || p.pollAt > w.now && p.pollAt <= at {
		return
	}
	p.pollRun++
	run := p.pollRun
	p.pollAt = w.now + d
	w.at(p, d, func() {
		if p.pollRun != run {
			return
		}
		p.pollAt = 0
		var ws []*simWaiter
		for _, b := range slices.Sorted(maps.Keys(p.waiting)) {
			if t := p.waiting[b]; t.counted {
				ws = append(ws, t)
			}
		}
		p.poll(simPoll)
		p.ask(ws)
	})
}

// trust acts on a grant that was written after the instant from. Where the grant alone does not prove enough the waiter asks:
// a CountingSemaphore's is not its before the claim, and replicas confirm what a call wrote.
func (t *simWaiter) trust(from float64) {
	w := t.w
	switch {
	case w.counting && w.mutant != "unclaimed", w.durable && w.mutant != "unreplicated":
		t.p.ask([]*simWaiter{t})
	default:
		t.enter(from + simHandOver - simMargin)
	}
}

// own reads the grants in the reply to a call of this process.
func (p *simProc) own(words []simWord, sent float64) {
	for _, x := range words {
		if t := p.waiting[x.base]; t != nil {
			t.trust(sent)
		}
	}
}

// hear reads a message of grants. One for a waiter that has given up is nobody's: a release of it is pending.
func (p *simProc) hear(words []simWord) {
	w := p.w
	for _, x := range words {
		switch t := p.waiting[x.base]; {
		case x.ticket == 0:
			p.poll(0)
		case t == nil:
		case x.ticket != t.ticket && w.mutant != "ticket":
			t.early = max(t.early, x.ticket)
		case w.mutant == "lastwait":
			t.trust(w.now)
		default:
			t.trust(t.held)
		}
	}
}
