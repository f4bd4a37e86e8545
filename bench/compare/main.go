// Command compare says what got slower between two commits of this repository. It builds the benchmarks of both, runs them in turns,
// round by round, so that whatever else the machine does meets both alike, and prints the medians of what can be compared.
//
//	go run ./bench/compare                                    # HEAD against the files as they are, about five minutes
//	go run ./bench/compare -old main -new my-branch
//	go run ./bench/compare -bench 'Uncontended/redlatch' -rounds 15
//	go run ./bench/compare -in ./rsemaphore -bench .
//
// A figure got slower, or faster, if its values before and after differ by more than chance explains (Mann-Whitney's U test, 5 %) and
// the median of the ratios within the rounds by -least or more. One in twenty comparisons of noise passes the test, fewer both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		cancel()
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// config is what is compared, and how.
type config struct {
	repository string
	old, new   string // commits; "": the files as they are
	in         string
	bench      string
	benchtime  time.Duration
	rounds     int
	least      float64
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	cfg := config{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&cfg.repository, "C", ".", "the repository")
	flags.StringVar(&cfg.old, "old", "HEAD", "the commit before")
	flags.StringVar(&cfg.new, "new", "", "the commit after; empty: the files as they are")
	flags.StringVar(&cfg.in, "in", "./bench", "the package with the benchmarks")
	flags.StringVar(&cfg.bench, "bench", "Uncontended|Permits|Claims|Reservations", "which benchmarks, as go test has it")
	flags.DurationVar(&cfg.benchtime, "benchtime", 200*time.Millisecond, "how long each is measured in a round")
	flags.IntVar(&cfg.rounds, "rounds", 7, "how many rounds, at least 4")
	flags.Float64Var(&cfg.least, "least", 0.03, "the smallest change that is called one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if cfg.rounds < 4 || cfg.benchtime <= 0 || cfg.least < 0 {
		return errors.New("rounds must be 4 or more, or nothing is beyond chance; benchtime positive; least 0 or more")
	}
	return cfg.run(ctx, out, progress)
}

// run builds both, measures them in turns and prints the comparison.
func (cfg config) run(ctx context.Context, out, progress io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var sides [2]side
	for i, commit := range []string{cfg.old, cfg.new} {
		if sides[i], err = cfg.build(ctx, filepath.Join(dir, []string{"old", "new"}[i]), commit); err != nil {
			return err
		}
		fmt.Fprintf(progress, "built %s\n", sides[i].name)
	}
	groups, err := cfg.groups(ctx, sides)
	if err != nil {
		return err
	}
	var c comparison
	began, done, all := time.Now(), 0, cfg.rounds*len(groups)*2
	for round := range cfg.rounds {
		for _, group := range groups {
			for turn := range 2 {
				which := (round + turn) % 2 // the other one goes first in the next round
				fmt.Fprintf(progress, "[%d/%d left %v] round %d %s %s\n", done+1, all, left(began, done, all), round+1, group, sides[which].name)
				text, err := cfg.measure(ctx, sides[which], group)
				if err != nil {
					return err
				}
				c.add(which, round, text)
				done++
			}
		}
	}
	return c.write(out, sides[0].name, sides[1].name, cfg.least)
}

func left(began time.Time, done, all int) time.Duration {
	if done == 0 {
		return 0
	}
	return (time.Since(began) / time.Duration(done) * time.Duration(all-done)).Round(time.Second)
}

// side is the test program of a commit.
type side struct {
	name, program, dir string
}

// build makes it. A commit's files are unpacked into dir: the repository itself is not touched.
func (cfg config) build(ctx context.Context, dir, commit string) (side, error) {
	s := side{name: commit, program: dir + ".test", dir: cfg.repository}
	if commit == "" {
		s.name = "the files"
	} else {
		s.dir = dir
		if err := os.Mkdir(dir, 0o777); err != nil {
			return s, err
		}
		files := dir + ".tar"
		if _, err := run(ctx, cfg.repository, "git", "archive", "-o", files, commit+"^{commit}"); err != nil {
			return s, err
		}
		if _, err := run(ctx, dir, "tar", "-xf", files); err != nil {
			return s, err
		}
	}
	if _, err := run(ctx, s.dir, "go", "test", "-c", "-o", s.program, cfg.in); err != nil {
		return s, err
	}
	s.dir = filepath.Join(s.dir, cfg.in) // where go test would run it
	return s, nil
}

// groups are the benchmarks of both sides that -bench wants: those of a group are measured in one turn.
func (cfg config) groups(ctx context.Context, sides [2]side) ([]string, error) {
	top, _, _ := strings.Cut(cfg.bench, "/")
	has := [2]map[string]bool{{}, {}}
	var groups []string
	for i, s := range sides {
		text, err := run(ctx, s.dir, s.program, "-test.list", top)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(text) {
			if !strings.HasPrefix(name, "Benchmark") {
				continue
			}
			has[i][name] = true
			if has[0][name] && has[1][name] {
				groups = append(groups, name)
			}
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("no benchmark of both matches %q", cfg.bench)
	}
	return groups, nil
}

// measure runs one group of a side once, and returns what it printed.
func (cfg config) measure(ctx context.Context, s side, group string) (string, error) {
	_, rest, sub := strings.Cut(cfg.bench, "/")
	pattern := "^" + group + "$"
	if sub {
		pattern += "/" + rest
	}
	return run(ctx, s.dir, s.program, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", cfg.benchtime.String(), "-test.benchmem")
}

func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s%s", filepath.Base(program), strings.Join(args, " "), err, text, errs.String())
	}
	return string(text), nil
}
