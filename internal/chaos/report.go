package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// short is a duration to read.
func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

// summary is a cell in a line.
func (c cell) summary() string {
	if c.NotRun != "" {
		return "not run: " + c.NotRun
	}
	if len(c.Failed) > 0 {
		return "FAILED: " + strings.Join(c.Failed, "; ")
	}
	answers, worst, excused := c.sums()
	text := fmt.Sprintf("%d answers, %d times, worst wait %v, works again after %v", answers, c.Injected, short(worst), short(c.Recovered))
	if len(excused) > 0 {
		text += "; wrong where it may be: " + strings.Join(excused, ", ")
	}
	return text
}

func (c cell) sums() (answers int, worst time.Duration, excused []string) {
	for _, r := range c.Rows {
		answers += r.Answers
		worst = max(worst, r.Worst)
		if len(r.Excused) > 0 {
			excused = append(excused, r.Primitive)
		}
	}
	return answers, worst, excused
}

// table is rows of cells, the first of them the header.
type table struct {
	title, text string
	rows        [][]string
}

// mark is a cell of the table of what was seen.
func (c cell) mark() string {
	if c.NotRun != "" {
		return "not run"
	}
	if len(c.Failed) > 0 {
		return "**failed**"
	}
	_, _, excused := c.sums()
	if len(excused) > 0 {
		return "as promised; " + strings.Join(excused, ", ") + " overlapped or were wrong, as they may"
	}
	return "nothing wrong"
}

// tables are the report.
func tables(cells []cell) (list []table) {
	seen := table{title: "What was seen", text: "Each cell: what the oracle found."}
	seen.rows = [][]string{{"fault", "what happens"}}
	var names []string
	for _, d := range deployments {
		if slices.ContainsFunc(cells, func(c cell) bool { return c.Deployment == d.name }) {
			names = append(names, d.name)
			seen.rows[0] = append(seen.rows[0], d.name)
		}
	}
	for _, f := range faults {
		line, any := []string{f.name, f.what}, false
		for _, d := range names {
			mark := "–"
			if i := slices.IndexFunc(cells, func(c cell) bool { return c.Deployment == d && c.Fault == f.name }); i >= 0 {
				mark, any = cells[i].mark(), true
			}
			line = append(line, mark)
		}
		if any {
			seen.rows = append(seen.rows, line)
		}
	}
	list = append(list, seen, promises(cells))
	for _, d := range deployments {
		t := table{title: d.name, text: strings.ToUpper(d.what[:1]) + d.what[1:] + ".", rows: [][]string{{"fault", "times", "answers", "no answer", "holds lost", "worst wait", "works again after", "what the oracle counted"}}}
		for _, c := range cells {
			if c.Deployment == d.name {
				t.rows = append(t.rows, c.line())
			}
		}
		if len(t.rows) > 1 {
			list = append(list, t)
		}
	}
	return list
}

// line is a cell as a row of its deployment's table.
func (c cell) line() []string {
	if c.NotRun != "" {
		return []string{c.Fault, "", "", "", "", "", "", "not run: " + c.NotRun}
	}
	if len(c.Failed) > 0 {
		return []string{c.Fault, fmt.Sprint(c.Injected), "", "", "", "", "", "failed: " + strings.Join(c.Failed, "; ")}
	}
	answers, worst, _ := c.sums()
	unanswered, lost := 0, 0
	var notes []string
	for _, r := range c.Rows {
		unanswered += r.Unanswered
		lost += r.Lost
		if r.Note != "" {
			notes = append(notes, r.Primitive+": "+r.Note)
		} else if len(r.Excused) > 0 {
			notes = append(notes, r.Primitive+": "+r.Excused[0])
		}
	}
	if c.Stalled {
		notes = append(notes, "the machine stood still for a second: a replica took over")
	}
	return []string{c.Fault, fmt.Sprint(c.Injected), fmt.Sprint(answers), fmt.Sprint(unanswered), fmt.Sprint(lost), short(worst), short(c.Recovered), strings.Join(notes, "; ")}
}

// promises is what may happen where, as far as it was run.
func promises(cells []cell) table {
	t := table{title: "What may happen", text: "\"survives\": nothing wrong, and it works again. \"refuses\": nothing wrong, but its answers may be errors for good, as what it is made of is gone. " +
		"\"token\": more may act than promised, until the holder is told; a resource that checks the token of a Fenced lock refuses the late one. \"open\": a count or a record may be wrong. Whatever is not named survives."}
	t.rows = [][]string{{"fault", "deployment", token, refuses, wrongly}}
	for _, f := range faults {
		for _, c := range cells {
			if c.Fault != f.name || c.NotRun != "" {
				continue
			}
			by := map[string][]string{}
			for _, r := range c.Rows {
				by[promised(f, c.Deployment, r.Primitive)] = append(by[promised(f, c.Deployment, r.Primitive)], r.Primitive)
			}
			if len(by[survives]) < len(c.Rows) {
				t.rows = append(t.rows, []string{f.name, c.Deployment, strings.Join(by[token], ", "), strings.Join(by[refuses], ", "), strings.Join(by[wrongly], ", ")})
			}
		}
	}
	return t
}

