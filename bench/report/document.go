package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// page is one file as it grows. A chart is a file too; alt has the words for each.
type page struct {
	s     *summary
	b     strings.Builder
	files map[string]string // by their path from docs
	alt   map[string]string
}

// folder is where everything but the page itself is.
const folder = "benchmarks/"

// document writes what the figures say, by path from docs: the page, and in the same folder the charts and a file of
// tables for each subject.
func document(s *summary) (files map[string]string) {
	files, alt := map[string]string{}, map[string]string{}
	write := func(name, title string, sections ...func(*page)) {
		p := &page{s: s, files: files, alt: alt}
		for _, section := range sections {
			section(p)
		}
		if p.b.Len() > 0 {
			files[name] = "# " + title + "\n\n" + strings.TrimRight(p.b.String(), "\n") + "\n"
		}
	}
	for _, f := range rawFiles {
		write(folder+f.name, "Benchmarks: "+f.title, f.sections...)
	}
	write("benchmarks.md", "Benchmarks", (*page).head, (*page).cost, (*page).compared, (*page).crowds, (*page).winners,
		(*page).java, (*page).elsewhere, (*page).short, (*page).method, (*page).raw)
	return files
}

// rawFiles are the files of tables, in the order in which the page names them.
var rawFiles = []struct {
	name, title string
	sections    []func(*page)
}{
	{"locks.md", "locks", []func(*page){(*page).uncontended, (*page).onOne, (*page).contended, (*page).handover,
		(*page).crash, (*page).renewal}},
	{"queues.md", "semaphores, readers and writers, order", []func(*page){(*page).queues}},
	{"claims.md", "counters and stocks", []func(*page){(*page).claims}},
	{"redisson.md", "Redisson", []func(*page){(*page).redisson}},
	{"places.md", "TLS, ACL, Cluster, Sentinel, and a server 1 ms away", []func(*page){(*page).placed}},
	{"scale.md", "large numbers", []func(*page){(*page).scale}},
	{"goals.md", "goals", []func(*page){(*page).goals}},
	{"behind.md", "where others are better", []func(*page){(*page).behind}},
	{"run.md", "the run, and what was measured", []func(*page){(*page).run, (*page).wrong, (*page).peers}},
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n\n", args...) }

func (p *page) table(header []string, rows [][]string) {
	line := func(cells []string) { p.b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "--:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range rows {
		line(r)
	}
	p.b.WriteByte('\n')
}

func (p *page) chart(name, alt, svg string) {
	p.files[folder+name], p.alt[name] = svg, alt
	p.say("![%s](%s)", alt, name)
}

func bold(peer string) string {
	if isOurs(peer) {
		return "**" + peer + "**"
	}
	return peer
}

// Numbers as people read them.

func figure(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case a >= 1e5:
		return fmt.Sprintf("%.0fk", v/1e3)
	case a >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a > 0 && a < 0.1:
		return fmt.Sprintf("%.2g", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func perSecond(v float64) string { return figure(v) + "/s" }

func times(v float64) string { return figure(v) + "x" }

func duration(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e5:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case us >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us >= 100:
		return fmt.Sprintf("%.0f us", us)
	case us >= 1:
		return fmt.Sprintf("%.1f us", us)
	default:
		return fmt.Sprintf("%.2f us", us)
	}
}

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func share(v float64) string { return fmt.Sprintf("%.2f", v) }

// cell is the median of a metric, "-" where it was not taken.
func (p *page) cell(k setting, peer string, m metric, format func(float64) string) string {
	if v, ok := p.s.median(k, peer, m); ok {
		return format(v)
	}
	return "-"
}

// ranged is the median and, of several rounds, the lowest and the highest.
func ranged(v spread, format func(float64) string) string {
	if v.n == 1 || format(v.low) == format(v.high) {
		return format(v.median)
	}
	return fmt.Sprintf("%s [%s .. %s]", format(v.median), format(v.low), format(v.high))
}

// bounded is a wait that may have been cut short by the end of the measurement: then it is at least that.
func (p *page) bounded(k setting, peer string, m metric) string {
	window, _ := p.s.median(k, peer, func(r results.Row) (float64, bool) { return r.Seconds * 1e6, true })
	if v, ok := p.s.median(k, peer, m); ok && v > 0.7*window {
		return "> " + duration(v)
	}
	return p.cell(k, peer, m, duration)
}

func (p *page) rangedCell(k setting, peer string, m metric, format func(float64) string) string {
	if v, ok := p.s.of(k, peer, m); ok {
		return ranged(v, format)
	}
	return "-"
}

// ratioMedian is ratioCell without the range.
func (p *page) ratioMedian(k setting, peer, base string, m metric) string {
	median, _, _ := strings.Cut(p.ratioCell(k, peer, base, m), " [")
	return median
}

func (p *page) ratioCell(k setting, peer, base string, m metric) string {
	if v, ok := p.s.ratio(k, peer, base, m); ok {
		return ranged(v, times)
	}
	return "-"
}

// run says where and how it was measured.
func (p *page) run() {
	f := p.s.file
	p.say("## The run")
	rows := [][]string{}
	for _, name := range []string{"date", "machine", "memory", "go", "server", "redlatch", "command", "rounds",
		"contended", "load before", "load after", "took", "incomplete"} {
		if v := f.Fact(name); v != "" {
			if name == "command" {
				v = "`" + v + "`"
			}
			if name == "redlatch" {
				v = "commit " + v
			}
			rows = append(rows, []string{name, v})
		}
	}
	p.table([]string{"", ""}, rows)
	p.say("[How it was measured](../benchmarks.md#how-was-it-measured) says how to read the tables.")
}

// most is the highest number of processes that contended was measured with.
func (p *page) most() int {
	n := 0
	for _, k := range p.s.settings("contended") {
		n = max(n, k.processes)
	}
	return n
}

func (p *page) uncontended() {
	settings := p.s.settings("uncontended")
	if len(settings) == 0 {
		return
	}
	p.say("## Uncontended")
	p.say("Lock and unlock, each goroutine on its own lock. *%s*, the floor, are the two script calls that redlatch "+
		"sends, recorded and sent again by a program that does nothing else. "+
		"*%s* are the two smallest scripts that lock and unlock safely.", floor, setnx)
	for _, k := range settings {
		var all []bar
		order := slices.DeleteFunc(p.s.sorted(k, p50, false), ofPermits)
		for _, peer := range order {
			v, ok := p.s.ratio(k, peer, floor, p50)
			if !ok {
				v, ok = p.s.of(k, peer, p50)
			}
			if ok {
				all = append(all, bar{peer, v, times(v.median) + "  " + p.cell(k, peer, p50, duration)})
			}
		}
		title := "Lock and unlock, uncontended: " + goroutines(k)
		p.chart(fmt.Sprintf("uncontended-%d.svg", k.workers), title,
			bars(title, "p50 over that of the same two script calls sent raw; shorter is better; line: lowest to highest round",
				all, false))
		p.alone(k, goroutines(k), order, floor)
	}
	for _, k := range settings {
		permits := slices.DeleteFunc(p.s.sorted(k, p50, false), func(peer string) bool { return !ofPermits(peer) })
		if len(permits) > 0 {
			p.alone(k, "a permit, "+goroutines(k), permits, permitFloor)
		}
	}
}

// ofPermits reports whether a peer of uncontended is about permits, which are compared with each other only.
func ofPermits(peer string) bool { return peer == permit || peer == permitFloor }

// alone is the table of some peers of uncontended.
func (p *page) alone(k setting, title string, order []string, base string) {
	var rows [][]string
	for _, peer := range order {
		rows = append(rows, []string{
			bold(peer), p.cell(k, peer, p50, duration), p.ratioCell(k, peer, base, p50), p.cell(k, peer, p99, duration),
			p.cell(k, peer, rate, perSecond),
			p.ratioCell(k, peer, base, rate), p.slowestTurn(k, peer), p.cell(k, peer, commands, figure),
			p.cell(k, peer, scripts, figure), p.cell(k, peer, serverCPU, duration),
		})
	}
	p.table([]string{title, "p50", "over the floor", "p99", "rate", "over the floor", "slowest turn", "commands",
		"scripts", "server CPU"}, rows)
}

// slowestTurn is the lowest rate of all turns as a share of the median one.
func (p *page) slowestTurn(k setting, peer string) string {
	if v, ok := p.s.of(k, peer, rate); ok && v.median > 0 {
		return share(v.low / v.median)
	}
	return "-"
}

// byWorkers draws a metric of each peer over the numbers of workers.
func (p *page) byWorkers(name, title, note string, of []setting, m metric, format func(float64) string) {
	var xs []string
	values := map[string][]float64{}
	var order []string
	for i, k := range of {
		xs = append(xs, fmt.Sprintf("%d workers", k.workers))
		for _, peer := range p.s.in(k) {
			if v, ok := p.s.median(k, peer, m); ok {
				if values[peer] == nil {
					values[peer] = slices.Repeat([]float64{math.NaN()}, len(of))
					order = append(order, peer)
				}
				values[peer][i] = v
			}
		}
	}
	var all []line
	for _, peer := range order {
		all = append(all, line{peer, values[peer]})
	}
	p.chart(name, title, lines(title, note, xs, all, format))
}

func (p *page) contended() {
	settings := p.s.settings("contended")
	if len(settings) == 0 {
		return
	}
	p.say("## Contended")
	p.say("All workers want one lock. A worker does one INCR under the lock and then pauses for a millisecond: without " +
		"the pause, a lock that its last holder can take again at once looks best. " +
		"Even so, polling peers get their rate from that, as their fairness and p99 show. p50, p99 and longest are waits " +
		"for the lock. " +
		"Least and most are the acquisitions of single workers. > marks a wait that the end of the measurement cut off.")
	byProcs := map[int][]setting{}
	procs := p.most()
	for _, k := range settings {
		// with fewer workers than processes there are as many processes as workers
		at := procs
		if k.processes == 1 {
			at = 1
		}
		byProcs[at] = append(byProcs[at], k)
	}
	for _, n := range []int{procs, 1} {
		of := byProcs[n]
		if len(of) == 0 {
			continue
		}
		delete(byProcs, n)
		where := fmt.Sprintf("%d processes", n)
		if n == 1 {
			where = "1 process"
		}
		p.say("### %s", where)
		p.byWorkers(fmt.Sprintf("contended-%d-rate.svg", n), "Acquisitions a second, "+where,
			"higher is better; read it together with p99: some peers are quick because one worker takes all", of, rate, figure)
		p.byWorkers(fmt.Sprintf("contended-%d-p99.svg", n), "p99 of the wait, "+where,
			"lower is better; waits that never ended count with all they lasted", of, p99, duration)
		p.byWorkers(fmt.Sprintf("contended-%d-commands.svg", n), "Server commands for one acquisition, "+where,
			"lower is better; those inside scripts included", of, commands, figure)
		for _, k := range of {
			p.say("%d workers in %d %s:", k.workers, k.processes, plural(k.processes, "process", "processes"))
			var rows [][]string
			for _, peer := range p.s.sorted(k, p99, false) {
				rows = append(rows, []string{
					bold(peer), p.s.wakes(peer), p.rangedCell(k, peer, rate, perSecond), p.cell(k, peer, p50, duration),
					p.bounded(k, peer, p99), p.bounded(k, peer, longest),
					p.cell(k, peer, jain, share), p.cell(k, peer, least, whole) + " .. " + p.cell(k, peer, most, whole),
					p.cell(k, peer, commands, figure), p.cell(k, peer, scripts, figure),
					p.cell(k, peer, serverCPU, duration), p.cell(k, peer, conns, whole),
				})
			}
			p.table([]string{"", "wakes by", "acquisitions", "p50", "p99", "longest", "Jain", "least .. most", "commands",
				"scripts", "server CPU", "connections"}, rows)
		}
	}
}

func goroutines(k setting) string {
	return fmt.Sprintf("%d %s", k.workers, plural(k.workers, "goroutine", "goroutines"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func (p *page) handover() {
	settings := p.s.settings("handover")
	if len(settings) == 0 {
		return
	}
	p.say("## Hand-over")
	p.say("The time from the call of unlock until the waiter holds the lock, after a random wait of 15 to 115 ms. *%s* "+
		"asks without a pause: the fastest and most expensive way.", setnx)
	for _, k := range slices.Backward(settings) { // two clients first: the goal is about them
		where := "the waiter is of another client"
		if k.workers == 1 {
			where = "the waiter is of the same client"
		}
		order := p.s.sorted(k, p50, false)
		var all []bar
		for _, peer := range order {
			if v, ok := p.s.of(k, peer, p50); ok {
				all = append(all, bar{peer, v, duration(v.median) + ", p99 " + p.cell(k, peer, p99, duration)})
			}
		}
		title := "Hand-over, " + where
		p.chart(fmt.Sprintf("handover-%d.svg", k.workers), title,
			bars(title, "p50, logarithmic; shorter is better; line: lowest to highest round", all, true))
		var rows [][]string
		for _, peer := range order {
			var n int64
			for _, r := range usable(p.s.rows[k][peer]) {
				n += r.Ops
			}
			rows = append(rows, []string{bold(peer), p.rangedCell(k, peer, p50, duration), p.cell(k, peer, p99, duration),
				p.cell(k, peer, longest, duration), p.cell(k, peer, commands, figure), fmt.Sprint(n)})
		}
		p.table([]string{where, "p50", "p99 of a round", "longest", "commands", "hand-overs"}, rows)
	}
}

func (p *page) crash() {
	for _, k := range p.s.settings("crash") {
		p.say("## The holder is killed")
		p.say("A process that holds %d locks is killed while another waits for all of them. "+
			"*late* is the time from the lease's end, as the holder saw it, until the waiter holds the lock. It is negative "+
			"if the lease was slightly shorter than requested.", k.workers)
		late := func(r results.Row) (float64, bool) {
			left, ok := r.Value("left_ms")
			return r.P50/1000 - left, ok && r.P50 >= 0
		}
		ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
		var rows [][]string
		for _, peer := range p.s.sorted(k, late, false) {
			rows = append(rows, []string{bold(peer), p.cell(k, peer, extra("lease_ms"), ms), p.cell(k, peer, p50, duration),
				p.cell(k, peer, longest, duration), p.rangedCell(k, peer, late, ms)})
		}
		p.table([]string{"", "lease", "after the kill, p50", "longest", "late, p50"}, rows)
	}
}

func (p *page) renewal() {
	for _, k := range p.s.settings("renewal") {
		p.say("## Held locks")
		p.say("One process holds %d locks and does nothing. *Scripts* and *commands* are the server's cost of one lock per "+
			"lease, whatever its length. "+
			"Memory is heap and stacks in use. redsync and redislock do not renew.", k.workers)
		var rows [][]string
		var all []bar
		for _, peer := range p.s.in(k) {
			kept := "yes"
			for _, r := range p.s.rows[k][peer] {
				if r.Lost > 0 {
					kept = "**no**"
				}
			}
			rows = append(rows, []string{
				bold(peer), kept, p.cell(k, peer, scripts, figure), p.cell(k, peer, commands, figure),
				p.cell(k, peer, extra("scripts_per_s"), figure), p.cell(k, peer, extra("commands_per_s"), figure),
				p.cell(k, peer, extra("goroutines"), whole), p.cell(k, peer, extra("bytes_per_lock"), whole),
			})
			if v, ok := p.s.of(k, peer, scripts); ok {
				all = append(all, bar{peer, v,
					figure(v.median) + ", memory " + p.cell(k, peer, extra("bytes_per_lock"), whole) + " B"})
			}
		}
		slices.SortStableFunc(all, func(a, b bar) int { return int(math.Copysign(1, a.value.median-b.value.median)) })
		title := "Script calls for each held lock and lease"
		p.chart("renewal.svg", title,
			bars(title, fmt.Sprintf("%d locks held by one process; logarithmic; shorter is better", k.workers), all, true))
		p.table([]string{"", "still held after the first lease", "scripts for a lock and lease", "commands",
			"scripts/s in all", "commands/s in all", "goroutines more", "bytes for a lock"}, rows)
	}
}

func (p *page) claims() {
	settings := p.s.settings("claims")
	if len(settings) == 0 {
		return
	}
	p.say("## The first N win")
	p.say("We found no other Go library for this. The peers are raw commands and hand-written code. The claims are " +
		"checked: units sold and ordinals given equal the claims granted.")
	for _, k := range settings {
		order := p.s.sorted(k, rate, true)
		var all []bar
		for _, peer := range order {
			if v, ok := p.s.of(k, peer, rate); ok {
				all = append(all, bar{peer, v, perSecond(v.median)})
			}
		}
		title := "Claims a second, " + goroutines(k)
		p.chart(fmt.Sprintf("claims-%d.svg", k.workers), title,
			bars(title, "logarithmic; longer is better; line: lowest to highest round", all, true))
		var rows [][]string
		for _, peer := range order {
			rows = append(rows, []string{peer, p.cell(k, peer, rate, perSecond), p.ratioCell(k, peer, claimFloor, rate),
				p.cell(k, peer, p50, duration), p.cell(k, peer, p99, duration),
				p.cell(k, peer, commands, figure), p.cell(k, peer, serverCPU, duration)})
		}
		p.table([]string{goroutines(k), "rate", "over INCR", "p50", "p99", "commands", "server CPU"}, rows)
	}
}
