package main

// cost is what a user asks first: a cycle in round trips, as a ratio to the raw calls it is made of; and memory.
func (p *page) cost() {
	p.say("## What does it cost me?")
	p.say("*Over the floor* is the p50 over that of the same script calls sent raw: what redlatch itself adds.")
	type line struct {
		what       string
		k          setting
		peer, base string
	}
	var all []line
	for _, n := range []int{1, 64} { // the others are in the files of tables
		k := setting{"uncontended", 1, n}
		all = append(all, line{"lock and unlock, " + goroutines(k), k, ours, floor})
	}
	for _, n := range []int{1, 64} { // the others are in the files of tables
		k := setting{"uncontended", 1, n}
		all = append(all, line{"a permit, " + goroutines(k), k, permit, permitFloor})
	}
	for _, n := range []int{1, 64} { // the others are in the files of tables
		k := setting{"claims", 1, n}
		all = append(all, line{"Counter.Incr, " + goroutines(k), k, counterUp, claimFloor})
	}
	all = append(all, line{"acquire, 64 workers in 8 processes", setting{"contended", 8, 64}, ours, ""})
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
		rows = append(rows, []string{l.what, trips, p.cell(l.k, l.peer, commands, figure),
			p.cell(l.k, l.peer, serverCPU, duration), p.cell(l.k, l.peer, p50, duration), p.ratioCell(l.k, l.peer, l.base, p50)})
	}
	p.table([]string{"", "round trips", "commands", "server CPU", "p50", "over the floor"}, rows)
	p.say("Below two round trips for a lock or permit, calls of several goroutines share one.")
	held := func(m metric, format func(float64) string) string {
		for _, k := range p.s.settings("renewal") {
			return p.cell(k, ours, m, format)
		}
		return notMeasured
	}
	p.say("- A held lock: %s script calls and %s commands per lease, %s bytes in its process.\n- All held locks of a "+
		"process: %s goroutines.\n- A name that is free again: %s bytes.\n- A waiting goroutine: %s bytes, with its stack.",
		held(scripts, figure), held(commands, figure), held(extra("bytes_per_lock"), whole),
		held(extra("goroutines"), whole), p.large("names", extra("bytes"), whole), p.large("waiters", extra("bytes"), whole))
}
