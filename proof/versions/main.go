// Command versions runs the tests that need a server on one server program, and writes its row of docs/versions.md.
//
//	REDLATCH_SERVER=/opt/valkey-9.1/valkey-server go -C proof run ./versions
//
// The tests that need a server are among those that -short skips. A case of a test is of a Cluster if its name says
// Cluster or Slot. A test that fails is run once more alone. The servers of the page are those of
// .github/workflows/servers.yml. The exit code is 1 if a test fails both times.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/redistest"
)

const (
	page     = "../docs/versions.md"
	workflow = "../.github/workflows/servers.yml"
)

func main() {
	packages := flag.String("packages", "./...", "the tests of these `packages` of the library, separated by spaces")
	flag.Parse()
	if err := run(strings.Fields(*packages)); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func run(packages []string) error {
	bin, err := redistest.Program()
	if err != nil {
		return err
	}
	name, version, err := redistest.VersionOf(bin)
	if err != nil {
		return err
	}
	short, err := test("", append([]string{"-short"}, packages...))
	if err != nil {
		return err
	}
	all, err := test(bin, append([]string{"-count=1", "-run", anyOf(short.ended("skip"))}, packages...))
	if err != nil {
		return err
	}
	// Once more and alone: on a busy machine a test may take longer than its bound.
	if failed := all.ended("fail"); failed != nil {
		again, err := test(bin, append([]string{"-count=1", "-p=1", "-parallel=1", "-run", anyOf(failed)}, packages...))
		if err != nil {
			return err
		}
		maps.Copy(all, again)
	}
	commit, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return err
	}
	row := fmt.Sprintf("| %s %s | %s | %s | `%s` |", name, version, all.passed(false), all.passed(true),
		strings.TrimSpace(string(commit)))
	fmt.Printf("%s\n%s\n", head, row)
	if err := write(row); err != nil {
		return err
	}
	if failed := all.ended("fail"); failed != nil {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

func anyOf(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// outcomes are how each test and each case ended: pass, fail or skip.
type outcomes map[string]string

// test runs tests of the library on a server program. Without one it is the same for every server, and Go's cache has
// the results.
func test(server string, args []string) (outcomes, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-timeout=40m"}, args...)...)
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "REDLATCH_") })
	if server != "" {
		cmd.Env = append(cmd.Env, redistest.ServerEnv+"="+server)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	all, err := read(out)
	if wrong := cmd.Wait(); all.ended("fail") == nil { // a package that does not build, say
		err = cmp.Or(err, wrong)
	}
	return all, err
}

// read reads what go test -json says, and repeats what failed tests said.
func read(out io.Reader) (outcomes, error) {
	all, said := outcomes{}, map[string]string{}
	for lines := json.NewDecoder(bufio.NewReader(out)); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := lines.Decode(&e); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		name := e.Package + " " + e.Test
		switch {
		case e.Action == "output":
			said[name] += e.Output
		case e.Test == "":
		case e.Action == "fail":
			fmt.Fprint(os.Stderr, said[name])
			all[name] = e.Action
		case e.Action == "pass" || e.Action == "skip":
			all[name] = e.Action
			delete(said, name)
		}
	}
}

// ended are the tests that ended so, or a case of which did.
func (o outcomes) ended(action string) (tests []string) {
	for name, a := range o {
		_, test, _ := strings.Cut(name, " ")
		test, _, _ = strings.Cut(test, "/")
		if a == action && !slices.Contains(tests, test) {
			tests = append(tests, test)
		}
	}
	slices.Sort(tests)
	return tests
}

var ofCluster = regexp.MustCompile(`(?i)cluster|slot`)

// passed says how many cases passed, of those that ran on one node or on a Cluster. A test with cases is none itself.
func (o outcomes) passed(onCluster bool) string {
	parents := map[string]bool{}
	for name := range o {
		for i, c := range name {
			if c == '/' {
				parents[name[:i]] = true
			}
		}
	}
	passed, ran := 0, 0
	for name, action := range o {
		_, test, _ := strings.Cut(name, " ")
		if parents[name] || action == "skip" || ofCluster.MatchString(test) != onCluster {
			continue
		}
		ran++
		if action == "pass" {
			passed++
		}
	}
	return fmt.Sprintf("%d of %d", passed, ran)
}

const head = "| server | one node | Cluster | commit |\n|---|--:|--:|---|"

// write puts a row into the page.
func write(row string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	list, err := os.ReadFile(workflow)
	if err != nil {
		return err
	}
	changed, err := update(string(text), branches(string(list)), row)
	return cmp.Or(err, os.WriteFile(page, []byte(changed), 0o644))
}

var image = regexp.MustCompile(`'(?:valkey/)?(redis|valkey):(\d+\.\d+)'`)

// branches are the servers of the workflow, as "Redis 7.0".
func branches(workflow string) (list []string) {
	for _, m := range image.FindAllStringSubmatch(workflow, -1) {
		list = append(list, strings.ToUpper(m[1][:1])+m[1][1:]+" "+m[2])
	}
	return list
}

// update makes the table of a page anew: a row for each branch, row in place of the branch's former one.
func update(page string, branches []string, row string) (string, error) {
	before, after, ok := strings.Cut(page, head+"\n")
	if !ok {
		return page, errors.New("the page has no such table")
	}
	rows, rest, _ := strings.Cut(after, "\n\n")
	table := strings.Split(rows, "\n")
	of := func(rows []string, branch string) string {
		for _, r := range rows {
			if strings.HasPrefix(r, "| "+branch+".") {
				return r
			}
		}
		return ""
	}
	known := row == ""
	var lines []string
	for _, b := range branches {
		known = known || of([]string{row}, b) != ""
		lines = append(lines, cmp.Or(of([]string{row}, b), of(table, b), "| "+b+" | not tried | not tried | |"))
	}
	if !known {
		return page, fmt.Errorf("%s does not list the server of %s", workflow, row)
	}
	return before + head + "\n" + strings.Join(lines, "\n") + "\n\n" + rest, nil
}
