package simulation

import (
	"time"
)

// inject does what a fault says. No client runs meanwhile.
func (w *world) inject(s Step) {
	now := time.Now()
	c, n := w.clients[s.Who], w.nodes[min(s.On, len(w.nodes)-1)]
	h := c.host
	w.note("%s", s.text(w.plan))
	until := now.Add(max(s.For, 0) + time.Second)
	switch s.What {
	case crash:
		w.crash(c, true)
		w.setUnreachable(w.clients[s.Who].host, now.Add(s.For))
	case stall:
		w.net.mu.Lock()
		n.stalled = later(n.stalled, now.Add(s.For))
		for _, h := range w.net.hosts {
			h.disturb(n.stalled)
		}
		w.net.mu.Unlock()
	case clock:
		n.step(s.For)
		w.stepped(n, s.For)
		until = now.Add(time.Second)
	case restart, empty:
		w.away(n, now.Add(s.For))
		n.takeTurn()
		if n.restart(s.What == empty); s.What == empty {
			w.happens(n, Wire{Flush: true})
			w.setBack(n, empty, 0)
		}
		n.leaveTurn()
	case failover:
		w.failover(n, s.For)
	case flushScripts:
		n.forgetScripts()
	case flushAll:
		n.takeTurn()
		n.ask("FLUSHALL")
		w.happens(n, Wire{Flush: true})
		n.leaveTurn()
		w.setBack(n, flushAll, 0)
	default:
		until = w.strikeHost(h, n, s)
	}
	w.disturb(until)
}

// strikeHost does what a fault says to the traffic of one client.
func (w *world) strikeHost(h *host, n *node, s Step) (until time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	end := time.Now().Add(s.For)
	switch s.What {
	case cut:
		for l := range h.links {
			l.reset(s.N%2 == 0)
		}
	case pause:
		h.paused = later(h.paused, end)
	case deaf:
		h.deaf = later(h.deaf, end)
	case slow:
		h.slow, h.slower = later(h.slow, end), time.Duration(20+10*s.N)*time.Millisecond
	case hole:
		h.holes[n] = later(h.holes[n], end)
		time.AfterFunc(s.For, func() { w.patch(h, n) })
	default: // it strikes when the client's next call comes
		h.traps = append(h.traps, &trap{s.What, s.For})
	}
	h.disturb(end)
	return end.Add(time.Second)
}

// patch ends a hole. No stream survives one of which something is missing.
func (w *world) patch(h *host, n *node) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for l := range h.links {
		if l.node == n && l.holed {
			l.reset(true)
		}
	}
}

// setUnreachable has a client connect later.
func (w *world) setUnreachable(h *host, until time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	h.paused = until
}

// away ends all connections of a server, and has it refuse others until then.
func (w *world) away(n *node, until time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	n.down = later(n.down, until)
	for _, h := range w.net.hosts {
		for l := range h.links {
			if l.node == n {
				l.reset(true)
				h.disturb(until)
			}
		}
	}
}

// stepped notes what a step of a server's clock excuses: leases that end early, or late.
func (w *world) stepped(n *node, by time.Duration) {
	if by > 0 {
		w.setBack(n, clock, 0)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.back = true
	w.stuck = later(w.stuck, time.Now().Add(longestLease)).Add(-by) // steps add up
}

// failover has the replica take the server's place, in a while. What is written until then it has not received, and it
// confirms nothing.
func (w *world) failover(n *node, in time.Duration) {
	n.mu.Lock()
	was := n.behind
	n.behind = true
	n.mu.Unlock()
	if was {
		return
	}
	n.takeTurn()
	i := n.copy()
	w.happens(n, Wire{Copied: true})
	n.leaveTurn()
	time.AfterFunc(in, func() {
		w.away(n, time.Now().Add(50*time.Millisecond))
		n.takeTurn()
		n.become(i)
		w.happens(n, Wire{Back: true})
		n.leaveTurn()
		n.mu.Lock()
		n.behind = false
		n.mu.Unlock()
		w.note("the replica of %s takes its place", n.name)
		lost := failover
		if w.plan.Durable {
			lost = confirmed
		}
		w.setBack(n, lost, in)
		w.disturb(time.Now().Add(time.Second))
	})
}
