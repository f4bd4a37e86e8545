package main

import (
	"fmt"
	"strings"
	"time"
)

// part is one of the proofs.
type part struct {
	name   string
	weight int           // its share of the time
	needs  []string      // programs
	least  time.Duration // it is not run for less, because it would show nothing
	// Tests run with -short for less than usual, and with REDLATCH_LONG=1 from full on.
	usual, full time.Duration
	program     string // the command, or the module and packages of tests; FOR and DIR stand for the time and the folder
	figures     func(p part, s step, dir string) (section, error)
}

var server = []string{"redis-server"}

// parts run in this order. Parts with an end come first, because later parts get the time that is left.
var parts = []part{
	{name: "contract", weight: 20, usual: 2 * time.Minute, full: 10 * time.Minute,
		program: ". test ./internal/contract", figures: testFigures},
	{name: "models", weight: 5, full: 5 * time.Minute, program: "proof test ./models/...", figures: testFigures},
	{name: "histories", weight: 10, needs: server, least: 30 * time.Second, full: 15 * time.Minute,
		program: "proof test ./history", figures: testFigures},
	{name: "Redisson", weight: 5, needs: append(server, "java", "javac", "mvn"), least: 30 * time.Second,
		full: 10 * time.Minute, program: "proof test ./redisson", figures: testFigures},
	{name: "chaos", weight: 20, needs: server, figures: chaosFigures,
		program: "proof/chaos run . -for FOR -state DIR/cells.jsonl -failures DIR/chaos-failures"},
	{name: "soak", weight: 10, needs: server, least: time.Minute, figures: soakFigures,
		program: "proof/chaos run . -soak FOR -state DIR/soak.jsonl -failures DIR/chaos-failures"},
	{name: "planted faults", weight: 10, needs: server, least: 30 * time.Second, figures: faultFigures,
		program: "proof run ./faults -steps planted -for FOR -state DIR"},
	{name: "crowds", weight: 10, least: 30 * time.Second, figures: seedFigures,
		program: "proof run ./simulation/simulate -play crowds -for FOR -state DIR/crowds.jsonl"},
	{name: "simulation", weight: 10, figures: seedFigures,
		program: "proof run ./simulation/simulate -play plans -for FOR -state DIR/plans.jsonl"},
}

// share is the i-th part's share of the time that is left when it begins. A part that has its least in the plan has it
// even if earlier parts took longer, because tests have no limit of their own. A second lets a part begin one item.
func share(total, left time.Duration, i int) time.Duration {
	all, later := 0, 0
	for j, p := range parts {
		all += p.weight
		if j >= i {
			later += p.weight
		}
	}
	weight := time.Duration(parts[i].weight)
	d := left * weight / time.Duration(later)
	if total*weight/time.Duration(all) >= parts[i].least {
		d = max(d, parts[i].least)
	}
	return max(d, time.Second).Round(time.Second)
}

// command is what runs a part for d, from the root of the checkout. Go's cache keeps the results of tests that passed.
func (p part) command(d time.Duration, dir string) string {
	program := strings.NewReplacer("FOR", d.Round(time.Second).String(), "DIR", "'"+dir+"'").Replace(p.program)
	module, packages, tests := strings.Cut(program, " test ")
	switch {
	case !tests:
		return "go -C " + program
	case d < p.usual:
		packages = "-short " + packages
	case d >= p.full:
		module = "REDLATCH_LONG=1 go -C " + module
	}
	if d < p.full {
		module = "go -C " + module
	}
	return fmt.Sprintf("%s test -vet=off -timeout 2h -v %s", module, packages)
}
