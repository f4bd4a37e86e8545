package main

import (
	"fmt"
	"math"
	"strings"
)

// behindIn is the row of a figure in which peers are better than base; nil: none is.
func (p *page) behindIn(base string, k setting, what string, m metric, high bool,
	format func(float64) string) []string {
	v, ok := p.s.median(k, base, m)
	if !ok {
		return nil
	}
	var better []string
	for _, peer := range p.s.sorted(k, m, high) {
		w, _ := p.s.median(k, peer, m)
		if !rival(peer) || math.Abs(w-v) < 0.02*v || (w > v) != high {
			continue
		}
		better = append(better, peer+" "+format(w))
	}
	if len(better) == 0 {
		return nil
	}
	where := k.workload
	switch k.workload {
	case "contended":
		where += fmt.Sprintf(", %d %s, %d workers", k.processes, plural(k.processes, "process", "processes"), k.workers)
	case "handover", "uncontended":
		where += fmt.Sprintf(", %d", k.workers)
	}
	said := format(v)
	if base != ours {
		said = base + " " + said
	}
	return []string{where, what, said, strings.Join(better, "; ")}
}

// behind lists every figure in which a peer is better.
func (p *page) behind() {
	var rows [][]string
	var lookAs look = func(base string, k setting, what string, m metric, high bool, format func(float64) string) {
		if row := p.behindIn(base, k, what, m, high, format); row != nil {
			rows = append(rows, row)
		}
	}
	look := func(k setting, what string, m metric, high bool, format func(float64) string) {
		lookAs(ours, k, what, m, high, format)
	}
	for _, k := range p.s.settings("uncontended") {
		look(k, "p50", p50, false, duration)
		look(k, "p99", p99, false, duration)
		look(k, "rate", rate, true, perSecond)
		look(k, "commands", commands, false, figure)
		look(k, "server CPU", serverCPU, false, duration)
		lookAs(plainLock, k, "p50", p50, false, duration)
		lookAs(plainLock, k, "p99", p99, false, duration)
		lookAs(plainLock, k, "rate", rate, true, perSecond)
	}
	for _, k := range p.s.settings("contended") {
		look(k, "rate", rate, true, perSecond)
		look(k, "p50", p50, false, duration)
		look(k, "p99", p99, false, duration)
		look(k, "Jain", jain, true, share)
		look(k, "commands", commands, false, figure)
		look(k, "server CPU", serverCPU, false, duration)
		look(k, "connections", conns, false, whole)
	}
	for _, k := range p.s.settings("handover") {
		look(k, "p50", p50, false, duration)
		look(k, "p99", p99, false, duration)
		look(k, "commands", commands, false, figure)
	}
	for _, k := range p.s.settings("crash") {
		look(k, "after the kill, p50", p50, false, duration)
	}
	for _, k := range p.s.settings("renewal") {
		look(k, "scripts", scripts, false, figure)
		look(k, "commands", commands, false, figure)
		look(k, "bytes for a lock", extra("bytes_per_lock"), false, whole)
	}
	p.behindInQueues(lookAs)
	if len(rows) == 0 {
		p.say("In no figure of this run.")
		return
	}
	p.say("Every figure of the main run in which a peer is ahead of redlatch by more than 2 %%, raw floors excluded. " +
		"The p50 of a polling peer is low because the last holder finds the lock free and takes it again; its p99 shows " +
		"the workers that slept.")
	p.table([]string{"", "", "redlatch", "better"}, rows)
}

// look adds a line if a peer is better than base in a metric.
type look func(base string, k setting, what string, m metric, high bool, format func(float64) string)

// behindInQueues looks at all of redlatch's verbs that queue.
func (p *page) behindInQueues(lookAs look) {
	for _, k := range p.s.queueSettings() {
		for _, peer := range p.s.in(k) {
			if !isOurs(peer) {
				continue
			}
			lookAs(peer, k, "rate", rate, true, perSecond)
			lookAs(peer, k, "writes", writes, true, perSecond)
			lookAs(peer, k, "p50", p50, false, duration)
			lookAs(peer, k, "p99", p99, false, duration)
			lookAs(peer, k, "longest", longest, false, duration)
			lookAs(peer, k, "worst window", worstWindow, true, share)
			lookAs(peer, k, "Jain", jain, true, share)
			lookAs(peer, k, "commands", commands, false, figure)
			lookAs(peer, k, "server CPU", serverCPU, false, duration)
		}
	}
}

// wrong lists broken promises, errors and what could not be measured.
func (p *page) wrong() {
	type entry struct {
		where, peer, what string
	}
	seen := map[entry]int{}
	var order []entry
	for _, r := range p.s.file.Rows {
		var what []string
		switch {
		case r.Workload == "renewal" && r.Lost > 0: // the note says it
		case r.Overlaps+r.Lost > 0:
			what = append(what, fmt.Sprintf("**mutual exclusion broken**: %d overlaps, %d updates lost", r.Overlaps, r.Lost))
		}
		if r.Errors > 0 {
			what = append(what, fmt.Sprintf("%d %s", r.Errors, plural(int(r.Errors), "error", "errors")))
		}
		if r.Note != "" {
			what = append(what, r.Note)
		}
		if len(what) > 0 {
			e := entry{fmt.Sprintf("%s, %d %s, %d", r.Workload, r.Processes, plural(r.Processes, "process", "processes"),
				r.Workers), r.Peer, strings.ReplaceAll(strings.Join(what, "; "), "|", "/")}
			if seen[e]++; seen[e] == 1 {
				order = append(order, e)
			}
		}
	}
	p.say("## What went wrong")
	if len(order) == 0 {
		p.say("Nothing: no peer had two holders at the same time, and none reported an error.")
		return
	}
	p.say("No faults were injected, and no lock was held beyond its lease: a peer that is not in this table is not " +
		"thereby proven safe.")
	var rows [][]string
	for _, e := range order {
		rows = append(rows, []string{e.where, bold(e.peer), e.what, fmt.Sprintf("%d", seen[e])})
	}
	p.table([]string{"", "", "", "rounds"}, rows)
}

func (p *page) peers() {
	p.say("## What was measured")
	p.say("Module versions are the newest that build with this repository's Go version. Each process has one client; " +
		"go-redis clients may have 64 connections. " +
		"redsync uses a goroutine for each call, because it is made for several servers.")
	var rows [][]string
	for _, name := range p.s.peers {
		if v := p.s.file.Fact("peer " + name); v != "" {
			rows = append(rows, []string{bold(name), strings.ReplaceAll(v, "|", "/")})
		}
	}
	p.table([]string{"", ""}, rows)
	rows = nil
	for _, name := range p.s.peers {
		if v := p.s.file.Fact("claims " + name); v != "" {
			rows = append(rows, []string{name, strings.ReplaceAll(v, "|", "/")})
		}
	}
	if len(rows) > 0 {
		p.table([]string{"claims", ""}, rows)
	}
}
