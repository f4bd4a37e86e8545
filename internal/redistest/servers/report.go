package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// run is what came of the tests on one server.
type run struct {
	server  string
	took    time.Duration
	results map[test]*result
}

// test is a test, one inside of another, or, without a name, a package that failed by itself.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSuffix(t.pkg+"."+t.name, ".") }

func (t test) inner() bool { return strings.Contains(t.name, "/") }

func compare(a, b test) int {
	return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
}

type result struct {
	action string // pass, fail, skip
	output []string
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// read reads the output of go test -json, and writes that of tests that fail to failures.
func (r *run) read(out io.Reader, failures io.Writer) error {
	lines := json.NewDecoder(out)
	for {
		var e event
		switch err := lines.Decode(&e); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", r.server, err)
		}
		_, dir, _ := strings.Cut(e.Package, "/redlatch/redlatch/")
		t := test{dir, e.Test}
		if e.Test == "" && e.Action != "fail" {
			continue
		}
		at := r.results[t]
		if at == nil {
			at = &result{}
			r.results[t] = at
		}
		switch e.Action {
		case "output":
			at.output = append(at.output, e.Output)
		case "pass":
			at.action, at.output = e.Action, nil
		case "skip":
			at.action = e.Action
		case "fail":
			at.action = e.Action
			fmt.Fprintf(failures, "%s: failed: %v\n%s", r.server, t, strings.Join(at.output, ""))
		}
	}
}

// with returns what ended so. A test inside of another is one of it; a package that failed because its tests did is
// none.
func (r *run) with(action string) (list []test) {
	own := map[string]bool{}
	for t, at := range r.results {
		if at.action == action && t.name != "" {
			list, own[t.pkg] = append(list, t), true
		}
	}
	for t, at := range r.results {
		if at.action == action && t.name == "" && !own[t.pkg] {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

// count is how many tests ended so, those inside of others not counted.
func (r *run) count(action string) (n int) {
	for _, t := range r.with(action) {
		if !t.inner() {
			n++
		}
	}
	return n
}

// reason is why a test was skipped.
func (at *result) reason() string {
	for _, line := range slices.Backward(at.output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			if _, why, ok := strings.Cut(line, ".go:"); ok {
				_, line, _ = strings.Cut(why, ": ")
			}
			return line
		}
	}
	return "no reason given"
}

// differing are the tests that failed in a run, or that only some runs skipped.
func differing(runs []*run) map[test]bool {
	differs := map[test]bool{}
	for _, r := range runs {
		for _, t := range r.with("fail") {
			differs[t] = true
		}
		for _, t := range r.with("skip") {
			for _, other := range runs {
				if at := other.results[t]; at == nil || at.action != "skip" {
					differs[t] = true
				}
			}
		}
	}
	return differs
}

// report is a table of the runs, and what differs between them: each test that failed, or that is skipped on some
// servers only.
func report(runs []*run) string {
	var b strings.Builder
	b.WriteString("| server | tests that passed | failed | skipped | seconds |\n|---|---|---|---|---|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.0f |\n", r.server, r.count("pass"), r.count("fail"), r.count("skip"),
			r.took.Seconds())
	}
	differs := differing(runs)
	if len(differs) > 0 {
		b.WriteString("\n| differs | on | how |\n|---|---|---|\n")
	}
	for _, t := range slices.SortedFunc(maps.Keys(differs), compare) {
		for _, r := range runs {
			switch at := r.results[t]; {
			case at == nil && t.name != "" && !t.inner():
				fmt.Fprintf(&b, "| %v | %s | not run |\n", t, r.server)
			case at == nil:
			case at.action == "fail":
				fmt.Fprintf(&b, "| %v | %s | failed |\n", t, r.server)
			case at.action == "skip":
				fmt.Fprintf(&b, "| %v | %s | skipped: %s |\n", t, r.server, at.reason())
			}
		}
	}
	return b.String()
}
