package cells

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Claim is what a library's documents say, in our words, and the cells that can show otherwise.
type Claim struct {
	Library, Doc string
	Text         string
	Faults       []string // nil: all
	Shows        Kind
	Warns        bool // it says that this happens
	// Within is for how long two may hold it, as "at once" on a busy machine has it.
	Within time.Duration
}

// Kind is what shows that a claim does not hold.
type Kind string

// What a round counts.
const (
	TwoHolders Kind = "two holders"
	Unreported Kind = "a loss without a report"
	AnyLoss    Kind = "a loss before the release"
	Stalls     Kind = "a stall"
)

// noticeable is the least stall that is more than the way of a busy machine.
const noticeable = 500 * time.Millisecond

func (k Kind) in(r round) string {
	switch {
	case k == TwoHolders && r.Violations > 0:
		return fmt.Sprintf("%d holds, for up to %v", r.Violations, short(r.Longest))
	case k == Unreported && r.Late+r.Never > 0:
		return fmt.Sprintf("%d times", r.Late+r.Never)
	case k == AnyLoss && r.Reported+r.Late+r.Never > 0:
		return fmt.Sprintf("%d times", r.Reported+r.Late+r.Never)
	case k == Stalls && r.Stall > noticeable:
		return short(r.Stall)
	}
	return ""
}

// verdict is the cells of the rounds that break it, or that it was not broken.
func (c Claim) verdict(rounds []round) string {
	var broken, within []string
	ran := 0
	for _, r := range rounds {
		if r.Library != c.Library || r.NotRun != "" || c.Faults != nil && !slices.Contains(c.Faults, r.Fault) {
			continue
		}
		ran++
		if what := c.Shows.in(r); what != "" && c.allows(r) {
			within = append(within, fmt.Sprintf("%s %d", r.Fault, r.Violations))
		} else if what != "" {
			broken = append(broken, r.Fault+": "+what)
		}
	}
	note := ""
	if within != nil {
		note = fmt.Sprintf("; two holders for less than %s: %s", short(c.Within), strings.Join(within, ", "))
	}
	switch {
	case ran == 0:
		return "not run"
	case c.Warns && broken == nil:
		return fmt.Sprintf("not seen in %d cells", ran)
	case c.Warns:
		return fmt.Sprintf("confirmed, %s: %s", c.Shows, strings.Join(broken, "; "))
	case broken == nil:
		return fmt.Sprintf("held in %d cells", ran) + note
	}
	return fmt.Sprintf("**broken**, %s: %s", c.Shows, strings.Join(broken, "; ")) + note
}

// allows reports that what the round counts lasted no longer than the claim can mean.
func (c Claim) allows(r round) bool {
	return c.Shows == TwoHolders && c.Within > 0 && r.Longest < c.Within
}

// writeContest writes the tables, and the page if it has a name.
func writeContest(markdown string, libraries []Library, claims []Claim, rounds []round, out io.Writer) error {
	if markdown == "" {
		fmt.Fprint(out, matrix(libraries, rounds))
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(markdown), 0o755); err != nil {
		return err
	}
	return os.WriteFile(markdown, []byte(contestPage(libraries, claims, rounds)), 0o644)
}

// mark is a round in a word or two.
func (r round) mark() string {
	switch {
	case r.NotRun != "":
		return "not run"
	case r.Violations > 0:
		return fmt.Sprintf("**%d, %v**", r.Violations, short(r.Longest))
	case len(r.Shown) > 0:
		return "**no lock's history**"
	}
	return "0"
}

func (r round) losses() string {
	if r.NotRun != "" {
		return "not run"
	}
	text := fmt.Sprint(r.Late + r.Never)
	if r.Never > 0 {
		text += fmt.Sprintf(" (%d never)", r.Never)
	}
	return text
}

func (r round) stalls() string {
	if r.NotRun != "" {
		return "not run"
	}
	return short(r.Stall)
}

