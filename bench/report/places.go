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
	p.say("Uncontended lock and unlock, in a separate run ([places.csv](places.csv)). All places take turns. Ratios are " +
		"to plain loopback in the same round.")
	p.factsOf(s)
	q := &page{s: s}
	for _, k := range s.settings("places") {
		var rows [][]string
		for _, place := range s.in(k) {
			rows = append(rows, []string{place, q.cell(k, place, p50, duration), q.ratioCell(k, place, loopback, p50),
				q.cell(k, place, p99, duration), q.cell(k, place, rate, perSecond), q.ratioCell(k, place, loopback, rate),
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
