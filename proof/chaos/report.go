package main

import (
	"bytes"
	"cmp"
	"fmt"
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
	idlest := slices.MaxFunc(c.Rows, func(a, b row) int { return cmp.Compare(a.Idle, b.Idle) })
	text += fmt.Sprintf(", idle for %v at most (%s)", short(idlest.Idle), idlest.Primitive)
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

// pairs has a line for each primitive: how often the two versions followed each other. It is empty if there was one.
func pairs(cells []cell) []byte {
	sums, in := map[string]row{}, map[string]int{}
	for _, c := range cells {
		for _, r := range c.Rows {
			sum := sums[r.Primitive]
			sum.ToNew, sum.ToOld = sum.ToNew+r.ToNew, sum.ToOld+r.ToOld
			if c.Fault == deployed {
				sum.Idle = max(sum.Idle, r.Idle)
			}
			sums[r.Primitive] = sum
			if r.ToNew > 0 && r.ToOld > 0 {
				in[r.Primitive]++
			}
		}
	}
	if len(in) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("\n| primitive | cells with both versions | the new follows the old | the old follows the new | " +
		"idle in a rolling deploy |\n|---|--:|--:|--:|--:|\n")
	for _, p := range primitives {
		if sum, ok := sums[p.name]; ok {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %v |\n", p.name, in[p.name], sum.ToNew, sum.ToOld, short(sum.Idle))
		}
	}
	return b.Bytes()
}

// mark is a cell in the table of the page.
func (c cell) mark() string {
	_, _, excused := c.sums()
	switch {
	case c.NotRun != "":
		return "not run"
	case len(c.Failed) > 0:
		return "**failed**"
	case len(excused) > 0:
		return "allowed: " + strings.Join(excused, ", ")
	}
	return "ok"
}

// table describes the run, and has a line for each fault and a column for each deployment.
func table(cells []cell) []byte {
	var b bytes.Buffer
	took, ran, answers, injected, failed := time.Duration(0), 0, 0, 0, 0
	marks := map[string]string{}
	for _, c := range cells {
		marks[itemOf(c.Deployment, c.Fault)] = c.mark()
		if c.NotRun == "" {
			n, _, _ := c.sums()
			took, ran, answers, injected = took+c.Took, ran+1, answers+n, injected+c.Injected
		}
		if len(c.Failed) > 0 {
			failed++
		}
	}
	server := "A server whose version is not known"
	if bin, err := redistest.Program(); err == nil {
		if name, version, err := redistest.VersionOf(bin); err == nil {
			server = name + " " + version
		}
	}
	fmt.Fprintf(&b, "%d combinations of a fault and a deployment ran in %v; %d failed. Clients got %d answers under %d "+
		"faults. %s, %s, %d processors.\n\n| fault | what happens |", ran, took.Round(time.Second), failed, answers, injected,
		server, runtime.Version(), runtime.NumCPU())
	for _, d := range deployments {
		fmt.Fprintf(&b, " %s |", d.name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(deployments)))
	for _, f := range faults {
		if !slices.ContainsFunc(cells, func(c cell) bool { return c.Fault == f.name }) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s |", f.name, f.what)
		for _, d := range deployments {
			fmt.Fprintf(&b, " %s |", cmp.Or(marks[itemOf(d.name, f.name)], "–"))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
