package main

// loopback is the place that the others are compared with.
const loopback = "loopback"

// placed has what a cycle costs where users are, as ratios to plain loopback in the same run.
func (p *page) placed() {
	s := p.s.places
	if s == nil {
		return
	}
	p.say("## Where users are")
	p.say("Lock and unlock that nobody else wants, of [places.csv](places.csv), a run of its own. All places take turns. Each ratio is to plain loopback in the same round: below 1 a rate is lower, above 1 a time is longer.")
	p.factsOf(s)
	q := &page{s: s}
	for _, k := range s.settings("places") {
		var rows [][]string
		for _, place := range s.in(k) {
			rows = append(rows, []string{place, q.cell(k, place, p50, duration), q.ratioCell(k, place, loopback, p50), q.cell(k, place, p99, duration), q.cell(k, place, rate, perSecond), q.ratioCell(k, place, loopback, rate),
				q.cell(k, place, commands, figure), q.cell(k, place, scripts, figure)})
		}
		p.table([]string{goroutines(k), "p50", "over loopback", "p99", "rate", "over loopback", "commands", "scripts"}, rows)
	}
	var rows [][]string
	for _, place := range s.peers {
		rows = append(rows, []string{place, s.file.Fact("peer " + place)})
	}
	p.table([]string{"", ""}, rows)
}
