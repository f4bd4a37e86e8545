package main

import (
	"strings"
)

// factsOf are those of a run in a file of its own.
func (p *page) factsOf(of *summary) {
	var rows [][]string
	for _, name := range []string{"date", "machine", "command", "rounds", "took"} {
		if v := of.file.Fact(name); v != "" {
			if name == "command" {
				v = "`" + v + "`"
			}
			rows = append(rows, []string{name, v})
		}
	}
	p.table([]string{"", ""}, rows)
}

// scale is the table of bench/scale.
func (p *page) scale() {
	s := p.s.scale
	if s == nil {
		return
	}
	p.say("## Large numbers")
	p.say("A separate run ([scale.csv](scale.csv)). Bytes are heap and stacks in use after a collection, including what " +
		"the caller has for each: a hold, or the stack of a waiting goroutine. " +
		"*Meanwhile*: while nothing changes. *Left*: what remains at the end, compared with before.")
	p.factsOf(s)
	q := &page{s: s}
	var rows [][]string
	var sales, limits [][]string
	for _, r := range s.file.Rows {
		k := setting{r.Workload, r.Processes, r.Workers}
		if r.Peer == "stock" {
			row := []string{whole(float64(r.Workers))}
			for _, key := range []string{"held", "sold", "ended", "forgotten"} {
				row = append(row, q.cell(k, r.Peer, extra(key), whole))
			}
			sales = append(sales,
				append(row, q.cell(k, r.Peer, extra("ping_idle_ms"), figure), q.cell(k, r.Peer, extra("ping_end_ms"), figure)))
			continue
		}
		if r.Peer == "limits" {
			row := []string{whole(float64(r.Workers)), q.cell(k, r.Peer, rate, perSecond),
				q.cell(k, r.Peer, extra("server_bytes"), whole)}
			for _, key := range []string{"idle", "fill", "end"} {
				row = append(row, q.cell(k, r.Peer, extra("ping_"+key+"_ms"), figure),
					q.cell(k, r.Peer, extra("ping_"+key+"_p99_ms"), figure))
			}
			limits = append(limits, row)
			continue
		}
		what := s.file.Fact("scale " + r.Peer)
		row := []string{strings.ReplaceAll(what, "|", "/"), whole(float64(r.Processes)), whole(float64(r.Workers)),
			q.cell(k, r.Peer, rate, perSecond), q.cell(k, r.Peer, commands, figure), q.cell(k, r.Peer, scripts, figure),
			q.cell(k, r.Peer, conns, whole)}
		for _, key := range []string{"bytes", "goroutines", "server_bytes", "commands_per_s", "left_bytes",
			"left_goroutines", "left_keys", "left_connections"} {
			row = append(row, q.cell(k, r.Peer, extra(key), whole))
		}
		rows = append(rows, row)
	}
	p.table([]string{"", "processes", "number", "rate", "commands each", "scripts each", "connections", "bytes each",
		"goroutines more", "server bytes each", "commands/s meanwhile", "bytes left", "goroutines left", "keys left",
		"connections left"}, rows)
	if sales != nil {
		p.say("Server bytes of a reservation with an id of 14 bytes and a claimant of 13: held; sold; ended; and " +
			"forgotten, after a minute (`Spec.Remember`). " +
			"The worst PING of another client, in ms: for 3 s before, and while the stock ends and is removed.")
		p.table([]string{"reservations", "held", "sold", "ended", "forgotten", "worst PING", "while it ends"}, sales)
	}
	if limits != nil {
		p.say("Keys of a rate limit: a unit is taken of each, and all end at one time. PING of another client, in ms: the " +
			"worst, and p99.")
		p.table([]string{"keys", "rate", "server bytes each", "worst PING, idle", "p99", "while they are asked for", "p99",
			"while they end", "p99"}, limits)
	}
}

// large is a figure of bench/scale for the table of costs.
func (p *page) large(kind string, m metric, format func(float64) string) string {
	if p.s.scale != nil {
		for _, r := range p.s.scale.file.Rows {
			if v, ok := m(r); ok && r.Peer == kind {
				return format(v)
			}
		}
	}
	return notMeasured
}