// head is the text above the tables.
func head(cells []cell) []string {
	took, ran, answers, injected, failed := time.Duration(0), 0, 0, 0, 0
	for _, c := range cells {
		if c.NotRun != "" {
			continue
		}
		n, _, _ := c.sums()
		took, ran, answers, injected = took+c.Took, ran+1, answers+n, injected+c.Injected
		if len(c.Failed) > 0 {
			failed++
		}
	}
	server := "a server whose version is not known"
	if bin, err := redistest.Program(); err == nil {
		if name, version, err := redistest.VersionOf(bin); err == nil {
			server = name + " " + version
		}
	}
	return []string{
		fmt.Sprintf("Written by `go -C internal/chaos run . -markdown ../../docs/chaos.md`: %d cells in %v, %d of them failed. %d answers under %d faults. %s, %s, %d processors.",
			ran, took.Round(time.Second), failed, answers, injected, server, runtime.Version(), runtime.NumCPU()),
		fmt.Sprintf("A cell is one fault on one deployment. Three client processes use every primitive side by side, with leases of %v and calls of at most %v. "+
			"The fault befalls the servers, the network or a client, again and again. Then all heals, and every primitive has to work three times again. "+
			"Half of the callers of locks, elections and permits give up after 0 to 50 ms, by a waitTime, a deadline or a cancellation. Before the fault, and from 2 s after it has healed, nothing of theirs may be had by nobody for 200 ms while a patient caller waits, Quorum aside. "+
			"The verdict is about what clients were told, not about speed: exclusion and capacity until each holder's own deadline, and for locks a history that porcupine "+
			"accepts; a unit has one owner and a claimant one answer; counts are exact but for calls without an answer; tokens grow; every key has an end. "+
			"[safety.md](safety.md) says what is promised; a cell may be wrong only where that page says so.", lease, callTimeout),
	}
}

// report writes the two files, where a name is given.
func report(cells []cell, markdown, page string) error {
	for name, text := range map[string]func([]cell) []byte{markdown: asMarkdown, page: asPage} {
		if name == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text(cells), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func asMarkdown(cells []cell) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Chaos\n\n%s\n", strings.Join(head(cells), "\n\n"))
	for _, t := range tables(cells) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.title, t.text)
		for i, r := range t.rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(r)))
			}
		}
	}
	b.WriteString(soaked)
	return b.Bytes()
}

// soaked stands below the tables.
const soaked = `
## Soak

` + "`go -C internal/chaos run . -soak 1h -chart ../../docs/chaos/soak.svg`" + ` has the three clients work on one node for so long, while something goes wrong every few
seconds that takes nothing from anybody for good, and fails if the memory, goroutines, connections or keys of the last third are half
as much again as those of the first. How long the run in the chart was is on its axis; it began half a minute after the clients did.

![What clients and server use, and what they do, over the time of a soak](chaos/soak.svg)
`

func asPage(cells []cell) []byte {
	var b bytes.Buffer
	b.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Chaos</title>\n<style>body{font:14px sans-serif;margin:2em;max-width:80em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:3px 8px;text-align:left;vertical-align:top}</style>\n<h1>Chaos</h1>\n")
	for _, p := range head(cells) {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(p))
	}
	for _, t := range tables(cells) {
		fmt.Fprintf(&b, "<h2>%s</h2>\n<p>%s</p>\n<table>\n", html.EscapeString(t.title), html.EscapeString(t.text))
		for i, r := range t.rows {
			tag := "td"
			if i == 0 {
				tag = "th"
			}
			b.WriteString("<tr>")
			for _, x := range r {
				fmt.Fprintf(&b, "<%s>%s</%s>", tag, html.EscapeString(strings.ReplaceAll(x, "**", "")), tag)
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</table>\n")
	}
	return b.Bytes()
}

// write prints what each primitive did, over all cells, and the worst of its waits.
func write(out io.Writer, cells []cell) {
	fmt.Fprintf(out, "%-13s %9s %9s %6s %12s  %s\n", "primitive", "answers", "no answer", "lost", "worst wait", "in")
	for _, p := range primitives {
		var sum row
		in := ""
		for _, c := range cells {
			for _, r := range c.Rows {
				if r.Primitive != p.name {
					continue
				}
				sum.Answers += r.Answers
				sum.Unanswered += r.Unanswered
				sum.Lost += r.Lost
				if r.Worst > sum.Worst {
					sum.Worst, in = r.Worst, c.Deployment+": "+c.Fault
				}
			}
		}
		if sum.Answers > 0 {
			fmt.Fprintf(out, "%-13s %9d %9d %6d %12v  %s\n", p.name, sum.Answers, sum.Unanswered, sum.Lost, short(sum.Worst), cmp.Or(in, "-"))
		}
	}
}
