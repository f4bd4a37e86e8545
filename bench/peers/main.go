// Command peers measures redlatch and other Go locks on Redis, and etcd, on one machine, round by round, and writes
// a CSV for bench/report.
//
//	go -C bench/peers run .                          # everything, three rounds, ten minutes; out/results.csv
//	go -C bench/peers run . -rounds 7                # what is published, a quarter of an hour
//	go -C bench/peers run . -quick                   # a first look
//	go -C bench/peers run . -workloads contended -waiters 64 -peers redlatch,rueidislock
//	go -C bench/peers run . -workloads uncontended,contended,handover,semaphore,readwrite,fair -processes 2 -crowd 2 -waiters 16,64 -duration 2s -peers "redlatch,redisson,redisson's driver,rsemaphore.Semaphore,RPermitExpirableSemaphore,rsemaphore.CountingSemaphore,RSemaphore,rlock.ReadWrite,RReadWriteLock,rlock.Fair,RFairLock" -out ../../docs/benchmarks/redisson.csv
//	go -C bench/peers run . -one-processor -workloads uncontended -goroutines 1 -slice 300ms -rounds 7 -out ../../docs/benchmarks/processor.csv
//	go -C bench/peers run . -workloads impatient -rounds 7 # callers who give up: a table, in no report; about eight minutes
//	go -C bench/peers run . -rounds 7 -out ../../docs/benchmarks/results.csv && go -C bench run ./report
//
// Every measurement has a redis-server of its own and processes of its own: this program, run again. While it measures
// it checks: all processes of a contended run share a page of memory where each sees who is inside, and a counter that
// only the lock protects.
//
// The workload impatient is measured only if it is named. Its 64 callers, in 4 processes, want one lock; each gives up
// when its patience ends, by a deadline, by a cancelled context or by the waitTime that it gave, and asks again at
// once. The table on standard output has the median rate of each peer, its ratio to the best one of another library,
// and the longest time in which no worker held the lock. If that is more than 100 ms for one of ours, the program says
// where, and exits with 1. "A sleeper late" is how late, in the same round, a goroutine of this program woke that slept
// for 1 ms: on a machine that is not idle, compare it with the idle time.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/bench/internal/results"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		if err := work(role, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// described is the command as others would give it: where its results went is of no interest to them.
func described(flags *flag.FlagSet) string {
	s := "go -C bench/peers run ."
	flags.Visit(func(f *flag.Flag) {
		switch {
		case f.Name == "out":
		case f.Value.String() == "true":
			s += " -" + f.Name
		default:
			s += fmt.Sprintf(" -%s %q", f.Name, f.Value.String())
		}
	})
	return s
}

func command(args []string) error {
	cfg := defaults()
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	flags.Bool("quick", false, "short and few rounds, for a first look; other flags count over it")
	out := flags.String("out", filepath.Join("out", "results.csv"), "the CSV to write")
	flags.BoolVar(&cfg.OneProcessor, "one-processor", false,
		"run clients and servers on one processor: a rate is then one over what both sides take of it")
	list := flags.Bool("list", false, "list peers and workloads, measure nothing")
	flags.Var(names{&cfg.Peers}, "peers", "which peers")
	flags.Var(names{&cfg.Workloads}, "workloads", "which workloads")
	flags.Var(numbers{&cfg.Goroutines}, "goroutines", "uncontended, claims: how many")
	flags.Var(numbers{&cfg.Waiters}, "waiters", "contended: how many workers in all")
	flags.Var(numbers{&cfg.Processes}, "processes", "contended: in how many processes")
	flags.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "how often everything is measured")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "contended: how long each is measured")
	flags.IntVar(&cfg.Crowd, "crowd", cfg.Crowd, "semaphore, readwrite, fair, impatient: in how many processes")
	flags.DurationVar(&cfg.Queued, "queued", cfg.Queued, "semaphore, readwrite, fair: how long each is measured")
	flags.Var(durations{&cfg.Patience}, "patience", "impatient: how long callers wait, half to one and a half of it")
	flags.DurationVar(&cfg.Impatient, "impatient", cfg.Impatient, "impatient: how long each is measured")
	flags.DurationVar(&cfg.Slice, "slice", cfg.Slice, "uncontended, claims: one turn of each")
	flags.DurationVar(&cfg.Handover, "handover", cfg.Handover, "handover: how long each is measured")
	flags.DurationVar(&cfg.Renewal, "renewal", cfg.Renewal, "renewal: the lease, and how long each is watched")
	flags.IntVar(&cfg.Held, "held", cfg.Held, "renewal: how many locks")
	for _, a := range args { // before the others, which then count over it
		if strings.TrimLeft(a, "-") == "quick" || strings.TrimLeft(a, "-") == "quick=true" {
			cfg.quick()
		}
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, p := range peers {
			fmt.Printf("%-24s %s; %s\n", p.Name, p.Module, p.How)
		}
		for _, w := range workloads {
			fmt.Printf("%-24s %s\n", w.Name, w.What)
		}
		return nil
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if err := cfg.begin(); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	start := time.Now()
	f := &results.File{}
	var err error
	if f.Facts, err = facts(ctx, cfg, described(flags)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{cfg: cfg, dir: dir}
	rows, broken := b.run(ctx, &progress{w: os.Stderr})
	if broken != nil && len(rows) == 0 {
		return broken
	}
	f.Rows = rows
	if broken != nil {
		f.Facts = append(f.Facts, results.Fact{Name: "incomplete", Value: oneLine(broken.Error())})
	}
	f.Facts = append(f.Facts, results.Fact{Name: "load after", Value: loadAverage()},
		results.Fact{Name: "took", Value: time.Since(start).Round(time.Second).String()})
	if err := f.Save(*out); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d rows in %s, %v\n", len(rows), *out, time.Since(start).Round(time.Second))
	return cmp.Or(broken, stalls(rows))
}

// stalls tells of the slowest windows and of impatient callers, and returns where one of ours stood still.
func stalls(rows []results.Row) error {
	lines, empty := worst(rows)
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, line)
	}
	if idle := impatience(os.Stdout, rows); len(idle) > 0 {
		return fmt.Errorf("idle for more than %v while callers waited: %s", longestIdle, strings.Join(idle, "; "))
	}
	if empty > 0 {
		return fmt.Errorf("in %d windows redlatch served no worker", empty)
	}
	return nil
}
