package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// redisson is Redisson's name in its run.
const redisson = "redisson"

// redisson is what the run of its own says in which Redisson takes part.
func (p *page) redisson() {
	s := p.s.redisson
	if s == nil {
		return
	}
	p.say("A separate run ([redisson.csv](redisson.csv)): compare its figures only with each other. Redisson runs in " +
		"the Java driver of the tests, one JVM per client, warmed up for six seconds on shared processors; it may still " +
		"compile code. " +
		"There are two processes because eight JVMs on two processors measure the machine and not Redisson. " +
		"*redisson's driver* asks a JVM to do nothing, twice: the part of Redisson's times that a Java program does not " +
		"pay. " +
		"Contended, it is part of each hold. Commands per operation do not depend on the client's speed and are the most " +
		"reliable figures here.")
	p.say("The commands of Redisson's hand-overs include renewals: after a warm-up of thousands of locks a second, " +
		"version 4.7.0 renews the few held locks hundreds of times a second for some seconds (MONITOR). After a short " +
		"warm-up a hand-over took 29 commands.")
	p.table([]string{"", ""}, s.facts())
	q := &page{s: s} // its cells are of the other run
	for _, k := range s.settings("uncontended") {
		var rows [][]string
		for _, peer := range s.sorted(k, p50, false) {
			rows = append(rows, []string{
				bold(peer), q.cell(k, peer, p50, duration), q.ratioCell(k, peer, ours, p50), q.cell(k, peer, p99, duration),
				q.cell(k, peer, rate, perSecond),
				q.ratioCell(k, peer, ours, rate), q.cell(k, peer, commands, figure), q.cell(k, peer, serverCPU, duration),
			})
		}
		p.table([]string{"uncontended, " + goroutines(k), "p50", "over redlatch's", "p99", "rate", "over redlatch's",
			"commands", "server CPU"}, rows)
	}
	for _, k := range s.settings("contended") {
		p.say("Contended, %d workers in %d %s:", k.workers, k.processes, plural(k.processes, "process", "processes"))
		var rows [][]string
		for _, peer := range s.sorted(k, p99, false) {
			rows = append(rows, []string{
				bold(peer), q.rangedCell(k, peer, rate, perSecond), q.ratioCell(k, peer, ours, rate),
				q.cell(k, peer, p50, duration), q.bounded(k, peer, p99), q.ratioCell(k, peer, ours, p99),
				q.bounded(k, peer, longest), q.cell(k, peer, jain, share), q.cell(k, peer, commands, figure),
				q.cell(k, peer, serverCPU, duration), q.cell(k, peer, conns, whole),
			})
		}
		p.table([]string{"", "acquisitions", "over redlatch's", "p50", "p99", "over redlatch's", "longest", "Jain",
			"commands", "server CPU", "connections"}, rows)
	}
	for _, k := range slices.Backward(s.settings("handover")) {
		where := "hand-over to another client"
		if k.workers == 1 {
			where = "hand-over within one client"
		}
		var rows [][]string
		for _, peer := range s.sorted(k, p50, false) {
			rows = append(rows, []string{
				bold(peer), q.rangedCell(k, peer, p50, duration), q.ratioCell(k, peer, ours, p50), q.cell(k, peer, p99, duration),
				q.cell(k, peer, longest, duration), q.cell(k, peer, commands, figure),
			})
		}
		p.table([]string{where, "p50", "over redlatch's", "p99 of a round", "longest", "commands"}, rows)
	}
	for _, k := range s.queueSettings() {
		q.queueTable(k, fmt.Sprintf("%s, %d workers in %d %s", k.workload, k.workers, k.processes,
			plural(k.processes, "process", "processes")))
	}
	p.b.WriteString(q.b.String())
	broken := int64(0)
	for _, r := range s.file.Rows {
		if r.Workload != "renewal" {
			broken += r.Overlaps + r.Lost
		}
	}
	if broken == 0 {
		p.say("No peer had two holders at the same time.")
	} else {
		p.say("**Mutual exclusion was broken**, %d times: see the file.", broken)
	}
}

// measured reports whether there is a row of a peer.
func (s *summary) measured(peer string) bool {
	return slices.ContainsFunc(s.file.Rows, func(r results.Row) bool { return r.Peer == peer })
}

// facts are what the file says of its run, and of the peers in it.
func (s *summary) facts() (rows [][]string) {
	for _, name := range []string{"date", "command", "rounds", "contended", "load before", "load after", "took"} {
		if v := s.file.Fact(name); v != "" {
			if name == "command" {
				v = "`" + v + "`"
			}
			rows = append(rows, []string{name, v})
		}
	}
	for _, name := range s.peers {
		if v := s.file.Fact("peer " + name); v != "" && s.measured(name) {
			rows = append(rows, []string{name, strings.ReplaceAll(v, "|", "/")})
		}
	}
	return rows
}
