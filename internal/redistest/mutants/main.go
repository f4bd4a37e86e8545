// The program mutants plants faults in the library, one after the other, and says which of them no test notices: those
// are holes in the tests. Each fault is a text of a file of Go or Lua that stands for another, and names the test that
// fails with it. Nothing is written to the tree: the go command compiles the planted text in the file's place
// (-overlay).
//
//	go run ./internal/redistest/mutants                  # all: some minutes
//	go run ./internal/redistest/mutants -only lease      # those whose name or file has the word
//	go run ./internal/redistest/mutants -sample 4        # some, others every day
//	go run ./internal/redistest/mutants -log FILE        # all that FILE does not have yet, and add them to it
//	go run ./internal/redistest/mutants -list
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest/reach"
)

// mutant is a fault.
type mutant struct {
	name     string
	file     string // from the root of the module
	old, new string // old stands in the file once
	breaks   string // the promise
	pkg      string // whose tests are run
	tests    string // and which of them, "A B": at least one fails
}

// verdict is what became of a mutant.
type verdict struct {
	Killed bool
	By     []string // the tests that failed
	Took   time.Duration
}

func main() {
	only := flag.String("only", "", "mutants whose name or file contains one of `WORDS`, separated by commas")
	sample := flag.Int("sample", 0, "`N` of them, others every day")
	list := flag.Bool("list", false, "list them in Markdown, and run nothing")
	log := flag.String("log", "", "go on from `FILE`, and add to it")
	show := flag.Bool("show", false, "print what the tests say")
	tests := flag.String("tests", "", "run the tests that match `REGEXP` in place of those that are named")
	flag.Parse()
	chosen := choose(mutants(), *only, *sample, time.Now())
	for i := range chosen {
		if *tests != "" {
			chosen[i].tests = *tests
		}
	}
	if *list {
		text, err := table(".", chosen)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(text)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := runAll(ctx, chosen, *log, *show)
	for _, m := range survivors {
		fmt.Printf("SURVIVED: %s (%s): %s\n", m.name, m.file, m.breaks)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || len(survivors) > 0 {
		os.Exit(1)
	}
}

// mutants are all, in the order of the packages.
func mutants() []mutant {
	return slices.Concat(ofLease, ofWait, ofTenures, ofCalls, ofLocks, ofElections, ofReadWrite, ofFair, ofPermits,
		ofLatches, ofCounters, ofStocks, ofLedgers)
}

// choose returns those that are asked for. A sample is another one every day. It stands together in the list, because
// faults in the scripts of one package share what is compiled.
func choose(all []mutant, only string, sample int, now time.Time) (chosen []mutant) {
	for _, m := range all {
		if slices.ContainsFunc(strings.Split(only, ","), func(word string) bool {
			return strings.Contains(m.name, word) || strings.Contains(m.file, word)
		}) {
			chosen = append(chosen, m)
		}
	}
	if sample <= 0 || sample >= len(chosen) {
		return chosen
	}
	var some []mutant
	for i := range sample {
		some = append(some, chosen[(now.YearDay()*sample+i)%len(chosen)])
	}
	return some
}

func runAll(ctx context.Context, chosen []mutant, log string, show bool) (survivors []mutant, err error) {
	done, survivors := logged(chosen, log)
	b, end, err := newBench(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	began := time.Now()
	for i, m := range chosen {
		if done[m.name] {
			continue
		}
		v, bad := b.run(ctx, &m, show, false)
		for try := 1; try < tries && bad == nil && !v.Killed; try++ { // some faults show only when things happen in one order
			v, bad = b.run(ctx, &m, show, try == tries-1)
		}
		if ctx.Err() != nil {
			return survivors, ctx.Err()
		}
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		word := "killed"
		if !v.Killed {
			word = "SURVIVED"
			survivors = append(survivors, m)
		}
		fmt.Printf("%3d of %d, %4.0f s: %-8s %-44s %4.1f s  %s\n", i+1, len(chosen), time.Since(began).Seconds(), word,
			m.name, v.Took.Seconds(), strings.Join(v.By, " "))
		if bad := note(log, word, m.name); bad != nil {
			return survivors, bad
		}
	}
	return survivors, err
}

// logged reads what an earlier run wrote to log: which mutants are done, and which of those chosen survived.
func logged(chosen []mutant, log string) (done map[string]bool, survivors []mutant) {
	done = map[string]bool{}
	if log == "" {
		return done, nil
	}
	text, _ := os.ReadFile(log)
	for line := range strings.Lines(string(text)) {
		word, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		done[name] = true
		if i := slices.IndexFunc(chosen, func(m mutant) bool { return m.name == name }); i >= 0 && word != "killed" {
			survivors = append(survivors, chosen[i])
		}
	}
	return done, survivors
}

// note writes to log, if there is one, what became of the mutant of that name.
func note(log, word, name string) error {
	if log == "" {
		return nil
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintln(f, word, name)
	return f.Close()
}

// tries is how often a mutant survives before it counts. The last time its tests run in full: tests that walk at random
// walk farther then.
const tries = 3

// limit is for how long the tests of a mutant run, or run in full: some mutants make them wait forever.
const limit, limitInFull = 30 * time.Second, 5 * time.Minute

// bench compiles the tests of packages, in a folder of its own.
type bench struct {
	root, work string
	plain      map[string]string // package -> its tests, which plant in Lua what they are given: see planting.go
}

func newBench(ctx context.Context) (b *bench, end func(), err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/redlatch/redlatch").Output()
	if err != nil {
		return nil, nil, err
	}
	work, err := os.MkdirTemp("", "redlatch-mutants-")
	return &bench{root: strings.TrimSpace(string(out)), work: work, plain: map[string]string{}}, func() {
		_ = os.RemoveAll(work) // under the system's temporary directory
	}, err
}

// compile makes the program of a package's tests, with other texts in the place of files.
func (b *bench) compile(ctx context.Context, pkg string, texts map[string][]byte) (string, error) {
	dir, err := os.MkdirTemp(b.work, "")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(b.root, file)] = to
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", bin,
		"./"+pkg)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
}

// program makes the tests in which m is planted. Those of a package are the same for all its mutants in Lua.
func (b *bench) program(ctx context.Context, m *mutant, text []byte) (bin string, env []string, err error) {
	if !strings.HasSuffix(m.file, ".lua") {
		bin, err = b.compile(ctx, m.pkg, map[string][]byte{m.file: text})
		return bin, nil, err
	}
	if bin = b.plain[m.pkg]; bin == "" {
		texts, err := planting(b.root)
		if err != nil {
			return "", nil, err
		}
		if bin, err = b.compile(ctx, m.pkg, texts); err != nil {
			return "", nil, err
		}
		b.plain[m.pkg] = bin
	}
	_, name, _ := strings.Cut(m.file, "/lua/")
	return bin, []string{"REDLATCH_MUTANT_FILE=lua/" + name, "REDLATCH_MUTANT_OLD=" + m.old,
		"REDLATCH_MUTANT_NEW=" + m.new}, nil
}

// run runs the tests with the fault in its place.
func (b *bench) run(ctx context.Context, m *mutant, show, long bool) (*verdict, error) {
	began := time.Now()
	text, err := m.plant(b.root)
	if err != nil {
		return nil, err
	}
	bin, env, err := b.program(ctx, m, text)
	if err != nil {
		return nil, fmt.Errorf("%s does not compile: %w", m.name, err)
	}
	full, err := inFull(b.root, m.pkg)
	if err != nil {
		return nil, err
	}
	most := limit
	if long || m.inFull(full) {
		env, most = append(env, "REDLATCH_LONG=1"), limitInFull
	}
	test := exec.CommandContext(ctx, bin, "-test.timeout", most.String(), "-test.run",
		"^("+strings.ReplaceAll(m.tests, " ", "|")+")$")
	test.Dir, test.Env = filepath.Join(b.root, m.pkg), append(os.Environ(), env...)
	out, err := test.CombinedOutput()
	if show {
		_, _ = os.Stdout.Write(out) // there is no other place to say so
	}
	v := &verdict{Killed: err != nil, Took: time.Since(began)}
	if err == nil && (bytes.Contains(out, []byte("no tests to run")) || !bytes.Contains(out, []byte("PASS"))) {
		return nil, fmt.Errorf("%s: %s has no test %s:\n%s", m.name, m.pkg, m.tests, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			v.By = append(v.By, strings.Fields(name)[0])
		} else if strings.HasPrefix(line, "panic: ") && v.By == nil {
			v.By = append(v.By, strings.TrimSpace(line))
		}
	}
	if v.Killed && v.By == nil {
		return nil, fmt.Errorf("%s: the tests of %s fail without saying which:\n%s", m.name, m.pkg, out)
	}
	return v, nil
}

// plant returns the file's text with the fault in it.
func (m *mutant) plant(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 || m.old == m.new {
		return nil, fmt.Errorf("%s: what it changes stands in %s %d times, and must stand there once:\n%s", m.name, m.file,
			n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// inFull are the tests of a package that run in full only.
func inFull(root, pkg string) (map[string]bool, error) {
	p, err := reach.Read(filepath.Join(root, pkg), "_test.go")
	return p.Users(map[string]bool{"redistest.InFull": true}), err
}

// inFull reports whether no test that notices m runs but in full.
func (m *mutant) inFull(full map[string]bool) bool {
	for _, name := range strings.Fields(m.tests) {
		if !full[name] {
			return false
		}
	}
	return true
}

// table is Markdown. root is the module's.
func table(root string, all []mutant) (string, error) {
	var b strings.Builder
	b.WriteString("| fault | in | the promise that it breaks | noticed by | which runs in |\n|---|---|---|---|---|\n")
	for _, m := range all {
		full, err := inFull(root, m.pkg)
		if err != nil {
			return "", err
		}
		step := "`go test ./...`"
		if m.inFull(full) {
			step = "`.ci/run`, in full"
		}
		var tests []string
		for _, t := range strings.Fields(m.tests) {
			tests = append(tests, "`"+t+"`")
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s in `%s` | %s |\n", m.name, m.file, m.breaks, strings.Join(tests, ", "), m.pkg,
			step)
	}
	return b.String(), nil
}