// matrix are the tables by library and fault.
func matrix(libraries []Library, rounds []round) string {
	var b strings.Builder
	for _, t := range []struct {
		title, text string
		show        func(r round) string
	}{
		{"Violations", "Holds of which the library still said that they were held when another worker had got the lock; " +
			"and for how long it went on saying so, at most, from the holder's first look after that to its last. 0s: it " +
			"looked once, and ended its work.", round.mark},
		{"Losses without a report",
			"Holds that were gone before their release without a word of the library: found by the answer to the release, " +
				"or never. A release that was sent again, as its answer was lost, is answered so as well. Losses that were " +
				"reported in time are in the " +
				"last table.", round.losses},
		{"Stalls", "The longest time in which no worker had the lock while one waited for it, a lease (the time that the " +
			"dead hold it) subtracted. " +
			"What the servers themselves are away for is in it.", round.stalls},
		{"Acquisitions", "One in sixteen holders keeps the lock for 0.3 to 2.5 leases: that is most of the time.",
			func(r round) string {
				if r.NotRun != "" {
					return "not run"
				}
				return fmt.Sprint(r.Acquired)
			}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.title, t.text)
		head := []string{"fault"}
		var names []string
		for _, l := range libraries {
			if slices.ContainsFunc(rounds, func(r round) bool { return r.Library == l.Name }) {
				names, head = append(names, l.Name), append(head, l.Name)
			}
		}
		fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, f := range rivalFaults {
			if line := lineOf(f.name, names, rounds, t.show); line != nil {
				fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			}
		}
	}
	return b.String()
}

// lineOf is what a table shows of a fault by library; nil: no round was of it.
func lineOf(fault string, libraries []string, rounds []round, show func(r round) string) []string {
	line, played := []string{fault}, false
	for _, n := range libraries {
		cell := "–"
		if i := slices.IndexFunc(rounds, func(r round) bool { return r.Library == n && r.Fault == fault }); i >= 0 {
			cell, played = show(rounds[i]), true
		}
		line = append(line, cell)
	}
	if !played {
		return nil
	}
	return line
}

// contestPage is the page of tables.
func contestPage(libraries []Library, claims []Claim, rounds []round) string {
	var b strings.Builder
	ran := 0
	for _, r := range rounds {
		if r.NotRun == "" {
			ran++
		}
	}
	fmt.Fprintf(&b, contestHead, ran, Machine(), lease, lookEvery)
	b.WriteString("\n## Libraries\n\n| library | release | used | a holder learns of a loss by |\n|---|---|---|---|\n")
	for _, l := range libraries {
		release := "this checkout"
		for _, r := range rounds {
			if r.Library == l.Name && r.Release != "" {
				release = r.Release
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Name, strings.TrimSpace(l.Module+" "+release), l.How, l.Reports)
	}
	b.WriteString("\n## Faults\n\n| fault | what happens |\n|---|---|\n")
	for _, f := range rivalFaults {
		fmt.Fprintf(&b, "| %s | %s |\n", f.name, f.what)
	}
	b.WriteString("\nFailovers and the split brain are on Sentinel, `-quorum` is on five servers, of which faults " +
		"strike two, all else is on one server. –: the library has no such cell.\n")
	b.WriteString(matrix(libraries, rounds))
	b.WriteString(better(libraries, rounds))
	b.WriteString("\n## What documents claim\n\nREADMEs and references are those of the releases above; pages without " +
		"a version are those of August 2026.\n\n| library | its document | claim, in short | in these cells " +
		"|\n|---|---|---|---|\n")
	for _, c := range claims {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Library, c.Doc, c.Text, c.verdict(rounds))
	}
	b.WriteString(histories(claims, rounds))
	b.WriteString("\n## All cells\n\n| cell | times | acquired | violations | longest | losses reported, at release, " +
		"never | stall | " +
		"longest wait | works again after | notes |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rounds {
		cell := r.Library + "/" + hyphened(r.Fault)
		if r.NotRun != "" {
			fmt.Fprintf(&b, "| %s | | | | | | | | | not run: %s |\n", cell, r.NotRun)
			continue
		}
		notes := slices.Clone(r.Notes)
		if r.Violations == 0 {
			notes = append(notes, r.Shown...)
		}
		if r.Undecided {
			notes = append(notes, "porcupine did not decide in time")
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %d, %d, %d | %s | %s | %s | %s |\n", cell, r.Injected, r.Acquired,
			r.Violations, short(r.Longest), r.Reported, r.Late, r.Never, short(r.Stall), short(r.Wait), short(r.Again),
			strings.NewReplacer("\n", " ", "|", "/").Replace(strings.Join(notes, "; ")))
	}
	return b.String()
}

