package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// away is what bench/peers adds to a workload's name for the measurement behind a delay.
const away = ", 1 ms away"

// queueKinds are the workloads in which several processes wait in line, and what is said of them.
var queueKinds = []struct{ workload, title, text, file string }{
	{"semaphore", "Semaphores",
		"Workers in several processes want one of 8 permits, hold it for 5 ms and pause for 1 ms.", "semaphore"},
	{"readwrite", "Readers and writers",
		"Readers and one writer, in several processes. Each holds for 1 ms and pauses for 1 ms.", "readwrite"},
	{"fair", "Order", "Workers in several processes want one lock that keeps an order. They hold it for 1 ms and pause " +
		"for 1 ms.", "fair"},
}

// isOurs reports whether a peer of the queues is a verb of redlatch.
func isOurs(peer string) bool {
	return peer == ours || strings.HasPrefix(peer, "rsemaphore.") || strings.HasPrefix(peer, "rlock.")
}

var (
	worstWindow  = extra("worst_window")
	emptyWindows = extra("empty_windows")
	reads        = extra("reads_per_s")
	writes       = extra("writes_per_s")
)

// queues has the tables of the workloads in which processes wait in line, near the server and 1 ms away from it.
func (p *page) queues() {
	said := false
	for _, kind := range queueKinds {
		near, far := p.s.settings(kind.workload), p.s.settings(kind.workload+away)
		if len(near)+len(far) == 0 {
			continue
		}
		if !said {
			said = true
			p.say("## Queues")
			p.say("Each is measured twice, the second time behind a proxy that adds 1 ms each way. *Worst window* is the rate "+
				"of the slowest tenth of a second of all rounds, "+
				"as a share of its round's median. *Longest* is the longest wait of all rounds; > marks one that the end of the "+
				"measurement cut off. A page of shared memory shows how many are inside. "+
				"%s", "We found no other maintained Go library with semaphores or read-write locks on Redis. The peers are "+
				"hand-written, except etcd; [Redisson](redisson.md) has its own run.")
		}
		p.say("### %s", kind.title)
		p.say("%s", kind.text)
		for _, at := range []struct {
			settings []setting
			where    string
			suffix   string
		}{{near, "", ""}, {far, ", 1 ms away", "-away"}} {
			for _, k := range at.settings {
				p.queue(k, kind.title+at.where, "queue-"+kind.file+at.suffix+".svg")
			}
		}
	}
}

// queue is the drawing and the table of one setting.
func (p *page) queue(k setting, title, file string) {
	title += fmt.Sprintf(": %d workers in %d %s", k.workers, k.processes, plural(k.processes, "process", "processes"))
	var all []bar
	for _, peer := range p.s.sorted(k, rate, true) {
		if v, ok := p.s.of(k, peer, rate); ok {
			all = append(all, bar{peer, v, perSecond(v.median) + ", longest wait " + p.high(k, peer, longest, duration)})
		}
	}
	if file != "" {
		p.chart(file, title, bars(title, "acquisitions a second; longer is better; line: lowest to highest round", all,
			false))
	}
	p.queueTable(k, title)
}

func (p *page) queueTable(k setting, title string) {
	classes := strings.HasPrefix(k.workload, "readwrite")
	header := []string{title, "wakes by", "acquisitions"}
	if classes {
		header = append(header, "reads", "writes")
	}
	header = append(header, "p50", "p99", "longest", "worst window", "empty windows", "Jain", "commands", "scripts",
		"server CPU", "connections")
	var rows [][]string
	for _, peer := range p.s.sorted(k, rate, true) {
		row := []string{bold(peer), p.s.wakes(peer), p.rangedCell(k, peer, rate, perSecond)}
		if classes {
			row = append(row, p.cell(k, peer, reads, perSecond), p.cell(k, peer, writes, perSecond))
		}
		row = append(row, p.cell(k, peer, p50, duration), p.bounded(k, peer, p99), p.high(k, peer, longest, duration),
			p.low(k, peer, worstWindow, share), p.high(k, peer, emptyWindows, whole),
			p.cell(k, peer, jain, share), p.cell(k, peer, commands, figure), p.cell(k, peer, scripts, figure),
			p.cell(k, peer, serverCPU, duration), p.cell(k, peer, conns, whole))
		rows = append(rows, row)
	}
	p.table(header, rows)
}

// high is the highest of all rounds, with a > if it is as long as the measurement.
func (p *page) high(k setting, peer string, m metric, format func(float64) string) string {
	v, ok := p.s.of(k, peer, m)
	if !ok {
		return "-"
	}
	window, _ := p.s.of(k, peer, func(r results.Row) (float64, bool) { return r.Seconds * 1e6, true })
	if v.high > 0.9*window.low {
		return "> " + format(v.high)
	}
	return format(v.high)
}

// low is the lowest of all rounds.
func (p *page) low(k setting, peer string, m metric, format func(float64) string) string {
	if v, ok := p.s.of(k, peer, m); ok {
		return format(v.low)
	}
	return "-"
}

// queueSettings are the settings of all queues.
func (s *summary) queueSettings() (out []setting) {
	for _, kind := range queueKinds {
		out = slices.Concat(out, s.settings(kind.workload), s.settings(kind.workload+away))
	}
	return out
}
