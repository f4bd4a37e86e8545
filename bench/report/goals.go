package main

import (
	"fmt"
	"strings"
)

// goal is one line of what the project wants to reach.
type goal struct{ what, want, got, floor, reached string }

const notMeasured = "not measured"

// atLeast and atMost judge a median; ok is whether there is one.
func atLeast(bound float64, format func(float64) string, what string, v spread, ok bool) goal {
	return judge("at least "+shortly(bound, format), v.median >= bound, format, what, v, ok)
}

func atMost(bound float64, format func(float64) string, what string, v spread, ok bool) goal {
	return judge("at most "+shortly(bound, format), v.median <= bound, format, what, v, ok)
}

// shortly is a bound without the digits that a measured figure would have, and with its unit.
func shortly(bound float64, format func(float64) string) string {
	return fmt.Sprintf("%g", bound) + strings.TrimLeft(format(bound), "0123456789.")
}

func judge(want string, good bool, format func(float64) string, what string, v spread, ok bool) goal {
	g := goal{what: what, want: want, got: notMeasured, floor: "-", reached: "-"}
	if !ok {
		return g
	}
	g.got, g.reached = ranged(v, format), "no"
	if good {
		g.reached = "yes"
	}
	return g
}

// against is the best of the peers that keep wants in a setting, and the ratio of base to it in a metric.
func (s *summary) against(k setting, base string, m metric,
	keep func(peer string) bool) (peer string, v spread, ok bool) {
	if peer, ok = s.best(k, rate, true, keep); ok {
		v, ok = s.ratio(k, base, peer, m)
	}
	return peer, v, ok
}

// of says whose figure it is, if it is known.
func of(peer string) string {
	if peer == "" {
		return ""
	}
	return " (" + peer + ")"
}

// allGoals has a line for each, also for what was not measured.
func (p *page) allGoals() []goal {
	all := append(p.goalsAlone(), p.goalsOnOne()...)
	for _, workers := range []int{16, 64, 256} {
		all = append(all, p.goalsContended(setting{"contended", 8, workers})...)
	}
	s := p.s
	handover := setting{"handover", 1, 2}
	peer, ok := s.best(handover, p50, false, rival)
	var v spread
	if ok {
		v, ok = s.ratio(handover, ours, peer, p50)
	}
	all = append(all, atMost(1, times, "hand-over: p50 over the best peer's"+of(peer), v, ok))
	for _, n := range aloneWith {
		k := setting{"claims", 1, n}
		v, ok := s.ratio(k, counterUp, claimFloor, rate)
		all = append(all, atLeast(0.85, times, "Counter.Incr, "+goroutines(k)+": rate over that of INCR", v, ok))
	}
	for _, n := range aloneWith {
		k := setting{"uncontended", 1, n}
		v, ok := s.ratio(k, permit, permitFloor, p50)
		all = append(all, atMost(1.25, times, "a permit, "+goroutines(k)+": p50 over that of the same two raw calls", v, ok))
	}
	return all
}

func (p *page) goals() {
	p.say("Goals are judged by the median over the rounds. *The floor's* is the same ratio for redlatch's two script " +
		"calls sent raw.")
	var rows [][]string
	for _, g := range p.allGoals() {
		rows = append(rows, []string{g.what, g.want, g.got, g.floor, g.reached})
	}
	p.table([]string{"goal", "wanted", "measured", "the floor's", "reached"}, rows)
	p.say("Where the floor's own ratio is below what is wanted, the scripts themselves are the limit: they do more than " +
		"a peer's, for order among waiters, for leases that Java reads, and to refuse late requests. " +
		"From 14 concurrent calls on, redlatch sends calls for free locks and permits together, and so can exceed " +
		"its floor. " +
		"With many workers the end of the measurement cuts off the waits of the slowest peers, so their p99 looks better " +
		"than it is.")
	if p.s.onOne == nil {
		return
	}
	p.say("Why the rest is out of reach, by the processor time in profiles:\n\n" +
		"- *One goroutine.* Most of the time goes into waking a processor, see [On one " +
		"processor](locks.md#on-one-processor). There a fifth of a cycle is redlatch's own: a new owner, the lease that " +
		"the watchdog renews, " +
		"a deadline for each call, and 40 % of the bytes sent. Peers that do not renew have none of that.\n" +
		"- *256 goroutines, and p99.* Both processors are busy. A lock and unlock are seven commands on the server, " +
		"redsync's four, and all requests of a shared call have the latency of the last.\n" +
		"- *Counter.Incr with few goroutines.* One goroutine pays for the deadline of its call, two readings of the clock, " +
		"and the distinction of not sent from unknown. Eight goroutines share calls of two or three, which saves hardly " +
		"more than waiting for each other costs.")
}

