// Command servers runs the conformance part of the tests on each of the server programs it is given, and prints what was run and where
// the servers differ. Run it in the module's root:
//
//	go run ./internal/redistest/servers /opt/redis-7.2/redis-server /opt/valkey-8.0/valkey-server
//
// The conformance part is every test of a package of the library, and of ./docs, that starts a server, alone, as a Cluster or
// under sentinels; it is found by names, which may find some more. Without a program it is the one that the tests start otherwise.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/reach"
)

// elsewhere are folders whose tests say nothing of the library on a server: the test kit. Modules of their own are left out, too.
var elsewhere = []string{"internal/redistest"}

func main() {
	only := flag.String("run", "", "of these tests, only those that match this `pattern`, a name or several with | between them")
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
	args := []string{"test", "-json", "-count=1", "-timeout=30m", "-run=" + pattern(tests)}
	if only != "" {
		args[len(args)-1] = "-run=" + only
	}
	if race {
		args = append(args, "-race")
	}
	for dir := range tests {
		args = append(args, "./"+filepath.ToSlash(dir))
	}
	slices.Sort(args[5:])

	var runs []*run
	passed = true
	for _, p := range programs {
		r, err := on(p, args)
		if err != nil {
			return false, err
		}
		runs = append(runs, r)
		passed = passed && len(r.with("fail")) == 0
	}
	fmt.Print(report(runs))
	return passed, nil
}

// conformance returns the tests of each folder of the module at root that start a server.
func conformance(root string) (map[string][]string, error) {
	start, err := reach.Kit(root, map[string]bool{"Launch": true, "NeedServer": true})
	if err != nil {
		return nil, err
	}
	tests, err := reach.Tests(root, start)
	for dir := range tests {
		for _, e := range elsewhere {
			if rel, _ := filepath.Rel(filepath.Join(root, e), dir); !strings.HasPrefix(rel, "..") {
				delete(tests, dir)
			}
		}
	}
	return tests, err
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

// on runs go test with args on the server program at path.
func on(path string, args []string) (*run, error) {
	path, err := filepath.Abs(path) // tests run in other folders
	if err != nil {
		return nil, err
	}
	name, version, err := redistest.VersionOf(path)
	if err != nil {
		return nil, err
	}
	r := &run{server: name + " " + version, results: map[test]*result{}}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), redistest.ServerEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s: running\n", r.server)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := r.read(out, os.Stderr); err != nil {
		return nil, err
	}
	cmd.Wait() // it fails if a test does, which the results say
	r.took = time.Since(began)
	if len(r.results) == 0 {
		return nil, fmt.Errorf("%s: no test ran", r.server)
	}
	return r, nil
}
