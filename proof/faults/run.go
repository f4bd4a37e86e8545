package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// verdict is what became of a fault.
type verdict struct {
	Noticed bool
	By      []string // the tests that failed
	Why     string   // why no test ran
}

func (v verdict) String() string {
	if v.Noticed {
		return "noticed by " + strings.Join(v.By, " ")
	}
	return strings.TrimSpace("SURVIVED " + v.Why)
}

// planted has each planted fault judged by the tests that it names. Some faults show only when things happen in one
// order, so a fault survives three tries. In the last try the tests run in full: walks are longer then.
func (m *measure) planted(ctx context.Context, faults []fault) (map[string]verdict, error) {
	items := names(faults)
	run := newRun[verdict](m, "planted")
	return run.Each(ctx, items, verdict.String, func(ctx context.Context, name string) (verdict, error) {
		f := &faults[slices.Index(items, name)]
		var v verdict
		for try := range 3 {
			var env []string
			most := 30 * time.Second
			if try == 2 {
				env, most = []string{"REDLATCH_LONG=1"}, 5*time.Minute
			}
			var err error
			if v, err = m.judge(ctx, f, f.pkg, f.tests, most, env...); err != nil || v.Noticed {
				return v, err
			}
		}
		return v, nil
	})
}

// random has each random fault judged by the tests that run its line, the quickest first: tests of its own package,
// then of other packages, until they have taken patience. A fault takes half a minute on average, so that an area takes
// 20 minutes.
func (m *measure) random(ctx context.Context, faults []fault, c *coverMap) (map[string]verdict, error) {
	if c == nil {
		return nil, fmt.Errorf("random faults need the step cover before them")
	}
	items := names(faults)
	run := newRun[verdict](m, "random")
	return run.Each(ctx, items, verdict.String, func(ctx context.Context, name string) (verdict, error) {
		f := &faults[slices.Index(items, name)]
		_, lines, err := f.plant(m.root)
		if err != nil {
			return verdict{}, err
		}
		found := c.running(f.file, lines)
		if len(found) == 0 {
			return verdict{Why: "no test runs it"}, nil
		}
		left := patience
		for _, pkg := range nearest(f.file, found) {
			n := 0
			for ; n < len(found[pkg]) && left > 0; n++ {
				left -= c.tests[pkg+" "+found[pkg][n]].Seconds
			}
			tests := found[pkg][:n]
			quick := tests[:min(len(tests), 12)]
			for _, some := range [][]string{quick, tests[len(quick):]} {
				if len(some) == 0 {
					continue
				}
				if v, err := m.judge(ctx, f, pkg, some, 4*time.Minute); err != nil || v.Noticed {
					return v, err
				}
			}
		}
		return verdict{}, nil
	})
}

// patience is for how many seconds tests judge one random fault, by the time that each took alone.
const patience = 30.0

// mostPackages bounds the packages whose tests judge a random fault.
const mostPackages = 4

// nearest orders packages: that of the file first, then those with the most tests that run it.
func nearest(file string, found map[string][]string) []string {
	own := filepath.ToSlash(filepath.Dir(file))
	own, _, _ = strings.Cut(own+"/", "/lua/")
	all := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		if is := a == strings.TrimSuffix(own, "/"); is || b == strings.TrimSuffix(own, "/") {
			return map[bool]int{true: -1, false: 1}[is]
		}
		return cmp.Or(len(found[b])-len(found[a]), strings.Compare(a, b))
	})
	return all[:min(len(all), mostPackages)]
}

func names(faults []fault) (all []string) {
	for _, f := range faults {
		all = append(all, f.name)
	}
	return all
}

// pattern selects tests by their names. One test alone may be a case of it: "Test/case".
func pattern(tests []string) string {
	name, of, _ := strings.Cut(strings.Join(tests, "|"), "/")
	return "^(" + name + ")$/" + of
}

// judge runs some tests of a package with the fault in its place, and stops at the first that fails.
func (m *measure) judge(ctx context.Context, f *fault, pkg string, tests []string, most time.Duration, env ...string,
) (verdict, error) {
	text, _, err := f.plant(m.root)
	if err != nil {
		return verdict{}, err
	}
	program, planted, err := m.program(ctx, pkg, f, text)
	if err != nil {
		return verdict{}, fmt.Errorf("%s does not compile: %w", f.name, err)
	}
	// A fault may have a loop allocate for ever, so the tests have a bound of memory.
	test := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8000000; exec "$0" "$@"`, program, "-test.failfast",
		"-test.timeout", most.String(), "-test.run", pattern(tests))
	test.Dir, test.Env = filepath.Join(m.root, pkg), slices.Concat(os.Environ(), env, planted)
	out, err := test.CombinedOutput()
	if m.show {
		os.Stdout.Write(out)
	}
	if ctx.Err() != nil {
		return verdict{}, ctx.Err()
	}
	v := verdict{Noticed: err != nil}
	if err == nil && (bytes.Contains(out, []byte("no tests to run")) || !bytes.Contains(out, []byte("PASS"))) {
		return v, fmt.Errorf("%s: no test of that name: %s %s\n%s", f.name, pkg, tests, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, is := strings.CutPrefix(line, "--- FAIL: "); is {
			v.By = append(v.By, strings.Fields(name)[0])
		} else if v.By == nil && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
			v.By = append(v.By, strings.TrimSpace(line))
		}
	}
	if v.Noticed && v.By == nil {
		return v, fmt.Errorf("%s: the tests of %s fail and name none:\n%s", f.name, pkg, out)
	}
	return v, nil
}
