package cells

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
	text := fmt.Sprintf("%d answers, %d times, worst wait %v, works again after %v", answers, c.Injected, short(worst),
		short(c.Recovered))
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

const nothingWrong = "nothing wrong"

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
		return "allowed; " + strings.Join(excused, ", ") + " overlapped or were wrong, as they may"
	}
	return nothingWrong
}

// tables are the report.
func tables(cells []cell) (list []table) {
	seen := table{title: "What was seen", text: "\"allowed\": a promise was broken where safety.md says it may be."}
	seen.rows = [][]string{{"fault", "what happens"}}
	var names []string
	for _, d := range deployments {
		if slices.ContainsFunc(cells, func(c cell) bool { return c.Deployment == d.name }) {
			names = append(names, d.name)
			seen.rows[0] = append(seen.rows[0], d.name)
		}
	}
	for _, f := range faults {
		line, played := []string{f.name, f.what}, false
		for _, d := range names {
			mark := "–"
			if i := slices.IndexFunc(cells, func(c cell) bool { return c.Deployment == d && c.Fault == f.name }); i >= 0 {
				mark, played = cells[i].mark(), true
			}
			line = append(line, mark)
		}
		if played {
			seen.rows = append(seen.rows, line)
		}
	}
	list = append(list, seen, promises(cells))
	for _, d := range deployments {
		t := table{title: d.name, text: strings.ToUpper(d.what[:1]) + d.what[1:] + ".",
			rows: [][]string{{"fault", "times", "answers", "no answer", "holds lost", "worst wait", "works again after",
				"what the oracle counted"}}}
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
	return []string{c.Fault, fmt.Sprint(c.Injected), fmt.Sprint(answers), fmt.Sprint(unanswered), fmt.Sprint(lost),
		short(worst), short(c.Recovered), strings.Join(notes, "; ")}
}

// promises is what may happen where, as far as it was run.
func promises(cells []cell) table {
	t := table{title: "What may happen",
		text: "\"survives\": no promise is broken, and it works again. \"refuses\": no promise is broken, but it may " +
			"return errors from then on, because its keys are gone. " +
			"\"token\": more may act than promised, until the holder learns of it; a resource that checks the token of a " +
			"Fenced lock rejects the stale one. \"open\": a count or a record may be wrong. Primitives that are not named " +
			"survive."}
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
				t.rows = append(t.rows,
					[]string{f.name, c.Deployment, strings.Join(by[token], ", "), strings.Join(by[refuses], ", "),
						strings.Join(by[wrongly], ", ")})
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
		fmt.Sprintf("%d combinations of a fault and a deployment ran in %v; %d failed. Clients got %d answers under %d "+
			"faults. %s, %s, %d processors. Written by `go -C internal/chaos run . -markdown ../../docs/chaos.md`.",
			ran, took.Round(time.Second), failed, answers, injected, server, runtime.Version(), runtime.NumCPU()),
		fmt.Sprintf("Three client processes use every primitive concurrently, with leases of %v and calls of at most %v. "+
			"Half of the callers of locks, elections and permits give up after 0 to 50 ms, by a waitTime, a deadline or a "+
			"cancellation. "+
			"One fault strikes the servers, the network or a client, repeatedly. Then it heals, and every primitive must work "+
			"three times again.", lease, callTimeout),
		"A run fails if a client observes a broken promise:\n\n" +
			"- More owners or permits at once than allowed, up to each holder's own deadline. For locks, porcupine must also " +
			"accept the history.\n" +
			"- A unit of a stock with two owners, or a claimant with two answers.\n" +
			"- A wrong count, unanswered calls aside.\n" +
			"- A fencing token that does not grow, or a key without an expiry.\n" +
			"- A lock or permit that no client has for 200 ms while a patient caller waits, before the fault or from 2 s " +
			"after it healed. Quorum is exempt.\n\n" +
			"A primitive may break its promise only where [safety.md](safety.md) says so.",
	}
}

// details is the file of tables that belongs to a page: docs/chaos/cells.md, of docs/chaos.md.
func details(markdown string) string {
	if markdown == "" {
		return ""
	}
	return filepath.Join(strings.TrimSuffix(markdown, ".md"), "cells.md")
}

