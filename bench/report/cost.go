package main

import "fmt"

// cost is what somebody wants to know first: a cycle in round trips, as a ratio to the raw calls it is made of; and memory.
func (p *page) cost() {
	p.say("## What does it cost me?")
	p.say("A lock and its unlock are two round trips, a permit too. *Over the floor* is the p50 over that of the very same calls sent raw, so it is what redlatch itself adds.")
	type line struct {
		what       string
		k          setting
		peer, base string
	}
	var all []line
	for _, n := range aloneWith {
		k := setting{"uncontended", 1, n}
		all = append(all, line{"lock and unlock, nobody else wants it, " + goroutines(k), k, ours, floor})
	}
	for _, n := range aloneWith {
		k := setting{"uncontended", 1, n}
		all = append(all, line{"acquire and release a permit, " + goroutines(k), k, permit, permitFloor})
	}
	for _, n := range aloneWith {
		k := setting{"claims", 1, n}
		all = append(all, line{"Counter.Incr, " + goroutines(k), k, counterUp, claimFloor})
	}
	for _, n := range []int{16, 64, 256} {
		all = append(all, line{fmt.Sprintf("acquire a lock that %d workers in 8 processes want", n), setting{"contended", 8, n}, ours, ""})
	}
	var rows [][]string
	for _, l := range all {
		if _, ok := p.s.median(l.k, l.peer, p50); !ok {
			rows = append(rows, []string{l.what, notMeasured, "", "", "", ""})
			continue
		}
		trips := p.cell(l.k, l.peer, scripts, figure)
		if l.peer == counterUp {
			trips = p.cell(l.k, l.peer, commands, figure)
		}
		rows = append(rows, []string{l.what, trips, p.cell(l.k, l.peer, commands, figure), p.cell(l.k, l.peer, serverCPU, duration), p.cell(l.k, l.peer, p50, duration), p.ratioCell(l.k, l.peer, l.base, p50)})
	}
	p.table([]string{"", "round trips", "commands on the server", "server CPU", "p50", "over the floor"}, rows)
	p.say("Below 2 round trips, calls of several goroutines share one. The commands include those inside scripts.")
	rows = nil
	held := func(what string, m metric, format func(float64) string) {
		got := notMeasured
		for _, k := range p.s.settings("renewal") {
			got = p.cell(k, ours, m, format)
		}
		rows = append(rows, []string{what, got})
	}
	held("a held lock: script calls in one lease", scripts, figure)
	held("a held lock: commands on the server in one lease", commands, figure)
	held("a held lock: bytes in its process", extra("bytes_per_lock"), whole)
	held("all held locks of a process: goroutines", extra("goroutines"), whole)
	rows = append(rows,
		[]string{"a name that was locked once and is free: bytes in its process", p.large("names", extra("bytes"), whole)},
		[]string{"a goroutine that waits: bytes, its stack included", p.large("waiters", extra("bytes"), whole)},
	)
	p.table([]string{"what stays", ""}, rows)
}
