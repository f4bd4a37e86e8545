// Command servers runs the conformance part of the tests on each of the server programs it is given, and prints what
// was run and where the servers differ. Run it in the module's root:
//
//	go run ./internal/redistest/servers /opt/redis-7.2/redis-server /opt/valkey-8.0/valkey-server
//
// The conformance part is every test of a package of the library, of ./docs and of internal/rights that starts a
// server, alone, as a Cluster or under sentinels; it is found by names, which may find some more. Without a program it
// is the one that the tests start otherwise.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/reach"
)

// elsewhere are folders whose tests say nothing of the library on a server: the test kit.
var elsewhere = []string{"internal/redistest"}

// modules are those whose tests take part: the library's, and that of the rights it needs.
var modules = []string{".", "internal/rights"}

func main() {
	only := flag.String("run", "",
		"of these tests, only those that match this `pattern`, a name or several with | between them")
	race := flag.Bool("race", false, "with the race detector")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: servers [flags] [PROGRAM...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	passed, err := all(flag.Args(), *only, *race)
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
	if !passed {
		os.Exit(1)
	}
}

func all(programs []string, only string, race bool) (passed bool, err error) {
	if len(programs) == 0 {
		p, err := redistest.Program()
		if err != nil {
			return false, err
		}
		programs = []string{p}
	}
	tests, err := conformance(".")
	if err != nil {
		return false, err
	}
	if only == "" {
		only = pattern(tests)
	}
	var commands [][]string
	for _, module := range modules {
		args := []string{"-C", module, "test", "-json", "-count=1", "-timeout=30m", "-race=" + strconv.FormatBool(race),
			"-run=" + only}
		var dirs []string
		for dir := range tests {
			if moduleOf(dir) != module {
				continue
			}
			rel, err := filepath.Rel(module, dir)
			if err != nil {
				return false, err
			}
			dirs = append(dirs, "./"+filepath.ToSlash(rel))
		}
		slices.Sort(dirs)
		commands = append(commands, append(args, dirs...))
	}

	var runs []*run
	passed = true
	for _, p := range programs {
		r, err := on(p, commands)
		if err != nil {
			return false, err
		}
		runs = append(runs, r)
		passed = passed && len(r.with("fail")) == 0
	}
	fmt.Print(report(runs))
	return passed, nil
}

// moduleOf is which of modules a folder is in.
func moduleOf(dir string) string {
	for _, m := range modules[1:] {
		if rel, err := filepath.Rel(m, dir); err == nil && !strings.HasPrefix(rel, "..") {
			return m
		}
	}
	return modules[0]
}

// conformance returns the tests of each folder of the modules that start a server; the library's module is at root.
func conformance(root string) (map[string][]string, error) {
	start, err := reach.Kit(root, map[string]bool{"Launch": true, "NeedServer": true})
	if err != nil {
		return nil, err
	}
	tests := map[string][]string{}
	for _, m := range modules {
		of, err := reach.Tests(filepath.Join(root, m), start)
		if err != nil {
			return nil, err
		}
		maps.Copy(tests, of)
	}
	for dir := range tests {
		for _, e := range elsewhere {
			if rel, _ := filepath.Rel(filepath.Join(root, e), dir); !strings.HasPrefix(rel, "..") {
				delete(tests, dir)
			}
		}
	}
	return tests, nil
}

// pattern matches the names of tests.
func pattern(tests map[string][]string) string {
	var names []string
	for _, list := range tests {
		names = append(names, list...)
	}
	slices.Sort(names)
	return "^(" + strings.Join(slices.Compact(names), "|") + ")$"
}

// on runs go with each of these arguments on the server program at path.
func on(path string, commands [][]string) (*run, error) {
	path, err := filepath.Abs(path) // tests run in other folders
	if err != nil {
		return nil, err
	}
	name, version, err := redistest.VersionOf(path)
	if err != nil {
		return nil, err
	}
	r := &run{server: name + " " + version, results: map[test]*result{}}
	fmt.Fprintf(os.Stderr, "%s: running\n", r.server)
	began := time.Now()
	for _, args := range commands {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), redistest.ServerEnv+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		if err := r.read(out, os.Stderr); err != nil {
			return nil, err
		}
		_ = cmd.Wait() // it fails if a test does, which the results say
	}
	r.took = time.Since(began)
	if len(r.results) == 0 {
		return nil, fmt.Errorf("%s: no test ran", r.server)
	}
	return r, nil
}
