package main

import (
	"fmt"
	"slices"
	"strings"
)

// The page itself: the few tables and charts that answer what a user asks. All others are in the files of tables.

func (p *page) head() {
	f := p.s.file
	p.say("Measured on %s (%s). Clients and server shared the machine, so your times will differ: compare figures "+
		"within one table. "+
		"Written by `go -C bench run ./report` from [CSV files](benchmarks).", f.Fact("machine"), f.Fact("date"))
}

// defaults is rueidislock with its three keys, which one server does not need.
const defaults = "rueidislock (defaults)"

// show has a chart that a file of tables has drawn.
func (p *page) show(name string) {
	if alt, ok := p.alt[name]; ok {
		p.say("![%s](%s%s)", alt, folder, name)
	}
}

// compared has the locks that a Go team could take, with one figure for each question.
func (p *page) compared() {
	alone, many := setting{"uncontended", 1, 1}, setting{"uncontended", 1, 64}
	crowd, handover := setting{"contended", 8, 64}, setting{"handover", 1, 2}
	var rows [][]string
	for _, peer := range p.s.in(alone) {
		if isOurs(peer) && peer != ours && peer != plainLock || strings.HasPrefix(peer, "raw ") || peer == defaults {
			continue
		}
		rows = append(rows, []string{
			bold(peer), p.cell(alone, peer, p50, duration), p.cell(many, peer, p50, duration),
			p.cell(alone, peer, commands, figure),
			p.cell(crowd, peer, rate, perSecond), p.bounded(crowd, peer, p99), p.cell(crowd, peer, jain, share),
			p.cell(crowd, peer, commands, figure), p.cell(handover, peer, p50, duration),
		})
	}
	if len(rows) == 0 {
		return
	}
	p.say("## How does it compare?")
	p.say("The p50 of an uncontended lock and unlock with 1 and 64 goroutines, and its commands. Then 64 workers in 8 " +
		"processes that want one lock: " +
		"acquisitions, p99 of the wait, [fairness](#how-was-it-measured), commands. Last, the p50 from unlock until the " +
		"waiter of another client holds it.")
	p.table([]string{"", "p50 of 1", "p50 of 64", "commands", "contended", "p99", "Jain", "commands", "hand-over"}, rows)
	p.say("*rlock.Plain* is redlatch's lock in one string key, compatible with redsync, redislock and rueidislock. " +
		"*rueidislock* is set to one key; its default of three is slower. *redislock* polls at the given interval.")
	p.show("uncontended-1.svg")
	p.show("uncontended-64.svg")
	if peer, ok := p.s.best(alone, p50, false, rival); ok && p.ahead(alone, peer, p50, false) {
		p.say("For a single goroutine %s is the fastest: redlatch's scripts run more commands, for order among waiters, "+
			"for leases that Java reads, and to refuse late requests. "+
			"From 14 concurrent calls on, redlatch sends calls for free locks and permits together.", peer)
	}
	p.show("contended-8-rate.svg")
	p.show("contended-8-p99.svg")
	quick, _ := p.s.best(crowd, rate, true, rival)
	patient, ok := p.s.best(crowd, p99, false, rival)
	if ok && !p.ahead(crowd, quick, rate, true) && !p.ahead(crowd, patient, p99, false) {
		p.say("Under contention redlatch serves more than any other, with shorter waits. Where a peer polls, the last " +
			"holder takes the free lock again while the others sleep.")
	}
	p.show("handover-2.svg")
	p.show("renewal.svg")
	p.say("redsync and redislock do not renew.")
}

// ahead reports whether the median of a peer is better than redlatch's: higher, or lower.
func (p *page) ahead(k setting, peer string, m metric, high bool) bool {
	v, theirs := p.s.median(k, peer, m)
	w, measured := p.s.median(k, ours, m)
	return theirs && measured && v != w && (v > w) == high
}

