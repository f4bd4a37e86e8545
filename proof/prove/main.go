// Command prove runs the proofs for as long as one chooses, and writes a page with what they covered and found.
//
//	make prove FOR=1h                      # the page is bin/prove/COMMIT/page.html
//	go -C proof run ./prove -for 8h -plan  # only show how the time is divided
//
// In a second run of the same commit, chaos, planted faults and simulation go on where they stopped, and tests that
// passed are not run again; the page shows the size that tests had last. If a program is missing, the page says so. The
// exit code is 1 if the page has a failure.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/longrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("prove", flag.ContinueOnError)
	total := flags.Duration("for", 10*time.Minute, "how long the proofs take together")
	to := flags.String("to", "../bin/prove", "the folder of results, with a folder for each commit")
	onlyPlan := flags.Bool("plan", false, "show how the time is divided, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	now := time.Now().UTC().Format("2006-01-02 15:04 UTC")
	all := facts{Version: version(), Machine: machine(), Began: now, For: *total}
	dir, err := filepath.Abs(filepath.Join(*to, all.Version))
	if err != nil {
		return err
	}
	for i, left := 0, *total; i < len(parts); i++ {
		d := share(*total, left, i)
		left -= d
		fmt.Printf("%-15s %8v  %s\n", parts[i].name, d, parts[i].command(d, dir))
	}
	if *onlyPlan {
		return nil
	}
	var found error
	err = errors.Join(os.MkdirAll(dir, 0o755), save(dir, "facts", all))
	for i, began := 0, time.Now(); i < len(parts) && err == nil && ctx.Err() == nil; i++ {
		left := *total - time.Since(began)
		d := share(*total, left, i)
		fmt.Printf("\n== %d of %d: %s for %v; %v left\n", i+1, len(parts), parts[i].name, d, max(left, 0).Round(time.Second))
		if err = parts[i].run(ctx, d, dir); err == nil {
			found, err = writePage(dir)
		}
		if version() != all.Version {
			err = errors.Join(err, errors.New("the checkout has changed; run it again in one that nobody edits"))
		}
	}
	fmt.Printf("\nthe page: %s\n", filepath.Join(dir, "page.html"))
	return cmp.Or(err, ctx.Err(), found)
}

// facts are what all results depend on.
type facts struct {
	Version, Machine, Began string
	For                     time.Duration // of the last run
}

// version is the commit, with a hash of what was changed since.
func version() string {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(commit))
	if changes, _ := exec.Command("git", "diff", "HEAD").Output(); len(changes) > 0 {
		name += fmt.Sprintf("-changed-%.4x", sha256.Sum256(changes))
	}
	return name
}

// machine describes the machine and its server.
func machine() string {
	server := "no redis-server, so tests of a real server were skipped"
	if bin, err := redistest.Program(); err == nil {
		if name, number, err := redistest.VersionOf(bin); err == nil {
			server = name + " " + number
		}
	}
	return fmt.Sprintf("%s, %s, %s/%s, %d processors", server, runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU())
}

// step is what became of a part.
type step struct {
	Command string
	Took    time.Duration // in all runs
	NotRun  string        // why
	Error   string
}

// run runs a part for d. Its output is in a file of dir.
func (p part) run(ctx context.Context, d time.Duration, dir string) error {
	s, began := step{}, time.Now()
	if err := load(dir, p.name, &s); err != nil {
		return err
	}
	if why := p.lacks(d); why != "" {
		fmt.Println("not run:", why)
		if s.Took > 0 {
			return nil // the results of an earlier run stand
		}
		s.NotRun = why
		return save(dir, p.name, s)
	}
	s.Command, s.Error, s.NotRun = p.command(d, dir), "", ""
	out, err := os.Create(filepath.Join(dir, p.name+".out"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", s.Command)
	cmd.Dir = ".."
	// In a group of its own, so that an interrupt reaches the program that go runs, and the program stops its servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Stdout = io.MultiWriter(out, &progress{began: began})
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); ctx.Err() != nil {
		s.NotRun = "interrupted"
	} else if err != nil && !strings.Contains(text(dir, p.name+".out"), longrun.ErrTime.Error()) {
		s.Error = err.Error()
		fmt.Println(p.name, "failed:", err)
	}
	s.Took += max(time.Since(began).Round(time.Second), time.Second)
	return save(dir, p.name, s)
}

// lacks says what a part needs and does not have.
func (p part) lacks(d time.Duration) string {
	for _, program := range p.needs {
		if program == "redis-server" {
			program = cmp.Or(os.Getenv(redistest.ServerEnv), program)
		}
		if _, err := exec.LookPath(program); err != nil {
			return program + " is missing"
		}
	}
	if d < p.least {
		return fmt.Sprintf("its share of the time is %v, and it needs %v; choose a longer FOR", d, p.least)
	}
	return ""
}

// progress prints the lines of an output that say how far the part is.
type progress struct {
	began time.Time
	rest  []byte
}

var telling = regexp.MustCompile(`^(\w+ \d+ of \d+, |--- |ok |FAIL)`)

func (p *progress) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := strings.Cut(string(p.rest), "\n")
		if !whole {
			return len(b), nil
		}
		if p.rest = []byte(rest); telling.MatchString(line) {
			fmt.Printf("%7v  %.150s\n", time.Since(p.began).Round(time.Second), line)
		}
	}
}

func save(dir, name string, v any) error {
	b, err := json.Marshal(v)
	return cmp.Or(err, os.WriteFile(filepath.Join(dir, name+".json"), b, 0o644))
}

// load leaves v as it is if nothing was saved.
func load(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return cmp.Or(err, json.Unmarshal(b, v))
}

func text(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return string(b)
}