// aloneWith are the numbers of goroutines that goals are stated for.
var aloneWith = []int{1, 8, 64, 256}

// rateGoals are what share of the best peer's rate is wanted with each of aloneWith.
var rateGoals = []float64{1, 0.75, 1.1, 1.5}

// overBest is the goal of a rate over the best peer's.
func (s *summary) overBest(k setting, want float64, what string) goal {
	peer, v, ok := s.against(k, ours, rate, rival)
	g := atLeast(want, times, what+": rate over the best peer's"+of(peer), v, ok)
	if v, ok := s.ratio(k, floor, peer, rate); ok {
		g.floor = ranged(v, times)
	}
	return g
}

// plainGoals are those of Plain.
func (s *summary) plainGoals(k setting, where string) (all []goal) {
	for _, family := range []string{"redsync", "redislock"} {
		peer, v, ok := s.against(k, plainLock, rate, func(peer string) bool { return strings.HasPrefix(peer, family) })
		all = append(all, atLeast(0.95, times, where+"Plain, "+goroutines(k)+": rate over "+family+"'s"+of(peer), v, ok))
	}
	return all
}

// goalsAlone are those of locks that no other worker wants.
func (p *page) goalsAlone() (all []goal) {
	s := p.s
	for i, want := range rateGoals {
		k := setting{"uncontended", 1, aloneWith[i]}
		all = append(all, s.overBest(k, want, "lock and unlock, "+goroutines(k)))
		if k.workers >= 64 {
			peer, v, ok := s.against(k, ours, p99, rival)
			g := atMost(0.5, times, "lock and unlock, "+goroutines(k)+": p99 over that peer's", v, ok)
			if v, ok := s.ratio(k, floor, peer, p99); ok {
				g.floor = ranged(v, times)
			}
			all = append(all, g)
		}
	}
	for _, n := range aloneWith {
		all = append(all, s.plainGoals(setting{"uncontended", 1, n}, "")...)
	}
	return all
}

// goalsContended are those of a lock that everybody wants.
func (p *page) goalsContended(k setting) (all []goal) {
	s := p.s
	where := fmt.Sprintf("contended, %d processes, %d workers: ", k.processes, k.workers)
	push := func(peer string) bool { return rival(peer) && s.wakes(peer) == "push" }
	peer, v, ok := s.against(k, ours, rate, push)
	all = append(all, atLeast(2, times, where+"rate over that of the best peer that wakes its waiters"+of(peer), v, ok))
	_, v, ok = s.against(k, ours, p99, push)
	all = append(all, atMost(0.1, times, where+"p99 over that peer's", v, ok))
	all = append(all, p.noEmptyWindow(k, where))
	v, ok = s.of(k, ours, commands)
	all = append(all, atMost(18, figure, where+"commands for an acquisition", v, ok))
	v, ok = s.of(k, ours, jain)
	return append(all, atLeast(0.98, share, where+"Jain", v, ok))
}

// enoughWindows is how many there must be for none of them to be empty to mean something.
const enoughWindows = 100

func (p *page) noEmptyWindow(k setting, where string) goal {
	g := goal{what: where + "windows of 50 ms without an acquisition", want: fmt.Sprintf("0 of %d", enoughWindows),
		got: notMeasured, floor: "-", reached: "-"}
	var none, of float64
	slowest := 1.0
	for _, r := range usable(p.s.rows[k][ours]) {
		n, ok := r.Value("windows")
		if !ok {
			continue
		}
		e, _ := r.Value("empty_windows")
		w, _ := r.Value("worst_window")
		none, of, slowest = none+e, of+n, min(slowest, w)
	}
	if of == 0 {
		return g
	}
	g.got, g.reached = fmt.Sprintf("%.0f of %.0f, the slowest served %.2f of the median", none, of, slowest), "no"
	switch {
	case none == 0 && of < enoughWindows:
		g.reached = "too few"
	case none == 0:
		g.reached = "yes"
	}
	return g
}