// crowds has the semaphores, the read-write locks and the locks with an order, behind a delay: there a poll costs a
// round trip.
func (p *page) crowds() {
	var names []string
	for _, kind := range queueKinds {
		if name := "queue-" + kind.file + "-away.svg"; p.alt[name] != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	p.say("## Semaphores, readers and writers, FIFO locks")
	p.say("We found no other maintained Go library with semaphores or read-write locks on Redis. The peers here are " +
		"hand-written, except etcd. The server is 1 ms away.")
	for _, name := range names {
		p.show(name)
	}
}

func (p *page) winners() {
	if p.alt["claims-64.svg"] == "" {
		return
	}
	p.say("## The first N win")
	p.say("We found no other Go library for this. The peers are raw commands and hand-written code. The run checks that " +
		"units sold and ordinals given equal the claims granted.")
	p.show("claims-1.svg")
	p.show("claims-64.svg")
}

// java compares with Redisson.
func (p *page) java() {
	s := p.s.redisson
	if s == nil {
		return
	}
	q := &page{s: s}
	var rows [][]string
	add := func(k setting, what string, m metric, format func(float64) string) {
		if _, ok := s.median(k, redisson, m); ok {
			rows = append(rows, []string{what, q.cell(k, ours, m, format), q.cell(k, redisson, m, format),
				q.ratioMedian(k, redisson, ours, m)})
		}
	}
	for _, k := range s.settings("uncontended") {
		add(k, "uncontended, "+goroutines(k)+": p50", p50, duration)
	}
	for _, k := range s.settings("contended") {
		if k.workers != 16 {
			continue
		}
		where := fmt.Sprintf("contended, %d workers in %d processes: ", k.workers, k.processes)
		add(k, where+"rate", rate, perSecond)
		add(k, where+"p99", p99, duration)
		add(k, where+"commands", commands, figure)
	}
	for _, k := range slices.Backward(s.settings("handover")) {
		if k.workers == 2 {
			add(k, "hand-over to another client: p50", p50, duration)
		}
	}
	p.say("## Compared with Redisson")
	p.say("A separate run. Redisson's times include a call to the JVM, which a Java program does not make ([how long " +
		"that takes](benchmarks/redisson.md)).")
	p.table([]string{"", ours, redisson, "ratio"}, rows)
}

// elsewhere is what TLS, Cluster and others change.
func (p *page) elsewhere() {
	s := p.s.places
	if s == nil {
		return
	}
	q := &page{s: s}
	settings := s.settings("places")
	header := []string{"p50 of lock and unlock, over that of plain loopback"}
	for _, k := range settings {
		header = append(header, goroutines(k))
	}
	var rows [][]string
	for _, place := range s.peers {
		if place == loopback {
			continue
		}
		row := []string{strings.ReplaceAll(place, "|", "/")}
		for _, k := range settings {
			row = append(row, q.ratioMedian(k, place, loopback, p50))
		}
		rows = append(rows, row)
	}
	p.say("## What do TLS, Cluster and distance add?")
	p.table(header, rows)
}

// short has the goals that were missed: where the others are better in what matters most.
func (p *page) short() {
	all := p.allGoals()
	judged, reached, onOne := 0, 0, 0
	var missed []string
	for _, g := range all {
		if g.got == notMeasured {
			continue
		}
		judged++
		if g.reached == "yes" {
			reached++
			continue
		}
		got, _, _ := strings.Cut(g.got, " [")
		if strings.HasPrefix(g.what, onOneProcessor) {
			onOne++
			continue
		}
		missed = append(missed, fmt.Sprintf("- %s: %s (%s)", g.what, got, g.want))
	}
	if judged == 0 {
		return
	}
	p.say("## Where others are better")
	p.say("%d of %d [goals](benchmarks/goals.md) of this project were reached in this run. "+
		"[behind.md](benchmarks/behind.md) lists every figure in which another library is ahead. Missed, with what was "+
		"wanted, and %d more on a single processor:", reached, judged, onOne)
	if len(missed) > 0 {
		p.say("%s", strings.Join(missed, "\n"))
	}
}

// method is how it was measured, and how it is repeated.
func (p *page) method() {
	f := p.s.file
	p.say("## How was it measured?")
	p.say("```\ngo -C bench/peers run . -rounds 7 -out ../../docs/benchmarks/results.csv && go -C bench run ./report\n```")
	if f.Fact("server") != "" {
		p.say("Server: %s. Client: redlatch at commit %s, %s. [Versions and settings of all "+
			"peers](benchmarks/run.md#what-was-measured).", f.Fact("server"), f.Fact("redlatch"), f.Fact("go"))
	}
	p.say("Peers run in a different order in each round, each with a new server and new processes. Figures are medians " +
		"over the rounds, some with [lowest .. highest]. Ratios are taken within a round.\n\n" +
		"- *Uncontended*: each goroutine has a lock of its own.\n" +
		"- *Contended*: all workers want one lock, do one INCR under it, and pause for a millisecond.\n" +
		"- *Commands* are what the server ran for one operation, including those inside scripts (`INFO commandstats`).\n" +
		"- *Jain* is 1 if all workers got the same, and 1/n if one of n got everything.\n" +
		"- *>* marks a wait that the end of the measurement cut off.\n\n" +
		"The peers promise different things. redsync is made for several independent servers and has one here. etcd " +
		"provides consensus. " +
		"Only redlatch, rueidislock, go-redisson and etcd renew leases; only redlatch and etcd queue waiters.")
	p.say("The run also checks mutual exclusion and [lists what went wrong](benchmarks/run.md#what-went-wrong).")
}

// raw names the files of tables.
func (p *page) raw() {
	p.say("## All tables")
	var all []string
	for _, f := range rawFiles {
		if p.files[folder+f.name] != "" {
			all = append(all, fmt.Sprintf("[%s](%s%s)", f.title, folder, f.name))
		}
	}
	p.say("%s.", strings.Join(all, "; "))
}