// report writes the files, where a name is given.
func report(cells []cell, markdown, page string) error {
	for name, text := range map[string]func([]cell) []byte{markdown: asMarkdown, details(markdown): asDetails,
		page: asPage} {
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

// asMarkdown is the page: what was seen, in a mark for each cell, and a summary of each deployment.
func asMarkdown(cells []cell) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Chaos\n\n%s\n", strings.Join(head(cells), "\n\n"))
	seen := tables(cells)[0]
	b.WriteString("\n## What was seen\n\n\"ok\": no promise was broken. \"allowed\": a promise was broken where " +
		"safety.md says it may be. " +
		"[cells.md](chaos/cells.md) describes each fault, and has what broke and all counts.\n\n")
	for i, r := range seen.rows {
		marks := []string{r[0]}
		for _, x := range r[2:] {
			what, _, excused := strings.Cut(x, "; ")
			switch {
			case what == nothingWrong:
				what = "ok"
			case excused:
				what = "allowed"
			}
			marks = append(marks, what)
		}
		tableLine(&b, i, marks)
	}
	for _, d := range deployments {
		if text := summaryOf(cells, d.name, d.what); text != "" {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", d.name, text)
		}
	}
	b.WriteString(soaked)
	return b.Bytes()
}

// summaryOf is what the clients of a deployment saw, or nothing.
func summaryOf(cells []cell, name, what string) string {
	ran, total, longest, recovered := 0, 0, time.Duration(0), time.Duration(0)
	for _, c := range cells {
		if c.Deployment != name || c.NotRun != "" {
			continue
		}
		answers, worst, _ := c.sums()
		ran, total, longest, recovered = ran+1, total+answers, max(longest, worst), max(recovered, c.Recovered)
	}
	if ran == 0 {
		return ""
	}
	return fmt.Sprintf("%s. %d faults, %d answers. The longest wait was %v; after a fault had healed, all primitives "+
		"worked again within %v.",
		strings.ToUpper(what[:1])+what[1:], ran, total, short(longest), short(recovered))
}

func tableLine(b *bytes.Buffer, i int, r []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(r, " | "))
	if i == 0 {
		fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(r)))
	}
}

// asDetails are the tables.
func asDetails(cells []cell) []byte {
	var b bytes.Buffer
	b.WriteString("# Chaos: all cells\n\nOne cell is one fault on one deployment. [chaos.md](../chaos.md) says what the " +
		"clients do, and when a cell fails.\n")
	for _, t := range tables(cells) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.title, t.text)
		for i, r := range t.rows {
			tableLine(&b, i, r)
		}
	}
	return b.Bytes()
}

// soaked is the end of the page.
const soaked = `
## Slots that servers migrate by themselves

Redis 8.4 (CLUSTER MIGRATION IMPORT), Valkey 9.0 (CLUSTER MIGRATESLOTS) and later ones copy slots as a replica does,
hold writes up for a moment and hand the slots over at once. The other tables are of a server without these commands.
Here up to 1000 slots at a time moved between primaries with replicas, for 30 s with each of three seeds (2026-11-28).
The machine was busy (load 30 to 50), so idle times were not judged. The other faults, on the same machine, are for
comparison: one seed each. "Full memory", "failover" and "ACL change" broke no promise on these servers, on any
deployment, but where safety.md says so.

| server | fault | times | answers | no answer | holds lost | longest wait | broken promises |
|---|---|---|---|---|---|---|---|
| Redis 8.6.3 | atomic slot migration, 3 seeds | 186 | 108990 | 11063 | 120 | 829ms | none |
| Redis 8.6.3 | slot migration | 35 | 36890 | 4181 | 48 | 1.334s | none |
| Redis 8.6.3 | none | 57 | 39489 | 3916 | 36 | 752ms | none |
| Valkey 9.1.2 | atomic slot migration, 3 seeds | 171 | 115959 | 11009 | 123 | 784ms | none |
| Valkey 9.1.2 | slot migration | 37 | 38579 | 3673 | 30 | 1.061s | none |
| Valkey 9.1.2 | none | 57 | 43813 | 3646 | 43 | 593ms | none |

To run it: ` + "`REDLATCH_SERVER=/path/to/valkey-server go -C internal/chaos run . " +
	"-deployments Cluster -faults \"atomic slot migration\"`" + `.

## Rivals

Under the same faults the locks of redsync, redislock, rueidislock, Redisson and etcd contend, and ours.
[rivals.md](chaos/rivals.md) has violations, stalls and losses by library and fault, what confirms or breaks claims of
their documents, and where one of them did better. [late.md](chaos/late.md) has what is lost when holders write late.

## Soak

` + "`go -C internal/chaos run . -soak 1h -chart ../../docs/chaos/soak.svg`" + ` runs the three clients on one node
for an hour, with a fault that heals every few seconds. It fails if the memory, goroutines, connections or keys of the
last third exceed those of the first by half. The chart's axis shows how long its run was.

![What clients and server use, and what they do, over the time of a soak](chaos/soak.svg)
`

func asPage(cells []cell) []byte {
	var b bytes.Buffer
	b.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Chaos</title>\n<style>body{font:14px " +
		"sans-serif;margin:2em;max-width:80em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:3px " +
		"8px;text-align:left;vertical-align:top}</style>\n<h1>Chaos</h1>\n")
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
			fmt.Fprintf(out, "%-13s %9d %9d %6d %12v  %s\n", p.name, sum.Answers, sum.Unanswered, sum.Lost, short(sum.Worst),
				cmp.Or(in, "-"))
		}
	}
}
