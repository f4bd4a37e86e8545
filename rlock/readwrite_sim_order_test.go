package rlock_test

import (
	"strconv"
	"strings"
	"time"

	miniredis "github.com/alicebob/miniredis/v2/server"
)

// rwFigures is what happened in a run, or in several.
type rwFigures struct {
	Reads, Writes, Downgrades, GaveUp, Lost, Pauses, Kills, Struck int
	LongestFree                                                    time.Duration // with somebody waiting
}

func (f *rwFigures) add(g rwFigures) {
	f.Reads, f.Writes, f.Downgrades = f.Reads+g.Reads, f.Writes+g.Writes, f.Downgrades+g.Downgrades
	f.GaveUp, f.Lost, f.Pauses, f.Kills = f.GaveUp+g.GaveUp, f.Lost+g.Lost, f.Pauses+g.Pauses, f.Kills+g.Kills
	f.Struck += g.Struck
	f.LongestFree = max(f.LongestFree, g.LongestFree)
}

// rwOrder is what the scripts of a simulated read-write lock do to it, to judge the order by. Where nothing but delays and
// cancellations happens, everybody in line is there:
//
//   - while readers are in, none is granted past a writer in line, but for the refill when that has waited for a poll;
//   - no reader in line sees more than 16 writers served, preferred ones apart;
//   - whoever shares a hold without being named by the server does so for a moment past a writer at most.
type rwOrder struct {
	in     map[string]bool      // fields of the lock
	since  time.Time            // when the phase began that is under way
	line   map[string]*rwWaiter // by entry
	opened map[string]time.Time // owner -> when its first act began
}

type rwWaiter struct {
	write, preferred bool
	at               time.Time
	writers          int // that were served since
}

// sharedLate is for how long past a writer in line a reader may share a hold: the window, a reply, and what fair weather adds.
const sharedLate = 10*time.Millisecond + simAsleep

// see is called by the server before every command, those of scripts included. A script has the server for itself, and takes no time.
func (s *rwSimulation) see(c *miniredis.Peer, cmd string, args ...string) bool {
	if len(args) == 0 || s.mode == simFaults {
		return s.answer(c, cmd, args)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, now := &s.order, time.Now()
	switch {
	case cmd == "HSET" && args[0] == simName:
		for i := 1; i+1 < len(args); i += 2 {
			if args[i] != "mode" {
				s.grants(args[i], now)
			}
		}
	case cmd == "HDEL" && args[0] == simName:
		for _, f := range args[1:] {
			if o.in[f] && strings.HasSuffix(f, ":write") {
				o.since = now // whoever is left begins to read
			}
			delete(o.in, f)
		}
	case cmd == "DEL" && args[0] == simName:
		clear(o.in)
	case strings.HasPrefix(args[0], "redlatch_rwq:"):
		s.queues(cmd, args[1:], now)
	}
	return false
}

func (s *rwSimulation) queues(cmd string, args []string, now time.Time) {
	o := &s.order
	switch cmd {
	case "ZADD":
		if score, err := strconv.ParseFloat(args[0], 64); err == nil && score > 0 && o.line[args[1]] == nil {
			o.line[args[1]] = &rwWaiter{write: score >= rwBand, preferred: score >= rwBand && score < 2*rwBand, at: now}
		}
	case "ZREM":
		for _, entry := range args {
			delete(o.line, entry)
		}
	case "DEL":
		clear(o.line)
	}
}

// grants judges that a field is written. Called with mu held.
func (s *rwSimulation) grants(field string, now time.Time) {
	o := &s.order
	if o.in[field] {
		return
	}
	writing := false
	for f := range o.in {
		writing = writing || strings.HasSuffix(f, ":write")
	}
	if len(o.in) == 0 {
		o.since = now
	}
	o.in[field] = true
	if write := strings.HasSuffix(field, ":write"); write {
		preferred := false
		for entry, w := range o.line {
			preferred = preferred || w.preferred && strings.HasPrefix(entry, strings.TrimSuffix(field, "write"))
			preferred = preferred || w.preferred && strings.HasPrefix(entry, strings.TrimSuffix(field, ":write")+" ")
		}
		for entry, w := range o.line {
			if w.write || preferred {
				continue
			}
			if w.writers++; w.writers > 16 {
				s.violation("%q has seen %d writers served", entry, w.writers)
			}
		}
		return
	}
	if writing || o.since.Equal(now) { // it reads under its write hold, or the phase begins
		return
	}
	for entry, w := range o.line {
		if w.write && now.Sub(w.at) < simPollCap-time.Millisecond {
			s.violation("%s is granted past %q, which has waited for %v", field, entry, now.Sub(w.at))
		}
	}
}

// passes judges that a reader shares a hold. Called with mu held.
func (s *rwSimulation) passes(a *rwAct) {
	o, owner := &s.order, string(a.hold.Owner())
	if a.write || s.mode == simFaults {
		return
	}
	began, shared := o.opened[owner]
	if !shared {
		o.opened[owner] = a.start
		return
	}
	if a.start.Sub(began) < simAsleep { // it waited for that very grant, perhaps
		return
	}
	for entry, w := range o.line {
		if late := a.start.Sub(w.at); w.write && late > sharedLate && late < simPollCap {
			s.violation("%s shares the hold of %s, %v past %q", a.who, owner, late, entry)
		}
	}
}

// watch looks at the server from time to time: is it free although somebody waits, for longer than what is done to the network
// explains?
func (s *rwSimulation) watch(stop <-chan struct{}) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-stop:
			return
		}
		s.look(s.server.Embedded.Exists(simName))
	}
}

func (s *rwSimulation) look(held bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	anybody := false
	for _, p := range s.procs {
		anybody = anybody || len(p.waiting) > 0
	}
	if held || !anybody {
		s.free = time.Time{}
		return
	}
	if s.free.IsZero() {
		s.free = now
	}
	s.figures.LongestFree = max(s.figures.LongestFree, now.Sub(s.free))
	for _, p := range s.procs {
		quiet, _, ok := p.host.quiet()
		if !ok || len(p.waiting) == 0 {
			continue
		}
		oldest := now
		for _, since := range p.waiting {
			if since.Before(oldest) {
				oldest = since
			}
		}
		if d := now.Sub(latest(s.free, quiet, oldest)); d > simPollCap+simGrace {
			s.violation("the lock is free for %v, and %s has waited for %v with nothing wrong at its end", now.Sub(s.free), p.host.name, d)
			s.free = now
		}
	}
}