const contestHead = `# Rivals in the same chaos

Locks of other libraries, used as their own documents say, and ours, under the faults of
[chaos.md](../chaos.md): %d cells of a library and a fault. %s. Written by

` + "```sh" + `
go -C internal/chaos/rivals run . -markdown ../../../docs/chaos/rivals.md
go -C internal/chaos/rivals run . -only redsync/holder-paused -seed 1 -edn /tmp/histories   # one cell again
` + "```" + `

` + "`-edn`" + ` writes the history of each cell for [Knossos](https://github.com/jepsen-io/knossos) and
its model of a mutex. A seed draws the same plan. When that meets the processes is up to the machine, so counts differ
from run to run.

Three client processes of three workers each want one lock, with a lease of %v. As long as a worker holds it, the
worker asks its library every %v whether it still does, and writes down when it asked. What it asks is a deadline or a
signal of the library in its own process, never a server. A violation is a hold of which the answer is yes at an instant
at which another worker had already got the lock. So a process that was stopped is not blamed for the time in which it
could not act, only for what its library says when it goes on. Servers, proxies, faults, recorder and checker are those
of chaos.md. Where no two held the lock, porcupine looks for an order of the calls that a lock can have given.

The lease is shorter than the libraries' defaults (redsync 8 s, rueidislock 5 s, Redisson 30 s, etcd 60 s), so that a
fault outlasts it. Other time-outs, as of a connection, have their defaults, and count for more than they would with a
longer lease. etcd has one server: a majority of several confirms each write, so that no replica that lags takes over.

What holders write after they have lost the lock, and which check at the resource stops it: [late writes](late.md).
`

// histories are of the claims that cells break or confirm: of one cell for each.
func histories(claims []Claim, rounds []round) string {
	var b strings.Builder
	b.WriteString("\n## Histories\n\nOf each claim that was broken or confirmed, the operations that show it in one " +
		"cell, as `-edn` writes " +
		"them. `:info` is a release without an answer, or one that was answered by \"not held\": its holder acted for the " +
		"last time " +
		"just before it was invoked.\n")
	shown := map[string]bool{}
	for _, c := range claims {
		for _, r := range rounds {
			if r.Library != c.Library || c.Faults != nil && !slices.Contains(c.Faults, r.Fault) ||
				c.Shows.in(r) == "" || c.allows(r) ||
				len(r.evidence[c.Shows]) == 0 {
				continue
			}
			what := fmt.Sprintf("%s/%s, %s", r.Library, hyphened(r.Fault), c.Shows)
			if !shown[what] {
				if c.Shows == TwoHolders {
					what += ": " + r.Shown[0]
				}
				fmt.Fprintf(&b, "\n%s.\n\n```clojure\n", what)
				printOps(&b, record{events: r.evidence[c.Shows]}.ops())
				b.WriteString("```\n")
			}
			shown[what] = true
			break
		}
	}
	return b.String()
}

// betterIn is in what r did better than ours, and what speaks against that; nil: in nothing.
func (r round) betterIn(ours round) (in []string) {
	if r.Violations < ours.Violations {
		in = append(in, fmt.Sprintf("violations %d", r.Violations))
	}
	if r.Late+r.Never < ours.Late+ours.Never {
		in = append(in, fmt.Sprintf("losses %d", r.Late+r.Never))
	}
	if r.Stall < ours.Stall-200*time.Millisecond {
		in = append(in, "stall "+short(r.Stall))
	}
	if r.Acquired > 2*ours.Acquired && r.Violations <= ours.Violations {
		in = append(in, fmt.Sprintf("acquisitions %d", r.Acquired))
	}
	if in != nil && r.Violations > ours.Violations {
		in = append(in, fmt.Sprintf("though with violations %d", r.Violations))
	}
	if in != nil && r.Stall > noticeable {
		in = append(in, "though with a stall of "+short(r.Stall))
	}
	return in
}

// better are the cells in which another library on the same servers did better than the first one, which is ours.
func better(libraries []Library, rounds []round) string {
	var b strings.Builder
	b.WriteString("\n## Where another library did better than redlatch\n\nFewer violations, fewer losses without a " +
		"report, a stall that is shorter by " +
		"200 ms, or twice the acquisitions, under the same fault.\n\n| fault | redlatch | better |\n|---|---|---|\n")
	for _, ours := range rounds {
		if ours.Library != libraries[0].Name || ours.NotRun != "" {
			continue
		}
		var all []string
		for _, r := range rounds {
			if r.Library == ours.Library || r.Deployment == five || r.NotRun != "" || r.Fault != ours.Fault {
				continue
			}
			if in := r.betterIn(ours); in != nil {
				all = append(all, r.Library+": "+strings.Join(in, ", "))
			}
		}
		if all != nil {
			fmt.Fprintf(&b, "| %s | violations %d, losses %d, stall %s, acquisitions %d | %s |\n", ours.Fault, ours.Violations,
				ours.Late+ours.Never, short(ours.Stall), ours.Acquired, strings.Join(all, "; "))
		}
	}
	return b.String()
}
