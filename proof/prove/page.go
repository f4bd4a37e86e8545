package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/proof/longrun"
	"github.com/redlatch/redlatch/proof/simulation"
)

//go:embed page.html
var layout string

// section is a part on the page.
type section struct {
	Name, State, Summary string
	Step                 step
	Bars                 []bar
	Charts               []chart
	Cells                [][]string // the table of chaos
	Failures             []failure
	Output               string // a piece of it, if the part failed
}

// bar is a line of a picture.
type bar struct {
	Label string
	Value int
}

// chart is a measure over time, in pieces.
type chart struct {
	Label  string
	Pieces [][]float64
}

// failure is what was found, and the command that repeats it.
type failure struct{ What, Again string }

// writePage makes the page of the results in dir. found says which parts failed.
func writePage(dir string) (found, err error) {
	page := struct {
		Facts    facts
		Took     time.Duration
		Times    []bar
		Sections []section
	}{}
	if err := load(dir, "facts", &page.Facts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		s, err := p.section(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if s.State == "failed" {
			found = errors.Join(found, fmt.Errorf("%s failed", p.name))
		}
		page.Took += s.Step.Took
		page.Times = append(page.Times, bar{p.name, int(s.Step.Took.Seconds())})
		page.Sections = append(page.Sections, s)
	}
	var b bytes.Buffer
	t, err := template.New("page").Funcs(template.FuncMap{"picture": picture, "plot": plot}).Parse(layout)
	if err == nil {
		err = t.Execute(&b, page)
	}
	return found, cmp.Or(err, os.WriteFile(filepath.Join(dir, "page.html"), b.Bytes(), 0o644))
}

func (p part) section(dir string) (section, error) {
	var before step
	if err := load(dir, p.name, &before); err != nil {
		return section{}, err
	}
	s, err := p.figures(p, before, dir)
	s.Name, s.Step, s.State = p.name, before, "held"
	out := text(dir, p.name+".out")
	if m := ofAll.FindStringSubmatch(out); m != nil {
		s.Summary = "Of " + m[1] + " in all: " + s.Summary
	}
	if before.Error != "" {
		const most = 5000
		out = noise.ReplaceAllString(out, "")
		from := max(0, len(out)-most)
		if i := strings.Index(out, "Error Trace:"); i >= 0 {
			from = min(from, i)
		}
		s.Output = before.Error + "\n" + out[from:min(from+most, len(out))]
		if len(s.Failures) == 0 {
			s.Failures = []failure{{"the command", before.Command}}
		}
	}
	switch {
	case len(s.Failures) > 0:
		s.State = "failed"
	case before.NotRun != "":
		s.State = "not run: " + before.NotRun
	case before.Took == 0:
		s.State = "not run yet"
	}
	return s, err
}

// picture draws bars.
func picture(bars []bar) template.HTML {
	var b strings.Builder
	longest := 1
	for _, x := range bars {
		longest = max(longest, x.Value)
	}
	fmt.Fprintf(&b, `<svg width="760" height="%d">`, 20*len(bars))
	for i, x := range bars {
		width, y := 400*x.Value/longest, 20*i+14
		fmt.Fprintf(&b, `<text x="240" y="%d" text-anchor="end">%s</text><rect x="250" y="%d" width="%d" height="14"/>`+
			`<text x="%d" y="%d">%d</text>`, y, template.HTMLEscapeString(x.Label), y-11, width, 255+width, y, x.Value)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// plot draws charts, two beside each other, each from 0 to its highest value. A line ends where its piece ends.
func plot(charts []chart) template.HTML {
	const width, height = 360, 90
	var b strings.Builder
	fmt.Fprintf(&b, `<svg width="%d" height="%d">`, 2*(width+20), height*((len(charts)+1)/2))
	for i, c := range charts {
		left, top, n, highest := i%2*(width+20), i/2*height, 0, 0.
		for _, values := range c.Pieces {
			n += len(values)
			highest = max(highest, slices.Max(values))
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s: 0 to %.4g</text>`, left, top+12, template.HTMLEscapeString(c.Label), highest)
		at := 0
		for _, values := range c.Pieces {
			b.WriteString(`<polyline points="`)
			for _, v := range values {
				fmt.Fprintf(&b, "%.1f,%.1f ", float64(left)+float64(at)*width/float64(n), float64(top+80)-60*v/max(highest, 1e-9))
				at++
			}
			b.WriteString(`"/>`)
		}
		fmt.Fprintf(&b, `<path d="M%d %dh%d"/>`, left, top+80, width)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

var (
	ofAll    = regexp.MustCompile(`(?m)^(?:chaos|planted) \d+ of (\d+), `)
	noise    = regexp.MustCompile(`(?m)^(\S+ \S+ WARN |=== |\s*--- (PASS|SKIP)|.*; leave -short out$).*\n`)
	outcome  = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): `)
	broken   = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	searched = regexp.MustCompile(`(?m): \| ([^|\n]+) \| (\d+) \| \d+ \|$`)
)

func testFigures(p part, last step, dir string) (s section, err error) {
	out, count := text(dir, p.name+".out"), map[string]int{}
	for _, m := range outcome.FindAllStringSubmatch(out, -1) {
		count[m[1]]++
	}
	s.Summary = fmt.Sprintf("Tests and their cases: %d passed, %d failed, %d were skipped.", count["PASS"], count["FAIL"],
		count["SKIP"])
	for _, m := range broken.FindAllStringSubmatch(out, -1) {
		s.Failures = append(s.Failures, failure{m[1], fmt.Sprintf("%s -count=1 -run '^%s$'", last.Command, m[1])})
	}
	for _, m := range searched.FindAllStringSubmatch(out, -1) {
		states, _ := strconv.Atoi(m[2])
		s.Bars = append(s.Bars, bar{m[1], states})
	}
	if s.Bars != nil {
		s.Summary += " States of each size that was searched:"
	} else if len(count) > 0 {
		s.Bars = []bar{{"passed", count["PASS"]}, {"failed", count["FAIL"]}, {"skipped", count["SKIP"]}}
	}
	return s, nil
}

// results reads a file of package longrun.
func results[R any](dir, file string) (map[string]R, []string, error) {
	run := longrun.Run[R]{File: filepath.Join(dir, file)}
	all, err := run.Each(context.Background(), nil, nil, nil)
	return all, slices.Sorted(maps.Keys(all)), err
}

// cell is what the page shows of a cell of chaos.
type cell struct {
	Deployment, Fault, NotRun string
	Seed                      uint64
	Injected                  int
	Rows                      []struct {
		Answers int
		Excused []string
	}
	Failed []string
}

func chaosFigures(_ part, _ step, dir string) (s section, err error) {
	all, items, err := results[cell](dir, "cells.jsonl")
	head, lines, answers, injected, ran := []string{"fault"}, map[string][]string{}, 0, 0, 0
	for _, c := range all {
		if !slices.Contains(head, c.Deployment) {
			head = append(head, c.Deployment)
		}
	}
	slices.Sort(head[1:])
	for _, item := range items {
		c, mark := all[item], "held"
		injected += c.Injected
		ran++
		for _, row := range c.Rows {
			answers += row.Answers
			if len(row.Excused) > 0 {
				mark = "allowed"
			}
		}
		if c.NotRun != "" {
			mark = "not run: " + c.NotRun
			ran--
		}
		if len(c.Failed) > 0 {
			mark = "failed"
			s.Failures = append(s.Failures, failure{item + ": " + strings.Join(c.Failed, "; "),
				fmt.Sprintf("go -C proof/chaos run . -deployments %q -faults %q -seed %d", c.Deployment, c.Fault, c.Seed-1)})
		}
		if lines[c.Fault] == nil {
			lines[c.Fault] = make([]string, len(head))
			lines[c.Fault][0] = c.Fault
		}
		lines[c.Fault][slices.Index(head, c.Deployment)] = mark
	}
	for _, fault := range slices.Sorted(maps.Keys(lines)) {
		s.Cells = append(s.Cells, lines[fault])
	}
	s.Summary = fmt.Sprintf("%d cells of a fault and a deployment ran, %d failed. Clients got %d answers under %d "+
		"faults. Allowed means that docs/guarantees.md does not promise otherwise.", ran, len(s.Failures), answers, injected)
	if len(s.Cells) > 0 {
		s.Cells = append([][]string{head}, s.Cells...)
	}
	return s, err
}

// piece is what the page shows of a piece of a soak.
type piece struct {
	Deployment                string
	Seed                      uint64
	Length                    time.Duration
	Faults, Grants, Undecided int
	Series                    []struct {
		Name, Unit string
		Values     []float64
	}
	Failed []string
}

func soakFigures(_ part, _ step, dir string) (s section, err error) {
	all, items, err := results[piece](dir, "soak.jsonl")
	charts, sum, took := map[string]*chart{}, piece{}, map[string]time.Duration{}
	for _, item := range items {
		p := all[item]
		took[p.Deployment] += p.Length
		sum.Faults, sum.Grants, sum.Undecided = sum.Faults+p.Faults, sum.Grants+p.Grants, sum.Undecided+p.Undecided
		for _, x := range p.Series {
			label := p.Deployment + ", " + x.Name + ", " + x.Unit
			if charts[label] == nil {
				charts[label] = &chart{Label: label}
			}
			if len(x.Values) > 0 {
				charts[label].Pieces = append(charts[label].Pieces, x.Values)
			}
		}
		if len(p.Failed) > 0 {
			s.Failures = append(s.Failures, failure{item + ": " + strings.Join(p.Failed, "; "),
				fmt.Sprintf("go -C proof/chaos run . -soak %v -deployments %q -seed %d", p.Length, p.Deployment, p.Seed)})
		}
	}
	for _, label := range slices.Sorted(maps.Keys(charts)) {
		s.Charts = append(s.Charts, *charts[label])
	}
	s.Summary = fmt.Sprintf("%d pieces, %d failed:", len(items), len(s.Failures))
	for _, on := range slices.Sorted(maps.Keys(took)) {
		s.Summary += fmt.Sprintf(" %v on %s,", took[on].Round(time.Second), on)
	}
	s.Summary += fmt.Sprintf(" with %d grants under %d faults; %d histories were not decided in time. Each line begins "+
		"after the warm-up of its piece.", sum.Grants, sum.Faults, sum.Undecided)
	return s, err
}

func faultFigures(_ part, _ step, dir string) (s section, err error) {
	all, items, err := results[struct{ Noticed bool }](dir, "planted.jsonl")
	for _, item := range items {
		if !all[item].Noticed {
			s.Failures = append(s.Failures, failure{"no test notices " + item,
				fmt.Sprintf("go -C proof run ./faults -steps planted -state $(mktemp -d) -only %q", item)})
		}
	}
	s.Bars = []bar{{"noticed", len(all) - len(s.Failures)}, {"not noticed", len(s.Failures)}}
	s.Summary = fmt.Sprintf("%d faults were planted, and tests noticed %d.", len(all), len(all)-len(s.Failures))
	return s, err
}

var again = regexp.MustCompile(`(?s)(seed \d+: .*?)again: the same flags with ([^\n]*)`)

func seedFigures(p part, last step, dir string) (s section, err error) {
	play := strings.Fields(p.program)[4]
	all, items, err := results[simulation.Figures](dir, play+".jsonl")
	var total simulation.Figures
	seeds := map[string]int{}
	for _, item := range items {
		total.Add(all[item])
		var from, to uint64
		if _, err := fmt.Sscanf(item, "%d-%d", &from, &to); err != nil {
			return s, err
		}
		for seed := from; seed <= to; seed++ {
			for kind := range maps.Keys(kindsOf(play, seed)) {
				seeds[kind]++
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(seeds)) {
		s.Bars = append(s.Bars, bar{kind, seeds[kind]})
	}
	if m := again.FindStringSubmatch(text(dir, p.name+".out")); m != nil && last.Error != "" {
		s.Failures = []failure{{m[1], "go -C proof run ./simulation/simulate -play " + play + " " + m[2]}}
	}
	s.Summary = total.String() + ". Seeds with each kind of object:"
	return s, err
}

func kindsOf(play string, seed uint64) map[string]bool {
	kinds := map[string]bool{}
	for _, kind := range simulation.Plays[play](seed).Kinds {
		kinds[kind] = true
	}
	return kinds
}
